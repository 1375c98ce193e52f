"""Which item begins next: rows of earlier runs, then new items, each project for itself."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from contextvars import copy_context
from itertools import islice
from typing import Any, Final

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async.batch._planning import Planner
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.tasks import ItemTasks
from agentjobs_async.batch._store.row_store import RowStore
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch.items import BatchItem, Outcome
from agentjobs_async.batch.states import State

_PAGE_ROWS: Final = 200  # bounds the memory for rows that can't begin yet
_SMALLEST_PAGE_ROWS: Final = 5  # of each of many projects: fewer would be a query for nearly every row
_MOST_AHEAD: Final = 1_000  # items that are read while those before them are held back
_MOST_AHEAD_ITEMS: Final = 256  # bounds one page, while all its items turn out to be known
_LEAVING_SECONDS: Final = 10.0  # for what a source does when it is cancelled
_SILENCE_SECONDS: Final = 1.0  # most sources have their next item sooner

Items = Iterable[BatchItem] | AsyncIterable[BatchItem]
_Rows = AsyncGenerator[JournalRow | BatchResult, None]


async def earlier(store: RowStore, last: int, yielded: set[int]) -> _Rows:
    """Yield the results of rows that became unknown, then the other rows that have a job.

    Args:
        store: The journal's rows.
        last: The highest number of a row of earlier runs.
        yielded: Gets the numbers of the rows whose results were yielded. Each may be resolved while the run goes on,
            and is left to the next run then: a run gives one result of an item.
    """
    while store.became_unknown:
        key = store.became_unknown.pop(0)
        row = (await store.get_many([key])).get(key)  # as late as possible: those before it may have waited
        if row is not None and row.state is State.UNKNOWN:
            yielded.add(row.number)
            error = InvalidInputError(f"{row.error}; look whether its agent runs, and resolve it")
            yield BatchResult(row.item, Outcome.UNKNOWN, None, error, row=row)
    after = 0
    while found := await store.page(after, state=State.ACTIVE, until=last, size=_PAGE_ROWS):
        after = found[-1].number
        for row in found:
            if row.number not in yielded:
                yield row


class PlannedRows:
    """The planned rows of earlier runs: those of a project in their order, the projects by turns.

    Args:
        store: The journal's rows.
        yielded: As of `earlier`.
    """

    def __init__(self, store: RowStore, yielded: set[int]) -> None:
        self._store = store
        self._yielded = yielded
        self._last = 0
        self._pages: dict[str, deque[JournalRow]] = {}
        self._after: dict[str, int] = {}

    async def open(self, last: int) -> None:
        """Find the projects of the planned rows up to the number `last`."""
        self._last = last
        for project, first in await self._store.planned_projects(last):  # those with the lowest numbers first
            self._after[project] = first - 1
        self._pages = {project: deque() for project in self._after}

    def __bool__(self) -> bool:
        return bool(self._after)

    def projects(self) -> Iterator[str]:
        """Return the projects that may have rows left."""
        return iter(list(self._after))

    async def next(self, wanted: Callable[[str], bool]) -> JournalRow | None:
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

    async def _fill(self, project: str) -> None:
        size = max(_PAGE_ROWS // len(self._after), _SMALLEST_PAGE_ROWS)
        page, until = self._pages[project], self._last
        while not page and (
            found := await self._store.page(
                self._after[project], state=State.PLANNED, until=until, size=size, project=project
            )
        ):
            self._after[project] = found[-1].number
            page.extend(row for row in found if row.number not in self._yielded)


class _Iterator:
    """Reads items from an iterator."""

    def __init__(self, iterator: Iterator[BatchItem]) -> None:
        self._iterator = iterator

    async def read(self, most: int) -> tuple[list[BatchItem], BaseException | None]:
        """Return up to `most` items, none at the end, and the iterator's own error, which comes after them."""
        found: list[BatchItem] = []
        try:
            found.extend(islice(self._iterator, most))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it comes out of the iteration, after the items
            return found, error
        return found, None

    async def aclose(self) -> None:
        """Do nothing: the iterator belongs to the caller."""


