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

from agentjobs_async._tempo import ROUNDING, Tempo
from agentjobs_async._timetable import RESOLUTION, Timetable
from agentjobs_async._tracked import Tracked
from agentjobs_async.models import JobRef

__all__ = ["Alarms", "PollQueue"]

_BUCKETS_OF_SPREAD: Final = RESOLUTION / 0.1
_LONG: Final = 100.0
_COARSEST: Final = 100
_LONGEST_RELEASE: Final = 10.0
_UNREACHABLE_AFTER: Final = 10
_FEW: Final = 64
_PROBE_AFTER_LEAVING: Final = 1.0
_PROBE_AT_LEAST_EVERY: Final = 30.0
_SILENCE: Final = 1.0


class Alarms:
    """One timer for each function that is to be called; the earliest time wins."""

    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def set(self, alarm: Callable[[], None], when: float) -> None:
        """Let the loop call `alarm` at `when`, unless it does so earlier already."""
        timer = self._timers.get(alarm)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[alarm] = self._loop.call_at(when, self._ring, alarm)

    def _ring(self, alarm: Callable[[], None]) -> None:
        del self._timers[alarm]
        alarm()

    def cancel(self) -> None:
        """Cancel them all."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class PollQueue:
    """The polls of one scheduler that are to come.

    Args:
        jobs: All that are tracked, shared with the scheduler.
        pump: Called when something may go out.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: dict[JobRef, Tracked],
        per_second: float | None,
        pump: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._jobs = jobs
        self._pump = pump
        self._alarms = Alarms(loop)
        self._tempo = Tempo(per_second)
        self._timetable: Timetable[Tracked] = Timetable(lambda tracked, bucket: tracked.bucket == bucket)
        self._ready: deque[Tracked] = deque()
        self._urgent: deque[Tracked] = deque()
        self._waiting_since = -inf
        self._answered_at = loop.time()
        self._armed: float = inf
        self._ghosts = 0
        self._failed_to_reach: set[JobRef] = set()
        self._probe: Tracked | None = None

    def backlog(self) -> int:
        """Count what may go out, give or take what has left since."""
        if not self._tempo.stopped:
            return len(self._ready) + len(self._urgent)
        return len(self._urgent) if self._tempo.unreachable else 0

    def waiting(self) -> int:
        """Count what is due, whether it may go out or not."""
        return len(self._ready) + len(self._urgent) - self._ghosts

    def make_ready(self, tracked: Tracked) -> None:
        """Have it polled as soon as it is its turn."""
        self._lift(tracked)
        self._line_up([tracked])
        self._pump()

    def _line_up(self, tracked: Iterable[Tracked]) -> None:
        if not self._ready:
            self._waiting_since = self._loop.time()
        for one in tracked:
            one.bucket = Tracked.READY
            self._ready.append(one)

    def place(self, tracked: Tracked, when: float, now: float) -> None:
        """Have it polled at the loop time `when`, or as soon as the clock of the polls comes to it.

        What would all be due at once is spread over a tenth of its delay. A long delay needs no fine time.
        """
        if tracked.bucket != Tracked.NOWHERE:
            self._lift(tracked)
        delay = when - now
        step = 1 if delay < _LONG else min(int(delay / _LONG), _COARSEST)
        at_most = 1 + int(len(self._jobs) * step * _BUCKETS_OF_SPREAD / (delay + RESOLUTION))
        bucket = tracked.bucket = self._timetable.add(tracked, self._tempo.due(when, now), at_most, step)
        if bucket < self._armed:
            self._arm()

    def hasten(self, tracked: Tracked, now: float) -> None:
        """Have it polled before anybody else, as far as the server's wish allows: a deadline is near."""
        if tracked.earliest > now:
            self.bring_forward(tracked, tracked.earliest, now)
        elif tracked.bucket not in {Tracked.URGENT, Tracked.NOWHERE}:
            self._lift(tracked)
            tracked.bucket = Tracked.URGENT
            self._urgent.append(tracked)
            self._pump()

    def bring_forward(self, tracked: Tracked, when: float, now: float) -> None:
        """Have it polled at the loop time `when`, unless it is earlier already."""
        if self._tempo.due(when, now) < tracked.bucket * RESOLUTION:
            self.place(tracked, when, now)

    def remove(self, tracked: Tracked) -> None:
        """Poll it no more."""
        self._lift(tracked)
        tracked.bucket = Tracked.NOWHERE
        if self._tempo.unreachable:
            self._alarms.set(self._on_probe, self._loop.time() + _PROBE_AFTER_LEAVING)

    def _lift(self, tracked: Tracked) -> None:
        """Take it from where it lies; there, it is passed over later, or swept away once such ghosts are the most."""
        if tracked.bucket >= 0:
            self._timetable.note_stale()
        elif tracked.bucket != Tracked.NOWHERE:
            self._ghosts += 1
            if self._ghosts > _FEW and self._ghosts * 2 > len(self._ready) + len(self._urgent):
                tracked.bucket = Tracked.NOWHERE
                self._sweep()

    def _sweep(self) -> None:
        self._ready = deque(tracked for tracked in self._ready if tracked.bucket == Tracked.READY)
        self._urgent = deque(tracked for tracked in self._urgent if tracked.bucket == Tracked.URGENT)
        self._ghosts = 0

    def next(self, now: float) -> Tracked | None:
        """Take out what is polled now: deadlines first, then who has been due for longest. `None`: nothing may go."""
        if self._tempo.free and not self._urgent:
            return self._oldest()
        if self._tempo.stopped:
            return self._first(self._urgent, Tracked.URGENT, now) if self._tempo.unreachable else None
        return self._first(self._urgent, Tracked.URGENT, now) or self._first(self._ready, Tracked.READY, now)

    def _oldest(self) -> Tracked | None:
        while self._ready:
            tracked = self._ready.popleft()
            if tracked.bucket == Tracked.READY:
                tracked.bucket = Tracked.NOWHERE
                return tracked
            self._ghosts -= 1
        return None

    def _first(self, queue: deque[Tracked], place: int, now: float) -> Tracked | None:
        while queue:
            tracked = queue[0]
            if tracked.bucket == place:
                again_at = self._tempo.start(now)
                if again_at:
                    self._alarms.set(self._pump, again_at)
                    return None
                queue.popleft()
                tracked.bucket = Tracked.NOWHERE
                return tracked
            queue.popleft()
            self._ghosts -= 1
        return None

    def _arm(self) -> None:
        first = self._timetable.first()
        if first is not None and not self._tempo.stopped:
            self._armed = first
            self._alarms.set(self._on_due, self._tempo.to_loop(first * RESOLUTION))

    def _on_due(self) -> None:
        self._armed = inf
        if self._tempo.stopped:
            return
        self._line_up(self._timetable.take_due(self._tempo.time(self._loop.time())))
        self._arm()
        self._pump()

    # The server wishes to be left alone, or is gone.

    def leave_alone(self, until: float, now: float) -> None:
        """Let no poll go out before the loop time `until`."""
        self._tempo.stop(now, until)
        self._alarms.set(self._on_resume, until)

    def reached(self) -> None:
        """Take notice that the server answered."""
        if self._failed_to_reach:
            self._failed_to_reach.clear()
            if self._tempo.unreachable:
                self._resume()

    def not_reached(self, tracked: Tracked, due: float, now: float) -> None:
        """Take notice that nobody listened to one job.

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
            self.hasten(self._probe, now)

    def _on_resume(self) -> None:
        until = self._tempo.resume_at
        if until is not None and self._loop.time() < until - ROUNDING:
            self._alarms.set(self._on_resume, until)
        else:
            self._resume()

    def _resume(self) -> None:
        """Let polls go out again: what has become due in the meantime spread over as long a time as was lost."""
        now = self._loop.time()
        lost = self._tempo.resume(now)
        self._failed_to_reach.clear()
        self._probe = None
        self._spread(self._timetable.take_due(self._tempo.time(now)), lost, now)
        self._arm()
        self._pump()

    def answered(self, now: float) -> None:
        """Take notice of a good answer. What has been due ever since the last one is spread, not let go at once."""
        if self._failed_to_reach:
            self.reached()
        lost = now - self._answered_at
        self._answered_at = now
        if lost >= _SILENCE and self._ready:
            lost = min(lost, now - self._waiting_since)
            if lost >= _SILENCE:
                self._spread([], lost, now)

    def _spread(self, due: list[Tracked], lost: float, now: float) -> None:
        """Let what waits for its turn, and then `due`, come due again in as long a time as was lost."""
        spread = min(lost, _LONGEST_RELEASE)
        released = [tracked for tracked in self._ready if tracked.bucket == Tracked.READY] + due
        self._ready.clear()
        self._ghosts = sum(tracked.bucket != Tracked.URGENT for tracked in self._urgent)
        for index, tracked in enumerate(released):
            tracked.bucket = Tracked.NOWHERE
            self.place(tracked, now + spread * index / len(released), now)

    def close(self) -> None:
        """Stop all timers, and forget what was due."""
        self._alarms.cancel()
        self._ready.clear()
        self._urgent.clear()
        self._ghosts = 0
