"""Which item begins next: rows of earlier runs, then new items, each project for itself."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from contextvars import copy_context
from typing import Any, Final

from agentjobs_async import JournalError
from agentjobs_async.batch._backlog import Backlog
from agentjobs_async.batch._item_run import ItemRun, Phase
from agentjobs_async.batch._item_tasks import ItemTasks
from agentjobs_async.batch._source import Items, PlannedRows, earlier, new
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.items import BatchResult
from agentjobs_async.batch.states import State

_MOST_AHEAD: Final = 1_000  # items that are read while those before them are held back

_Rows = AsyncGenerator[JournalRow | BatchResult, None]


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
        run: Callable[[ItemRun], Coroutine[Any, Any, None]],
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
        self._backlog = Backlog(self._project_of, self._may_begin)
        self._told: set[int] = set()  # as of `earlier`
        self._planned = PlannedRows(self._context.entries, self._context.session.project_id, self._told)
        self._earlier_read = False
        self._source_done = False
        self._is_silent = False
        self._moved: list[asyncio.Event] = []  # not a set, whose order depends on addresses in memory
        self._context.slots.on_change = self.on_change

    def on_change(self) -> None:
        """Begin what has room by now. Call this when a slot is taken or given back, or an item ends."""
        for row in self._backlog.ready():
            self._begin(row)
        self._notify()

    async def read(self, became_unknown: tuple[str, ...]) -> None:
        """Begin everything, until nothing is left or the limit is reached."""
        entries = self._context.entries
        last = await entries.last_number()
        await self._planned.open(last)
        await self._read(earlier(entries, became_unknown, last, self._told), self._add_job)
        self._earlier_read = True
        tasks = [
            asyncio.create_task(self._read_new(new(entries, self._items, self.room, last, self._on_silence))),
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
        moved = asyncio.Event()
        self._moved.append(moved)
        reading.add_done_callback(lambda _: moved.set())
        while not self._is_over(reading):
            moved.clear()
            await moved.wait()

    def room(self) -> int:
        """Return how many items there is room for at once."""
        return self._context.slots.unclaimed - self._ready()

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
        left = {*self._backlog.projects(), *self._planned.projects()}
        return all(self._context.throttles.is_refused(project) for project in left)

    async def _read_new(self, rows: _Rows) -> None:
        try:
            await self._room_to_read()
            await self._read(rows, self._add_new)
        except JournalError:
            raise  # it ends the run, whatever is left
        except BaseException:
            self._end_source()  # else `ended` would wait for more items
            raise
        self._end_source()

    def _end_source(self) -> None:
        self._source_done = True
        self._notify()

    async def _read(self, rows: _Rows, add: Callable[[JournalRow], Awaitable[None]]) -> None:
        async with aclosing(rows):
            async for row in rows:
                if self._is_enough():
                    break
                await (self._deliver(row) if isinstance(row, BatchResult) else add(row))
                if self._is_enough():
                    break

    async def _add_job(self, row: JournalRow) -> None:
        await self._until(self._context.slots.has_room_for_job)
        self._begin(row)

    def _on_silence(self, is_silent: bool, /) -> None:  # noqa: FBT001 - its only argument
        self._is_silent = is_silent
        self._notify()

    async def _add_new(self, row: JournalRow) -> None:
        self._backlog.put(row)
        self.on_change()
        await self._room_to_read()  # before the next one is read, which may take for ever

    async def _room_to_read(self) -> None:
        """Wait until one more item could begin if it is of a project that has room."""
        await self._until(self._has_room_to_read)

    def _has_room_to_read(self) -> bool:
        return self.room() > 0 and len(self._backlog) < _MOST_AHEAD and not self._planned_may_begin()

    async def _begin_planned(self) -> None:
        while self._planned and not self._is_enough():
            row = await self._planned.next(self._may_begin)
            if row is not None:
                self._begin(row)
            else:
                self._notify()  # a project may have had its last row, which is what the reading of new items waits for
                await self._until(lambda: not self._planned or self._planned_may_begin())

    async def _until(self, condition: Callable[[], bool]) -> None:
        moved = asyncio.Event()
        self._moved.append(moved)
        try:
            while not (condition() or self._is_enough()):
                moved.clear()
                await moved.wait()
        finally:
            self._moved.remove(moved)

    def _begin(self, row: JournalRow) -> None:
        self._begun += row.state is State.PLANNED
        task = self._item_tasks.begin(row, self._run, self._caller_context)
        task.add_done_callback(lambda _: self._notify())
        self._notify()

    def _may_begin(self, project: str | None) -> bool:
        may_go = not self._context.throttles.is_refused(project)
        return may_go and not self._is_enough() and self._context.slots.has_room(project)

    def _planned_may_begin(self) -> bool:
        return any(map(self._may_begin, self._planned.projects()))

    def _is_enough(self) -> bool:
        return self._item_tasks.phase >= Phase.NO_CREATES or (self._limit is not None and self._begun >= self._limit)

    def _ready(self) -> int:
        """Count the items that would take a slot at once if one more were given back.

        Those of a project whose slots unknown items keep are none of them: another project may use what is unclaimed.
        """
        slots, throttles = self._context.slots, self._context.throttles
        return sum(count for project, count in slots.waiting() if slots.free(project) > 0 and throttles.may_go(project))

    def _project_of(self, row: JournalRow) -> str | None:
        return row.project_id or self._context.session.project_id

    def _notify(self) -> None:
        for event in self._moved:
            event.set()


def _failed_by_journal(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and isinstance(task.exception(), JournalError)
