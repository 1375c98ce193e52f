"""The jobs that nobody polls: a run takes them as it has room."""

from collections import deque
from typing import Final

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

    def __bool__(self) -> bool:
        return bool(self._numbers or self._taken)

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
