"""All polls of one tracker on one loop: jobs and their waiters, the workers that poll, and what an answer means."""

import asyncio
from collections.abc import Iterator
from contextvars import Context, copy_context
from copy import copy
from typing import Final

from agentjobs_async._observers import Hooks
from agentjobs_async._polling.deadlines import Deadlines
from agentjobs_async._polling.decision import (
    CUT,
    Again,
    Answer,
    Done,
    Failed,
    Refusal,
    decide,
    ends_unseen,
    is_refusal,
    timed_out,
)
from agentjobs_async._polling.ends import Ends, Result
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import Read, with_ref
from agentjobs_async._polling.slices import Slice
from agentjobs_async._polling.snapshots import snapshot
from agentjobs_async._polling.stats import Counters, TrackerStats
from agentjobs_async._polling.status_warnings import StatusWarnings
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async._polling.watch import Watch
from agentjobs_async._polling.workers import Workers
from agentjobs_async.errors import (
    AgentJobsError,
    NotSentError,
    ResponseError,
    TransportError,
)
from agentjobs_async.models import AgentJob, JobRef, JobStatus, JobWithRetryAfter
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry import JobChanged, JobPolled, PollFailed, WaitEnded, WaitStarted

__all__ = ["Scheduler"]

_GRACE_TURNS: Final = 5
_NOTIFIED_EVERY: Final = 0.25
_MOST_WISHES: Final = 1024
_HANGS: Final = "no answer while many others came: cut, to make room for other jobs"


