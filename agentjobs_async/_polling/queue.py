"""Which job is polled next, and when: later jobs by their times, due ones in two lanes, and one gate before both."""

from collections import Counter
from collections.abc import Sized
from math import inf
from typing import Final

from agentjobs_async._loop.wheel import TimerWheel
from agentjobs_async._polling.gate import Gate
from agentjobs_async._polling.holds import Holds
from agentjobs_async._polling.lane import Lane
from agentjobs_async._polling.limiters import ROUNDING_SECONDS, PollLimits
from agentjobs_async._polling.tracked import Place, Tracked

_LATE_SECONDS: Final = 0.25  # more than an iteration of a busy loop takes

_QUICK_IN_A_ROW: Final = 2  # while slow jobs wait: urgent jobs without end, one after another, stop none of these


class PollQueue:
    """The polls of one scheduler that are yet to be made. It starts none itself: it is asked for the next one.

    A job is in the wheel until its poll is due, then in the quick lane. Slow jobs, of which a poll was cut because it
    hung, use at most half of the slots. When the turn of one comes while all of these are taken, it goes to the slow
    lane, and gets the next one that is free.

    Args:
        limits: How many polls may start.
        jobs: All tracked jobs, which the caller keeps.
        slots: How many polls may be in flight.
        now: The loop time.
    """

    def __init__(self, limits: PollLimits, jobs: Sized, slots: int, now: float) -> None:
        self._later: TimerWheel[Tracked] = TimerWheel()
        self._due_at = inf  # loop time at which the first of these comes due; earlier where that one was taken out
        self._quick, self._slow = Lane(), Lane()
        self._gate = Gate(limits, jobs, now)
        self._holds = Holds()
        self._projects: Counter[str] = Counter()
        """How many jobs of each project are tracked."""
        self._slow_in_flight: set[Tracked] = set()
        self._most_slow = max(slots // 2, 1)
        self._quick_in_a_row = 0  # polls from the quick lane

    def add(self, job: Tracked, now: float) -> None:
        """Add a job that is new, to be polled as soon as its `not_before` allows."""
        self._projects[job.ref.project_id] += 1
        self.put(job, job.not_before, now)

    def put(self, job: Tracked, when: float, now: float) -> None:
        """Poll a job at the loop time `when`, or as soon after it as the gate and the slots allow."""
        self._discard(job)
        self._insert(job, when, now)

    def _insert(self, job: Tracked, when: float, now: float) -> None:
        if when > now:
            job.put_off(when)
            self._due_at = min(self._due_at, self._later.add(job, when))
        else:
            self._come_due(job)

    def put_earlier(self, job: Tracked, when: float, now: float) -> None:
        """Poll a job that is not due yet at the loop time `when`, unless its poll comes before that anyway."""
        if job.place is Place.LATER and when < job.due:
            self.put(job, when, now)

    def hurry(self, job: Tracked, now: float) -> None:
        """Poll a job before all others, since a deadline is near, but not before its `not_before`."""
        if job.place in {Place.LATER, Place.DUE} and not job.is_urgent:
            when = job.not_before if job.not_before > now + ROUNDING_SECONDS else now
            self._discard(job)
            job.hurry(when)  # after it has left its line, and before it enters that of urgent ones
            self._insert(job, when, now)

    def _come_due(self, job: Tracked) -> None:
        job.come_due()
        self._quick.add(job, is_held=bool(self._holds.by_project) and self._is_held(job))

    def _is_held(self, job: Tracked) -> bool:
        return self._holds.is_held(job.ref.project_id, urgent=job.is_urgent)

    def _discard(self, job: Tracked) -> None:
        """Remove a job from where it is."""
        if job.place is Place.LATER:
            self._later.discard(job, job.due)
        elif job.place is Place.DUE:
            self._quick.discard(job)
            self._slow.discard(job)
        elif self._slow_in_flight:
            self._slow_in_flight.discard(job)

    def block(self, job: Tracked) -> None:
        """Set a job aside that `next` gave, and whose poll can't begin yet: it uses no slot. `put` brings it back."""
        self._discard(job)
        job.block()

    def remove(self, job: Tracked) -> None:
        """Poll a job no more."""
        self._discard(job)
        job.go()
        project_id = job.ref.project_id
        self._projects[project_id] -= 1
        if not self._projects[project_id]:
            del self._projects[project_id]
            if not self._is_held(job):
                self._holds.forget(project_id)

    def next(self, now: float) -> Tracked | None:
        """Remove and return the job to poll now; `None` while no poll may start."""
        if min(self._due_at, self._holds.ends_at) <= now + ROUNDING_SECONDS:
            self._update(now)
        while (lane := self._open_lane(now)) is not None:
            is_urgent = lane.has_urgent
            if self._gate.opens_at(now, is_urgent=is_urgent) > now:
                break
            job = lane.pop(only_urgent=is_urgent and self._gate.opens_at(now) > now)
            if job.is_slow:
                if not self._has_slow_slot:
                    self._slow.add(job, is_held=self._is_held(job))
                    continue
                self._slow_in_flight.add(job)
            self._quick_in_a_row = self._quick_in_a_row + 1 if lane is self._quick else 0
            self._count_start(job, now)
            return job
        return None

    def _update(self, now: float) -> None:
        """Move the jobs that have come due into the quick lane, and end the holds that are over."""
        for job in self._later.pop_due(now):
            self._come_due(job)
        self._due_at = self._later.first_due()
        # After that: a hold is forgotten where nothing of its project is due, and what came due then had no interval.
        for project_id in self._holds.end_due(now):
            for lane in (self._quick, self._slow):
                lane.resume(project_id)
            self._forget_hold(project_id)

    def _forget_hold(self, project_id: str) -> None:
        if not self._quick.has(project_id) and not self._slow.has(project_id):
            self._holds.forget(project_id)

    def _spread_backlog(self, job: Tracked, now: float) -> None:
        """Spread the polls of what is due, if the first one is late since none could start.

        That happens after the loop stood still, or while polls that hung took all slots; a slow job, or one whose
        project was held, is late for a reason of its own. The spread takes no longer than the first job was late.
        """
        hold = self._holds.by_project.get(job.ref.project_id)
        was_held = hold is not None and now - hold.ended_at <= _LATE_SECONDS
        if not (self._gate.has_piled_up or job.is_slow or was_held):
            self._gate.pile_up(now, (now - job.due) / (self._quick.ready + 1))

    def _count_start(self, job: Tracked, now: float) -> None:
        """Count the poll of a job, which has left its lane, as started."""
        if now - job.due > _LATE_SECONDS and now - self._gate.started_at > _LATE_SECONDS:  # no poll started meanwhile
            self._spread_backlog(job, now)
        if self._gate.has_piled_up and not self._quick.ready:
            self._gate.clear()
        self._gate.start(now)  # after these, which ask for the start before, and set the interval
        if self._holds.by_project:
            self._rest(job.ref.project_id, now)
        job.hand_out()

    def _rest(self, project_id: str, now: float) -> None:
        """Hold a project that was paused after each of its polls, so that its due jobs leave one by one.

        Once none is left, nothing is held.
        """
        hold = self._holds.by_project.get(project_id)
        if hold is None or hold.is_in_force:  # in force: the poll was of an urgent job
            return
        jobs = max(hold.jobs, self._projects[project_id])  # those that have ended meanwhile don't slow the others
        self._holds.rest(project_id, now + self._gate.release_interval(jobs, now - hold.released_at))
        for lane in (self._quick, self._slow):
            lane.hold(project_id, urgent=False)
        self._forget_hold(project_id)

    @property
    def _has_slow_slot(self) -> bool:
        return len(self._slow_in_flight) < self._most_slow

    def _open_lane(self, now: float) -> Lane | None:
        """Return the lane to serve; `None` if no job may be polled. Jobs in the slow lane have waited for longer."""
        if self._slow.ready and self._has_slow_slot and (not self._quick.has_urgent or self._is_turn_of_slow(now)):
            return self._slow
        return self._quick if self._quick.ready else None

    def _is_turn_of_slow(self, now: float) -> bool:
        """Return whether the slow lane is served before urgent jobs of the quick one, which wait only if it may be."""
        is_open = self._gate.opens_at(now, is_urgent=self._slow.has_urgent) <= now
        return is_open and self._quick_in_a_row >= _QUICK_IN_A_ROW

    @property
    def has_slow(self) -> bool:
        """Whether a slow job waits for one of the slots that slow jobs may use."""
        return self._slow.ready > 0 and not self._has_slow_slot

    def wakes_at(self, now: float) -> float:
        """Return the loop time at which `next` is to be asked again; `now` while it has a job to give."""
        lane = self._open_lane(now)
        if lane is not None:
            return self._gate.opens_at(now, is_urgent=lane.has_urgent)
        return min(self._due_at, self._holds.ends_at)

    def on_answer(self, job: Tracked, error: BaseException | None, began: float, now: float) -> None:
        """Learn from the answer that came `now` to a poll that `began` at that loop time."""
        held_until = self._gate.on_answer(job.ref, error, began, job.due, job.not_before, now)
        if held_until is not None and held_until > now:
            self._pause(job.ref.project_id, held_until)

    def _pause(self, project_id: str, until: float) -> None:
        """Poll no job of a project before the loop time `until`, and then one by one."""
        if self._holds.pause(project_id, until, self._projects[project_id]):
            for lane in (self._quick, self._slow):
                lane.hold(project_id, urgent=True)

    def close(self) -> None:
        """Forget all polls."""
        self._later = TimerWheel()
        self._quick, self._slow = Lane(), Lane()
