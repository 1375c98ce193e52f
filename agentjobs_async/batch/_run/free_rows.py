"""The rows without an owner, jobs and unknown creates that may be repeated: a run takes them as it has room."""

from collections import deque
from collections.abc import Callable
from typing import Final

from agentjobs_async.batch._run.planned_rows import Backlog, Ready
from agentjobs_async.batch._run.repeats import rows_to_repeat
from agentjobs_async.batch._run.tasks import ItemTasks
from agentjobs_async.batch._store.owning import free_jobs, take
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow

_PAGE_ROWS: Final = 200  # that are taken at once


class FreeJobs:
    """The active rows that had no owner when that was looked up last, as far as this run has not begun them.

    Args:
        item_tasks: The items under way.
        passed_over: Numbers of rows that the run leaves to others, as they are when it looks.
    """

    def __init__(self, item_tasks: ItemTasks, passed_over: set[int]) -> None:
        self._item_tasks = item_tasks
        self._records = item_tasks.context.records
        self._passed_over = passed_over
        self._numbers: deque[int] = deque()
        self._taken: deque[JournalRow] = deque()
        self._is_look_due = True

    def __len__(self) -> int:
        return len(self._numbers) + len(self._taken)

    def look_again(self) -> None:
        """Look them up once more at the next call."""
        self._is_look_due = True

    async def next(self, query: Query, room: int) -> JournalRow | None:
        """Return the next row that meets `query`, taken by this run; `None` without one, or while there is no room."""
        if self._is_look_due:
            self._is_look_due = False
            free = await free_jobs(self._records.store, query)
            # No await from here on: an item whose wait has just ended is under way until its result is noted.
            own = self._passed_over.union(item.row.number for item in self._item_tasks.under_way())
            self._numbers = deque(number for number in free if number not in own)
        while room > 0 and self._numbers and not self._taken:
            page = [self._numbers.popleft() for _ in range(min(room, _PAGE_ROWS, len(self._numbers)))]
            self._taken += await take(self._records.store, Query(numbers=page, size=None), self._records.owner)
        return self._taken.popleft() if room > 0 and self._taken else None


class RowsToRepeat:
    """The unknown rows whose creates the run may repeat, and that had no owner when that was looked up last.

    Args:
        item_tasks: The items under way.
        passed_over: Numbers of rows that the run leaves to others, as they are when it looks.
    """

    def __init__(self, item_tasks: ItemTasks, passed_over: set[int]) -> None:
        self._item_tasks = item_tasks
        self._context = item_tasks.context
        self._passed_over = passed_over
        self._rows = Backlog()
        self._is_look_due = True

    def look_again(self) -> None:
        """Look them up once more at the next call."""
        self._is_look_due = True

    def __len__(self) -> int:
        return len(self._rows)

    def projects(self) -> list[str]:
        """Return the projects that have rows."""
        return self._rows.projects()

    async def accept(self, row: JournalRow) -> bool:
        """Add an unknown row that ended in this process, if its create may be repeated; return whether it may."""
        found = await rows_to_repeat(self._context, Query(numbers=[row.number]))
        self._add(found)
        return bool(found)

    async def next(self, query: Query, wanted: Callable[[str], bool]) -> JournalRow | None:
        """Return the next row that meets `query`, of a project that is wanted; `None` where there is none."""
        if self._is_look_due:
            self._is_look_due = False
            self._add(await rows_to_repeat(self._context, query))
        while (ready := self._rows.next(wanted)) is not None:
            if ready.row.number not in self._busy():
                return ready.row
        return None

    def _add(self, rows: list[JournalRow]) -> None:
        known = self._rows.numbers() | self._busy()
        for row in rows:
            if row.number not in known:
                self._rows.add(Ready(row, row.item))

    def _busy(self) -> set[int]:
        return self._passed_over.union(item.row.number for item in self._item_tasks.under_way())
