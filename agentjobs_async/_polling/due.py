"""The jobs that are due to be polled, in one order: first in, first out, with turns for the projects that have few."""

from collections import OrderedDict
from heapq import heappop, heappush, heapreplace
from itertools import count
from math import inf
from typing import Final

from agentjobs_async._polling.pace import ROUNDING_SECONDS, Release
from agentjobs_async._polling.tracked import Tracked

_TURN_EVERY: Final = 8
"""Of so many polls one is of the next project in turn, and the others are of the jobs that have been due for longest.

Were there more turns, many small projects that begin to fail would come close together: two refusals in a row hold back
the polls of all, and polls that hang fill the slots faster than others can overtake them.
"""

_BETWEEN_REFUSED: Final = 2  # polls of other jobs, where as many are due: those that are refused for ever get a third
_BETWEEN_MANY_REFUSED: Final = 1  # where fewer are due: a third would make the many wait for three turns


class _Line:
    """Due jobs, first in, first out. Those of a held project keep their positions, and are passed over.

    Attributes:
        size: The number of jobs.
        ready: The number of those whose project is not held.
    """

    __slots__ = ("_in_order", "_jobs", "_numbers", "_order", "_turns", "ready", "size")

    def __init__(self) -> None:
        self.size = self.ready = 0
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

    def jobs_of(self, project_id: str) -> int:
        """Return the number of the jobs of a project."""
        return len(self._jobs.get(project_id, ()))

    def add(self, tracked: Tracked, *, is_held: bool) -> None:
        """Add a job at the end; `is_held`: whether its project is."""
        name = tracked.ref.project_id
        jobs = self._jobs.get(name)
        if jobs is None:
            jobs = self._jobs[name] = OrderedDict()
        jobs[tracked] = next(self._numbers)
        self.size += 1
        if name in self._turns:
            self.ready += 1
        elif not is_held:
            self.resume(name)

    def discard(self, tracked: Tracked) -> None:
        """Remove a job, if it is in the line."""
        name = tracked.ref.project_id
        jobs = self._jobs.get(name)
        if jobs is None or jobs.pop(tracked, None) is None:
            return
        self.size -= 1
        self.ready -= name in self._turns
        if not jobs:
            del self._jobs[name]
            self._turns.pop(name, None)

    def hold(self, project_id: str) -> None:
        """Pass over the jobs of a project from now on."""
        if project_id in self._turns:
            del self._turns[project_id]
            self.ready -= len(self._jobs[project_id])

    def resume(self, project_id: str) -> None:
        """Count the jobs of a project, which was held, among those that may be polled; they are where they were."""
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
        name = next(iter(self._turns)) if by_turn else self._first_project()
        self._turns.move_to_end(name)
        tracked = next(iter(self._jobs[name]))
        self.discard(tracked)
        return tracked

    def _first_project(self) -> str:
        """Return the project of the job that was added first."""
        while True:
            number, name = self._order[0]
            if name not in self._turns:  # it has no jobs, or is held
                heappop(self._order)
                self._in_order.discard(name)
                continue
            first = next(iter(self._jobs[name].values()))
            if first == number:
                return name
            heapreplace(self._order, (first, name))  # the job of the item has left


