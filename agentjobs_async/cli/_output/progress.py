"""The display of a run: the live view on a terminal, and one line for each item that ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from agentjobs_async import AgentJobsError, CreateOutcomeUnknownError, Hook, JournalError, NotSentError
from agentjobs_async.batch import ActiveItem, BatchResult, BatchStats, FleetLimits, Journal, Outcome, State
from agentjobs_async.batch._run.tasks import SLOTS_KEPT
from agentjobs_async.cli._output.hints import show_unknown
from agentjobs_async.cli._output.live import PollCounts, View, in_one_line, live_lines
from agentjobs_async.cli._output.moments import clock
from agentjobs_async.cli._output.reports import Report
from agentjobs_async.cli._output.screen import Screen, Styled
from agentjobs_async.cli.documents import result_document
from agentjobs_async.cli.estimates import (
    RecentDurations,
    RunEstimate,
    Smoothed,
    earliest_end,
    seconds_to_last_create,
    time_left,
)
from agentjobs_async.cli.item_changes import ItemChanges
from agentjobs_async.cli.item_results import run_result
from agentjobs_async.cli.limits import DEFAULT_ACTIVE
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import Result

_COUNT_SECONDS: Final = 0.5  # between two counts of the rows
_REST_PER_COUNT: Final = 20.0  # counting takes at most a twentieth of the database's time
_QUIET_SECONDS: Final = 60.0  # after which a log shows that the run is alive
_OPEN: Final = frozenset({Outcome.TIMED_OUT, Outcome.UNFINISHED})  # of this run only: a later run may end the item


class Watched(Protocol):
    """A run whose state can be read: a batch or a worker."""

    def stats(self) -> BatchStats:
        """Return the counts of the run."""
        ...

    def active(self) -> Sequence[ActiveItem]:
        """Return the items under way."""
        ...


class RunDisplay:
    """Shows a run.

    Args:
        screen: The screen to write to.
        report: Shows each change and each end.
        out: The file that also receives each result, as a line of JSON; `None` for no file.
        limit: The number of items that the run starts; `None` for all.

    Attributes:
        hooks: The hooks that the session of the run needs.
        timed_out: The results of this run whose time was up, by key.
    """

    def __init__(self, screen: Screen, report: Report, out: Out | None, *, limit: int | None = None) -> None:
        self._screen = screen
        self._report = report
        self._out = out
        self._limits = FleetLimits()
        self._polls = PollCounts()
        self._changes = ItemChanges(report.change) if report.shows_changes else None
        self.hooks: list[Hook] = [self._polls, *([self._changes] if self._changes else [])]
        self.timed_out: dict[str, Result] = {}
        self._run: Watched | None = None
        self._counts: Mapping[State, int] = {}
        self._kept_by = 0
        self._queue = 0
        self._limit = limit
        self._planned_at_first: int | None = None
        self._durations = RecentDurations()
        self._end = Smoothed()
        self._started = self._last_line_at = time.monotonic()

    @asynccontextmanager
    async def shown(self, run: Watched, journal: Journal) -> AsyncIterator[None]:
        """Show the live view inside the block, if there is a terminal."""
        self._run = run
        if self._changes is not None:
            self._changes.run = run  # at once: the run has begun nothing yet
        await self._count(journal)
        counting = asyncio.create_task(self._keep_counting(run, journal))
        try:
            async with self._screen.live_view(lambda width, height: self._lines(run, width, height)):
                yield
        finally:
            self._run = None
            counting.cancel()

    def show_result(self, result: BatchResult) -> None:
        """Show how an item ended.

        Raises:
            AgentJobsError: The file for results cannot be written.
        """
        self._last_line_at = time.monotonic()
        if result.row is not None:
            self._durations.add(result.row)
        shown = run_result(result)
        if self._out is not None:
            (self._out.write if result.outcome in _OPEN else self._out.write_once)(result_document(shown))
        if self._changes is not None and result.ref is not None:
            self._changes.forget(result.ref)
        if result.outcome is Outcome.TIMED_OUT:
            self.timed_out[result.item.key] = shown
        self._report.end(shown)

    def show_silence(self, base_url: str | None) -> None:
        """Show that the server has not answered so far, if anything was asked of it."""
        if self._run is None:
            return
        asked = any(item.state is not State.PLANNED for item in self._run.active())
        if asked or isinstance(self._run.stats().paused_by, NotSentError | CreateOutcomeUnknownError):
            self._screen.notice(f"No answer from {base_url} so far; still trying.")

    async def _keep_counting(self, run: Watched, journal: Journal) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(_COUNT_SECONDS, _REST_PER_COUNT * took))
            started = time.monotonic()
            with suppress(JournalError):  # the view keeps the old counts; the run itself reports the error
                await self._count(journal)
                await self._show_kept_slots(run.stats(), journal)
            took = time.monotonic() - started
            self._show_life(run)

    async def _count(self, journal: Journal) -> None:
        self._counts = await journal.counts()
        if self._planned_at_first is None:
            self._planned_at_first = self._counts[State.PLANNED]
        self._limits = await journal.limits()
        rate = self._limits.create_rate
        if rate is not None and rate.scope == "project":
            self._queue = max((await journal._entries.planned_counts()).values(), default=0)
        else:
            self._queue = self._counts[State.PLANNED]

    async def _show_kept_slots(self, stats: BatchStats, journal: Journal) -> None:
        """Show that nothing is sent because unknown items keep all slots, and how they are settled: once for them."""
        reason, unknown = stats.paused_by, self._counts[State.UNKNOWN]
        if not isinstance(reason, AgentJobsError) or reason.message != SLOTS_KEPT or unknown == self._kept_by:
            return
        self._kept_by, self._last_line_at = unknown, time.monotonic()
        until = "" if stats.next_create is None else f" before {clock(time.time() + stats.next_create)}"
        self._screen.notice(
            f"Nothing is sent{until}: unknown items keep all slots of --max-active, since their agents may be at work."
            " To continue at once, stop this command, settle them, and resume; with --unknown-for 0 they keep no slot."
        )
        show_unknown(self._screen, await journal.unknown(), journal.address)

    def _show_life(self, run: Watched) -> None:
        """Write a line to a log in which nothing was written for a minute."""
        if not self._screen.shows_live_view and time.monotonic() - self._last_line_at >= _QUIET_SECONDS:
            self._last_line_at = time.monotonic()
            self._screen.notice(in_one_line(self._view(run)))

    def _lines(self, run: Watched, width: int, height: int) -> Iterator[tuple[Styled, ...]]:
        return live_lines(self._view(run), self._polls, width, height)

    def _view(self, run: Watched) -> View:
        now, stats, active = time.monotonic(), run.stats(), run.active()
        found = self._estimate(stats, active, now)
        return View(self._counts, stats, active, now - self._started, found, self._durations.median, time.time())

    def _estimate(self, stats: BatchStats, active: Sequence[ActiveItem], now: float) -> RunEstimate | None:
        limits, to_create, next_create = self._limits, self._to_create, stats.next_create or 0.0
        job_seconds = self._durations.median
        ages = [item.age for item in active if item.state is not State.PLANNED]
        found = time_left(
            to_create=to_create,
            queue=self._queue,
            ages=ages,
            max_active=limits.max_active or max(DEFAULT_ACTIVE, len(ages)),
            create_rate=limits.create_rate,
            next_create=next_create,
            job_seconds=job_seconds,
        )
        last_create = seconds_to_last_create(min(self._queue, to_create), limits.create_rate, next_create)
        earliest = earliest_end(to_create=to_create, ages=ages, last_create=last_create, job_seconds=job_seconds)
        return None if found is None else self._end.shown(found, earliest, now)

    @property
    def _to_create(self) -> int:
        """The items that this run is still to send."""
        planned = self._counts.get(State.PLANNED, 0)
        if self._limit is None or self._planned_at_first is None:
            return planned
        return max(min(planned, self._limit - (self._planned_at_first - planned)), 0)
