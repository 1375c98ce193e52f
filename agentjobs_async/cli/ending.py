"""The end of a batch: its counts, what is unknown, which jobs continue, and the command that resumes."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from attrs import frozen

from agentjobs_async import JobRef, JournalError, NotFoundError
from agentjobs_async.batch import Journal, State
from agentjobs_async.batch.states import FAILED, open_in
from agentjobs_async.cli._input.own_journals import count_of_retried
from agentjobs_async.cli._input.prompts import InvalidPrompt
from agentjobs_async.cli._output.hints import (
    resume_command,
    show_advice,
    show_emulator_ends,
    show_jobs,
    show_retry,
    show_unknown,
)
from agentjobs_async.cli._output.lines import Lines
from agentjobs_async.cli._output.outcomes import Outcome, advice_of, exit_code, names_unrecorded
from agentjobs_async.cli._output.results import outcomes_of, row_result
from agentjobs_async.cli.display import RunDisplay
from agentjobs_async.cli.hooks import OpenJobs
from agentjobs_async.cli.process import Context

_READING_SECONDS: Final = 30.0  # for all rows, as below
_LOOK_SECONDS: Final = 5.0  # a database that is gone does not hold up the end
_EMPTY: Final = "The journal holds no items. If it is a copy, copy the file of the original that ends in -wal as well."
_GONE: Final = "the jobs of an earlier emulator ended with it; --retry-failed creates such jobs again"


@frozen
class Ending:
    """What a run shows at its end, in whatever way it ends.

    Attributes:
        context: The screen, and whether a signal stopped the run.
        journal: The open journal.
        jobs: The open jobs of this run.
        lines: What showed the run.
        display: Has the results whose time was up.
        to_resume: The options with which `agentjobs resume` continues in the same way.
        to_wait: Those with which `agentjobs wait` waits for a job; `None` for an emulator of this command.
        max_tries: The tries that an item may have; `None` for any number, 1 where none is tried again.
        is_own: Whether the journal is the run's own, which is shown as a table, and removed when all has ended.
        as_json: Whether the run writes JSON.
    """

    context: Context
    journal: Journal
    jobs: OpenJobs
    lines: Lines
    display: RunDisplay
    to_resume: Sequence[str]
    to_wait: Sequence[str] | None
    max_tries: int | None
    is_own: bool
    as_json: bool

    async def show(self, invalid: Sequence[InvalidPrompt], fault: Exception | None) -> int:
        """Show what the journal holds, and return the exit code.

        Args:
            invalid: The prompts that were refused before they were planned.
            fault: What ended the run early; `None` for nothing.

        Raises:
            Exception: `fault`, after all is shown.
        """
        counts, retried = await self._show_journal(invalid)
        if invalid:  # shown before the first create, perhaps thousands of lines above
            self.context.screen.notice(f"{len(invalid):,} refused, and not in the journal: see the beginning.")
        outcomes = outcomes_of(counts or {}, self.display.timed_out.values())
        outcomes[Outcome.REFUSED] += len(invalid)
        open_anyway = [Outcome.ACTIVE] if counts is None or retried else []
        code = exit_code([*open_anyway, *+outcomes], fault or self.display.refused)
        stopped_with = None if names_unrecorded(fault) else self.context.interruption.exit_code
        self.lines.summary(outcomes, code if stopped_with is None else stopped_with)
        if fault is not None:
            raise fault
        return code

    def last_words(self) -> None:
        """Show, before a second signal ends the process, what nothing else shows."""
        for ref in self.jobs.unrecorded if self.journal._opened.is_at_location else self.jobs.all:
            self.context.screen.write_unbuffered(
                f"{ref.to_token()} was created, and the journal may not have it: keep this."
            )
        if self._outlives_the_command and self.journal._opened.is_at_location:
            self.context.screen.write_unbuffered(f"Resume with: {self._resume_command()}")

    async def _show_journal(self, invalid: Sequence[InvalidPrompt]) -> tuple[Mapping[State, int] | None, int]:
        """Show all but the summary.

        Return the counts of the journal, `None` if it can't be read, and how many failed items this command, given
        again, would send again.
        """
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                counts = await self.journal.counts()
                unknown = await self.journal.unknown()
                retried = await count_of_retried(self.journal, self.max_tries)
        except (JournalError, TimeoutError):
            self._show_jobs(self.jobs.all, "The journal can't be read")
            if self.journal._opened.is_at_location:
                self._offer("When the journal can be read again, resume with:")
            return None, 0
        # An empty one that was there before may be a copy without its log: `tally` says so.
        words = tally(counts) if any(counts.values()) or not invalid else "Nothing was planned."
        await self._show_results(words)
        lasts = self._outlives_the_command or not self.is_own
        show_unknown(self.context.screen, unknown, self.journal.address if lasts else None)
        if not self.journal._opened.is_at_location:
            self._show_jobs(await self._known_jobs(), "The journal was moved, removed or replaced")
        elif open_in(counts):
            self._show_way_on(counts)
        elif not self.is_own or (self._outlives_the_command and (unknown or retried)):  # else it is about to be removed
            self._show_retry(counts, retried)
        return counts, retried

    async def _show_results(self, words: str) -> None:
        """Show all items together where the journal is the run's own, else `words`: the numbers of their states."""
        if self.is_own:
            await self._show_all_items()
        else:
            self.context.screen.notice(words)
        show_advice(self.context.screen, self._advice)

    async def _show_all_items(self) -> None:
        timed_out, results = self.display.timed_out, []
        with suppress(JournalError, TimeoutError):  # what it holds is shown by other means, or its error is
            async with asyncio.timeout(_READING_SECONDS):
                async for page in self.journal.rows().pages():
                    results += [timed_out.get(row.key) or row_result(row) for row in page]
        self.lines.all_results(results)

    @property
    def _advice(self) -> Mapping[str, int]:
        """What to do about the errors of this run, by the number of items; an emulator lacks only what has ended."""
        if not self._is_emulated:
            return self.display.advice
        not_found = advice_of(NotFoundError(404))
        return {_GONE if words == not_found else words: number for words, number in self.display.advice.items()}

    def _show_way_on(self, counts: Mapping[State, int]) -> None:
        if self._is_emulated and counts[State.ACTIVE]:
            show_emulator_ends(self.context.screen)
        if not self.is_own:
            self._offer("Resume with:")
        elif self._outlives_the_command:
            is_sent = any(number for state, number in counts.items() if state is not State.PLANNED)
            twice = "Resume with this; the same run again would create all of them again:"
            self._offer(twice if is_sent else "Nothing was sent. Resume with:")

    def _show_retry(self, counts: Mapping[State, int], retried: int) -> None:
        """Show the command that tries failed items again, if there are any that may have another try."""
        failed = sum(counts[state] for state in FAILED) if self.max_tries == 1 else retried
        bound = [] if self.max_tries in {1, None} else ["--max-tries", str(self.max_tries)]
        show_retry(self.context.screen, self.journal.address, failed, self.to_resume, bound)

    @property
    def _is_emulated(self) -> bool:
        return self.to_wait is None

    @property
    def _outlives_the_command(self) -> bool:
        """Whether the journal is the run's own and can be resumed: an emulator's jobs end with the command."""
        return self.is_own and not self._is_emulated

    def _offer(self, words: str) -> None:
        self.context.screen.notice(words)
        self.context.screen.command(f"  {self._resume_command()}")

    def _resume_command(self) -> str:
        return resume_command(self.journal.address, self.to_resume)

    async def _known_jobs(self) -> list[JobRef]:
        """Return the jobs that continue: those of this run, and those that a removed file still has."""
        refs = dict.fromkeys(self.jobs.all)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                async for row in self.journal.rows(State.ACTIVE):
                    if row.job_id is not None:
                        refs[JobRef(row.project_id, row.job_id)] = None
        except (JournalError, TimeoutError):
            pass
        return list(refs)

    def _show_jobs(self, refs: Sequence[JobRef], reason: str) -> None:
        """Show why the journal is of no use, which jobs continue, and how to wait for them without it."""
        self.context.screen.notice(f"{reason}.")
        show_jobs(self.context.screen, refs, self.to_wait, is_only_record=True)


def tally(counts: Mapping[State, int]) -> str:
    """Return in words how many items are in each state."""
    shown = [f"{number:,} {state}" for state, number in counts.items() if number]
    return ", ".join(shown) or _EMPTY
