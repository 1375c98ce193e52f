"""Which job is polled next, and when: urgent polls first, and no faster than the server and the budget allow.

Polls are placed in time buckets on a clock that stands still while polling is paused or the server cannot be
reached: polls that were due in that time come due afterwards, with the same spacing.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from agentjobs_async._polling.due import DueJobs, Queue
from agentjobs_async._polling.outage import Outage
from agentjobs_async._polling.pace import ROUNDING_SECONDS, PollClock, PollLimits
from agentjobs_async._polling.pauses import Pauses
from agentjobs_async._polling.timers import RESOLUTION_SECONDS, TimerBuckets, Timers
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef

__all__ = ["PollQueue"]

_SPREAD: Final = 0.1  # of the delay: what would be due at once is spread over it, and comes late by no more
_SPREAD_OF_ONE_BUCKET_SECONDS: Final = RESOLUTION_SECONDS / _SPREAD  # the delay whose spread is one bucket
_SECONDS_PER_STEP: Final = 100.0  # a delay of 1,000 s uses every 10th bucket: late by 0.1 s, and fewer buckets to keep
_MAX_STEP: Final = 100  # buckets, so that the longest delay is late by 1 s at most
_MANY_JOBS: Final = 250  # from here on polls share buckets: the turns of the loop were a sixth of the CPU of 1,000
_SHARED_STEP: Final = 4  # buckets
_SHARED_FROM_SECONDS: Final = _SHARED_STEP * _SPREAD_OF_ONE_BUCKET_SECONDS  # the least delay whose spread is a step
_MAX_RELEASE_SECONDS: Final = 10.0  # after an outage no job waits for much longer than the outage itself
_SILENCE_SECONDS: Final = 1.0  # without a good answer: what became due in it is spread when the next one comes
_MAX_PUT_OFF: Final = 1000  # polls of paused projects in one turn of the loop: a few milliseconds


class PollQueue:
    """The polls of one scheduler that are yet to be sent.

    Args:
        jobs: All tracked jobs, shared with the scheduler.
        limits: How many polls may start.
        dispatch: Called when a poll may be sent.

    Attributes:
        outage: Learns for which jobs the server was reached, and which not.
        no_slow: Whether jobs of which a poll was cut hold all the slots that they may: the others are set aside.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: dict[JobRef, Tracked],
        limits: PollLimits,
        dispatch: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._jobs = jobs
        self._dispatch = dispatch
        self._timers = Timers(loop)
        self._clock = PollClock()
        self._limits = limits
        self.outage = Outage(loop, jobs, self._clock, self._timers, self.make_urgent, self._resume)
        self._pauses = Pauses()
        self._lifted_until = -inf
        """Loop time at which a pause of all polls would have ended that a good answer has lifted."""
        self._buckets: TimerBuckets[Tracked] = TimerBuckets(lambda tracked, bucket: tracked.bucket == bucket)
        self._due = DueJobs(loop.time, lambda: limits.in_force)
        self.on_full_slots = self._due.take_turns
        self.no_slow = False
        self._answered_at = loop.time()
        self._armed: float = inf

    def has_backlog(self) -> bool:
        """Return whether polls may be sent now; stale entries count."""
        if not self._clock.stopped:
            return bool(self._due.ready or self._due.urgent or (self._due.set_aside and not self.no_slow))
        return self._clock.unreachable and bool(self._due.urgent)

    def waiting(self) -> int:
        """Return how many polls are due, whether they may be sent now or not."""
        return self._due.entries() - self._due.stale

    def has_set_aside(self) -> bool:
        """Return whether a slow job waits for one of the slots that slow jobs may hold."""
        return self.no_slow and bool(self._due.set_aside)

    def make_ready(self, tracked: Tracked) -> None:
        """Make the poll of a job without an entry due now, behind those that are ready."""
        self._append_ready([tracked])
        self._dispatch()

    def _append_ready(self, jobs: Iterable[Tracked]) -> None:
        if not self._due.ready:
            self._due.begin_waiting()
        ready = self._due.ready  # after it: it may make another queue
        for tracked in jobs:
            tracked.bucket = Tracked.READY
            ready.append(tracked)

    def place(self, tracked: Tracked, when: float, now: float, *, shares: bool = True) -> None:
        """Schedule a job's poll for the loop time `when`, or for as soon as the poll clock reaches it.

        Polls that would all be due at once are spread over a tenth of their delay. `shares`: where there are many jobs,
        the poll may be late by 0.04 s to share a bucket.
        """
        if tracked.bucket > Tracked.NOWHERE:
            self._unqueue(tracked)
        delay, jobs = when - now, len(self._jobs)
        step = _SHARED_STEP if jobs >= _MANY_JOBS and delay >= _SHARED_FROM_SECONDS and shares else 1
        if delay >= 2 * _SECONDS_PER_STEP:
            step = max(step, min(int(delay / _SECONDS_PER_STEP), _MAX_STEP))
        # Of the delay / _SPREAD_OF_ONE_BUCKET_SECONDS buckets of the spread, every `step`-th is used, and all jobs may
        # have to fit into these. RESOLUTION_SECONDS is for a delay of 0.
        full_above = jobs * step * _SPREAD_OF_ONE_BUCKET_SECONDS / (delay + RESOLUTION_SECONDS)
        bucket = tracked.bucket = self._buckets.add(tracked, self._clock.due(when, now), full_above, step)
        if bucket < self._armed:
            self._arm()

    def make_urgent(self, tracked: Tracked, now: float) -> None:
        """Queue a job's poll before all others, since a deadline is near, but not before its `not_before`."""
        not_before = max(tracked.not_before, self._pauses.until(tracked.ref.project_id, now))
        if not_before > now + ROUNDING_SECONDS and tracked.bucket == Tracked.READY:
            self.place(tracked, not_before, now, shares=False)
        elif not_before > now + ROUNDING_SECONDS:
            self.reschedule_earlier(tracked, not_before, now)
        elif tracked.bucket > Tracked.NOWHERE and tracked.bucket != Tracked.URGENT:
            self._unqueue(tracked)
            tracked.bucket = Tracked.URGENT
            self._due.urgent.append(tracked)
            self._dispatch()

    def reschedule_earlier(self, tracked: Tracked, when: float, now: float) -> None:
        """Schedule a job's poll for the loop time `when`, unless it is due earlier already."""
        # False for a job that is in no bucket, too: the numbers of the queues are below 0.
        if self._clock.due(when, now) < tracked.bucket * RESOLUTION_SECONDS:
            self.place(tracked, when, now, shares=False)

    def remove(self, tracked: Tracked) -> None:
        """Stop polling the job."""
        if tracked.bucket > Tracked.NOWHERE:
            self._unqueue(tracked)
        tracked.bucket = Tracked.REMOVED
        if self._clock.unreachable:
            self.outage.probe_soon()

    def _unqueue(self, tracked: Tracked) -> None:
        """Count the entry of a job that has one as stale. It stays where it lies, and is skipped there, or swept.

        `tracked.bucket` may still name the old place afterwards: the caller must set it at once, or the entry would
        pass for a valid one.
        """
        if tracked.bucket >= 0:
            tracked.bucket = Tracked.NOWHERE  # first: were it swept now, the entry would stay, and count as valid
            self._buckets.note_stale()
        else:
            self._due.note_stale(tracked)

    def next(self, now: float) -> Tracked | None:
        """Remove and return the job to poll next, near deadlines first; `None` while no poll may start."""
        due = self._due
        if self._limits.in_force:
            due.order_by_gain()
        if self._clock.stopped:
            return self._first(due.urgent, Tracked.URGENT, now) if self._clock.unreachable else None
        tracked = self._first(due.urgent, Tracked.URGENT, now)
        if tracked is None and not self.no_slow:  # slow jobs have waited for longer than what is ready
            tracked = self._first(due.set_aside, Tracked.SET_ASIDE, now)
        return tracked or self._first(due.ready, Tracked.READY, now)

    def _set_aside(self, tracked: Tracked) -> None:
        self._due.put_aside(tracked)
        self._dispatch()

    def _first(self, queue: Queue, place: int, now: float) -> Tracked | None:
        next_start = self._limits.next_start(now)
        if next_start > now:
            if queue:
                self._timers.set(self._dispatch, next_start)
            return None
        put_off = 0
        while queue and put_off < _MAX_PUT_OFF:
            tracked = queue.popleft()
            if tracked.bucket != place:
                self._due.stale -= 1
            elif self._put_off(tracked, now):
                put_off += 1
            elif self.no_slow and tracked.patience_seconds and not self._clock.unreachable:
                self._set_aside(tracked)
            else:
                self._limits.start(now)
                tracked.bucket = Tracked.NOWHERE
                return tracked
        if queue:
            self._timers.set(self._dispatch, now)  # the rest after the next turn of the loop
        return None

    def _put_off(self, tracked: Tracked, now: float) -> bool:
        """Place the poll anew if its job or project is not to be polled yet; return whether that is so.

        While a pause of all polls was in force, polls were placed for its end. Once it is lifted, they come due too
        early: until the time at which it would have ended, each job's own `not_before` is looked at again.
        """
        project = tracked.ref.project_id
        paused_until = self._pauses.until(project, now)
        when = max(paused_until, tracked.not_before) if now < self._lifted_until else paused_until
        if when <= now + ROUNDING_SECONDS:
            return False
        if when == paused_until and tracked.bucket != Tracked.URGENT:
            when = self._pauses.release(project, now, first=tracked.polls == 0)
        tracked.bucket = Tracked.NOWHERE  # the caller removes the entry itself: `place` must not count it as stale
        self.place(tracked, when, now)
        return True

    def _arm(self) -> None:
        first = self._buckets.first()
        if first is not None and not self._clock.stopped:
            self._armed = first
            self._timers.set(self._on_due, self._clock.to_loop(first * RESOLUTION_SECONDS))

    def _on_due(self) -> None:
        self._armed = inf
        if self._clock.stopped:
            return
        self._append_ready(self._buckets.take_due(self._clock.time(self._loop.time())))
        self._arm()
        self._dispatch()

    def refused(self, began: float, now: float, until: float) -> None:
        """Record that the server refused a poll; arguments as of `AdaptiveRate.refuse`."""
        if self._limits.adaptive is not None:
            self._limits.adaptive.refuse(began, now, until)

    def pause(self, ref: JobRef, status: int, until: float, due: float, now: float, began: float) -> None:
        """Send no poll before `until`, as the answer to a poll that `began` asked: of this job, its project, or all."""
        self._due.refused()
        if self._pauses.record(ref, status, until, due, now, overlaps=began < self._answered_at):
            self.pause_until(until, now)

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
            self._resume()

    def _resume(self) -> None:
        """Resume polling. Jobs that became due meanwhile are spread over as long a time as polling stood still."""
        now = self._loop.time()
        stopped_for = self._clock.resume(now)
        self.outage.end()
        self._spread(self._buckets.take_due(self._clock.time(now)), stopped_for, now)
        self._arm()
        self._dispatch()

    def answered(self, now: float) -> None:
        """Record a good answer. Jobs that have been due since the last one are spread, not polled all at once.

        It shows that the pauses asked for before it, for one job or one project each, were not meant for all.
        """
        if self._limits.adaptive is not None:
            self._limits.adaptive.count(now)
        if self.outage.not_reached_since:
            self.outage.reached()
        if self._pauses.suspected:
            self._pauses.answered()
            if self._clock.resume_at is not None:
                self._lifted_until = max(self._lifted_until, self._clock.resume_at)
                self._resume()
        silent_for, self._answered_at = now - self._answered_at, now
        if silent_for >= _SILENCE_SECONDS and self._due.ready:
            silent_for = min(silent_for, now - self._due.waiting_since)
            if silent_for >= _SILENCE_SECONDS:
                self._spread([], silent_for, now)

    def _spread(self, due: list[Tracked], seconds: float, now: float) -> None:
        """Reschedule the ready jobs, and then `due`, spread over `seconds`, and over 10 s at most."""
        spread = min(seconds, _MAX_RELEASE_SECONDS)
        released = self._due.take_ready() + due
        for index, tracked in enumerate(released):
            tracked.bucket = Tracked.NOWHERE  # neither queue nor bucket holds an entry of it now
            self.place(tracked, now + spread * index / len(released), now)

    def close(self) -> None:
        """Stop all timers, and forget all polls."""
        self._timers.cancel()
        self._buckets.clear()
        self._due.clear()
