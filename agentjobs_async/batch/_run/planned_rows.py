"""The planned rows of a journal, and those of new items, in the order in which a run begins them."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from attrs import evolve, frozen

from agentjobs_async.batch._store.measures import planned_projects
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.items import BatchItem
from agentjobs_async.batch.states import State

_PAGE_ROWS: Final = 200  # bounds the memory for rows that can't begin yet
_SMALLEST_PAGE_ROWS: Final = 5  # of each of many projects: fewer would be a query for nearly every row


class PlannedRows:
    """The planned rows of earlier runs: those of a project in their order, the projects by turns.

    Args:
        store: The journal's rows.
        skipped: Numbers of rows that are left out, as they are when a row is looked at.
    """

    def __init__(self, store: Store, skipped: Collection[int]) -> None:
        self._store = store
        self._skipped = skipped
        self._at_hand: Collection[int] = ()
        self._query = Query()
        self._pages: dict[str, deque[JournalRow]] = {}
        self._after: dict[str, int] = {}
        self._left: Counter[str] = Counter()

    async def open(self, query: Query, known: Mapping[str, int], at_hand: Collection[int] = ()) -> None:
        """Begin with the planned rows that meet `query`; what is left of an earlier call is read anew.

        Args:
            query: What they have to meet.
            known: How many of these the run knows already, by project.
            at_hand: Numbers of rows that the run has read by other means.
        """
        self._query, self._at_hand = evolve(query, states={State.PLANNED}), at_hand
        found = await planned_projects(self._store, self._query)  # those with the lowest numbers first
        self._after = {project: first - 1 for project, first, _ in found}
        self._pages = {project: deque() for project in self._after}
        self._count(found, known)

    async def count_again(self, known: Mapping[str, int]) -> None:
        """Count what is left: others may have taken rows, or left some. `known` is as of `open`."""
        self._count(await planned_projects(self._store, self._query), known)

    def left(self) -> Counter[str]:
        """Return how many rows are left, by project; less those that others have taken since they were counted."""
        return self._left.copy()

    def _count(self, found: Iterable[tuple[str, int, int]], known: Mapping[str, int]) -> None:
        rows = {project: count - known.get(project, 0) for project, _, count in found if project in self._after}
        self._left = +Counter(rows)

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
                self._left[project] -= self._left[project] > 0
                return row
            self._left[project] = 0  # others have taken the rest
        return None

    async def _fill(self, project: str) -> None:
        size = max(_PAGE_ROWS // len(self._after), _SMALLEST_PAGE_ROWS)
        page, query = self._pages[project], evolve(self._query, project_id=project, size=size)
        while not page and (found := await self._store.select(evolve(query, after=self._after[project]))):
            self._after[project] = found[-1].number
            page.extend(row for row in found if row.number not in self._skipped and row.number not in self._at_hand)


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

    def counts(self) -> dict[str, int]:
        """Return how many rows each project has. It may be asked in any thread."""
        return {project: len(rows) for project, rows in tuple(self._rows.items())}

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