class _AsyncIterator:
    """Reads what an async iterable has at hand, by means of a task of its own: pages of one item would be slow."""

    def __init__(self, items: AsyncIterable[BatchItem]) -> None:
        self._found: list[BatchItem] = []
        self._most = 0
        self._closed = False
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._collect(items))

    async def read(self, most: int) -> tuple[list[BatchItem], BaseException | None]:
        """Wait for an item; return up to `most` that have come, none at the end, and the iterable's own error."""
        self._most = most
        self._wanted.set()
        await self._arrived.wait()
        found, self._found = self._found[:most], self._found[most:]
        if self._found or not self._task.done():
            if not self._found:
                self._arrived.clear()
            return found, None
        return found, asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    async def aclose(self) -> None:
        """Cancel the task that reads; leave it behind after 10 s, if it has swallowed its cancellation."""
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task], timeout=_LEAVING_SECONDS)

    async def _collect(self, items: AsyncIterable[BatchItem]) -> None:
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


class Feed:
    """Begin rows and items as there is room for their projects.

    Where the creates of one project are held back, items of others are looked for among the planned rows of earlier
    runs, and up to 1,000 items ahead in the source. All begin in the context in which the feed was made: neither a
    context variable that the source sets nor one of an item whose end made room reaches another item.

    Args:
        item_tasks: The items under way.
        items: New items and those of earlier runs alike.
        limit: How many items without a job may begin; `None` for any number.
        run: Runs an item.
        deliver: Delivers the result of an item that does not begin.
    """

    def __init__(
        self,
        item_tasks: ItemTasks,
        items: Items,
        limit: int | None,
        run: Callable[[RunningItem], Coroutine[Any, Any, None]],
        deliver: Callable[[BatchResult], Awaitable[None]],
    ) -> None:
        self._item_tasks = item_tasks
        self._context = item_tasks.context
        self._items = items
        self._limit = limit
        self._run = run
        self._deliver = deliver
        self._caller_context = copy_context()
        self._begun = 0
        # Rows that were read and can't begin yet: those of one project do not hold up another.
        self._backlog: dict[str, deque[JournalRow]] = {}
        self._yielded: set[int] = set()  # as of `earlier`
        self._planned = PlannedRows(self._context.store, self._yielded)
        self._earlier_read = False
        self._source_done = False
        self._is_silent = False
        self._given: dict[int, BatchItem] = {}  # those that have not begun, by the numbers of their rows
        self._moved: list[asyncio.Event] = []  # not a set, whose order depends on addresses in memory
        self._context.slots.on_change = self.on_change

    def on_change(self) -> None:
        """Begin what has room by now. Call this when a slot is taken or given back, or an item ends."""
        has_begun = True
        while has_begun:  # the projects by turns
            has_begun = False
            for project, rows in list(self._backlog.items()):
                if self._may_begin(project):
                    has_begun = True
                    self._begin(rows.popleft())
                    if not rows:
                        del self._backlog[project]
        self._wake()

    async def read(self) -> None:
        """Begin everything, until nothing is left or the limit is reached."""
        store = self._context.store
        last = await store.last_number()
        await self._planned.open(last)
        await self._read(earlier(store, last, self._yielded), self._add_job)
        self._earlier_read = True
        tasks = [
            asyncio.create_task(self._read_new(last)),
            asyncio.create_task(self._begin_planned()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if not any(map(_failed_by_journal, tasks)):
                await asyncio.wait(tasks)  # an error of the source does not end what was read before it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            await task

    async def ended(self, reading: asyncio.Task[None]) -> None:
        """Wait until no item is under way, and none can begin but those which the server refuses."""
        reading.add_done_callback(lambda _: self._wake())
        await self._until(lambda: self._is_over(reading))

    def _is_over(self, reading: asyncio.Task[None]) -> bool:
        if reading.done() and (self._is_enough() or not self._backlog or _failed_by_journal(reading)):
            return True
        if len(self._item_tasks) or not self._earlier_read or not self._only_refused():
            return False
        if self._source_done:  # with nothing left, the reading is about to end by itself
            return bool(self._backlog or self._planned)
        # A caller whose source is silent, and whose key never worked, is to get the error without waiting for an item.
        silent = self._is_silent and not self._context.throttles.succeeded
        return self._context.throttles.refusal is not None and (silent or not self._has_room_to_read())

    def _only_refused(self) -> bool:
        left = {*self._backlog, *self._planned.projects()}
        return all(self._context.throttles.is_refused(project) for project in left)

    async def _read_new(self, last: int) -> None:
        try:
            await self._room_to_read()
            await self._read(self._new(last), self._add_new)
        except JournalError:
            raise  # it ends the run, whatever is left
        except BaseException:
            self._end_source()  # else `ended` would wait for more items
            raise
        self._end_source()

    async def _new(self, last: int) -> _Rows:
        """Plan items as there is room, and yield their rows, and the results of those that are invalid.

        An item that has a row of an earlier run, of a number up to `last`, is left out: the run continues with
        that row anyway, or it has ended.
        """
        reader = _Iterator(iter(self._items)) if isinstance(self._items, Iterable) else _AsyncIterator(self._items)
        planner = Planner(self._context.store, self._context.session.project_id)
        size = 1
        try:
            while True:
                found, fault = await self._read_items(reader, min(max(size, self._room(), 1), _MOST_AHEAD_ITEMS))
                plan = await planner.plan(found)
                for item, error in plan.invalid:
                    yield BatchResult(item, Outcome.REJECTED, None, error)
                new = [(item, row) for item, row in plan.planned if row.number > last]
                for item, row in new:
                    self._given[row.number] = item
                    yield row
                if fault is not None:
                    raise fault
                if not found:
                    return
                # More at once while nothing but items of earlier runs comes: these take no room.
                size = 1 if new or plan.invalid else 2 * len(found)
        finally:
            await reader.aclose()

    async def _read_items(
        self, reader: _Iterator | _AsyncIterator, most: int
    ) -> tuple[list[BatchItem], BaseException | None]:
        silence = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, self._set_silent, True)
        try:
            return await reader.read(most)
        finally:
            silence.cancel()
            self._set_silent(False)

    def _set_silent(self, is_silent: bool, /) -> None:  # noqa: FBT001 - its only argument
        self._is_silent = is_silent
        self._wake()

    def _end_source(self) -> None:
        self._source_done = True
        self._wake()

    async def _read(self, rows: _Rows, add: Callable[[JournalRow], Awaitable[None]]) -> None:
        async with aclosing(rows):
            async for row in rows:
                if self._is_enough():
                    break
                await (self._deliver(row) if isinstance(row, BatchResult) else add(row))
                if self._is_enough():
                    break

    async def _add_job(self, row: JournalRow) -> None:
        await self._until(lambda: self._is_enough() or self._context.slots.has_room_for_job())
        self._begin(row)

    async def _add_new(self, row: JournalRow) -> None:
        self._backlog.setdefault(row.project_id, deque()).append(row)
        self.on_change()
        await self._room_to_read()  # before the next one is read, which may take for ever

    async def _room_to_read(self) -> None:
        """Wait until one more item could begin if it is of a project that has room."""
        await self._until(lambda: self._is_enough() or self._has_room_to_read())

    def _has_room_to_read(self) -> bool:
        if self._room() <= 0 or self._planned_may_begin():
            return False
        return sum(map(len, self._backlog.values())) < _MOST_AHEAD

    async def _begin_planned(self) -> None:
        while self._planned and not self._is_enough():
            row = await self._planned.next(self._may_begin)
            if row is not None:
                self._begin(row)
            else:
                self._wake()  # a project may have had its last row, which is what the reading of new items waits for
                await self._until(lambda: self._is_enough() or not self._planned or self._planned_may_begin())

    async def _until(self, condition: Callable[[], bool]) -> None:
        moved = asyncio.Event()
        self._moved.append(moved)
        try:
            while not condition():
                moved.clear()
                await moved.wait()
        finally:
            self._moved.remove(moved)

    def _begin(self, row: JournalRow) -> None:
        self._begun += row.state is State.PLANNED
        item = self._given.pop(row.number, row.item)
        task = self._item_tasks.begin(row, self._run, self._caller_context, item=item)
        task.add_done_callback(lambda _: self._wake())
        self._wake()

    def _may_begin(self, project: str) -> bool:
        may_go = not self._context.throttles.is_refused(project)
        return may_go and not self._is_enough() and self._context.slots.has_room(project)

    def _planned_may_begin(self) -> bool:
        return any(map(self._may_begin, self._planned.projects()))

    def _is_enough(self) -> bool:
        return self._item_tasks.phase >= Phase.NO_CREATES or (self._limit is not None and self._begun >= self._limit)

    def _room(self) -> int:
        """Return how many items there is room for at once, besides those that take a slot as soon as one is given back.

        Those of a project whose slots unknown items keep are none of them: another project may use what is unclaimed.
        """
        slots, throttles = self._context.slots, self._context.throttles
        ready = (count for project, count in slots.waiting() if slots.free(project) > 0 and throttles.may_go(project))
        return slots.unclaimed - sum(ready)

    def _wake(self) -> None:
        for event in self._moved:
            event.set()


def _failed_by_journal(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and isinstance(task.exception(), JournalError)
