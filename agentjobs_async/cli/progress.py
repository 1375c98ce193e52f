"""How a run goes, as it is shown: a board on a terminal, a line for each end in any case."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Protocol, TextIO

from agentjobs_async.batch import ActiveItem, BatchResult, BatchStats, Journal, Rate, State
from agentjobs_async.cli.board import PollCounts, View, board_lines
from agentjobs_async.cli.outcomes import described
from agentjobs_async.cli.screen import Screen, Styled, styled_status

__all__ = ["LostIds", "Progress"]

_REFRESH: Final = 0.5
_REST_PER_COUNT: Final = 20.0


class Watched(Protocol):
    """A run that can be looked at."""

    def stats(self) -> BatchStats:
        """Give how much is under way, and what ended."""
        ...

    def active(self) -> Sequence[ActiveItem]:
        """Give the items under way."""
        ...


class Progress:
    """Shows a run.

    Args:
        screen: Where to.
        journal: What counts the rows of each state.
        polls: What counts the polls.
        machine: Whether each result is a line of JSON.
        out: What gets each result as a line of JSON besides; `None` for nothing.
        rate: The limit of creates; `None` without any.
    """

    def __init__(
        self,
        screen: Screen,
        journal: Journal,
        polls: PollCounts,
        machine: bool,  # noqa: FBT001 - as an order has it
        out: TextIO | None,
        rate: Rate | None,
    ) -> None:
        self._screen = screen
        self._journal = journal
        self._polls = polls
        self._machine = machine
        self._out = out
        self._rate = rate
        self._counts: Mapping[State, int] = {}
        self._ended = 0
        self._started = time.monotonic()

    @asynccontextmanager
    async def shown(self, run: Watched) -> AsyncIterator[None]:
        """Show the board inside of the block, where there is a terminal."""
        self._counts = await self._journal.counts()
        counting = asyncio.create_task(self._count())
        try:
            async with self._screen.board(lambda width, height: self._lines(run, width, height)):
                yield
        finally:
            counting.cancel()

    def tell(self, result: BatchResult) -> None:
        """Show how an item ended."""
        self._ended += 1
        document = json.dumps(_document(result))
        if self._out is not None:
            self._out.write(f"{document}\n")
            self._out.flush()
        if self._machine:
            self._screen.raw_line(document)
        else:
            self._screen.line(result.item.key, " ", styled_status(result.outcome), _end_of(result))

    async def _count(self) -> None:
        took = 0.0
        while True:
            # Counting a million rows takes its time, and the database is there for other things.
            await asyncio.sleep(max(_REFRESH, _REST_PER_COUNT * took))
            started = time.monotonic()
            self._counts = await self._journal.counts()
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


def _document(result: BatchResult) -> dict[str, Any]:
    job = result.job
    return {
        "key": result.item.key,
        "outcome": result.outcome,
        "job": None if result.ref is None else result.ref.to_token(),
        "pr_link": None if job is None else job.pr_link,
        "error": None if result.error is None else described(result.error),
    }
