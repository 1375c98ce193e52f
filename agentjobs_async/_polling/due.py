"""The jobs that are due to be polled, in one order: projects take turns, and jobs go by what a poll of them gains."""

from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final

from agentjobs_async._polling.pace import ROUNDING_SECONDS, Release
from agentjobs_async._polling.tracked import Mark, Tracked

_FEW_STALE: Final = 64  # stale entries of a heap that are not worth a sweep
_MOST_TURNS: Final = 1.5  # times its turn in the order of arrival; with its own delay, a job waits for twice as long
_URGENT: Final = -(1 << 62)  # what the number of an urgent job counts from: it goes before all others
_TURN_EVERY: Final = 8
"""Of so many polls one is of the next project in turn, and the others are of the one whose job is due for longest.

Were there more turns, many small projects that begin to fail would come close together: two refusals in a row hold back
the polls of all, and polls that hang take the slots faster than others can overtake them.
"""

_BACKLOG_SECONDS: Final = 1.0  # from when on jobs have been due so long, projects take turns
_TRIED_TURNS: Final = 8  # of projects whose jobs may all fail, until the job that is due for longest is polled


_Entry = tuple[float, int, Mark, Tracked]
"""What a heap orders by, a number that no other entry has, so that no jobs are compared, the mark and the job.

It counts only while the job is READY and has this very mark: removal is lazy.
"""


def _is_current(entry: _Entry) -> bool:
    return entry[3].mark is entry[2] and entry[3].bucket == Tracked.READY


