"""The jobs that are due to be polled, in one order: first in, first out, with turns for the projects that have few."""

from collections import OrderedDict
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Final

from agentjobs_async._polling.tracked import Tracked

_TURN_EVERY: Final = 8
"""Of so many polls one is of the next project in turn, and the others are of the jobs that have been due for longest.

Were there more turns, many small projects that begin to fail would come close together: two refusals in a row hold back
the polls of all, and polls that hang fill the slots faster than others can overtake them.
"""

_URGENT_IN_A_ROW: Final = 2  # while others are due: waits that end without end, one after another, stop no other job

_BETWEEN_REFUSED: Final = 2  # polls of other jobs between two of refused ones: those refused for ever get a third
_BETWEEN_MANY_REFUSED: Final = 1  # the same where refused jobs are the most: with a third they would wait three turns


class _Line:
    """Due jobs, first in, first out. Those of a held project keep their positions, and are passed over.

    Attributes:
        ready: The number of jobs whose project is not held.
    """

    __slots__ = ("_in_order", "_jobs", "_numbers", "_order", "_turns", "ready")

    def __init__(self) -> None:
        self.ready = 0
        self._numbers = count()
        self._jobs: dict[str, OrderedDict[Tracked, int]] = {}
        """The jobs of each project that has any, with the numbers of their arrivals."""
        self._turns: OrderedDict[str, None] = OrderedDict()
        """The projects with jobs that are not held; the next in turn, which was polled least recently, is the first."""
        self._order: list[tuple[int, str]] = []
        """A heap with one item for each of these projects: a number that is not above that of its first job.

        Removal is lazy: there may be items of projects that have left, and numbers of jobs that have. They are
        corrected once they are the first of the heap.
        """
        self._in_order: set[str] = set()
        """The projects with an item in `_order`."""

    def has(self, project_id: str) -> bool:
        """Return whether there are jobs of a project."""
        return project_id in self._jobs

    def add(self, job: Tracked, *, is_held: bool) -> None:
        """Add a job at the end; `is_held`: whether its project is."""
        project_id = job.ref.project_id
        jobs = self._jobs.get(project_id)
        if jobs is None:
            jobs = self._jobs[project_id] = OrderedDict()
        jobs[job] = next(self._numbers)
        if project_id in self._turns:
            self.ready += 1
        elif not is_held:
            self.resume(project_id)

    def discard(self, job: Tracked) -> None:
        """Remove a job, if it is in the line."""
        project_id = job.ref.project_id
        jobs = self._jobs.get(project_id)
        if jobs is None or jobs.pop(job, None) is None:
            return
        self.ready -= project_id in self._turns
        if not jobs:
            del self._jobs[project_id]
            self._turns.pop(project_id, None)

    def hold(self, project_id: str) -> None:
        """Pass over the jobs of a project from now on."""
        if project_id in self._turns:
            del self._turns[project_id]
            self.ready -= len(self._jobs[project_id])

    def resume(self, project_id: str) -> None:
        """Stop passing over the jobs of a project. They are at the positions that they had before."""
        jobs = self._jobs.get(project_id)
        if jobs is None or project_id in self._turns:
            return
        self.ready += len(jobs)
        self._turns[project_id] = None
        if project_id not in self._in_order:  # else its item has a lower number, that of a job which has left
            self._in_order.add(project_id)
            heappush(self._order, (next(iter(jobs.values())), project_id))

    def pop(self, *, by_turn: bool = False) -> Tracked:
        """Remove and return the first job, or `by_turn` that of the project that was polled least recently.

        At least one must be ready.
        """
        project_id = next(iter(self._turns)) if by_turn else self._first_project()
        self._turns.move_to_end(project_id)
        job = next(iter(self._jobs[project_id]))
        self.discard(job)
        return job

    def _first_project(self) -> str:
        """Return the project of the job that was added first."""
        while True:
            number, project_id = self._order[0]
            if project_id not in self._turns:  # it has no jobs, or is held
                heappop(self._order)
                self._in_order.discard(project_id)
                continue
            first = next(iter(self._jobs[project_id].values()))
            if first == number:
                return project_id
            heapreplace(self._order, (first, project_id))  # the job of the item has left


class Lane:
    """Due jobs, first in, first out, in three lines.

    - Urgent jobs go before all others, which get every third poll meanwhile.
    - A job whose poll the server refused for now goes next, since it has kept its position. But while others are due,
      only every third poll is of such a job, or every second one where such jobs outnumber the others: jobs that are
      refused for ever stop no other.
    - Of the others every eighth poll is of the next project in turn: one with ten jobs does not wait for another one's
      ten thousand.

    Jobs of a held project keep their positions, and cost nothing meanwhile.

    Attributes:
        ready: The number of jobs that may be polled now.
    """

    def __init__(self) -> None:
        self.ready = 0
        self._urgent, self._refused, self._others = _Line(), _Line(), _Line()
        self._lines = (self._urgent, self._refused, self._others)
        self._urgent_popped = 0  # in a row
        self._others_popped = 0
        self._refused_from = 0  # of `_others_popped`: from then on, a refused job may go before others

    @property
    def has_urgent(self) -> bool:
        """Whether an urgent job may be polled now."""
        return self._urgent.ready > 0

    def has(self, project_id: str) -> bool:
        """Return whether there are jobs of a project."""
        return any(line.has(project_id) for line in self._lines)

    def _line_of(self, job: Tracked) -> _Line:
        """Return the line of a job; neither property changes while it is in one."""
        if job.is_urgent:
            return self._urgent
        return self._others if job.error is None or not job.is_refused else self._refused

    def _count(self) -> None:
        self.ready = self._urgent.ready + self._refused.ready + self._others.ready

    def add(self, job: Tracked, *, is_held: bool) -> None:
        """Add a job that has come due; `is_held`: whether it may not be polled, since its project is held."""
        self._line_of(job).add(job, is_held=is_held)
        self._count()

    def discard(self, job: Tracked) -> None:
        """Remove a job, if it is in the lane."""
        self._line_of(job).discard(job)
        self._count()

    def pop(self, *, only_urgent: bool = False) -> Tracked:
        """Remove and return the next job, or with `only_urgent` the next urgent one; at least one must be ready."""
        is_turn_of_others = self._urgent_popped >= _URGENT_IN_A_ROW and self.ready > self._urgent.ready
        if self._urgent.ready and (only_urgent or not is_turn_of_others):
            self._urgent_popped += 1
            job = self._urgent.pop()
        else:
            self._urgent_popped = 0
            job = self._pop_not_urgent()
        self.ready -= 1
        return job

    def _pop_not_urgent(self) -> Tracked:
        if self._refused.ready and (self._others_popped >= self._refused_from or not self._others.ready):
            are_many = self._refused.ready > self._others.ready
            self._refused_from = self._others_popped + (_BETWEEN_MANY_REFUSED if are_many else _BETWEEN_REFUSED)
            return self._refused.pop()
        self._others_popped += 1
        return self._others.pop(by_turn=self._others_popped % _TURN_EVERY == 0)

    def hold(self, project_id: str, *, urgent: bool) -> None:
        """Pass over the jobs of a project from now on; `urgent`: also those that are urgent."""
        for line in self._lines if urgent else (self._refused, self._others):
            line.hold(project_id)
        self._count()

    def resume(self, project_id: str) -> None:
        """Stop passing over the jobs of a project."""
        for line in self._lines:
            line.resume(project_id)
        self._count()
