"""All polls of one tracker on one loop: jobs and their waiters, the workers that poll, and what an answer means."""

import asyncio
from copy import copy
from typing import Final, cast

from agentjobs_async._queue import Alarms, PollQueue
from agentjobs_async._tempo import ROUNDING
from agentjobs_async._timetable import RESOLUTION, Timetable
from agentjobs_async._tracked import Tracked, Waiter
from agentjobs_async.counters import Counters, TrackerStats
from agentjobs_async.decision import Again, Answer, Done, Failed, decide, last_poll_lead
from agentjobs_async.errors import (
    AgentJobsError,
    NotFoundError,
    NotSentError,
    ResponseError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.models import AgentJob, JobRef, JobStatus, Paced
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry import Hooks, JobChanged, JobPolled, PollFailed, StatusWarnings, WaitEnded
from agentjobs_async.waiting import Read

__all__ = ["Scheduler"]

_TURN: Final = 0.002
_GRACE_TURNS: Final = 5
_NOTIFIED_EVERY: Final = 0.25
_SHORTEST_LEAD: Final = 2 * RESOLUTION
_MOST_WISHES: Final = 1024
_PATIENCE: Final = 1.0
_LONGEST_WHILE_OTHERS_WAIT: Final = 30.0
_OVERTAKEN: Final = 2
_SMOOTHING: Final = 0.1
_FREEZING: Final = frozenset({429, 503})
_CUT: Final = "no answer until the wait ended"
_HANGS: Final = "no answer while many others came: cut, to make room for other jobs"


class Scheduler:
    """Polls the tracked jobs, at most `budget.in_flight` at a time, and tells their waiters."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read: Read, policy: PollPolicy, budget: PollBudget, hooks: Hooks
    ) -> None:
        self.loop = loop
        self._read = read
        self._policy = policy
        self._places = budget.in_flight
        self._hooks = hooks
        self._counters = Counters()
        self._jobs: dict[JobRef, Tracked] = {}
        self._leaving: dict[JobRef, asyncio.Task[None]] = {}
        self._queue = PollQueue(loop, self._jobs, budget.per_second, self._pump)
        self._deadlines: Timetable[Waiter] = Timetable(lambda waiter, bucket: waiter.bucket == bucket)
        self._alarms = Alarms(loop)
        self._workers: set[asyncio.Task[None]] = set()
        self._wishes: dict[JobRef, float] = {}
        self._flying: dict[Tracked, float] = {}
        self._starting = 0
        self._typical = 0.0
        self._warnings = StatusWarnings()

    # Waiters come and go.

    def attach(self, waiter: Waiter, ref: JobRef, job: AgentJob | None) -> None:
        """Let `waiter` wait for `ref`; `job` is what it knows of it. What the tracker knows already it is told."""
        now = waiter.started
        tracked = self._jobs.get(ref)
        if tracked is None:
            tracked = self._begin(ref, job, now)
        tracked.join(waiter)
        if tracked.polls == 0 and tracked.bucket == Tracked.NOWHERE and tracked.task is None:
            self._enqueue(tracked, now)
        if waiter.timeout is not None:
            lead = max(last_poll_lead(waiter.timeout), _SHORTEST_LEAD)
            waiter.bucket = self._deadlines.add(waiter, now + waiter.timeout - lead)
            self._arm_deadlines()
        known = job or tracked.job
        if known is not None:
            waiter.saw(known)

    def _begin(self, ref: JobRef, job: AgentJob | None, now: float) -> Tracked:
        tracked = self._jobs[ref] = Tracked(ref, job, now, self._counters.begin(now))
        tracked.earliest = max(now, self._wishes.pop(ref, now))
        return tracked

    def _enqueue(self, tracked: Tracked, now: float) -> None:
        """Have it polled at once, unless a cut poll of it has not ended yet, or the server wished otherwise."""
        if tracked.ref in self._leaving:
            return
        if tracked.earliest > now:
            self._queue.place(tracked, tracked.earliest, now)
        else:
            self._queue.make_ready(tracked)

    def spare(self, job: AgentJob) -> None:
        """Tell of a wait that was over before it began: the job had ended."""
        if self._hooks:
            self._hooks.emit(WaitEnded(job.ref, job, None, 0, 0.0))

    def detach(self, waiter: Waiter, error: BaseException) -> None:
        """End a wait for the waiter's own reasons. The last one to leave stops the polling."""
        tracked = waiter.tracked
        if tracked is None:
            return
        if tracked.leave(waiter):
            self._forget(tracked)
            if tracked.task is not None:
                self._abandon(tracked, tracked.task, error)
        self._end(waiter, tracked, error)

    def _end(self, waiter: Waiter, tracked: Tracked, result: AgentJob | BaseException) -> None:
        if waiter.bucket != Tracked.NOWHERE:
            waiter.bucket = Tracked.NOWHERE
            self._deadlines.note_stale()
        if self._hooks:
            job, error = (result, None) if isinstance(result, AgentJob) else (None, result)
            polls = tracked.polls - waiter.polls_before
            self._hooks.emit(WaitEnded(tracked.ref, job, error, polls, self.loop.time() - waiter.started))

    def _forget(self, tracked: Tracked) -> None:
        del self._jobs[tracked.ref]
        if tracked.earliest > self.loop.time():
            self._keep_wish(tracked)
        self._counters.end(tracked.observed)
        self._queue.remove(tracked)

    def _keep_wish(self, tracked: Tracked) -> None:
        """Remember how long the server wished not to be asked about this job: who waits for it next keeps to it."""
        if len(self._wishes) >= _MOST_WISHES:
            now = self.loop.time()
            self._wishes = {ref: until for ref, until in self._wishes.items() if until > now}
        if len(self._wishes) < _MOST_WISHES:
            self._wishes[tracked.ref] = tracked.earliest

    def _abandon(self, tracked: Tracked, task: asyncio.Task[None], error: BaseException) -> None:
        """Cut the poll in flight. Its place is free at once, even when a callable swallows the cancellation."""
        cut = error if isinstance(error, asyncio.CancelledError) else TransportError(_CUT)
        if self._hooks:
            self._hooks.emit(PollFailed(tracked.ref, cut, tracked.polls))
        self._landed(tracked)
        self._workers.discard(task)
        self._leaving[tracked.ref] = task
        task.cancel()
        self._pump()

    def notify(self, ref: JobRef) -> None:
        """Poll soon, once, because somebody says that something happened."""
        tracked = self._jobs.get(ref)
        if tracked is not None and tracked.task is not None:
            tracked.again = True
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
        flying = [waiter for waiter in waiters if waiter.tracked is not None and waiter.tracked.task is not None]
        if turns and flying:
            self.loop.call_soon(self._expire, flying, turns - 1)
        for waiter in waiters:
            tracked = waiter.tracked
            if tracked is not None and not (turns and tracked.task is not None):
                cut = TransportError(_CUT) if tracked.task is not None else tracked.error
                polls = tracked.polls - waiter.polls_before
                elapsed = self.loop.time() - waiter.started
                error = WaitTimeoutError(tracked.ref, tracked.job, cut, polls, elapsed)
                self.detach(waiter, error)
                waiter.finish(error)

    # Polls go out.

    def _pump(self) -> None:
        """Start workers for what may go out, as far as there are places."""
        backlog = self._queue.backlog()
        while self._starting < backlog and len(self._workers) < self._places:
            self._starting += 1
            # Never an eager task: one that ends before it is counted would take a place for ever.
            self._workers.add(asyncio.Task(self._work(), loop=self.loop))
        if backlog and len(self._workers) >= self._places:
            self._alarms.set(self._relieve, self.loop.time() + _PATIENCE)

    def _relieve(self) -> None:
        """Cut the polls that hang while others wait: ones overtaken by many, or that take half a minute.

        All places taken by jobs that hang would stop every other job. A server that is slow for all is left its time:
        its polls don't overtake each other.
        """
        if not self._queue.backlog() or len(self._workers) < self._places:
            return
        now = self.loop.time()
        for tracked, began in tuple(self._flying.items()):
            overtaken = self._counters.polls - tracked.polls_at_start >= _OVERTAKEN * self._places
            if now - began >= (_PATIENCE if overtaken else _LONGEST_WHILE_OTHERS_WAIT) and tracked.task is not None:
                task = tracked.task
                self._landed(tracked)
                self._workers.discard(task)
                self._leaving[tracked.ref] = task
                task.cancel()
                self._answered(tracked, TransportError(_HANGS), now)
        self._pump()

    def _took_off(self, tracked: Tracked, task: asyncio.Task[None], now: float) -> None:
        tracked.task = task
        tracked.polls += 1
        tracked.polls_at_start = self._counters.polls
        self._flying[tracked] = now

    def _landed(self, tracked: Tracked) -> None:
        tracked.task = None
        del self._flying[tracked]

    async def _work(self) -> None:
        """Poll one after the other until nothing may go out, giving the loop back in between."""
        self._starting -= 1
        clock, queue, read = self.loop.time, self._queue, self._read
        task = cast("asyncio.Task[None]", asyncio.current_task(self.loop))
        tracked = None
        began = now = clock()
        turn_ends = now + _TURN
        try:
            while (tracked := queue.next(now)) is not None:
                if tracked.ref in self._leaving:
                    continue  # its cut poll has not ended; then it comes back
                self._took_off(tracked, task, now)
                began = now
                try:
                    answer: Answer | BaseException = await read(tracked.ref)
                except BaseException as error:  # a callable may raise anything; only its own job ends by it
                    if tracked.task is not task or isinstance(error, GeneratorExit):
                        raise
                    answer = error
                if tracked.task is not task:
                    return  # cut, and the callable swallowed it
                self._landed(tracked)
                now = clock()
                self._answered(tracked, answer, now)
                if isinstance(answer, KeyboardInterrupt | SystemExit):
                    raise answer
                if task.cancelling():  # all tasks of the loop are: no new ones now; or the callable cancelled its own
                    self._alarms.set(self._pump, now + _PATIENCE)
                    return
                missing = self._missing(answer, now - began)
                if missing or now > turn_ends:
                    await asyncio.sleep(missing)
                    now = clock()
                    turn_ends = now + _TURN
        finally:
            self._workers.discard(task)
            if tracked is not None:
                self._left(tracked.ref, task)

    def _missing(self, answer: object, took: float) -> float:
        """Give the seconds for which a place is kept after a poll: one that fails at once makes nobody faster."""
        if not isinstance(answer, BaseException):
            self._typical += _SMOOTHING * (took - self._typical)
            return 0.0
        return max(self._typical - took, 0.0) if self._typical > _TURN else 0.0

    def _left(self, ref: JobRef, task: asyncio.Task[None]) -> None:
        """A poll that was cut has ended: who has come for the same job since then may be polled."""
        if self._leaving.get(ref) is task:
            del self._leaving[ref]
            successor = self._jobs.get(ref)
            if successor is not None and successor.task is None and successor.bucket == Tracked.NOWHERE:
                self._enqueue(successor, self.loop.time())

    # Answers come in.

    def _answered(self, tracked: Tracked, answer: Answer | BaseException, now: float) -> None:
        """Act on an answer. Whatever goes wrong with it, in a strategy or in its values, ends this job's waits only."""
        try:
            self._acted_on(tracked, answer, now)
        except Exception as error:  # noqa: BLE001 - see above
            self._finish(tracked, error)

    def _acted_on(self, tracked: Tracked, answer: Answer | BaseException, now: float) -> None:
        self._counters.count_poll(now)
        if isinstance(answer, BaseException):
            self._failed(tracked, answer)
        else:
            self._saw(tracked, answer.job if isinstance(answer, Paced) else answer, now)
        if tracked.waiters is None:
            return  # they left when they were told
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
        self._queue.reached()
        previous, tracked.job, tracked.error = tracked.job, job, None
        tracked.observed = self._counters.move(tracked.observed)
        tracked.seen = now
        if type(job.status) is not JobStatus:
            self._warnings.check(job)
        if self._hooks:
            self._hooks.emit(JobPolled(job, tracked.polls))
            if previous is not None and previous != job:
                self._hooks.emit(JobChanged(job, previous))
        for waiter in tracked.each():
            waiter.saw(job)

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
        if tracked.again and not isinstance(answer, Exception):
            due = min(due, max(again.earliest, now + _NOTIFIED_EVERY))
        tracked.again = False
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
            in_flight=len(self._flying),
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
        for task in self._workers:
            task.cancel()
        self._alarms.cancel()
        self._queue.close()
        return self._workers.union(self._leaving.values())
