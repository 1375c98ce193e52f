"""Which job is polled next, and when: what is due, in the order of need, at the pace that the server can bear.

Polls lie in a timetable on a clock that stands still while the server wishes to be left alone or cannot be reached:
what was due in that time comes due afterwards in the same rhythm.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from random import choice
from typing import Final

from agentjobs_async._polling.clock import ROUNDING, PollClock
from agentjobs_async._polling.pauses import Pauses
from agentjobs_async._polling.timers import RESOLUTION, TimerBuckets, Timers
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef

__all__ = ["PollQueue"]

_BUCKETS_OF_SPREAD: Final = RESOLUTION / 0.1
_LONG: Final = 100.0
_COARSEST: Final = 100
_LONGEST_RELEASE: Final = 10.0
_UNREACHABLE_AFTER: Final = 10
_FEW: Final = 64
_PROBE_AFTER_LEAVING: Final = 1.0
_PROBE_AT_LEAST_EVERY: Final = 30.0
_SILENCE: Final = 1.0
_MOST_PUT_OFF: Final = 1000  # polls of paused projects in one turn of the loop: a few milliseconds


class PollQueue:
    """The polls of one scheduler that are to come.

    Args:
        jobs: All that are tracked, shared with the scheduler.
        dispatch: Called when something may go out.

    Attributes:
        no_slow: Whether jobs of which a poll was cut hold all the places that they may: they are set aside.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: dict[JobRef, Tracked],
        per_second: float | None,
        dispatch: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._jobs = jobs
        self._dispatch = dispatch
        self._alarms = Timers(loop)
        self._tempo = PollClock(per_second)
        self._pauses = Pauses()
        self._lifted_until = -inf
        self._timetable: TimerBuckets[Tracked] = TimerBuckets(lambda tracked, bucket: tracked.bucket == bucket)
        self._ready: deque[Tracked] = deque()
        self._urgent: deque[Tracked] = deque()
        self._aside: deque[Tracked] = deque()
        self.no_slow = False
        self._waiting_since = -inf
        self._answered_at = loop.time()
        self._armed: float = inf
        self._stale = 0
        self._failed_to_reach: set[JobRef] = set()
        self._probe: Tracked | None = None

    def backlog(self) -> int:
        """Count what may go out, give or take what has left since."""
        if not self._tempo.stopped:
            return len(self._ready) + len(self._urgent) + (0 if self.no_slow else len(self._aside))
        return len(self._urgent) if self._tempo.unreachable else 0

    def waiting(self) -> int:
        """Count what is due, whether it may go out or not."""
        return len(self._ready) + len(self._urgent) + len(self._aside) - self._stale

    def has_set_aside(self) -> bool:
        """Return whether a slow job waits for one of the places that slow jobs may hold."""
        return self.no_slow and bool(self._aside)

    def make_ready(self, tracked: Tracked) -> None:
        """Queue a job to be polled in its turn, now."""
        self._unqueue(tracked)
        self._append_ready([tracked])
        self._dispatch()

    def _append_ready(self, tracked: Iterable[Tracked]) -> None:
        if not self._ready:
            self._waiting_since = self._loop.time()
        for one in tracked:
            one.bucket = Tracked.READY
            self._ready.append(one)

    def place(self, tracked: Tracked, when: float, now: float) -> None:
        """Schedule a job's poll for the loop time `when`, or for as soon as the poll clock reaches it.

        What would all be due at once is spread over a tenth of its delay. A long delay needs no fine time.
        """
        if tracked.bucket != Tracked.NOWHERE:
            self._unqueue(tracked)
        delay = when - now
        step = 1 if delay < _LONG else min(int(delay / _LONG), _COARSEST)
        at_most = 1 + int(len(self._jobs) * step * _BUCKETS_OF_SPREAD / (delay + RESOLUTION))
        bucket = tracked.bucket = self._timetable.add(tracked, self._tempo.due(when, now), at_most, step)
        if bucket < self._armed:
            self._arm()

    def make_urgent(self, tracked: Tracked, now: float) -> None:
        """Queue a job before all others, since a deadline is near, but not before its `not_before`."""
        not_before = max(tracked.not_before, self._pauses.until(tracked.ref.project_id, now))
        if not_before > now + ROUNDING and tracked.bucket == Tracked.READY:
            self.place(tracked, not_before, now)
        elif not_before > now + ROUNDING:
            self.reschedule_earlier(tracked, not_before, now)
        elif tracked.bucket not in {Tracked.URGENT, Tracked.NOWHERE}:
            self._unqueue(tracked)
            tracked.bucket = Tracked.URGENT
            self._urgent.append(tracked)
            self._dispatch()

    def reschedule_earlier(self, tracked: Tracked, when: float, now: float) -> None:
        """Schedule a job's poll for the loop time `when`, unless it is due earlier already."""
        if self._tempo.due(when, now) < tracked.bucket * RESOLUTION:
            self.place(tracked, when, now)

    def remove(self, tracked: Tracked) -> None:
        """Poll it no more."""
        self._unqueue(tracked)
        tracked.bucket = Tracked.NOWHERE
        if self._tempo.unreachable:
            self._alarms.set(self._on_probe, self._loop.time() + _PROBE_AFTER_LEAVING)

    def _unqueue(self, tracked: Tracked) -> None:
        """Remove a job from its queue, lazily: its entry is skipped later, or swept once stale entries are the most."""
        if tracked.bucket >= 0:
            self._timetable.note_stale()
        elif tracked.bucket != Tracked.NOWHERE:
            self._stale += 1
            if self._stale > _FEW and self._stale * 2 > len(self._ready) + len(self._urgent) + len(self._aside):
                tracked.bucket = Tracked.NOWHERE
                self._sweep()

    def _sweep(self) -> None:
        self._ready = deque(tracked for tracked in self._ready if tracked.bucket == Tracked.READY)
        self._urgent = deque(tracked for tracked in self._urgent if tracked.bucket == Tracked.URGENT)
        self._aside = deque(tracked for tracked in self._aside if tracked.bucket == Tracked.SET_ASIDE)
        self._stale = 0

    def next(self, now: float) -> Tracked | None:
        """Remove and return the job to poll next, near deadlines first; `None` while no poll may start."""
        if self._tempo.free and not (self._urgent or self._aside or self._pauses.projects or now < self._lifted_until):
            return self._oldest()
        if self._tempo.stopped:
            return self._first(self._urgent, Tracked.URGENT, now) if self._tempo.unreachable else None
        tracked = self._first(self._urgent, Tracked.URGENT, now)
        if tracked is None and not self.no_slow:  # set aside in the order of need: all of them before what is ready
            tracked = self._first(self._aside, Tracked.SET_ASIDE, now)
        return tracked or self._first(self._ready, Tracked.READY, now)

    def _oldest(self) -> Tracked | None:
        while self._ready:
            tracked = self._ready.popleft()
            if tracked.bucket != Tracked.READY:
                self._stale -= 1
            elif self.no_slow and tracked.patience:
                self._set_aside(tracked)
            else:
                tracked.bucket = Tracked.NOWHERE
                return tracked
        return None

    def _set_aside(self, tracked: Tracked) -> None:
        """Set a slow job aside until a slot for slow jobs is free; one near a deadline goes before the others."""
        (self._aside.appendleft if tracked.bucket == Tracked.URGENT else self._aside.append)(tracked)
        tracked.bucket = Tracked.SET_ASIDE
        self._dispatch()

    def _first(self, queue: deque[Tracked], place: int, now: float) -> Tracked | None:
        left = _MOST_PUT_OFF
        while queue:
            tracked = queue[0]
            if tracked.bucket != place:
                self._stale -= 1
            elif not left:
                self._alarms.set(self._dispatch, now)  # the rest after the next turn of the loop
                return None
            elif self._put_off(tracked, now):
                left -= 1
            elif self.no_slow and tracked.patience and not self._tempo.unreachable:
                self._set_aside(tracked)
            else:
                again_at = self._tempo.start(now)
                if again_at:
                    self._alarms.set(self._dispatch, again_at)
                    return None
                tracked.bucket = Tracked.NOWHERE
                return queue.popleft()
            queue.popleft()
        return None

    def _put_off(self, tracked: Tracked, now: float) -> bool:
        """Place the poll anew where the server wishes it later, of the job or its project; return whether it does.

        Before the time at which a pause of all would have ended, which was lifted, polls come out too early that were
        placed during it.
        """
        project = tracked.ref.project_id
        paused_until = self._pauses.until(project, now)
        when = max(paused_until, tracked.not_before) if now < self._lifted_until else paused_until
        if when <= now + ROUNDING:
            return False
        if when == paused_until and tracked.bucket != Tracked.URGENT:
            when = self._pauses.release(project, now, first=tracked.polls == 0)
        tracked.bucket = Tracked.NOWHERE  # the caller takes it out of its queue: it leaves no ghost there
        self.place(tracked, when, now)
        return True

    def _arm(self) -> None:
        first = self._timetable.first()
        if first is not None and not self._tempo.stopped:
            self._armed = first
            self._alarms.set(self._on_due, self._tempo.to_loop(first * RESOLUTION))

    def _on_due(self) -> None:
        self._armed = inf
        if self._tempo.stopped:
            return
        self._append_ready(self._timetable.take_due(self._tempo.time(self._loop.time())))
        self._arm()
        self._dispatch()

    # The server wishes to be left alone, or is gone.

    def pause(self, ref: JobRef, status: int, until: float, due: float, now: float) -> None:
        """Keep to the wish of an answer about a job that no poll goes out before `until`, for all whom it concerns."""
        if self._pauses.hear(ref, status, until, due, now):
            self.pause_until(until, now)

    def pause_until(self, until: float, now: float) -> None:
        """Pause all polls until the loop time `until`."""
        self._tempo.stop(now, until)
        self._alarms.set(self._on_resume, until)

    def reached(self) -> None:
        """Record that the server answered."""
        if self._failed_to_reach:
            self._failed_to_reach.clear()
            if self._tempo.unreachable:
                self._resume()

    def not_reached(self, tracked: Tracked, due: float, now: float) -> None:
        """Record that the server could not be reached for one job.

        When that was so for several in a row, and for nobody else between them, it holds for all: then one poll asks
        for all, each time another job's.
        """
        self._failed_to_reach.add(tracked.ref)
        if len(self._jobs) > 1 and len(self._failed_to_reach) >= min(_UNREACHABLE_AFTER, len(self._jobs)):
            self._tempo.stop(now, None)
        if self._tempo.unreachable and (self._probe is None or self._probe is tracked):
            others = [other for other in self._jobs.values() if other is not tracked]
            self._probe = choice(others) if others else tracked  # noqa: S311 - fairness, no secret
            self._alarms.set(self._on_probe, due)

    def _on_probe(self) -> None:
        if not self._tempo.unreachable:
            return
        if not self._jobs:
            self._resume()
            return
        if self._probe is None or self._probe.bucket == Tracked.NOWHERE:  # gone, or its poll hangs
            self._probe = next((tracked for tracked in self._jobs.values() if tracked.bucket != Tracked.NOWHERE), None)
        now = self._loop.time()
        self._alarms.set(self._on_probe, now + _PROBE_AT_LEAST_EVERY)
        if self._probe is not None:
            self.make_urgent(self._probe, now)

    def _on_resume(self) -> None:
        until = self._tempo.resume_at
        if until is None:
            return  # a good answer was the end of it
        if self._loop.time() < until - ROUNDING:
            self._alarms.set(self._on_resume, until)
        else:
            self._resume()

    def _resume(self) -> None:
        """Resume polling. Jobs that became due meanwhile are spread over as long a time as was lost."""
        now = self._loop.time()
        lost = self._tempo.resume(now)
        self._failed_to_reach.clear()
        self._probe = None
        self._spread(self._timetable.take_due(self._tempo.time(now)), lost, now)
        self._arm()
        self._dispatch()

    def answered(self, now: float) -> None:
        """Record a good answer. Jobs that have been due since the last one are spread, not polled all at once.

        It shows that the wishes heard before it, of a job or a project each, were not meant for all.
        """
        if self._failed_to_reach:
            self.reached()
        if self._pauses.suspected:
            self._pauses.answered()
            if self._tempo.resume_at is not None:
                self._lifted_until = max(self._lifted_until, self._tempo.resume_at)
                self._resume()
        lost = now - self._answered_at
        self._answered_at = now
        if lost >= _SILENCE and self._ready:
            lost = min(lost, now - self._waiting_since)
            if lost >= _SILENCE:
                self._spread([], lost, now)

    def _spread(self, due: list[Tracked], lost: float, now: float) -> None:
        """Reschedule the ready jobs, and then `due`, spread over as long a time as was lost."""
        spread = min(lost, _LONGEST_RELEASE)
        released = [tracked for tracked in self._ready if tracked.bucket == Tracked.READY] + due
        self._ready.clear()
        self._stale = sum(tracked.bucket != Tracked.URGENT for tracked in self._urgent)
        self._stale += sum(tracked.bucket != Tracked.SET_ASIDE for tracked in self._aside)
        for index, tracked in enumerate(released):
            tracked.bucket = Tracked.NOWHERE
            self.place(tracked, now + spread * index / len(released), now)

    def close(self) -> None:
        """Stop all timers, and forget what was due."""
        self._alarms.cancel()
        self._ready.clear()
        self._urgent.clear()
        self._aside.clear()
        self._stale = 0
