"""What is read of a run's source: page by page, each planned at once, in a task of its own."""

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from typing import Final

from attrs import frozen

from agentjobs_async.batch._planning import Planner
from agentjobs_async.batch._run.planned_rows import Ready
from agentjobs_async.batch._run.source import Items, source_of
from agentjobs_async.batch._store.rows import BatchResult
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State

_LARGEST_PAGE: Final = 256  # items that are read at once, while all its items turn out to be known
_SILENCE_SECONDS: Final = 1.0  # most sources have their next item sooner


@frozen
class Page:
    """What was read of the source at once.

    Attributes:
        new: The items that have no row of an earlier run, and that no other run has begun, with their rows.
        results: Those of items that are invalid.
        last: The highest number of a row of its items; 0 without any.
        count: How many items it had; 0 at the end of the source.
        fault: The source's own error, which comes after these items.
    """

    new: list[Ready]
    results: list[BatchResult]
    last: int
    count: int
    fault: BaseException | None


class Reader:
    """Reads the source of a run, in the context in which it was made.

    Args:
        items: The source.
        planner: Plans its items.
        changed: Set when a page was read, or the source has been silent for a second.

    Attributes:
        is_done: Whether the source has ended.
        is_silent: Whether its next item has not come within a second.
        fault: The source's own error; `None` without one.
    """

    def __init__(self, items: Items, planner: Planner, changed: asyncio.Event) -> None:
        self.is_done = isinstance(items, Sequence) and not items  # known at once, while other rows take all room
        self.is_silent = False
        self.fault: BaseException | None = None
        self._source = source_of(items)
        self._planner = planner
        self._changed = changed
        self._context = copy_context()
        self._reading: asyncio.Task[Page] | None = None
        self._size = 1

    @property
    def may_start(self) -> bool:
        """Whether it is not reading, and the source has not ended."""
        return self._reading is None and not self.is_done

    def start(self, room: int, last: int) -> None:
        """Start to read a page.

        Args:
            room: For how many items there is room; of more, all may be known.
            last: The highest number of a row of an earlier run, which this run has anyway.
        """
        self._reading = asyncio.create_task(self._read(max(self._size, room, 1), last), context=self._context)
        self._reading.add_done_callback(lambda _: self._changed.set())

    def take(self) -> Page | None:
        """Return what was read, once; `None` while there is nothing.

        Raises:
            JournalError: It could not be planned.
        """
        if self._reading is None or not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        page = reading.result()
        # More at once while nothing but items of earlier runs comes: these take no room.
        self._size = 1 if page.new or page.results else 2 * page.count
        self.fault = page.fault
        self.is_done = page.fault is not None or not page.count
        return page

    async def aclose(self) -> None:
        """Stop reading. A source that swallows its cancellation is left behind after 10 s."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._source.aclose()

    async def _read(self, most: int, last: int) -> Page:
        silence = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, self._set_silent)
        try:
            found, fault = await self._source.read(min(most, _LARGEST_PAGE))
        finally:
            silence.cancel()
            self.is_silent = False
        plan = await self._planner.plan(found)
        new = [Ready(row, item) for item, row in plan.planned if row.number > last and row.state is State.PLANNED]
        results = [BatchResult(item, Outcome.REJECTED, None, error) for item, error in plan.invalid]
        return Page(new, results, max((row.number for _, row in plan.planned), default=0), len(found), fault)

    def _set_silent(self) -> None:
        self.is_silent = True
        self._changed.set()
