"""Due jobs that wait for their turns: projects take turns, and jobs go by what a poll of them gains."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from agentjobs_async._polling.tracked import Tracked

__all__ = ["FairQueue"]

_FEW_STALE: Final = 64  # stale entries of a project that are not worth a sweep
_PLACED_TOGETHER: Final = 32  # of the first jobs, in one call: 100,000 at once would stop the loop for long
_MOST_TURNS: Final = 1.5  # times its turn in the order of arrival; with its own delay, a job waits for twice as long

_Mark = tuple[int, float]
"""The number of an arrival, and the number of the poll from which on the job goes before all others.

No two marks are equal: a heap of entries never compares jobs.
"""

_Entry = tuple[float, _Mark, Tracked]
"""The gain, the arrival and the job."""


class _Project:
    """The due jobs of one project.

    Attributes:
        jobs: A heap. An entry counts only while `FairQueue` has its mark for the job.
        virtual: The virtual time of the project: the gain of the job that was polled last in its turn.
    """

    __slots__ = ("jobs", "name", "virtual")

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[_Entry] = []
        self.virtual = 0.0


class FairQueue:
    """Due jobs. The projects take turns: one with ten jobs does not wait for another one's ten thousand.

    A project polls the job with the most to gain in its turn. The gain grows with the time since the job was last seen,
    in multiples of the delay that the policy asked for, so that all delays are stretched alike. As in self-clocked fair
    queueing, a job is placed by the project's virtual time plus its own delay.

    A job that has waited for 1.5 times as many polls as it would in the order of arrival goes before all others. One
    whose last poll failed has no part in its project's turns, and keeps its place in the order of arrival: the turns
    would bring many small projects that fail close together, and two refusals in a row hold back the polls of all.

    Args:
        clock: The loop's clock.
        jobs: The first jobs, in the order of arrival. They get their places among those of their projects bit by bit.
    """

    __slots__ = ("_arrived", "_clock", "_first", "_number", "_projects", "_taken", "_turns")

    def __init__(self, clock: Callable[[], float], jobs: Iterable[Tracked] = ()) -> None:
        self._clock = clock
        self._first = deque(jobs)
        self._arrived: OrderedDict[Tracked, _Mark] = OrderedDict(
            (tracked, (number, _MOST_TURNS * number)) for number, tracked in enumerate(self._first)
        )
        self._number = len(self._first)
        self._taken = 0
        self._projects: dict[str, _Project] = {}
        self._turns: deque[_Project] = deque()

    def __len__(self) -> int:
        return len(self._arrived)

    def __iter__(self) -> Iterator[Tracked]:
        return iter(self._arrived)

    def append(self, tracked: Tracked) -> None:
        """Add a job that has just come due: the time since it was last seen is the delay that the policy asked for."""
        self._number += 1
        mark = self._arrived[tracked] = self._number, self._taken + _MOST_TURNS * len(self._arrived)
        self._place(tracked, mark)

    def _place(self, tracked: Tracked, mark: _Mark) -> None:
        if tracked.error is not None:
            return
        name = tracked.ref.project_id
        project = self._projects.get(name)
        if project is None:
            project = self._projects[name] = _Project(name)
            self._turns.append(project)
        heappush(project.jobs, (project.virtual + self._clock() - tracked.seen, mark, tracked))
        if len(project.jobs) > 2 * len(self._arrived) + _FEW_STALE:
            project.jobs = [entry for entry in project.jobs if self._is_current(entry)]
            heapify(project.jobs)

    def _place_first(self) -> None:
        for _ in range(min(_PLACED_TOGETHER, len(self._first))):
            tracked = self._first.popleft()
            mark = self._arrived.get(tracked)
            if mark is not None:
                self._place(tracked, mark)

    def _is_current(self, entry: _Entry) -> bool:
        return self._arrived.get(entry[2]) is entry[1]

    def popleft(self) -> Tracked:
        """Remove and return the next job.

        Raises:
            IndexError: The queue is empty.
        """
        if not self._arrived:
            raise IndexError
        self._taken += 1
        if self._first:
            self._place_first()
        tracked, (_, overdue_from) = next(iter(self._arrived.items()))
        if overdue_from <= self._taken:
            del self._arrived[tracked]
            return tracked
        # Every second turn is of the project whose job is due for longest: were all turns of one project after the
        # other, many small projects that begin to be refused would come in a row, and hold back the polls of all.
        best = self._best_of_arrival(tracked) if self._taken % 2 else self._next_project()
        if best is not None:
            return best
        del self._arrived[tracked]
        return tracked

    def _best_of_arrival(self, tracked: Tracked) -> Tracked | None:
        project = None if tracked.error is not None else self._projects.get(tracked.ref.project_id)
        return None if project is None else self._best_of(project)

    def _next_project(self) -> Tracked | None:
        while self._turns:
            project = self._turns.popleft()
            best = self._best_of(project)
            if best is not None:
                self._turns.append(project)
                return best
            del self._projects[project.name]
        return None

    def _best_of(self, project: _Project) -> Tracked | None:
        while project.jobs:
            entry = heappop(project.jobs)
            if self._is_current(entry):
                project.virtual, _, tracked = entry
                del self._arrived[tracked]
                return tracked
        return None

    def discard(self, tracked: Tracked) -> None:
        """Remove a job, if it is there."""
        self._taken += self._arrived.pop(tracked, None) is not None

    def clear(self) -> None:
        """Remove all jobs."""
        self._first.clear()
        self._arrived.clear()
        self._projects.clear()
        self._turns.clear()