class Scheduler:
    """Polls the tracked jobs, at most `budget.in_flight` at a time, and tells their waiters."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Read,
        policy: PollPolicy,
        budget: PollBudget,
        hooks: Hooks,
        *,
        longest_poll: float,
    ) -> None:
        self.loop = loop
        self._policy = policy
        self._hooks = hooks
        self._counters = Counters()
        self._jobs: dict[JobRef, Tracked] = {}
        self._queue = PollQueue(loop, self._jobs, budget.per_second, self._dispatch)
        self._workers = Workers(
            loop,
            read,
            self._queue,
            budget.in_flight,
            answered=self._answered,
            hung=self._hung,
            left=self._left,
            longest=longest_poll,
        )
        self._deadlines = Deadlines(loop, self._near, self._over)
        self._ending = Ends(loop, self._end_one)
        self._closed = False
        self._contexts: dict[Watch, Context] = {}
        """Where each wait began; empty without hooks."""
        self._wishes: dict[JobRef, float] = {}
        self._notified: set[Tracked] = set()
        self._warnings = StatusWarnings()
        self.leave = self._leave  # bound once, for all watches: a bound method takes 64 B

    # Waiters come and go.

    def attach(self, waiter: Watch, target: AgentJob | JobRef) -> None:
        """Start a wait. The waiter is told the last known state at once; a job known to have ended needs no poll."""
        job, ref = (target, target.ref) if isinstance(target, AgentJob) else (None, target)
        if self._hooks:
            self._tell_start(waiter, ref)
        if job is not None and job.is_terminal:
            waiter.on_job(job)
            waiter.on_end(job)
            if self._hooks:
                self._tell_end(waiter, WaitEnded(ref, job, None, 0, 0.0))
            return
        now = waiter.started
        tracked = self._jobs.get(ref)
        if tracked is None:
            tracked = self._begin(ref, job, now)
        tracked.join(waiter)
        if tracked.polls == 0 and tracked.bucket == Tracked.NOWHERE and tracked.worker is None:
            self._enqueue(tracked, now)
        self._deadlines.add(waiter)
        known = job or tracked.job
        if known is not None:
            waiter.on_job(known)

    def _tell_start(self, waiter: Watch, ref: JobRef) -> None:
        context = self._contexts[waiter] = copy_context()
        self._hooks.emit_in(context, WaitStarted(ref))

    def _tell_end(self, waiter: Watch, event: WaitEnded) -> None:
        self._hooks.emit_in(self._contexts.pop(waiter), event)

    def _begin(self, ref: JobRef, job: AgentJob | None, now: float) -> Tracked:
        tracked = self._jobs[ref] = Tracked(ref, job and snapshot(job), now, self._counters.begin(now))
        if self._wishes:
            tracked.not_before = max(now, self._wishes.pop(ref, now))
        return tracked

    def _enqueue(self, tracked: Tracked, now: float) -> None:
        """Queue a job's poll now, unless a cut poll of it has not ended yet, or `not_before` lies ahead."""
        if self._workers.is_leaving(tracked.ref):
            return
        if tracked.not_before > now:
            self._queue.place(tracked, tracked.not_before, now)
        else:
            self._queue.make_ready(tracked)

    def detach(self, waiter: Watch, result: Result) -> None:
        """End a wait. The last one to leave stops the polling, unless the job's own end has done so already."""
        tracked = waiter.tracked
        if tracked is None:
            return
        if tracked.leave(waiter) and tracked not in self._ending.jobs:
            self._forget(tracked)
            if tracked.worker is not None:
                self._abandon(tracked, result)
        self._end(waiter, tracked, result)

    def _leave(self, watch: Watch) -> None:
        self.detach(watch, asyncio.CancelledError())

    def _end_one(self, waiter: Watch, result: Result) -> None:
        self.detach(waiter, result)
        waiter.on_end(result)

    def _end(self, waiter: Watch, tracked: Tracked, result: Result) -> None:
        self._deadlines.remove(waiter)
        if isinstance(result, Exception):
            with_ref(result, tracked.ref)
        if self._hooks:
            job, error = (result, None) if isinstance(result, AgentJob) else (None, result)
            polls = tracked.polls - waiter.polls_before
            elapsed = self.loop.time() - waiter.started
            self._tell_end(waiter, WaitEnded(tracked.ref, job, error, polls, elapsed))

    def _forget(self, tracked: Tracked) -> None:
        del self._jobs[tracked.ref]
        if tracked.not_before > self.loop.time():
            self._keep_wish(tracked)
        self._notified.discard(tracked)
        self._counters.end(tracked.seen_second)
        self._queue.remove(tracked)

    def _keep_wish(self, tracked: Tracked) -> None:
        """Remember how long the server wished not to be asked about this job: who waits for it next keeps to it."""
        if len(self._wishes) >= _MOST_WISHES:
            now = self.loop.time()
            self._wishes = {ref: until for ref, until in self._wishes.items() if until > now}
        if len(self._wishes) < _MOST_WISHES:
            self._wishes[tracked.ref] = tracked.not_before

    def _abandon(self, tracked: Tracked, result: Result) -> None:
        """Cut the poll in flight: the last wait for it ends with `result`."""
        cut = result if isinstance(result, asyncio.CancelledError) else TransportError(CUT)
        if self._hooks:
            self._hooks.emit_apart(PollFailed(tracked.ref, cut, tracked.polls))
        self._workers.cut(tracked)
        self._dispatch()

    def notify(self, ref: JobRef) -> None:
        """Poll soon, once, because somebody says that something happened."""
        tracked = self._jobs.get(ref)
        if tracked is not None and tracked.worker is not None:
            self._notified.add(tracked)
        elif tracked is not None:
            now = self.loop.time()
            self._queue.reschedule_earlier(tracked, max(now, tracked.not_before + _NOTIFIED_EVERY), now)

    # Deadlines come.

    def _near(self, waiter: Watch, now: float) -> None:
        """Queue one more poll of the job soon, since the deadline of `waiter` is near."""
        if waiter.tracked is not None and waiter.tracked not in self._ending.jobs:
            self._queue.make_urgent(waiter.tracked, now)

    def _over(self, waiters: list[Watch]) -> None:
        self._expire(waiters, _GRACE_TURNS)

    def _expire(self, waiters: list[Watch], turns: int) -> None:
        """End waits whose time is up. An answer that came while the loop stood still is read first, and counts."""
        flying: list[Watch] = []
        now = self.loop.time()
        for waiter in waiters:
            tracked = waiter.tracked
            if tracked is None or tracked in self._ending.jobs:
                continue
            if turns and tracked.worker is not None:
                flying.append(waiter)
            else:
                polls, elapsed = tracked.polls - waiter.polls_before, now - waiter.started
                cut = tracked.worker is not None
                self._end_one(waiter, timed_out(tracked.ref, tracked.job, tracked.error, polls, elapsed, cut=cut))
        if flying:
            self.loop.call_soon(self._expire, flying, turns - 1, context=Context())

    # Polls go out.

    def _dispatch(self) -> None:
        self._workers.dispatch()

    def _hung(self, tracked: Tracked, now: float) -> None:
        self._answered(tracked, TransportError(_HANGS), now)

    def _left(self, ref: JobRef) -> None:
        """A poll that was cut has ended: who has come for the same job since then may be polled."""
        successor = None if self._closed else self._jobs.get(ref)
        if successor is not None and successor.worker is None and successor.bucket == Tracked.NOWHERE:
            self._enqueue(successor, self.loop.time())

    # Answers come in.

    def _answered(self, tracked: Tracked, answer: Answer | BaseException, now: float) -> None:
        """Act on an answer. Whatever goes wrong with it, in a strategy or in its values, ends this job's waits only."""
        try:
            self._counters.count_poll(now)
            if isinstance(answer, BaseException):
                self._failed(tracked, answer)
            else:
                self._saw(tracked, answer.job if isinstance(answer, JobWithRetryAfter) else answer, now)
            if tracked.waiters is not None:  # else they left when they were told
                self._act(tracked, answer, now)
        except Exception as error:  # noqa: BLE001 - see above
            self._finish(tracked, error)

    def _act(self, tracked: Tracked, answer: Answer | BaseException, now: float) -> None:
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            self._finish(tracked, answer)
            return
        decision = decide(self._policy, tracked, answer, now)
        if is_refusal(answer) and self._end_some(tracked, answer, now, others=isinstance(decision, Failed)):
            decision = decide(self._policy, tracked, answer, now)  # by the history of those that are left
        if tracked.waiters is None or tracked in self._ending.jobs:
            return  # they left when a strategy was asked, or the refusal has ended them all
        if type(decision) is Again:
            self._again(tracked, answer, decision, now)
        elif isinstance(decision, Done):
            self._finish(tracked, decision.job)
        elif isinstance(decision, Failed):
            self._finish(tracked, decision.error)

    def _saw(self, tracked: Tracked, job: AgentJob, now: float) -> None:
        self._queue.answered(now)
        previous, tracked.job = tracked.job, snapshot(job)
        if tracked.trouble is not None:
            tracked.recover()
        tracked.seen_second = self._counters.move(tracked.seen_second)
        tracked.seen = now
        tracked.shown = tracked.polls
        if type(job.status) is not JobStatus:
            self._warnings.check(job)
        if self._hooks:
            self._hooks.emit_apart(JobPolled(job, tracked.polls))
            if previous is not None and previous != job:
                self._hooks.emit_apart(JobChanged(job, previous))
        if tracked.waiters is not None:
            tracked.notify_all(job)

    def _failed(self, tracked: Tracked, error: BaseException) -> None:
        self._counters.errors += 1
        if isinstance(error, Exception):
            tracked.in_trouble().error = error
        if not isinstance(error, NotSentError):
            self._queue.reached()
        if self._hooks:
            self._hooks.emit_apart(PollFailed(tracked.ref, error, tracked.polls))

    def _end_some(self, tracked: Tracked, refusal: Refusal, now: float, *, others: bool) -> bool:
        """End the waits that a refusal ends, where waits for the same job go on.

        Each wait has its own first sight of the job and its own grace: one that no poll has shown the job since it
        joined is decided on for itself. `others` says whether the refusal ends the rest.

        Returns:
            Whether only such waits are left: the history of the job is theirs from here on.
        """
        if not others and not tracked.shown:
            return False  # none has seen the job, and not even the oldest ends
        unseen = tracked.unseen()
        ending = [waiter for waiter in unseen if self._ends(tracked, waiter, refusal, now)]
        if others:
            if len(ending) == len(unseen):
                return False  # it ends them all
            left = dict.fromkeys(unseen)
            for waiter in ending:
                del left[waiter]
            ending = [waiter for waiter in tracked.snapshot() if waiter not in left]
            tracked.restart(next(iter(left)))
        if len(ending) == len(tracked.snapshot()):
            self._finish(tracked, refusal)
        elif ending:
            self._ending.add(tracked.part(ending), refusal)
        return others

    def _ends(self, tracked: Tracked, waiter: Watch, refusal: Refusal, now: float) -> bool:
        bad_answers = min(tracked.bad_answers + 1, tracked.polls - waiter.polls_before)
        return ends_unseen(self._policy, refusal, now - waiter.started, bad_answers)

    def _again(self, tracked: Tracked, answer: Answer, again: Again, now: float) -> None:
        if tracked.trouble is not None:
            tracked.trouble.bad_answers, tracked.trouble.refused_since = again.bad_answers, again.refused_since
        tracked.not_before = again.not_before
        due = again.due
        if tracked in self._notified:
            self._notified.remove(tracked)
            if not isinstance(answer, Exception):
                due = min(due, max(again.not_before, now + _NOTIFIED_EVERY))
        if isinstance(answer, NotSentError):
            self._queue.not_reached(tracked, due, now)
        elif isinstance(answer, ResponseError) and again.not_before > now:
            if due > again.not_before:  # placed before the pause, it keeps its rhythm through it, as all others do
                self._queue.place(tracked, due, now)
            self._queue.pause(tracked.ref, answer.status, again.not_before, due, now)
        if tracked.bucket == Tracked.NOWHERE:
            self._queue.place(tracked, due, now)

    def _finish(self, tracked: Tracked, result: Result) -> None:
        """Poll the job no more, and end all of its waits."""
        if tracked.waiters is not None and tracked not in self._ending.jobs:
            self._forget(tracked)
            self._ending.add(tracked, result)

    # And the end.

    def stats(self) -> TrackerStats:
        """Return a snapshot."""
        now = self.loop.time()
        return TrackerStats(
            jobs=len(self._jobs),
            due=self._queue.waiting(),
            in_flight=self._workers.in_flight(),
            polls=self._counters.polls,
            errors=self._counters.errors,
            rate=self._counters.rate(now),
            oldest_unobserved=self._counters.oldest(now),
        )

    async def close(self, error: AgentJobsError) -> set[asyncio.Task[None]]:
        """End all waits with `error`, and cut all polls; return the tasks that are about to end.

        Nothing is polled from its start on. Cancelling it ends the rest of the waits at once.
        """
        self._closed = True
        self._deadlines.close()
        self._queue.close()
        for tracked in tuple(self._jobs.values()):
            if tracked.worker is not None:
                self._abandon(tracked, error)
        leaving = self._workers.close()
        slices = self._closing(error)
        try:
            for _ in slices:
                await asyncio.sleep(0)
        finally:
            for _ in slices:
                pass
            self._ending.on_end()
            self._queue.close()  # of what the last ones to leave have armed
        return leaving

    def _closing(self, error: AgentJobsError) -> Iterator[None]:
        """End all waits, and yield after each slice of them."""
        turn = Slice(self.loop)
        for tracked in tuple(self._jobs.values()):
            for waiter in tracked.snapshot():
                if waiter.tracked is tracked:  # else it has left meanwhile
                    self._end_one(waiter, copy(error))
                turn.take()
                if not turn.has_room():
                    yield
                    turn = Slice(self.loop)
