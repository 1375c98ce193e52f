"""The display of a run: the live view on a terminal, and one line for each item that ends."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Final, Protocol

from agentjobs_async import JournalError
from agentjobs_async.batch import ActiveItem, BatchResult, BatchStats, Journal, Outcome, Rate, State
from agentjobs_async.batch.journal import entries_of
from agentjobs_async.cli._output.live import PollCounts, View, live_lines
from agentjobs_async.cli._output.screen import Screen, Styled, styled_status
from agentjobs_async.cli.documents import result_event
from agentjobs_async.cli.job_events import JobEvents
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import described

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
        journal: The journal of the run.
        polls: The hook that counts the polls.
        out: The file that also receives each result, as a line of JSON; `None` for no file.
        rate: The rate limit of creates; `None` without one.
        events: Writes the other events of jobs as JSON lines; `None` if the output is for people.
    """

    def __init__(
        self,
        screen: Screen,
        journal: Journal,
        polls: PollCounts,
        out: Out | None,
        rate: Rate | None,
        events: JobEvents | None,
    ) -> None:
        self._screen = screen
        self.journal = journal
        self._polls = polls
        self._out = out
        self._rate = rate
        self._events = events
        self._counts: Mapping[State, int] = {}
        self._queue = 0
        self._ended = 0
        self._started = time.monotonic()

    @asynccontextmanager
    async def shown(self, run: Watched) -> AsyncIterator[None]:
        """Show the live view inside the block, if there is a terminal."""
        await self._count()
        counting = asyncio.create_task(self._keep_counting())
        events = nullcontext() if self._events is None else self._events.written(run, self.journal)
        try:
            async with events, self._screen.live_view(lambda width, height: self._lines(run, width, height)):
                yield
        finally:
            counting.cancel()

    async def show_result(self, result: BatchResult, run: Watched) -> None:
        """Show how an item ended.

        Raises:
            AgentJobsError: The file for results cannot be written.
        """
        self._ended += 1
        row = None
        with suppress(JournalError):  # the result is shown without what the journal knows of it
            row = (await entries_of(self.journal).get_many([result.item.key])).get(result.item.key)
            if self._events is not None:
                await self._events.flush(run, self.journal)
        document = result_event(result, None if row is None else row.number)
        if self._out is not None:
            (self._out.write if result.outcome in _OPEN else self._out.write_once)(document)
        if self._events is None:
            self._screen.line(result.item.key, " ", styled_status(result.outcome), _end_of(result))
        else:
            self._events.ended(result.ref, row)
            self._screen.raw_line(json.dumps(document))

    async def _keep_counting(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(_COUNT_SECONDS, _REST_PER_COUNT * took))
            started = time.monotonic()
            with suppress(JournalError):  # the view keeps the old counts; the run itself reports the error
                await self._count()
            took = time.monotonic() - started

    async def _count(self) -> None:
        self._counts = await self.journal.counts()
        if self._rate is not None and self._rate.scope == "project":
            self._queue = max((await entries_of(self.journal).planned_counts()).values(), default=0)
        else:
            self._queue = self._counts[State.PLANNED]

    def _lines(self, run: Watched, width: int, height: int) -> Iterator[tuple[Styled, ...]]:
        elapsed = time.monotonic() - self._started
        view = View(self._counts, self._queue, run.stats(), run.active(), elapsed, self._ended, self._rate, time.time())
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


def _end_of(result: BatchResult) -> str:
    if result.error is not None:
        return f": {described(result.error)}"
    link = None if result.job is None else result.job.pr_link
    return f": {link}" if link else ", no pull request" if result.outcome == "completed" else ""
