"""All waits and polls of one tracker on one loop: which jobs are tracked, who waits for them, and how a wait ends.

The way of a poll: the `PollQueue` says which job is next, and when. The `Workers` ask it for as many as there are
slots, and pass each answer to the `Scheduler`. The job's `WaitState` decides what that means: the job goes back to the
queue, or all its waits end.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from copy import copy
from itertools import repeat
from math import inf
from typing import Final, Protocol

from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async._loop.slices import SlicedWork, run_in_slices
from agentjobs_async._polling.deadlines import Deadlines
from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import Reader, label_of, with_ref
from agentjobs_async._polling.stats import Counters, TrackerStats
from agentjobs_async._polling.tracked import Place, Tracked, Watch
from agentjobs_async._polling.wait_state import CUT, Answer, Durations, StatusWarnings
from agentjobs_async._polling.workers import Workers
from agentjobs_async.errors import AgentJobsError, TransportError, WaitTimeoutError
from agentjobs_async.models import TERMINAL, AgentJob, JobRef, JobStatus, Seen, with_label
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry.no_hooks import Hooks

_NOTIFY_EVERY_SECONDS: Final = 0.25  # between two polls of a job, however often `notify` is called for it
_NEW_SECONDS: Final = 1.0  # from a create to a wait that may be said to begin with it
_MOST_NEW: Final = 1_000  # jobs that are created and not waited for would add up for ever
_MAX_REMEMBERED: Final = 1024  # jobs, so that memory is bounded; the pause of any further job is forgotten

Result = AgentJob | BaseException
"""How a wait ends."""


class Scheduler:
    """Polls the tracked jobs, at most `budget.in_flight` at a time, and notifies their waiters.

    Args:
        limits: How many polls may start, within the budget.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: Reader,
        policy: PollPolicy,
        budget: PollBudget,
        hooks: Hooks,
        limits: PollLimits,
    ) -> None:
        self.loop = loop
        self._reader = reader
        self._policy = policy
        self._hooks = hooks
        self._durations = Durations(policy)
        self._warnings = StatusWarnings()
        self._counters = Counters(loop.time())
        self._jobs: dict[JobRef, Tracked] = {}
        self._queue = PollQueue(limits, self._jobs, budget.in_flight, loop.time())
        self._workers = Workers(loop, reader, self._queue, budget.in_flight, self)
        self._deadlines = Deadlines(loop, self)
        self._ending = SlicedWork(loop)
        self._remembered = RememberedPauses()
        self._new: dict[JobRef, float] = {}
        """The loop times of the last creates, of jobs that no wait has begun for."""

    # Waits begin and end.

    def attach(self, waiter: Watch, target: AgentJob | JobRef) -> None:
        """Start a wait. The waiter is told the last known state at once; a job known to have ended needs no poll."""
        job, ref = (target, target.ref) if isinstance(target, AgentJob) else (None, target)
        label = label_of(target)
        self._hooks.wait_started(waiter, ref, label)
        if job is not None and job.is_terminal:
            waiter.on_job(job, job)
            waiter.on_end(job)
            self._hooks.wait_ended(waiter, ref, job, 0, self.loop.time() - waiter.started, None, shared=False)
            return
        tracked = self._jobs.get(ref) or self._track(ref, job, waiter.started)
        tracked.join(waiter)
        tracked.add_label(label)  # polls serve all waits: they have the first label of any
        self._deadlines.add(waiter)
        self._workers.wake()
        known = with_label(job or tracked.job, tracked.label)
        if known is not None:
            waiter.on_job(known, known)  # last: the caller's callback may end this wait, or begin others

    def _track(self, ref: JobRef, job: AgentJob | None, now: float) -> Tracked:
        """Start polling a job for its first wait. Later waits join it."""
        created_here = now - self._new.pop(ref, -inf) <= _NEW_SECONDS
        tracked = self._jobs[ref] = Tracked(ref, job, now, self._remembered.pop(ref, now), created_here=created_here)
        self._queue.add(tracked, now)
        return tracked

    def created(self, ref: JobRef) -> None:
        """Note that a job was created now: a wait that begins within a second counts it as at work."""
        self._new[ref] = self.loop.time()
        if len(self._new) > _MOST_NEW:
            del self._new[next(iter(self._new))]

    def end(self, tracked: Tracked, result: Result) -> None:
        """Stop polling a job, and end all of its waits."""
        if tracked.place is Place.GONE:
            return
        self._forget(tracked)  # first: a wait that begins from now on, in a callback say, has a record of its own
        try:
            if isinstance(result, AgentJob):
                self._durations.ended(result, tracked, self.loop.time())
        finally:  # even if a user's `learn` raised a KeyboardInterrupt: no wait may hang
            ends = map(self._end_waiter, repeat(tracked), tracked.present(), _one_for_each(result))
            self._ending.add(ends)

    def _end_waiter(self, tracked: Tracked, waiter: Watch, result: Result) -> None:
        """End a wait for the job, unless it has ended in an iteration of the loop before this one."""
        if waiter.tracked is tracked:
            self.leave(waiter, result)
            waiter.on_end(result)

    def leave(self, watch: Watch, why: Result) -> None:
        """Remove one wait from its job. The last one stops the polling, unless the job's own end has done so.

        The job leaves the queue before its poll is cut, so that what the hooks are told finds it gone; a wait that a
        hook begins for the same job has a record of its own, whose first poll waits until the cut one has left.
        """
        tracked = watch.tracked
        if tracked is None:
            return
        shared, now = tracked.is_shared, self.loop.time()
        if tracked.leave(watch) and tracked.place is not Place.GONE:
            if isinstance(why, WaitTimeoutError):
                self._durations.timed_out(tracked)
            self._forget(tracked)
            self._cut(tracked, why, now)
            self._workers.wake()
        self._deadlines.remove(watch)
        if isinstance(why, Exception):
            with_ref(why, tracked.ref)
        elapsed = now - watch.started
        saw_end = isinstance(why, AgentJob) and tracked.was_at_work  # else the first poll found it ended
        lateness = min(now - tracked.seen, elapsed) if saw_end else None
        self._hooks.wait_ended(watch, tracked.ref, why, watch.polls, elapsed, lateness, shared=shared)

    def _cut(self, tracked: Tracked, why: Result, now: float) -> None:
        """Cut the poll of a job, if one is in flight: the last wait for the job ends with `why`."""
        began = self._workers.began(tracked)
        if began is not None:
            cut = why if isinstance(why, asyncio.CancelledError) else TransportError(CUT)
            self._hooks.poll_failed(tracked.ref, cut, tracked.polls, now - began, tracked.label)
        self._workers.cut(tracked)

    def _forget(self, tracked: Tracked) -> None:
        del self._jobs[tracked.ref]
        self._remembered.remember(tracked.ref, tracked.not_before, self.loop.time())
        self._reader.forget(tracked.ref)
        self._queue.remove(tracked)

    # What answers mean.

    def on_answer(self, job: Tracked, answer: Answer | BaseException, began: float, now: float) -> None:
        """Act on the answer that came `now` to a poll that `began`: poll the job again, or end its waits.

        If this raises, as a wait strategy may, only the waits of this job end. They end after a CancelledError, too:
        the job would never be polled again, and they would hang.
        """
        if job.label is not None:  # a wait with a label may have begun while the poll was in flight
            answer = with_label(answer, job.label)
        try:
            result = self._result_of(job, answer, began, now)
        except BaseException as error:
            self.end(job, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            return
        if result is not None:
            self.end(job, result)
        elif job.place is not Place.GONE:  # else a strategy, a hook or a callback has ended the last wait
            self._poll_again(job, answer, now)

    def _result_of(self, job: Tracked, answer: Answer | BaseException, began: float, now: float) -> Result | None:
        """Apply an answer, and tell hooks and waiters of it; return what ends the waits, `None` to poll again."""
        previous = job.job
        try:
            if isinstance(answer, Seen | Exception):
                return job.apply(self._policy, answer, now)
            return answer
        finally:  # also when a strategy raised: each poll gives one event
            error = None if isinstance(answer, Seen) else answer
            self._counters.count(now, failed=error is not None)
            self._queue.on_answer(job, error, began, now)
            if isinstance(answer, Seen):
                self._on_job(job, answer.job, previous, began, now)
            else:
                self._hooks.poll_failed(job.ref, answer, job.polls, now - began, job.label)

    def _on_job(self, job: Tracked, found: AgentJob, previous: AgentJob | None, began: float, now: float) -> None:
        """Report to hooks and waiters what a poll showed."""
        if type(found.status) is not JobStatus:
            self._warnings.check(found)
        lateness = now - job.seen if found.status in TERMINAL and job.was_at_work else None
        self._hooks.polled(found, previous, job.polls, now - began, job.label, lateness)
        if job.wants_states:
            job.tell_waiters(found)

    def _poll_again(self, job: Tracked, answer: object, now: float) -> None:
        """Queue the next poll, at the time that the state says."""
        due = job.due
        if job.is_notified:
            job.forget_notice()
            if not isinstance(answer, Exception):
                due = min(due, max(job.not_before, now + _NOTIFY_EVERY_SECONDS))
        self._queue.put(job, due, now)

    def notify(self, ref: JobRef) -> bool:
        """Poll the job once more, soon; after the answer where its poll is in flight. Return whether it is tracked."""
        job, now = self._jobs.get(ref), self.loop.time()
        if job is None:
            return False
        if job.place is Place.IN_FLIGHT:
            job.notify()
        else:
            self._queue.put_earlier(job, max(now, job.not_before + _NOTIFY_EVERY_SECONDS), now)
            self._workers.wake()
        return True

    # Deadlines.

    def on_near(self, waiter: Watch, now: float) -> None:
        """Queue one more poll of the job soon, since the deadline of `waiter` is near."""
        if waiter.tracked is not None:
            self._queue.hurry(waiter.tracked, now)
            self._workers.wake()

    def on_over(self, waiter: Watch, now: float) -> None:
        """End a wait whose time is up, unless it has ended or is about to end with its job."""
        tracked = waiter.tracked
        if tracked is not None and tracked.place is not Place.GONE:
            is_cut = tracked.place is Place.IN_FLIGHT
            error = tracked.timeout_error(waiter.polls, now - waiter.started, cut=is_cut)
            self._end_waiter(tracked, waiter, error)

    def use(self, policy: PollPolicy) -> None:
        """Poll by another policy from the next answers on."""
        self._durations = Durations(policy)
        self._policy = policy

    def wake(self) -> None:
        """Look for polls to start, since a limit has changed."""
        self._workers.wake()

    def known(self, ref: JobRef) -> tuple[AgentJob | None, float] | None:
        """Return a tracked job as it was last seen, if it was, and the seconds since its creation; else `None`."""
        tracked = self._jobs.get(ref)
        return None if tracked is None else (tracked.job, self.loop.time() - tracked.created)

    def stats(self) -> TrackerStats:
        """Return a snapshot. It may be asked in any thread."""
        now = self.loop.time()
        jobs = tuple(self._jobs.values())  # a copy, made at once: jobs come and go while another thread counts them
        return TrackerStats(
            jobs=len(jobs),
            due=sum(job.place is Place.DUE for job in jobs),
            in_flight=sum(job.place is Place.IN_FLIGHT for job in jobs),
            polls=self._counters.polls,
            errors=self._counters.errors,
            rate=self._counters.rate(now),
            oldest_unobserved=max(now - min((job.seen for job in jobs), default=now), 0.0),
        )

    async def close(self, error: AgentJobsError) -> set[asyncio.Task[Answer]]:
        """End all waits with `error`, and cut all polls; return the tasks that are about to end.

        No poll begins after the call. Cancelling it ends the remaining waits at once.
        """
        self._deadlines.close()
        self._queue.close()
        for tracked in tuple(self._jobs.values()):
            self._cut(tracked, error, self.loop.time())
        leaving = self._workers.close()
        try:
            await run_in_slices(self._closing(error))
        finally:
            self._ending.finish()
        return leaving

    def _closing(self, error: AgentJobsError) -> Iterator[None]:
        """End all waits, and yield after each."""
        jobs = deque(self._jobs.values())
        while jobs:
            tracked = jobs.popleft()  # freed one by one: all of them at the end would take long
            for waiter in tracked.present():
                self._end_waiter(tracked, waiter, copy(error))
                yield


class SchedulerParent(Protocol):
    """A session or tracker, as the ways to wait see it that are objects of their own."""

    _shutdown: Shutdown[JobRef]

    def _scheduler(self) -> Scheduler:
        """Return its scheduler; an error if it may not be used here and now."""
        ...

    def _target(self, job: object) -> AgentJob | JobRef:
        """Return the job or ref that a caller means by `job`."""
        ...


def _one_for_each(result: Result) -> Iterator[Result]:
    """Yield `result` for each waiter: an error of this package as copies, since raising one adds a traceback to it."""
    yield result
    while True:
        yield copy(result) if isinstance(result, AgentJobsError) else result


class RememberedPauses:
    """The `not_before` of jobs that no caller waits for any more: the next wait for one of them keeps to it."""

    def __init__(self) -> None:
        self._until: dict[JobRef, float] = {}

    def remember(self, ref: JobRef, until: float, now: float) -> None:
        """Remember that the job is not to be polled before `until`, if that is after `now`."""
        if until <= now:
            return
        if len(self._until) >= _MAX_REMEMBERED:
            self._until = {other: time for other, time in self._until.items() if time > now}
        if len(self._until) < _MAX_REMEMBERED:
            self._until[ref] = until

    def pop(self, ref: JobRef, now: float) -> float:
        """Forget the job, and return the time from which it may be polled: `now`, or later."""
        return max(now, self._until.pop(ref, now))