class _Hold:
    """Why the jobs of one project wait: the server asked for a pause, or what a pause held back goes out one by one.

    Attributes:
        rests_until: Loop time before which none of its jobs may be polled; `None` while they may.
        release: What spreads the jobs that a pause has held; `None` before its end.
    """

    __slots__ = ("_delay", "_paused_since", "_paused_until", "release", "rests_until")

    def __init__(self) -> None:
        self.rests_until: float | None = None
        self.release: Release | None = None
        self._paused_since: float | None = None
        self._paused_until = -inf
        self._delay = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether the server asked for a pause that is not over."""
        return self._paused_since is not None

    def pause(self, until: float, delay: float, now: float) -> float:
        """Poll no job before `until`; `delay` is an estimate of the usual delay of the jobs.

        Returns:
            The loop time at which the longest pause that was asked for ends.
        """
        if self._paused_since is None:
            self._paused_since, self._delay = now, delay
        self._paused_until = max(self._paused_until, until)
        return self._paused_until

    def end_pause(self, jobs: int, now: float) -> None:
        """Spread the jobs that the pause has held; do nothing without a pause.

        A pause that was shorter than the usual delay held back only some of the jobs, and the others come due after it:
        so its jobs are spread over that delay.
        """
        if self._paused_since is not None:
            self.release = Release(jobs, max(now - self._paused_since, self._delay), now)
            self._paused_since = None


class DueJobs:
    """Due jobs, first in, first out, in three lines.

    - Urgent jobs go before all others.
    - A job whose poll the server refused for now goes next, since it has kept its position. But while others are due,
      only every third poll is of such a job, or every second one where such jobs are more than the others: jobs that
      are refused for ever stop no other.
    - Of the others every eighth poll is of the next project in turn: one with ten jobs does not wait for another one's
      ten thousand.

    While a project is paused, its jobs keep their positions.

    Attributes:
        set_aside: Slow jobs for which there was no slot, in order.
        waiting_since: Loop time from which on some job has been due.
    """

    def __init__(self) -> None:
        self.set_aside: OrderedDict[Tracked, None] = OrderedDict()
        self.waiting_since = -inf
        self._urgent, self._refused, self._others = _Line(), _Line(), _Line()
        self._lines = (self._urgent, self._refused, self._others)
        self._others_popped = 0
        self._refused_from = 0  # of `_others_popped`: from then on, a refused job may go before others
        self._holds: dict[str, _Hold] = {}
        self._rests: list[tuple[float, str]] = []
        """A heap of the projects that rest: an item counts while its time is that of `rests_until`."""

    def __len__(self) -> int:
        return self._urgent.size + self._refused.size + self._others.size + len(self.set_aside)

    @property
    def ready(self) -> int:
        """The number of jobs that may be polled now."""
        return self._urgent.ready + self._refused.ready + self._others.ready

    def wakes_at(self) -> float:
        """Return the loop time at which `wake` is to be called next."""
        return self._rests[0][0] if self._rests else inf

    def _line_of(self, tracked: Tracked) -> _Line:
        """Return the line of a job; neither property changes while it is in one."""
        if tracked.is_urgent:
            return self._urgent
        return self._refused if tracked.is_refused else self._others

    def add(self, tracked: Tracked, now: float) -> None:
        """Add a job that has come due."""
        if not len(self):
            self.waiting_since = now
        name = tracked.ref.project_id
        hold = self._holds.get(name)
        if hold is not None and hold.release is not None:
            hold.release.add()
            if not hold.is_paused:
                self._end_rest(name, hold)
        tracked.bucket = Tracked.READY
        self._line_of(tracked).add(tracked, is_held=hold is not None and hold.rests_until is not None)

    def discard(self, tracked: Tracked) -> None:
        """Remove a job that is READY or SET_ASIDE, unless the queue was closed, and has forgotten it."""
        if tracked.bucket == Tracked.SET_ASIDE:
            self.set_aside.pop(tracked, None)
        else:
            self._line_of(tracked).discard(tracked)
            self._forget_hold(tracked.ref.project_id)
        tracked.bucket = Tracked.NOWHERE

    def put_aside(self, tracked: Tracked) -> None:
        """Set a slow job aside that was popped; an urgent one goes before the others."""
        self.set_aside[tracked] = None
        if tracked.is_urgent:
            self.set_aside.move_to_end(tracked, last=False)
        tracked.bucket = Tracked.SET_ASIDE

    def pop_aside(self, now: float) -> Tracked | None:
        """Remove and return the first job that was set aside; `None` if its project rests: it is ready again."""
        tracked, _ = self.set_aside.popitem(last=False)
        tracked.bucket = Tracked.NOWHERE
        hold = self._holds.get(tracked.ref.project_id)
        if hold is None or hold.rests_until is None:
            return tracked
        self.add(tracked, now)
        return None

    def has_urgent(self) -> bool:
        """Return whether an urgent job may be polled now."""
        return self._urgent.ready > 0

    def pop(self, now: float) -> Tracked | None:
        """Remove and return the next job; `None` where no job may be polled now."""
        if self._urgent.ready:
            tracked = self._urgent.pop()
        elif self._refused.ready and (self._others_popped >= self._refused_from or not self._others.ready):
            are_many = self._refused.ready > self._others.ready
            self._refused_from = self._others_popped + (_BETWEEN_MANY_REFUSED if are_many else _BETWEEN_REFUSED)
            tracked = self._refused.pop()
        elif self._others.ready:
            self._others_popped += 1
            tracked = self._others.pop(by_turn=self._others_popped % _TURN_EVERY == 0)
        else:
            return None
        tracked.bucket = Tracked.NOWHERE
        if self._holds:
            self._rest_between(tracked.ref.project_id, now)
        return tracked

    def _rest_between(self, project_id: str, now: float) -> None:
        """Count a poll of a project; if its held jobs are being released, make the others wait for the next one."""
        hold = self._holds.get(project_id)
        if hold is None or hold.release is None:
            return
        hold.release.start(now)
        next_start = hold.release.next_start(now)
        if next_start > now:
            self._rest(project_id, hold, next_start)
        self._forget_hold(project_id)

    def hold(self, project_id: str, until: float, delay: float, now: float) -> None:
        """Poll no job of the project before the loop time `until`; `delay`: the usual one of its jobs, about."""
        hold = self._holds.get(project_id)
        if hold is None:
            hold = self._holds[project_id] = _Hold()
        self._rest(project_id, hold, hold.pause(until, delay, now))

    def _rest(self, project_id: str, hold: _Hold, until: float) -> None:
        """Poll no job of the project before `until`, which replaces the time that was said before."""
        if hold.rests_until != until:
            hold.rests_until = until
            heappush(self._rests, (until, project_id))
            for line in self._lines:
                line.hold(project_id)

    def wake(self, now: float) -> None:
        """Make the jobs of the projects ready whose rest is over."""
        while self._rests and self._rests[0][0] <= now + ROUNDING_SECONDS:
            until, name = heappop(self._rests)
            hold = self._holds.get(name)
            if hold is not None and hold.rests_until == until:
                hold.end_pause(self._jobs_of(name), now)
                self._end_rest(name, hold)
                self._forget_hold(name)

    def _end_rest(self, project_id: str, hold: _Hold) -> None:
        hold.rests_until = None
        for line in self._lines:
            line.resume(project_id)

    def _jobs_of(self, project_id: str) -> int:
        return sum(line.jobs_of(project_id) for line in self._lines)

    def _forget_hold(self, project_id: str) -> None:
        """Forget why jobs of a project waited once none of them does: those that come later are not to be spread."""
        hold = self._holds.get(project_id)
        if hold is not None and not hold.is_paused and not self._jobs_of(project_id):
            del self._holds[project_id]
