"""The display of a run: the live view on a terminal, and one line for each item that ends."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcomeUnknownError,
    Hook,
    JournalError,
    NotSentError,
)
from agentjobs_async.batch import ActiveItem, BatchResult, BatchStats, Journal, Limits, Outcome, State
from agentjobs_async.batch._estimates import End, end_of
from agentjobs_async.batch._monitoring import longest_queue
from agentjobs_async.batch._progress import SLOTS_KEPT, is_held
from agentjobs_async.batch._store.claims import is_limit
from agentjobs_async.cli._output.hints import unknown_items
from agentjobs_async.cli._output.lines import Lines
from agentjobs_async.cli._output.live import live_view
from agentjobs_async.cli._output.notices import show_hints
from agentjobs_async.cli._output.outcomes import described
from agentjobs_async.cli._output.results import Result, run_result
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli._output.view import ACTIVE, Active, View, clock, in_one_line
from agentjobs_async.cli.hooks import ItemChanges, Polls, Watched

_COUNT_SECONDS: Final = 0.5  # between two counts of the rows
_REST_PER_COUNT: Final = 20.0  # counting takes at most a twentieth of the database's time
_QUIET_SECONDS: Final = 60.0  # after which a log shows that the run is alive


class RunDisplay:
    """Shows a run.

    Args:
        screen: The screen to write to.
        lines: Shows each change and each end.

    Attributes:
        hooks: The hooks that the session of the run needs.
        timed_out: The results of this run whose time was up, by key.
        advice: What to do about the errors of this run, and for how many items each advice is.
        refused: The first error of an item whose job can't be read since the key is refused; `None` without one.
    """

    def __init__(self, screen: Screen, lines: Lines) -> None:
        self._screen = screen
        self._lines = lines
        self._limits = Limits()
        self._polls = Polls()
        self._changes = ItemChanges(lines.change) if lines.shows_changes else None
        self.hooks: list[Hook] = [self._polls, *([self._changes] if self._changes else [])]
        self.timed_out: dict[str, Result] = {}
        self.advice: Counter[str] = Counter()
        self.refused: AuthError | None = None
        self._run: Watched | None = None
        self._counts: Mapping[State, int] = {}
        self._kept_by = 0
        self._queue = 0
        self._started = self._last_line_at = time.monotonic()

    @asynccontextmanager
    async def shown(self, run: Watched, journal: Journal) -> AsyncIterator[None]:
        """Show the live view inside the block, if there is a terminal."""
        self._run = run
        if self._changes is not None:
            self._changes.begin(run)  # at once: no event has come yet
        await self._count(journal)
        counting = asyncio.create_task(self._count_again_and_again(run, journal))
        try:
            async with self._screen.live_view(lambda width, height: live_view(self._view(run), width, height)):
                yield
        finally:
            self._run = None
            counting.cancel()

    def show_result(self, result: BatchResult) -> None:
        """Show how an item ended."""
        self._last_line_at = time.monotonic()
        if result.row is not None:
            self._count_end(result.row.state)
        shown = run_result(result)
        self.advice.update([shown.advice] if shown.advice else [])
        if self.refused is None and isinstance(result.error, AuthError):
            self.refused = result.error
        if self._changes is not None and result.ref is not None:
            self._changes.end(result.ref, result.row)
        if result.outcome is Outcome.TIMED_OUT:
            self.timed_out[result.item.key] = shown
        self._lines.end(shown)

    def show_silence(self, base_url: str | None) -> bool:
        """Show that the server has not answered so far, and return `True`, if anything was asked of it."""
        if self._run is None:
            return False
        asked = any(item.state is not State.PLANNED for item in self._run.active())
        asked = asked or isinstance(self._run.stats().paused_by, NotSentError | CreateOutcomeUnknownError)
        if asked:
            self._screen.notice(f"No answer from {base_url} so far; still trying.")
        return asked

    async def _count_again_and_again(self, run: Watched, journal: Journal) -> None:
        seconds = 0.0
        while True:
            await asyncio.sleep(max(_COUNT_SECONDS, _REST_PER_COUNT * seconds))
            started = time.monotonic()
            with suppress(JournalError):  # the view keeps the old counts; the run itself reports the error
                await self._count(journal)
                await self._show_kept_slots(run.stats(), journal)
            seconds = time.monotonic() - started
            self._show_life(run)

    async def _count(self, journal: Journal) -> None:
        self._counts = await journal.counts()
        self._limits = await journal.limits()
        self._queue = await longest_queue(journal, self._limits, self._counts)

    def _count_end(self, state: State) -> None:
        """Count an end that is shown at once: the journal is counted from time to time."""
        was = next((each for each in ACTIVE if self._counts.get(each)), None)
        if was is not None and not state.is_open:
            self._counts = {**self._counts, was: self._counts[was] - 1, state: self._counts.get(state, 0) + 1}

    async def _show_kept_slots(self, stats: BatchStats, journal: Journal) -> None:
        """Show that nothing is sent because unknown items keep all slots, and how they are settled: once for them."""
        reason, unknown = stats.paused_by, self._counts[State.UNKNOWN]
        if not isinstance(reason, AgentJobsError) or reason.message != SLOTS_KEPT or unknown == self._kept_by:
            return
        self._kept_by, self._last_line_at = unknown, time.monotonic()
        now = time.time()
        until = "" if stats.next_create is None else f" before {clock(now + stats.next_create, now)}"
        self._screen.notice(
            f"Nothing is sent{until}: unknown items keep all slots of --max-active, since their agents may be at work."
            " To continue at once, stop this command, settle them, and resume; with --unknown-for 0 they keep no slot."
        )
        show_hints(self._screen, unknown_items(await journal.unknown(), journal.address))

    def _show_life(self, run: Watched) -> None:
        """Write a line to a log in which nothing was written for a minute."""
        if not self._screen.shows_live_view and time.monotonic() - self._last_line_at >= _QUIET_SECONDS:
            self._last_line_at = time.monotonic()
            self._screen.notice(in_one_line(self._view(run)))

    def _view(self, run: Watched) -> View:
        stats = run.stats()
        # Those whose jobs have ended are left out: their ends may still be on their way to the journal.
        active = self._polls.not_ended([item for item in run.active() if item.state is not State.PLANNED])
        failing = self._polls.trouble if active else None
        return View(
            self._counts,
            time.time(),
            active=[_active(item, *self._polls[item.ref]) for item in active],
            end=self._end(active, stats),
            usual=stats.usual,
            elapsed=time.monotonic() - self._started,
            next_create=stats.next_create,
            held_by=_held_by(stats),
            trouble="" if failing is None else f"polls fail: {described(failing)}",
        )

    def _end(self, active: Sequence[ActiveItem], stats: BatchStats) -> End | None:
        """Return when all have ended, as the run knows it; a worker knows its own items only: the journal has all."""
        if stats.ends_in is not None and stats.decided_by is not None:
            return End(stats.ends_in, stats.decided_by, is_least=stats.usual is None)
        if stats.planned is not None or is_held(stats.paused_by):
            return None
        return end_of(
            to_create=self._counts.get(State.PLANNED, 0),
            queue=self._queue,
            ages=[item.age for item in active],
            limits=self._limits,
            usual=stats.usual,
            next_create=stats.next_create or 0.0,
        )


def _held_by(stats: BatchStats) -> str:
    """Return what holds back creates, in words; an empty text for nothing but a limit."""
    if stats.stopped:
        return "too many failures: nothing more is begun"
    return "" if stats.paused_by is None or is_limit(stats.paused_by) else described(stats.paused_by)


def _active(item: ActiveItem, polls: int, pr_link: str | None) -> Active:
    state = State.SENDING if item.state is State.SENDING else State.ACTIVE
    return Active(item.key, item.prompt, state, item.age, polls, pr_link)