class _Project:
    """The due jobs of one project.

    Attributes:
        size: The number of its jobs that are ready.
        oldest: A heap of all of them, by their arrivals.
        gains: A heap of those whose last poll did not fail, by what a poll gains.
        virtual: The virtual time of the project: the gain of the job that was polled last in its turn.
        known: The number with which the project lies in the heap of all projects; `None` where it does not.
        in_turns: Whether it has a place among the projects that take turns.
        rests_until: Loop time before which none of its jobs may be polled; `None` while they may.
        rested_at: The number of all polls when its rest began.
        missed: The number of polls of other projects while it rested: they do not count against its jobs.
        held_since: Loop time at which the server asked for a pause; `None` without one.
        held_until: Loop time at which the pause ends.
        delay: The usual delay of its jobs, about, when the pause began.
        release: What spreads the jobs that the pause has held.
    """

    __slots__ = (
        *("delay", "gains", "held_since", "held_until", "in_turns", "known", "missed", "name", "oldest", "release"),
        *("rested_at", "rests_until", "size", "virtual"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.oldest: list[_Entry] = []
        self.gains: list[_Entry] = []
        self.virtual = 0.0
        self.known: int | None = None
        self.in_turns = False
        self.rests_until: float | None = None
        self.missed = self.rested_at = 0
        self.held_since: float | None = None
        self.held_until = -inf
        self.delay = 0.0
        self.release: Release | None = None

    @property
    def rests(self) -> bool:
        """Whether none of its jobs may be polled at present."""
        return self.rests_until is not None

    def push(self, heap: list[_Entry], entry: _Entry) -> None:
        """Add an entry; sweep once the stale ones outnumber the others."""
        heappush(heap, entry)
        if len(heap) > 2 * self.size + _FEW_STALE:
            heap[:] = filter(_is_current, heap)
            heapify(heap)

    def hold(self, until: float, delay: float, now: float) -> None:
        """Poll no job before `until`; `delay` is an estimate of the usual delay of the jobs."""
        if self.held_since is None:
            self.held_since, self.delay = now, delay
        self.held_until = max(self.held_until, until)

    def resume(self, now: float) -> None:
        """Spread the jobs that the pause has held.

        A pause that was shorter than the usual delay held back only some of the jobs, and the others come due after it:
        so its jobs are spread over that delay.
        """
        if self.held_since is not None:
            seconds = max(now - self.held_since, self.delay)
            self.release = Release(self.size, seconds, now) if self.size else None
            self.held_since = None


def _first(heap: list[_Entry]) -> _Entry | None:
    while heap:
        if _is_current(heap[0]):
            return heap[0]
        heappop(heap)
    return None


class DueJobs:
    """Due jobs. The projects take turns: one with ten jobs does not wait for another one's ten thousand.

    A project polls the job with the most to gain. The gain grows with the time since the job was last seen,
    in multiples of the delay that the policy asked for, so that all delays are stretched alike. As in self-clocked fair
    queueing, a job is placed by the project's virtual time plus its own delay.

    A job that has waited for 1.5 times as many polls as it would in the order of arrival goes before all others. One
    whose last poll failed has no part in its project's turns, and keeps its place in the order of arrival: the turns
    would bring many small projects that fail close together, and two refusals in a row hold back the polls of all.

    While a project is paused, its jobs keep their places.

    Attributes:
        set_aside: Slow jobs for which there was no slot, in order.
        waiting_since: Loop time from which on some job has been due.
    """

    def __init__(self) -> None:
        self.set_aside: OrderedDict[Tracked, None] = OrderedDict()
        self.waiting_since = -inf
        self._serials = count()
        self._taken = 0
        self._size = self._resting_size = 0
        self._projects: dict[str, _Project] = {}
        self._known: list[tuple[int, int, _Project]] = []
        """A heap of the projects by their oldest jobs: one entry of each counts, that of its `known`."""
        self._turns: deque[_Project] = deque()
        self._resting: list[tuple[float, int, _Project]] = []
        """A heap of the projects that rest: an entry counts while its time is that of `rests_until`."""

    def __len__(self) -> int:
        return self._size + len(self.set_aside)

    @property
    def ready(self) -> int:
        """The number of jobs that may be polled now."""
        return self._size - self._resting_size

    def wakes_at(self) -> float:
        """Return the loop time at which `wake` is to be called next."""
        return self._resting[0][0] if self._resting else inf

    def add(self, tracked: Tracked, now: float, *, urgent: bool = False) -> None:
        """Add a job that has come due: the time since it was last seen is the delay that the policy asked for."""
        if not len(self):
            self.waiting_since = now
        serial, name = next(self._serials), tracked.ref.project_id
        project = self._projects.get(name)
        if project is None:
            project = self._projects[name] = _Project(name)
        if urgent:
            mark = Mark(_URGENT + serial, -inf)
        elif tracked.mark is not None:
            mark = Mark(*tracked.mark)  # another one: entries with the old one are stale
        else:
            taken = project.rested_at if project.rests else self._taken
            mark = Mark(serial, taken - project.missed + _MOST_TURNS * self._size)
        tracked.mark, tracked.bucket = mark, Tracked.READY
        self._size += 1
        self._resting_size += project.rests
        project.size += 1
        if project.release is not None:
            project.release.add()
            if project.rests and project.held_since is None:
                self._end_rest(project, now)
        project.push(project.oldest, (mark.number, serial, mark, tracked))
        if tracked.error is None:
            project.push(project.gains, (project.virtual + now - tracked.seen, serial, mark, tracked))
        self._place(project)

    def _place(self, project: _Project) -> None:
        """Put a project among those that may be polled."""
        first = _first(project.oldest)
        if project.rests or first is None:
            return
        number = first[2].number
        if project.known is None or number < project.known:
            project.known = number
            heappush(self._known, (number, next(self._serials), project))
        if not project.in_turns:
            project.in_turns = True
            self._turns.append(project)

    def discard(self, tracked: Tracked) -> None:
        """Remove a job that is READY or SET_ASIDE, if it is there."""
        project = self._projects.get(tracked.ref.project_id)
        if tracked.bucket == Tracked.SET_ASIDE:
            self.set_aside.pop(tracked, None)
            tracked.bucket = Tracked.NOWHERE
        elif project is not None:
            self._remove(project, tracked)

    def _remove(self, project: _Project, tracked: Tracked) -> None:
        tracked.bucket = Tracked.NOWHERE
        self._size -= 1
        self._resting_size -= project.rests
        project.size -= 1
        if not project.size:  # nothing holds the jobs that were here
            project.oldest.clear()
            project.gains.clear()

    def put_aside(self, tracked: Tracked) -> None:
        """Set a slow job aside that was taken; one near a deadline goes before the others."""
        self.set_aside[tracked] = None
        if tracked.mark is not None and tracked.mark.number < 0:
            self.set_aside.move_to_end(tracked, last=False)
        tracked.bucket = Tracked.SET_ASIDE

    def take_aside(self, now: float) -> Tracked | None:
        """Remove and return the first job that was set aside; `None` if its project rests: it is ready again."""
        tracked, _ = self.set_aside.popitem(last=False)
        tracked.bucket = Tracked.NOWHERE
        project = self._projects.get(tracked.ref.project_id)
        if project is None or not project.rests:
            return tracked
        self.add(tracked, now)
        return None

    def has_urgent(self) -> bool:
        """Return whether a job near its deadline may be polled now."""
        project = self._oldest()
        return project is not None and project.oldest[0][2].number < 0

    def take(self, now: float) -> Tracked | None:
        """Remove and return the next job; `None` where no job may be polled now."""
        project = self._oldest()
        if project is None or self._turn() is None:
            return None
        self._taken += 1
        _, _, mark, oldest = project.oldest[0]
        overdue = mark.overdue_from <= self._taken - project.missed
        # A job that is refused again and again keeps its mark: such jobs get every second poll at most.
        if mark.number < 0 or (overdue and (self._taken % 2 or oldest.error is None)):
            return self._give(project, oldest, now)
        if self._taken % _TURN_EVERY or now - self.waiting_since < _BACKLOG_SECONDS:
            best = None if oldest.error is not None and self._taken % 2 else self._best(project)
            return self._give(project, best or oldest, now)
        for _ in range(_TRIED_TURNS):
            turn = self._turn() or project
            self._turns.rotate(-1)
            best = None if turn is project else self._best(turn)
            if best is not None:
                return self._give(turn, best, now)
        return self._give(project, self._best(project) or oldest, now)

    def _turn(self) -> _Project | None:
        """Return the project whose turn it is. Those without jobs are forgotten, and those that rest are left out."""
        while self._turns:
            project = self._turns[0]
            if project.size and not project.rests:
                return project
            self._turns.popleft()
            project.in_turns = False
            if not project.rests:
                del self._projects[project.name]
        return None

    def _oldest(self) -> _Project | None:
        """Return the project that may be polled and whose job is due for longest; that job leads its heap."""
        while self._known:
            number, _, project = self._known[0]
            if number == project.known:
                first = None if project.rests else _first(project.oldest)
                if first is not None and first[2].number == number:
                    return project
                project.known = None
            heappop(self._known)
            if project.known is None:
                self._place(project)
        return None

    def _best(self, project: _Project) -> Tracked | None:
        first = _first(project.gains)
        if first is None:
            return None
        project.virtual = first[0]
        return first[3]

    def _give(self, project: _Project, tracked: Tracked, now: float) -> Tracked:
        self._remove(project, tracked)
        release = project.release
        if release is not None:
            release.start(now)
            if release.next_start(now) > now:
                self._rest(project, release.next_start(now))
        return tracked

    def hold(self, project_id: str, until: float, delay: float, now: float) -> None:
        """Poll no job of the project before the loop time `until`; `delay`: the usual one of its jobs, about."""
        project = self._projects.get(project_id)
        if project is None:
            project = self._projects[project_id] = _Project(project_id)
        releases = project.held_since is None
        project.hold(until, delay, now)
        if not project.rests:
            self._rest(project, until)
        elif releases:  # the next poll of a release may lie beyond `until`
            self._end_rest(project, now)

    def _rest(self, project: _Project, until: float) -> None:
        project.rests_until, project.rested_at = until, self._taken
        self._resting_size += project.size
        heappush(self._resting, (until, next(self._serials), project))

    def wake(self, now: float) -> None:
        """Make the jobs of the projects ready whose rest is over."""
        while self._resting and self._resting[0][0] <= now + ROUNDING_SECONDS:
            until, _, project = heappop(self._resting)
            if project.rests_until == until:
                self._end_rest(project, now)

    def _end_rest(self, project: _Project, now: float) -> None:
        self._resting_size -= project.size
        project.rests_until = None
        project.missed += self._taken - project.rested_at
        if project.held_until > now + ROUNDING_SECONDS:
            self._rest(project, project.held_until)
            return
        project.resume(now)
        self._place(project)
        if not project.size and not project.in_turns:
            del self._projects[project.name]
