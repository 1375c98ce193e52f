"""The display of a run: the live view on a terminal, and one line for each item that ends."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Final, Protocol

from agentjobs_async import Hook, JournalError
from agentjobs_async.batch import ActiveItem, BatchResult, BatchStats, FleetLimits, Journal, Outcome, State
from agentjobs_async.batch.journal import entries_of
from agentjobs_async.cli._output.live import PollCounts, View, live_lines
from agentjobs_async.cli._output.reports import Report
from agentjobs_async.cli._output.screen import Screen, Styled
from agentjobs_async.cli.documents import result_document
from agentjobs_async.cli.item_changes import ItemChanges
from agentjobs_async.cli.item_results import run_result
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import Result

__all__ = ["RunDisplay", "UnrecordedIds"]

_COUNT_SECONDS: Final = 0.5  # between two counts of the rows
_REST_PER_COUNT: Final = 20.0  # counting takes at most a twentieth of the database's time
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

    Attributes:
        hooks: The hooks that the session of the run needs.
        timed_out: The results of this run whose time was up, by key.
    """

    def __init__(self, screen: Screen, report: Report, out: Out | None) -> None:
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
        self._queue = 0
        self._ended = 0
        self._started = time.monotonic()

    @asynccontextmanager
    async def shown(self, run: Watched, journal: Journal) -> AsyncIterator[None]:
        """Show the live view inside the block, if there is a terminal."""
        self._run = run
        await self._count(journal)
        counting = asyncio.create_task(self._keep_counting(journal))
        changes = nullcontext() if self._changes is None else self._changes.reported(run, journal)
        try:
            async with changes, self._screen.live_view(lambda width, height: self._lines(run, width, height)):
                yield
        finally:
            self._run = None
            counting.cancel()

    async def show_result(self, result: BatchResult, run: Watched, journal: Journal) -> None:
        """Show how an item ended.

        Raises:
            AgentJobsError: The file for results cannot be written.
        """
        self._ended += 1
        row = None
        with suppress(JournalError):  # the result is shown without what the journal knows of it
            row = (await entries_of(journal).get_many([result.item.key])).get(result.item.key)
            if self._changes is not None:
                await self._changes.flush(run, journal)
        shown = run_result(result, row)
        if self._out is not None:
            (self._out.write if result.outcome in _OPEN else self._out.write_once)(result_document(shown))
        if self._changes is not None:
            self._changes.ended(result.ref, row)
        if result.outcome is Outcome.TIMED_OUT:
            self.timed_out[result.item.key] = shown
        self._report.end(shown)

    def show_silence(self, base_url: str | None) -> None:
        """Show that the server has not answered so far, if anything was asked of it."""
        if self._run is not None and (self._run.active() or self._run.stats().paused_by is not None):
            self._screen.notice(f"No answer from {base_url} so far; still trying.")

    async def _keep_counting(self, journal: Journal) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(_COUNT_SECONDS, _REST_PER_COUNT * took))
            started = time.monotonic()
            with suppress(JournalError):  # the view keeps the old counts; the run itself reports the error
                await self._count(journal)
            took = time.monotonic() - started

    async def _count(self, journal: Journal) -> None:
        self._counts = await journal.counts()
        self._limits = await journal.limits()
        rate = self._limits.create_rate
        if rate is not None and rate.scope == "project":
            self._queue = max((await entries_of(journal).planned_counts()).values(), default=0)
        else:
            self._queue = self._counts[State.PLANNED]

    def _lines(self, run: Watched, width: int, height: int) -> Iterator[tuple[Styled, ...]]:
        elapsed, rate = time.monotonic() - self._started, self._limits.create_rate
        view = View(self._counts, self._queue, run.stats(), run.active(), elapsed, self._ended, rate, time.time())
        return live_lines(view, self._polls, width, height)


class UnrecordedIds(logging.Handler):
    """Shows the ids that the journal could not record, because nothing else keeps them."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.CRITICAL)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show the message of a record."""
        self._screen.notice(("Error: ", "bold red"), record.getMessage())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show them while the block runs."""
        logger = logging.getLogger("agentjobs_async.batch")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
