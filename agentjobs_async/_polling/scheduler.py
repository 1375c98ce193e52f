"""All waits and polls of one tracker on one loop: which jobs are tracked, who waits for them, and how a wait ends.

The way of a poll: a job is in the `PollQueue` until it is due and may be polled. One of the `Workers` polls it, and
passes the answer to `Answers`. The job's `WaitState` decides what that means: back to the queue, or all its waits end.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from copy import copy
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async._loop.slices import SlicedWork, run_in_slices
from agentjobs_async._polling.answers import Answers, Result
from agentjobs_async._polling.backpressure import RememberedPauses
from agentjobs_async._polling.deadlines import Deadlines
from agentjobs_async._polling.pace import PollLimits
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import Reader, label_of, with_ref
from agentjobs_async._polling.stats import Counters, TrackerStats
from agentjobs_async._polling.tracked import Tracked, Watch
from agentjobs_async._polling.wait_state import CUT, Durations
from agentjobs_async._polling.workers import Workers
from agentjobs_async.errors import AgentJobsError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob, JobRef, with_label
from agentjobs_async.policy import PollBudget, PollPolicy

if TYPE_CHECKING:  # loaded with the first hook
    from agentjobs_async.telemetry.hooks import Hooks


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
        hooks: "Hooks | None",
        limits: PollLimits,
    ) -> None:
        self.loop = loop
        self._reader = reader
        self._hooks = hooks
        self._durations = Durations(policy)
        self._counters = Counters(loop.time())
        self._jobs: dict[JobRef, Tracked] = {}
        self._queue = PollQueue(loop, self._jobs, limits)
        self._ending = SlicedWork(loop)
        self._answers = Answers(policy, hooks, self._counters, self._queue, self._finish)
        self._workers = Workers(loop, reader, self._queue, budget.in_flight, self._counters, self._answers)
        self._deadlines = Deadlines(loop, self)
        self._remembered = RememberedPauses()

    def attach(self, waiter: Watch, target: AgentJob | JobRef) -> None:
        """Start a wait. The waiter is told the last known state at once; a job known to have ended needs no poll."""
        job, ref = (target, target.ref) if isinstance(target, AgentJob) else (None, target)
        label = label_of(target)
        if self._hooks is not None:
            self._hooks.wait_started(waiter, ref, label)
        if job is not None and job.is_terminal:
            waiter.on_job(job, job)
            waiter.on_end(job)
            if self._hooks is not None:
                self._hooks.wait_ended(waiter, ref, job, 0, self.loop.time() - waiter.started, None, shared=False)
            return
        now = waiter.started
        tracked = self._jobs.get(ref)
        if tracked is None:
            tracked = self._track(ref, job, now)
        tracked.join(waiter)
        tracked.add_label(label)  # polls serve all waits: they have the first label of any
        self._deadlines.add(waiter)
        known = with_label(job or tracked.job, tracked.label)
        if known is not None:
            waiter.on_job(known, known)  # last: the caller's callback may end this wait, or begin others

    def _track(self, ref: JobRef, job: AgentJob | None, now: float) -> Tracked:
        """Start polling a job for its first wait. Later waits join it."""
        tracked = Tracked(ref, job, now)
        tracked.not_before = self._remembered.pop(ref, now)
        self._jobs[ref] = tracked
        if not self._workers.is_leaving(ref):  # else it is queued when its cut poll has left
            self._queue.enqueue(tracked, now)
        return tracked

    def detach(self, waiter: Watch, result: Result) -> None:
        """End a wait. The last waiter to leave stops the polling, unless the job's own end has done so already."""
        tracked = waiter.tracked
        if tracked is None:
            return
        shared = tracked.is_shared
        if tracked.leave(waiter) and tracked.bucket != Tracked.REMOVED:
            self._forget(tracked)
            if isinstance(result, WaitTimeoutError):
                self._durations.timed_out(tracked)
            if tracked.worker is not None:
                self._abandon(tracked, result)
        self._deadlines.remove(waiter)
        if isinstance(result, Exception):
            with_ref(result, tracked.ref)
        if self._hooks is not None:
            elapsed = self.loop.time() - waiter.started
            came = isinstance(result, AgentJob) and tracked.shown  # else the wait found it ended
            lateness = min(self.loop.time() - tracked.seen, elapsed) if came else None
            self._hooks.wait_ended(waiter, tracked.ref, result, waiter.polls, elapsed, lateness, shared=shared)

    def leave(self, watch: Watch) -> None:
        """End the wait of a watch that its caller cancels."""
        self.detach(watch, asyncio.CancelledError())

    def _end_waiter(self, tracked: Tracked, waiter: Watch, result: Result) -> None:
        """End a wait for the job, unless it has ended in an iteration of the loop before this one."""
        if waiter.tracked is tracked:
            self.detach(waiter, result)
            waiter.on_end(result)

    def _finish(self, tracked: Tracked, result: Result) -> None:
        """Stop polling the job, and end all of its waits."""
        if tracked.bucket == Tracked.REMOVED:
            return
        self._forget(tracked)  # first: a wait that begins from now on, in a callback say, has a record of its own
        try:
            if isinstance(result, AgentJob):
                self._durations.ended(result, tracked, self.loop.time())
        finally:  # even if a user's `learn` raised a KeyboardInterrupt: no wait may hang
            ends = map(self._end_waiter, repeat(tracked), tracked.present(), _one_for_each(result))
            self._ending.add(ends)

    def _forget(self, tracked: Tracked) -> None:
        del self._jobs[tracked.ref]
        now = self.loop.time()
        if tracked.not_before > now:
            self._remembered.remember(tracked.ref, tracked.not_before, now)
        self._reader.forget(tracked.ref)
        self._queue.remove(tracked)

    def _abandon(self, tracked: Tracked, result: Result) -> None:
        """Cut the poll in flight: the last wait for it ends with `result`."""
        cut = result if isinstance(result, asyncio.CancelledError) else TransportError(CUT)
        if self._hooks is not None and tracked.worker is not None:
            elapsed = self.loop.time() - tracked.worker.began
            self._hooks.poll_failed(tracked.ref, cut, tracked.polls, elapsed, tracked.label)
        self._workers.cut(tracked)
        self._workers.dispatch()

    def notify(self, ref: JobRef) -> None:
        """Poll the job soon, once, since its state may have changed. Untracked jobs are ignored."""
        tracked = self._jobs.get(ref)
        if tracked is not None:
            self._answers.notify(tracked, self.loop.time())

    def on_near(self, waiter: Watch, now: float) -> None:
        """Queue one more poll of the job soon, since the deadline of `waiter` is near."""
        if waiter.tracked is not None and waiter.tracked.bucket != Tracked.REMOVED:
            self._queue.make_urgent(waiter.tracked, now)

    def on_over(self, waiter: Watch, now: float) -> None:
        """End a wait whose time is up, unless it has ended or is about to end with its job."""
        tracked = waiter.tracked
        if tracked is not None and tracked.bucket != Tracked.REMOVED:
            error = tracked.timeout_error(waiter.polls, now - waiter.started, cut=tracked.worker is not None)
            self._end_waiter(tracked, waiter, error)

    def use(self, policy: PollPolicy) -> None:
        """Poll by another policy from the next answers on."""
        self._durations = Durations(policy)
        self._answers.policy = policy

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
            due=sum(job.is_due for job in jobs),
            in_flight=sum(job.worker is not None for job in jobs),
            polls=self._counters.polls,
            errors=self._counters.errors,
            rate=self._counters.rate(now),
            oldest_unobserved=max(now - min((job.seen for job in jobs), default=now), 0.0),
        )

    async def close(self, error: AgentJobsError) -> set[asyncio.Task[None]]:
        """End all waits with `error`, and cut all polls; return the tasks that are about to end.

        No poll begins after the call. Cancelling it ends the remaining waits at once.
        """
        self._deadlines.close()
        self._queue.close()
        for tracked in tuple(self._jobs.values()):
            if tracked.worker is not None:
                self._abandon(tracked, error)
        leaving = self._workers.close()
        try:
            await run_in_slices(self._closing(error))
        finally:
            self._ending.finish()
            self._queue.close()  # again: ending a wait removes its job, which may set a timer
        return leaving

    def _closing(self, error: AgentJobsError) -> Iterator[None]:
        """End all waits, and yield after each."""
        jobs = deque(self._jobs.values())
        while jobs:
            tracked = jobs.popleft()  # nothing holds it from here on: were they all freed at the end, that took long
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
