"""All polls of one tracker on one loop: jobs and their waiters, the workers that poll, and what an answer means."""

import asyncio
from copy import copy
from typing import Final

from agentjobs_async._queue import Alarms, PollQueue
from agentjobs_async._tempo import ROUNDING
from agentjobs_async._timetable import RESOLUTION, Timetable
from agentjobs_async._tracked import Tracked, Waiter
from agentjobs_async._workers import Workers
from agentjobs_async.counters import Counters, TrackerStats
from agentjobs_async.decision import CUT, Again, Answer, Done, Failed, decide, last_poll_lead
from agentjobs_async.errors import (
    AgentJobsError,
    NotFoundError,
    NotSentError,
    ResponseError,
    TransportError,
    WaitTimeoutError,
    about,
)
from agentjobs_async.models import AgentJob, JobRef, JobStatus, Paced
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry import Hooks, JobChanged, JobPolled, PollFailed, StatusWarnings, WaitEnded
from agentjobs_async.waiting import Read

__all__ = ["Scheduler"]

_GRACE_TURNS: Final = 5
_NOTIFIED_EVERY: Final = 0.25
_SHORTEST_LEAD: Final = 2 * RESOLUTION
_MOST_WISHES: Final = 1024
_FREEZING: Final = frozenset({429, 503})
_HANGS: Final = "no answer while many others came: cut, to make room for other jobs"


