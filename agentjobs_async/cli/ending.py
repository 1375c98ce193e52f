"""The end of a batch: how its journal stands, what is unknown, which jobs go on, and the command that goes on."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from agentjobs_async import JobRef, JournalError
from agentjobs_async.batch import Journal, JournalRow, Rate, State
from agentjobs_async.cli._output.hints import resume_command, wait_command
from agentjobs_async.cli._output.screen import shortened
from agentjobs_async.cli.actions import DEFAULT_ACTIVE, DEFAULT_TIMEOUT, Options
from agentjobs_async.cli.documents import summary_event
from agentjobs_async.cli.in_hand import JobsInHand
from agentjobs_async.cli.outcomes import ExitCode, exit_code_of
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.tasks import Refusal, rate_text

__all__ = ["BatchOptions", "Ending", "exit_code_of_counts", "tally"]

_OPEN: Final = (State.PLANNED, State.SENDING, State.CREATED, State.UNKNOWN)
_RESUMED: Final = (State.PLANNED, State.SENDING, State.CREATED)
_SHOWN: Final = 60
_MOST_UNSURE: Final = 20
_LOOK_SECONDS: Final = 5.0  # a database that is gone does not hold up the end
_EMPTY: Final = "The journal is empty. A copy is too, where the original had all in its -wal file: copy that as well."


@frozen
class BatchOptions:
    """What `run` and `resume` are told, beside what all commands are.

    Attributes:
        order: The service, the timeout of each item, and whether a machine reads the output.
        journal: The file.
        out: The file that gets each result as a line of JSON; `None` for none.
    """

    order: Options
    journal: str
    max_active: int
    create_rate: Rate | None
    retry_failed: bool
    limit: int | None
    max_failures: int | None
    out: str | None

    def options(self) -> list[str]:
        """Return the options with which another command goes on in the same way; those with defaults are left out."""
        service, timeout = self.order.service, self.order.timeout
        settings = {
            "--project": service.project_id,
            "--max-active": None if self.max_active == DEFAULT_ACTIVE else self.max_active,
            "--create-rate": None if self.create_rate is None else rate_text(self.create_rate),
            "--timeout": None if timeout == DEFAULT_TIMEOUT else "none" if timeout is None else f"{timeout:g}",
            "--max-failures": self.max_failures,
            "--out": self.out,
        }
        given = [str(word) for pair in settings.items() if pair[1] is not None for word in pair]
        return [*service.options(), *given, *["--json"] * self.order.machine]

    def settings(self, journal: Journal) -> dict[str, Any]:
        """Return the arguments of `run_batch`."""
        return {
            "journal": journal,
            "max_active": self.max_active,
            "create_rate": self.create_rate,
            "timeout": self.order.timeout,
            "max_failures": self.max_failures,
            "limit": self.limit,
        }


class Ending:
    """What is said when a run ends, in whatever way.

    Args:
        context: Where to, and whether the run was stopped.
        order: What the run was told.
        journal: An open one.
        in_hand: The jobs of this run.
    """

    def __init__(self, context: Context, order: BatchOptions, journal: Journal, in_hand: JobsInHand) -> None:
        self._screen = context.screen
        self._interruption = context.interruption
        self._order = order
        self._journal = journal
        self._in_hand = in_hand

    async def summed_up(self, refusals: Sequence[Refusal], fault: Exception | None) -> int:
        """Show how the journal stands, and return the exit code.

        Raises:
            Exception: `fault`, when all is told.
        """
        counts = await self._sum_up()
        code = exit_code_of_counts(counts) if fault is None else exit_code_of(fault)
        code = ExitCode.FAILED if refusals and code == ExitCode.COMPLETED else code
        if self._order.order.machine:
            stopped_with = self._interruption.exit_code
            shown = summary_event(counts or {}, refusals, code if stopped_with is None else stopped_with)
            self._screen.raw_line(json.dumps(shown))
        if fault is not None:
            raise fault
        return code

    def last_words(self) -> None:
        """Tell, before a second signal ends the process, the jobs that no journal has."""
        for ref in self._in_hand.unrecorded if self._journal.is_in_place else self._in_hand.all:
            self._screen.write_unbuffered(f"{ref.to_token()} was created, and the journal may not have it: keep this.")

    async def _sum_up(self) -> Mapping[State, int] | None:
        """Show all but the summary; return the journal's counts, `None` where it can't be read."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                counts = await self._journal.counts()
                unknown = await self._journal.unknown()
        except (JournalError, TimeoutError):
            self._tell_jobs(self._in_hand.all, "The journal can't be read")
            if self._journal.is_in_place:
                self._offer("When the journal can be read again, go on with:")
            return None
        self._screen.notice(tally(counts))
        self._show_unknown(unknown)
        if not self._journal.is_in_place:
            self._tell_jobs(await self._known_jobs(), "The journal was moved, removed or replaced")
        elif any(counts[state] for state in _RESUMED):
            if self._order.order.service.emulated and counts[State.CREATED]:
                self._tell_emulated()
            self._offer("Go on with:")
        return counts

    def _offer(self, words: str) -> None:
        self._screen.notice(words)
        self._screen.command(f"  {resume_command(self._journal.address, self._order.options())}")

    def _show_unknown(self, rows: Sequence[JournalRow]) -> None:
        if rows:
            self._screen.notice("May have started an agent, and nobody can tell; look, then use agentjobs resolve:")
        for row in rows[:_MOST_UNSURE]:
            self._screen.notice(f"  {row.key}: {shortened(row.prompt, _SHOWN)}")
        if len(rows) > _MOST_UNSURE:
            self._screen.notice(f"  … and {len(rows) - _MOST_UNSURE} more: agentjobs status tells all")

    def _tell_emulated(self) -> None:
        words = "The emulator ends with this command, and its jobs with it; a real service's jobs would go on."
        self._screen.notice(words)

    async def _known_jobs(self) -> list[JobRef]:
        """Return the jobs that go on: those in hand, and those that a removed file still tells of while it is open."""
        refs = dict.fromkeys(self._in_hand.all)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                async for row in self._journal.rows(State.CREATED):
                    if row.project_id is not None and row.job_id is not None:
                        refs[JobRef(row.project_id, row.job_id)] = None
        except (JournalError, TimeoutError):
            pass
        return list(refs)

    def _tell_jobs(self, refs: Sequence[JobRef], words: str) -> None:
        """Show which jobs go on, and how to wait for them without a journal."""
        options = self._order.order.wait_options()
        if not refs:
            self._screen.notice(f"{words}.")
        elif options is None:
            self._screen.notice(f"{words}.")
            self._tell_emulated()
        else:
            goes = "1 job goes" if len(refs) == 1 else f"{len(refs)} jobs go"
            self._screen.notice(f"{words}; {goes} on remotely. Keep the ids; wait for them with:")
            self._screen.command(f"  {wait_command([ref.to_token() for ref in refs], options)}")


def exit_code_of_counts(counts: Mapping[State, int] | None) -> ExitCode:
    """Return the code for a journal as a whole; `None` is one that can't be read."""
    if counts is None or any(counts[state] for state in _OPEN):
        return ExitCode.UNFINISHED
    ended = sum(counts.values())
    return ExitCode.COMPLETED if counts[State.COMPLETED] == ended else ExitCode.FAILED


def tally(counts: Mapping[State, int]) -> str:
    """Return in words how many items are in each state."""
    shown = [f"{number} {state}" for state, number in counts.items() if number]
    return ", ".join(shown) or _EMPTY
