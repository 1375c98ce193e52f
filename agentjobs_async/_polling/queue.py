"""Which job is polled next, and when: urgent polls first, and no faster than the server and the budget allow.

Polls are put into time buckets on a clock that stands still while polling is paused or the server cannot be
reached: polls that were due in that time come due afterwards, with the same spacing.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from agentjobs_async._loop.wheel import RESOLUTION_SECONDS, Timers, TimerWheel
from agentjobs_async._polling.backpressure import Outage, Pauses
from agentjobs_async._polling.due import DueJobs
from agentjobs_async._polling.pace import ROUNDING_SECONDS, PollClock, PollLimits
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef

_SILENCE_SECONDS: Final = 1.0  # without a good answer: what became due in it is spread when the next one comes
_LIMITED: Final = 429
_MAX_PUT_OFF: Final = 1000  # polls in one iteration of the loop: a few milliseconds


class Dispatcher(Protocol):
    """What sends the polls of a queue."""

    def dispatch(self) -> None:
        """Send polls, as far as the queue and the slots allow it."""


class PollQueue:
    """The polls of one scheduler that are yet to be sent.

    Args:
        jobs: All tracked jobs, shared with the scheduler.
        limits: How many polls may start.

    Attributes:
        dispatcher: What is told when a poll may be sent: the workers, once they are made.
        outage: Learns for which jobs the server was reached, and which not.
        no_slow: Whether jobs of which a poll was cut use all the slots that they may: the others are set aside.
    """

    dispatcher: Dispatcher

    def __init__(self, loop: asyncio.AbstractEventLoop, jobs: dict[JobRef, Tracked], limits: PollLimits) -> None:
        self._loop = loop
        self._jobs = jobs
        self._timers = Timers(loop)
        self._clock = PollClock()
        self._limits = limits
        self.outage = Outage(loop, jobs, self._clock, self._timers, self)
        self._pauses = Pauses()
        self._wheel: TimerWheel[Tracked] = TimerWheel()
        self._due = DueJobs()
        self.no_slow = False
        self._answered_at = loop.time()

    def has_backlog(self) -> bool:
        """Return whether polls may be sent now."""
        if self._clock.stopped:
            return self._clock.unreachable and self._due.has_urgent()
        return self._due.ready > 0 or (bool(self._due.set_aside) and not self.no_slow)

    def has_set_aside(self) -> bool:
        """Return whether a slow job waits for one of the slots that slow jobs may use."""
        return self.no_slow and bool(self._due.set_aside)

    def enqueue(self, tracked: Tracked, now: float) -> None:
        """Queue a poll of a job that is not queued, not before its `not_before`."""
        if tracked.not_before > now:
            self.put(tracked, tracked.not_before, now)
        else:
            self._add([tracked], now)
            self.dispatcher.dispatch()

    def enqueue_idle(self, ref: JobRef) -> None:
        """Queue a poll of the job, if it is tracked and neither polled nor queued."""
        tracked = self._jobs.get(ref)
        if tracked is not None and tracked.worker is None and tracked.bucket == Tracked.NOWHERE:
            self.enqueue(tracked, self._loop.time())

    def _add(self, jobs: Iterable[Tracked], now: float) -> None:
        for tracked in jobs:
            self._due.add(tracked, now)
            self._limits.add()
        self._arm_wake()

    def put(self, tracked: Tracked, when: float, now: float) -> None:
        """Schedule a job's poll for the loop time `when`, or for as soon as the poll clock reaches it."""
        if tracked.bucket > Tracked.NOWHERE:
            self._unqueue(tracked)
        tracked.bucket = self._wheel.add(tracked, self._clock.due(when, now))
        self._arm()

    def make_urgent(self, tracked: Tracked, now: float) -> None:
        """Queue a job's poll before all others, since a deadline is near, but not before its `not_before`."""
        if tracked.not_before > now + ROUNDING_SECONDS:
            self.reschedule_earlier(tracked, tracked.not_before, now)
        elif tracked.bucket > Tracked.NOWHERE and not tracked.is_urgent:
            if tracked.bucket >= 0:
                self._limits.add()
            self._unqueue(tracked)
            tracked.is_urgent = True  # after it has left its line, and before it enters that of urgent ones
            self._due.add(tracked, now)
            self._arm_wake()
            self.dispatcher.dispatch()

    def reschedule_earlier(self, tracked: Tracked, when: float, now: float) -> None:
        """Schedule a job's poll for the loop time `when`, unless it is due earlier already."""
        tracked.due = min(tracked.due, when)
        # Never for a job that is in no time bucket: READY and the other constants are below 0.
        if self._clock.due(when, now) < tracked.bucket * RESOLUTION_SECONDS:
            self.put(tracked, when, now)

    def remove(self, tracked: Tracked) -> None:
        """Stop polling the job."""
        if tracked.bucket > Tracked.NOWHERE:
            self._unqueue(tracked)
        tracked.bucket = Tracked.REMOVED
        if self._clock.unreachable:
            self.outage.probe_soon()

    def _unqueue(self, tracked: Tracked) -> None:
        """Remove a job that is queued from its bucket or its line."""
        if tracked.bucket >= 0:
            self._wheel.discard(tracked, tracked.bucket)
            tracked.bucket = Tracked.NOWHERE
        else:
            self._due.discard(tracked)

    def next(self, now: float) -> Tracked | None:
        """Remove and return the job to poll next, near deadlines first; `None` while no poll may start."""
        if not self.has_backlog():
            return None
        next_start = self._limits.next_start(now)
        if next_start > now:
            self._timers.set(self.dispatcher.dispatch, next_start)
            return None
        for _ in range(_MAX_PUT_OFF):
            tracked = self._pop(now)
            if tracked is None:
                return None
            if (earliest := tracked.earliest) > now + ROUNDING_SECONDS:  # a good answer has ended a pause early
                self.put(tracked, earliest, now)
            elif self.no_slow and tracked.patience_seconds and not self._clock.unreachable:
                self._due.put_aside(tracked)
                self.dispatcher.dispatch()  # it sets the timer that cuts hung polls, to make room for this one
            else:
                self._limits.start(now)
                tracked.is_urgent = False
                return tracked
        self._timers.set(self.dispatcher.dispatch, now)  # the rest in the next iteration of the loop
        return None

    def _pop(self, now: float) -> Tracked | None:
        due, tracked = self._due, None
        while due.set_aside and not (self.no_slow or self._clock.stopped or tracked or due.has_urgent()):
            tracked = due.pop_aside(now)  # slow jobs have waited for longer than what is ready
        if tracked is None and (not self._clock.unreachable or due.has_urgent()):
            tracked = due.pop(now)
            self._arm_wake()
        return tracked

    def _arm(self) -> None:
        if not self._clock.stopped:
            self._timers.set(self._on_due, self._clock.to_loop(self._wheel.first_due()))

    def _on_due(self) -> None:
        if self._clock.stopped:
            return
        now = self._loop.time()
        self._add(self._wheel.pop_due(self._clock.time(now)), now)
        self._arm()
        self.dispatcher.dispatch()

    def refused(self, began: float, now: float, until: float) -> None:
        """Record that the server refused a poll; arguments as of `AdaptiveRate.refuse`."""
        if self._limits.adaptive is not None:
            self._limits.adaptive.refuse(began, now, until)

    def _arm_wake(self) -> None:
        self._timers.set(self._on_wake, self._due.wakes_at())

    def _on_wake(self) -> None:
        self._due.wake(self._loop.time())
        self._arm_wake()
        self.dispatcher.dispatch()

    def pause(self, ref: JobRef, status: int, until: float, due: float, now: float, began: float) -> None:
        """Send no poll before `until`, as the answer to a poll that `began` asked: of this job, its project, or all.

        `due`: when the job would be polled by the policy alone, which tells how far apart its project's polls are.
        """
        if status == _LIMITED:
            self.hold(ref.project_id, until, due, now)
        if self._pauses.record(ref, status, overlaps=began < self._answered_at):
            self.pause_until(until, now)

    def hold(self, project_id: str, until: float, due: float, now: float) -> None:
        """Send no poll of a project before `until`; `due` as of `pause`."""
        self._due.hold(project_id, until, due - now, now)
        self._arm_wake()

    def pause_until(self, until: float, now: float) -> None:
        """Pause all polls until the loop time `until`."""
        self._clock.stop(now, until)
        self._timers.set(self._on_resume, until)

    def _on_resume(self) -> None:
        until = self._clock.resume_at
        if until is None:
            return  # a good answer has ended the pause
        if self._loop.time() < until - ROUNDING_SECONDS:
            self._timers.set(self._on_resume, until)  # the pause was prolonged
        else:
            self.resume()

    def resume(self) -> None:
        """Resume polling. The jobs that are due are spread over as long a time as polling stood still."""
        now = self._loop.time()
        stopped_for = self._clock.resume(now)
        self.outage.end()
        self._add(self._wheel.pop_due(self._clock.time(now)), now)
        self._spread(stopped_for, now)
        self._arm()
        self.dispatcher.dispatch()

    def answered(self, began: float, now: float) -> None:
        """Record a good answer to a poll that `began` at this loop time.

        It shows that the pauses asked for before it, for one job or one project each, were not meant for all. Jobs that
        have been due since the last one are spread, not polled all at once.
        """
        if self._limits.adaptive is not None:
            self._limits.adaptive.count(began, now)
        if self.outage.unreached:
            self.outage.reached()
        if self._pauses.askers:
            self._pauses.answered()
        if self._clock.resume_at is not None:
            self.resume()
        silent_for, self._answered_at = now - self._answered_at, now
        if silent_for >= _SILENCE_SECONDS and self._due.ready:
            silent_for = min(silent_for, now - self._due.waiting_since)
            if silent_for >= _SILENCE_SECONDS:
                self._spread(silent_for, now)

    def _spread(self, seconds: float, now: float) -> None:
        """Spread the jobs that are due, as `Release` does. They keep their positions."""
        if seconds > 0 and self._due.ready:
            self._limits.release(self._due.ready, seconds, now)

    def close(self) -> None:
        """Stop all timers, and forget all polls."""
        self._timers.cancel()
        self._wheel = TimerWheel()
        self._due = DueJobs()
