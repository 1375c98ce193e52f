"""Rows that are ready to begin as soon as their projects may."""

from collections import deque
from collections.abc import Callable

from attrs import frozen

from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.items import BatchItem


@frozen
class Ready:
    """A row that may begin, and the item that its result names."""

    row: JournalRow
    item: BatchItem


class Backlog:
    """Rows of new items that can't begin yet: those of one project do not hold up another."""

    def __init__(self) -> None:
        self._rows: dict[str, deque[Ready]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def add(self, ready: Ready) -> None:
        """Add a row behind those of its project."""
        self._rows.setdefault(ready.row.project_id, deque()).append(ready)

    def projects(self) -> list[str]:
        """Return the projects that have rows."""
        return list(self._rows)

    def numbers(self) -> set[int]:
        """Return the numbers of all rows."""
        return {ready.row.number for rows in self._rows.values() for ready in rows}

    def next(self, wanted: Callable[[str], bool]) -> Ready | None:
        """Return the next row of a project that is wanted; `None` where there is none. Projects take turns."""
        project = next(filter(wanted, self._rows), None)
        if project is None:
            return None
        rows = self._rows.pop(project)
        ready = rows.popleft()
        if rows:  # at the end: the turn of this project comes last
            self._rows[project] = rows
        return ready
