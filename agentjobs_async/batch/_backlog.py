"""Rows that were read and can't begin yet, by project: those of one project do not hold up another."""

from collections import deque
from collections.abc import Callable, Iterator

from agentjobs_async.batch._store.rows import JournalRow


class Backlog:
    """Rows in the order in which they came, for each project.

    Args:
        project_of: Returns the project of a row.
        may_begin: Returns whether an item of a project may begin now.
    """

    def __init__(self, project_of: Callable[[JournalRow], str | None], may_begin: Callable[[str | None], bool]) -> None:
        self._project_of = project_of
        self._may_begin = may_begin
        self._rows: dict[str | None, deque[JournalRow]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, row: JournalRow) -> None:
        """Add a row behind those of its project."""
        self._rows.setdefault(self._project_of(row), deque()).append(row)
        self._count += 1

    def ready(self) -> Iterator[JournalRow]:
        """Remove and yield the rows that may begin, the projects by turns, until none may."""
        begun = True
        while begun:
            begun = False
            for project in list(self._rows):
                if self._may_begin(project):
                    begun = True
                    yield self._taken(project)

    def projects(self) -> Iterator[str | None]:
        """Return the projects that have rows here."""
        return iter(list(self._rows))

    def _taken(self, project: str | None) -> JournalRow:
        rows = self._rows[project]
        row = rows.popleft()
        self._count -= 1
        if not rows:
            del self._rows[project]
        return row
