"""What a run works on: rows of earlier runs, then new items, which are read as late as possible."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from agentjobs_async import InvalidInputError
from agentjobs_async.batch._planning import Planner
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.items import BatchItem, BatchResult, Outcome
from agentjobs_async.batch.states import State

_PAGE_ROWS: Final = 200  # bounds the memory for rows that can't begin yet
_SMALLEST_PAGE_ROWS: Final = 5  # of each of many projects: fewer would be a query for nearly every row
_MOST_AHEAD_ITEMS: Final = 256  # bounds one page, while all its items turn out to be known
_LEAVING_SECONDS: Final = 10.0  # for what a source does when it is cancelled
_SILENCE_SECONDS: Final = 1.0  # most sources have their next item sooner

Items = Iterable[BatchItem] | AsyncIterable[BatchItem]


async def earlier(
    entries: Entries, became_unknown: Iterable[str], last: int, told: set[int]
) -> AsyncGenerator[JournalRow | BatchResult, None]:
    """Yield the results of rows that became unknown, then the other rows that have a job.

    Args:
        entries: The journal's rows.
        became_unknown: Keys whose rows became unknown because an earlier owner ended.
        last: The highest number of a row of earlier runs.
        told: Gets the numbers of the rows whose results were yielded. Each may be resolved while the run goes on, and
            is left to the next run then: a run gives one result of an item.
    """
    for key in became_unknown:
        row = (await entries.get_many([key])).get(key)  # as late as possible: those before it may have waited
        if row is not None and row.state is State.UNKNOWN:
            told.add(row.number)
            error = InvalidInputError(f"{row.error}; look whether its agent runs, and resolve it")
            yield BatchResult(row.item, Outcome.UNKNOWN, None, error, row=row)
    after = 0
    while found := await entries.page(after, state=State.ACTIVE, until=last, size=_PAGE_ROWS):
        after = found[-1].number
        for row in found:
            if row.number not in told:
                yield row


async def new(
    entries: Entries, items: Items, room: Callable[[], int], last: int, on_silence: Callable[[bool], None]
) -> AsyncGenerator[JournalRow | BatchResult, None]:
    """Plan items as there is room, and yield their rows, and the results of those that are refused.

    An item that has a row of an earlier run is left out: the run takes up that row anyway, or it has ended.

    Args:
        entries: The journal's rows.
        items: New items and those of earlier runs alike.
        room: Returns how many items may be read at once.
        last: The highest number of a row of earlier runs.
        on_silence: Called with `True` when an async iterable has yielded nothing for a second, and with `False` once it
            has.
    """
    reader = _Iterator(iter(items)) if isinstance(items, Iterable) else _AsyncIterator(items, on_silence)
    planner = Planner(entries)
    size = 1
    try:
        while True:
            found, fault = await reader.take(min(max(size, room(), 1), _MOST_AHEAD_ITEMS))
            plan = await planner.plan(found)
            for item, error in plan.refused:
                yield BatchResult(item, Outcome.REJECTED, None, error)
            rows = [row for row in plan.rows if row.number > last]
            for row in rows:
                yield row
            if fault is not None:
                raise fault
            if not found:
                return
            # More at once while nothing but items of earlier runs comes: these take no room.
            size = 1 if rows or plan.refused else 2 * len(found)
    finally:
        await reader.aclose()


class PlannedRows:
    """The planned rows of earlier runs: those of a project in their order, the projects by turns.

    Args:
        entries: The journal's rows.
        default: The project of rows that name none. A claim makes them name it: they are read with those that do.
        told: As of `earlier`.
    """

    def __init__(self, entries: Entries, default: str | None, told: set[int]) -> None:
        self._entries = entries
        self._default = default
        self._told = told
        self._last = 0
        self._pages: dict[str | None, deque[JournalRow]] = {}
        self._after: dict[str | None, int] = {}

    async def open(self, last: int) -> None:
        """Find the projects of the planned rows up to the number `last`."""
        self._last = last
        for project, first in await self._entries.planned_projects(last):  # those with the lowest numbers first
            self._after.setdefault(project or self._default, first - 1)
        self._pages = {project: deque() for project in self._after}

    def __bool__(self) -> bool:
        return bool(self._after)

    def projects(self) -> Iterator[str | None]:
        """Return the projects that may have rows left."""
        return iter(list(self._after))

    async def next(self, wanted: Callable[[str | None], bool]) -> JournalRow | None:
        """Return the next row of a project that is wanted; `None` when none is, or there are no more."""
        for project in self.projects():
            if not wanted(project):
                continue
            if not self._pages[project]:
                await self._fill(project)
            after, page = self._after.pop(project), self._pages.pop(project)
            if page:  # put back at the end of both dicts: the turn of this project comes last
                row = page.popleft()
                self._after[project], self._pages[project] = after, page
                return row
        return None

    async def _fill(self, project: str | None) -> None:
        size = max(_PAGE_ROWS // len(self._after), _SMALLEST_PAGE_ROWS)
        page, until = self._pages[project], self._last
        projects = (project, None) if project == self._default else (project,)
        while not page and (
            found := await self._entries.page(
                self._after[project], state=State.PLANNED, until=until, size=size, projects=projects
            )
        ):
            self._after[project] = found[-1].number
            page.extend(row for row in found if row.number not in self._told)


class _Iterator:
    """Takes items from an iterator."""

    def __init__(self, iterator: Iterator[BatchItem]) -> None:
        self._iterator = iterator

    async def take(self, most: int) -> tuple[list[BatchItem], BaseException | None]:
        """Return up to `most` items, none at the end, and the iterator's own error, which comes after them."""
        taken: list[BatchItem] = []
        try:
            taken.extend(islice(self._iterator, most))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it comes out of the iteration, after the items
            return taken, error
        return taken, None

    async def aclose(self) -> None:
        """Do nothing: the iterator belongs to the caller."""


class _AsyncIterator:
    """Takes what an async iterable has at hand, read by a task of its own: one item for each page would be slow."""

    def __init__(self, items: AsyncIterable[BatchItem], on_silence: Callable[[bool], None]) -> None:
        self._on_silence = on_silence
        self._found: list[BatchItem] = []
        self._most = 0
        self._closed = False
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._read(items))

    async def take(self, most: int) -> tuple[list[BatchItem], BaseException | None]:
        """Wait for an item; return up to `most` that have come, none at the end, and the iterable's own error."""
        self._most = most
        self._wanted.set()
        silence = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, self._on_silence, True)
        try:
            await self._arrived.wait()
        finally:
            silence.cancel()
            self._on_silence(False)
        taken, self._found = self._found[:most], self._found[most:]
        if self._found or not self._task.done():
            if not self._found:
                self._arrived.clear()
            return taken, None
        return taken, asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    async def aclose(self) -> None:
        """Cancel the task that reads; leave it behind after 10 s, if it has swallowed its cancellation."""
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task], timeout=_LEAVING_SECONDS)

    async def _read(self, items: AsyncIterable[BatchItem]) -> None:
        try:
            await self._wanted.wait()
            async for item in items:
                if self._closed:
                    return  # the source has swallowed its cancellation, and goes on
                self._found.append(item)
                self._arrived.set()
                while len(self._found) >= self._most:
                    self._wanted.clear()
                    await self._wanted.wait()
        finally:
            if inspect.isasyncgen(items):
                await items.aclose()
            self._arrived.set()