class Scheduler:
    """Polls the tracked jobs, at most `budget.in_flight` at a time, and tells their waiters."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read: Read, policy: PollPolicy, budget: PollBudget, hooks: Hooks
    ) -> None:
        self.loop = loop
        self._policy = policy
        self._hooks = hooks
        self._counters = Counters()
        self._jobs: dict[JobRef, Tracked] = {}
        self._queue = PollQueue(loop, self._jobs, budget.per_second, self._pump)
        self._workers = Workers(
            loop,
            read,
            self._queue,
            budget.in_flight,
            answered=self._answered,
            hung=self._hung,
            left=self._left,
        )
        self._deadlines: Timetable[Waiter] = Timetable(lambda waiter, bucket: waiter.bucket == bucket)
        self._alarms = Alarms(loop)
        self._wishes: dict[JobRef, float] = {}
        self._notified: set[Tracked] = set()
        self._warnings = StatusWarnings()

    # Waiters come and go.

    def attach(self, waiter: Waiter, target: AgentJob | JobRef) -> None:
        """Let `waiter` wait for `target`. What is known already it is told, and an end that is known ends its wait."""
        job, ref = (target, target.ref) if isinstance(target, AgentJob) else (None, target)
        if job is not None and job.is_terminal:
            waiter.saw(job)
            waiter.finish(job)
            if self._hooks:
                self._hooks.emit(WaitEnded(ref, job, None, 0, 0.0))
            return
        now = waiter.started
        tracked = self._jobs.get(ref)
        if tracked is None:
            tracked = self._begin(ref, job, now)
        tracked.join(waiter)
        if tracked.polls == 0 and tracked.bucket == Tracked.NOWHERE and tracked.worker is None:
            self._enqueue(tracked, now)
        if waiter.timeout is not None:
            lead = max(last_poll_lead(waiter.timeout), _SHORTEST_LEAD)
            waiter.bucket = self._deadlines.add(waiter, now + waiter.timeout - lead)
            if waiter.bucket == self._deadlines.first():
                self._arm_deadlines()
        known = job or tracked.job
        if known is not None:
            waiter.saw(known)

    def _begin(self, ref: JobRef, job: AgentJob | None, now: float) -> Tracked:
        tracked = self._jobs[ref] = Tracked(ref, job, now, self._counters.begin(now))
        if self._wishes:
            tracked.earliest = max(now, self._wishes.pop(ref, now))
        return tracked

    def _enqueue(self, tracked: Tracked, now: float) -> None:
        """Have it polled at once, unless a cut poll of it has not ended yet, or the server wished otherwise."""
        if self._workers.is_leaving(tracked.ref):
            return
        if tracked.earliest > now:
            self._queue.place(tracked, tracked.earliest, now)
        else:
            self._queue.make_ready(tracked)

    def detach(self, waiter: Waiter, error: BaseException) -> None:
        """End a wait for the waiter's own reasons. The last one to leave stops the polling."""
        tracked = waiter.tracked
        if tracked is None:
            return
        if tracked.leave(waiter):
            self._forget(tracked)
            if tracked.worker is not None:
                self._abandon(tracked, error)
        self._end(waiter, tracked, error)

    def _end(self, waiter: Waiter, tracked: Tracked, result: AgentJob | BaseException) -> None:
        if waiter.bucket != Tracked.NOWHERE:
            waiter.bucket = Tracked.NOWHERE
            self._deadlines.note_stale()
        if isinstance(result, Exception):
            about(result, tracked.ref)
        if self._hooks:
            job, error = (result, None) if isinstance(result, AgentJob) else (None, result)
            polls = tracked.polls - waiter.polls_before
            self._hooks.emit(WaitEnded(tracked.ref, job, error, polls, self.loop.time() - waiter.started))

    def _forget(self, tracked: Tracked) -> None:
        del self._jobs[tracked.ref]
        if tracked.earliest > self.loop.time():
            self._keep_wish(tracked)
        self._notified.discard(tracked)
        self._counters.end(tracked.observed)
        self._queue.remove(tracked)

    def _keep_wish(self, tracked: Tracked) -> None:
        """Remember how long the server wished not to be asked about this job: who waits for it next keeps to it."""
        if len(self._wishes) >= _MOST_WISHES:
            now = self.loop.time()
            self._wishes = {ref: until for ref, until in self._wishes.items() if until > now}
        if len(self._wishes) < _MOST_WISHES:
            self._wishes[tracked.ref] = tracked.earliest

    def _abandon(self, tracked: Tracked, error: BaseException) -> None:
        """Cut the poll in flight."""
        cut = error if isinstance(error, asyncio.CancelledError) else TransportError(CUT)
        if self._hooks:
            self._hooks.emit(PollFailed(tracked.ref, cut, tracked.polls))
        self._workers.cut(tracked)
        self._pump()

    def notify(self, ref: JobRef) -> None:
        """Poll soon, once, because somebody says that something happened."""
        tracked = self._jobs.get(ref)
        if tracked is not None and tracked.worker is not None:
            self._notified.add(tracked)
        elif tracked is not None:
            now = self.loop.time()
            self._queue.bring_forward(tracked, max(now, tracked.earliest + _NOTIFIED_EVERY), now)

    # Deadlines come.

    def _arm_deadlines(self) -> None:
        first = self._deadlines.first()
        if first is not None:
            self._alarms.set(self._on_deadlines, first * RESOLUTION)

    def _on_deadlines(self) -> None:
        """Let each wait whose deadline is near have its last poll, and end each whose deadline is here."""
        now = self.loop.time()
        expired: list[Waiter] = []
        for waiter in self._deadlines.take_due(now):
            waiter.bucket = Tracked.NOWHERE
            if waiter.tracked is None or waiter.timeout is None:
                continue
            deadline = waiter.started + waiter.timeout
            if now >= deadline - ROUNDING:
                expired.append(waiter)
            else:
                waiter.bucket = self._deadlines.add(waiter, deadline)
                self._queue.hasten(waiter.tracked, now)
        self._arm_deadlines()
        self._expire(expired, _GRACE_TURNS)

    def _expire(self, waiters: list[Waiter], turns: int) -> None:
        """End waits whose time is up. An answer that came while the loop stood still is read first, and counts."""
        flying = [waiter for waiter in waiters if waiter.tracked is not None and waiter.tracked.worker is not None]
        if turns and flying:
            self.loop.call_soon(self._expire, flying, turns - 1)
        for waiter in waiters:
            tracked = waiter.tracked
            if tracked is not None and not (turns and tracked.worker is not None):
                cut = TransportError(CUT) if tracked.worker is not None else tracked.error
                polls = tracked.polls - waiter.polls_before
                elapsed = self.loop.time() - waiter.started
                error = WaitTimeoutError(tracked.ref, tracked.job, cut, polls, elapsed)
                self.detach(waiter, error)
                waiter.finish(error)

    # Polls go out.

    def _pump(self) -> None:
        self._workers.pump()

    def _hung(self, tracked: Tracked, now: float) -> None:
        self._answered(tracked, TransportError(_HANGS), now)

    def _left(self, ref: JobRef) -> None:
        """A poll that was cut has ended: who has come for the same job since then may be polled."""
        successor = self._jobs.get(ref)
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
                self._saw(tracked, answer.job if isinstance(answer, Paced) else answer, now)
            if tracked.waiters is not None:  # else they left when they were told
                self._act(tracked, answer, now)
        except Exception as error:  # noqa: BLE001 - see above
            self._finish(tracked, error)

    def _act(self, tracked: Tracked, answer: Answer | BaseException, now: float) -> None:
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            self._finish(tracked, answer)
            return
        decision = decide(self._policy, tracked, answer, now)
        if type(decision) is Failed and self._outlived(tracked, decision.error, now):
            decision = decide(self._policy, tracked, answer, now)
        if tracked.waiters is None:
            return  # they left when a strategy was asked
        if type(decision) is Again:
            self._again(tracked, answer, decision, now)
        elif isinstance(decision, Done):
            self._finish(tracked, decision.job)
        elif isinstance(decision, Failed):
            self._finish(tracked, decision.error)

    def _saw(self, tracked: Tracked, job: AgentJob, now: float) -> None:
        self._queue.answered(now)
        previous, tracked.job, tracked.error = tracked.job, job, None
        tracked.observed = self._counters.move(tracked.observed)
        tracked.seen = now
        if type(job.status) is not JobStatus:
            self._warnings.check(job)
        if self._hooks:
            self._hooks.emit(JobPolled(job, tracked.polls))
            if previous is not None and previous != job:
                self._hooks.emit(JobChanged(job, previous))
        if tracked.waiters is not None:
            tracked.tell(job)

    def _failed(self, tracked: Tracked, error: BaseException) -> None:
        self._counters.errors += 1
        if isinstance(error, Exception):
            tracked.error = error
        if not isinstance(error, NotSentError):
            self._queue.reached()
        if self._hooks:
            self._hooks.emit(PollFailed(tracked.ref, error, tracked.polls))

    def _outlived(self, tracked: Tracked, error: Exception, now: float) -> bool:
        """End the waits whose grace for a 404 is over; tell whether it goes on for those that came later."""
        if not isinstance(error, NotFoundError) or error.status != 404:  # noqa: PLR2004 - the status that has a grace
            return False
        young = [waiter for waiter in tracked.each() if now - waiter.started < self._policy.not_found_grace]
        if not young:
            return False
        for waiter in tracked.each():
            if waiter not in young:
                self.detach(waiter, error)
                waiter.finish(copy(error))
        tracked.seen = min(waiter.started for waiter in young)
        return True

    def _again(self, tracked: Tracked, answer: Answer, again: Again, now: float) -> None:
        tracked.bad_answers = again.bad_answers
        tracked.earliest = again.earliest
        due = again.due
        if tracked in self._notified:
            self._notified.remove(tracked)
            if not isinstance(answer, Exception):
                due = min(due, max(again.earliest, now + _NOTIFIED_EVERY))
        if isinstance(answer, NotSentError):
            self._queue.not_reached(tracked, due, now)
        elif isinstance(answer, ResponseError) and answer.status in _FREEZING and again.earliest > now:
            self._queue.leave_alone(again.earliest, now)
        self._queue.place(tracked, due, now)

    def _finish(self, tracked: Tracked, result: AgentJob | BaseException) -> None:
        waiters = tracked.each()
        if not waiters:
            return
        tracked.waiters = None
        self._forget(tracked)
        for waiter in waiters:
            waiter.tracked = None  # a hook may cancel any of them
        for index, waiter in enumerate(waiters):
            own = copy(result) if index and isinstance(result, AgentJobsError) else result
            self._end(waiter, tracked, own)
            waiter.finish(own)

    # And the end.

    def stats(self) -> TrackerStats:
        """Give a snapshot."""
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

    def close(self, error: AgentJobsError) -> set[asyncio.Task[None]]:
        """End all waits with `error`, and cut all polls; give the tasks that are about to end."""
        for tracked in tuple(self._jobs.values()):
            for waiter in tracked.each():
                own = copy(error)
                self.detach(waiter, own)
                waiter.finish(own)
        self._alarms.cancel()
        self._queue.close()
        return self._workers.close()
