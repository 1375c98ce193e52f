"""How a run goes, as it is shown: a board on a terminal, a line for each end in any case."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Final, Protocol

from agentjobs_async import JournalError
from agentjobs_async.batch import ActiveItem, BatchResult, BatchStats, Journal, Outcome, Rate, State
from agentjobs_async.cli._output.live import PollCounts, View, board_lines
from agentjobs_async.cli._output.screen import Screen, Styled, styled_status
from agentjobs_async.cli.documents import result_event
from agentjobs_async.cli.job_events import JobEvents
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import described

__all__ = ["LostIds", "Progress"]

_REFRESH: Final = 0.5
_REST_PER_COUNT: Final = 20.0
_OPEN: Final = frozenset({Outcome.TIMED_OUT, Outcome.UNFINISHED})  # of this run only: another may end it otherwise


class Watched(Protocol):
    """A run that can be looked at."""

    def stats(self) -> BatchStats:
        """Return how much is under way, and what ended."""
        ...

    def active(self) -> Sequence[ActiveItem]:
        """Return the items under way."""
        ...


class Progress:
    """Shows a run.

    Args:
        screen: Where to.
        journal: What counts the rows of each state.
        polls: What counts the polls.
        out: What gets each result as a line of JSON besides; `None` for nothing.
        rate: The limit of creates; `None` without any.
        events: What writes the other events of jobs for machines; `None` for people.
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
        self._ended = 0
        self._started = time.monotonic()

    @asynccontextmanager
    async def shown(self, run: Watched) -> AsyncIterator[None]:
        """Show the board inside of the block, where there is a terminal."""
        self._counts = await self.journal.counts()
        counting = asyncio.create_task(self._count())
        events = nullcontext() if self._events is None else self._events.written(run, self.journal)
        try:
            async with events, self._screen.board(lambda width, height: self._lines(run, width, height)):
                yield
        finally:
            counting.cancel()

    async def tell(self, result: BatchResult, run: Watched) -> None:
        """Show how an item ended.

        Raises:
            AgentJobsError: The file for results can't be written.
        """
        self._ended += 1
        row = None
        with suppress(JournalError):  # the result is there all the same
            row = (await self.journal.entries.get_many([result.item.key])).get(result.item.key)
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

    async def _count(self) -> None:
        took = 0.0
        while True:
            # Counting a million rows takes its time, and the database is there for other things.
            await asyncio.sleep(max(_REFRESH, _REST_PER_COUNT * took))
            started = time.monotonic()
            self._counts = await self.journal.counts()
            took = time.monotonic() - started

    def _lines(self, run: Watched, width: int, height: int) -> Iterator[tuple[Styled, ...]]:
        elapsed = time.monotonic() - self._started
        view = View(self._counts, run.stats(), run.active(), elapsed, self._ended, self._rate, time.time())
        return board_lines(view, self._polls, width, height)


class LostIds(logging.Handler):
    """Shows the ids that the journal could not take, for they are written down nowhere else."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.CRITICAL)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show one."""
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
