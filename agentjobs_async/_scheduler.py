"""All polls of one tracker on one loop: who is due, who may go, and what an answer means for those who wait.

Polls lie in one timetable, on a clock that stands still while the server wishes to be left alone or cannot be reached:
what was due in that time comes due afterwards in the same rhythm. Deadlines lie in another, on the loop's own clock.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Final

from agentjobs_async._tempo import Tempo
from agentjobs_async._timetable import RESOLUTION, Timetable
from agentjobs_async._tracked import Tracked, Waiter
from agentjobs_async.counters import Counters, TrackerStats
from agentjobs_async.errors import (
    AgentJobsError,
    NotFoundError,
    NotSentError,
    RateLimitedError,
    ServerError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.models import AgentJob, JobRef, JobStatus, Paced
from agentjobs_async.policy import Again, Answer, Decision, Done, Failed, PollBudget, PollPolicy, decide, last_poll_lead
from agentjobs_async.telemetry import Hooks, JobChanged, JobPolled, PollFailed, WaitEnded, warn_of_status
from agentjobs_async.waiting import Read

__all__ = ["Scheduler"]

_TURN: Final = 0.002
_GRACE_TURNS: Final = 5
_SPREAD: Final = 0.1
_NOTIFIED_EVERY: Final = 0.25
_LONGEST_RELEASE: Final = 10.0
_UNREACHABLE_AFTER: Final = 3
_NEXT_PROBE: Final = 1.0
_PROBE_AT_LEAST_EVERY: Final = 30.0
_FREEZING: Final = frozenset({429, 503})
_CUT: Final = "no answer until the wait ended"


class Scheduler:
    """Polls the tracked jobs, at most `budget.in_flight` at a time, and tells their waiters."""

    def __init__(self, read: Read, policy: PollPolicy, budget: PollBudget, hooks: Hooks) -> None:
        self._read = read
        self._policy = policy
        self._places = budget.in_flight
        self._hooks = hooks
        self._tempo = Tempo(budget.per_second)
        self._counters = Counters()
        self._jobs: dict[JobRef, Tracked] = {}
        self._leaving: dict[JobRef, Tracked] = {}
        self._timetable: Timetable[Tracked] = Timetable(lambda tracked, bucket: tracked.bucket == bucket)
        self._deadlines: Timetable[Waiter] = Timetable(lambda waiter, bucket: waiter.bucket == bucket)
        self._ready: deque[Tracked] = deque()
        self._urgent: deque[Tracked] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._in_flight = 0
        self._unreachable = 0
        self._probe: Tracked | None = None
        self._warned: set[str] = set()
        self._alarms: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind to `loop`; comes before all else."""
        self._loop = loop

    # Waiters come and go.

    def attach(self, waiter: Waiter, ref: JobRef, job: AgentJob | None) -> None:
        """Let `waiter` wait for `ref`; `job` is what it knows of it. What the tracker knows already it is told."""
        now = waiter.started
        tracked = self._jobs.get(ref)
        if tracked is None:
            tracked = self._jobs[ref] = Tracked(ref, job, now)
            self._counters.observe(None, now)
            if ref not in self._leaving:
                self._make_ready(tracked)
        tracked.join(waiter)
        if waiter.timeout is not None:
            waiter.bucket = self._deadlines.add(waiter, now + waiter.timeout - last_poll_lead(waiter.timeout))
            self._arm(self._on_deadlines, self._deadlines.first())
        known = job or tracked.job
        if known is not None:
            waiter.saw(known)

    def detach(self, waiter: Waiter, error: BaseException) -> None:
        """End a wait for the waiter's own reasons."""
        tracked = waiter.tracked
        if tracked is None:
            return
        if tracked.leave(waiter):
            self._forget(tracked)
            if tracked.task is not None:
                self._abandon(tracked, tracked.task, error)
        self._end(waiter, tracked, error)

    def _end(self, waiter: Waiter, tracked: Tracked, result: AgentJob | BaseException) -> None:
        if waiter.timeout is not None:
            waiter.bucket = Tracked.NOWHERE
            self._deadlines.note_stale()
        if self._hooks:
            job, error = (result, None) if isinstance(result, AgentJob) else (None, result)
            polls = tracked.polls - waiter.polls_before
            self._hooks.emit(WaitEnded(tracked.ref, job, error, polls, self._loop.time() - waiter.started))

    def _forget(self, tracked: Tracked) -> None:
        """Stop polling a job."""
        del self._jobs[tracked.ref]
        self._counters.observe(tracked.seen, None)
        if tracked.bucket >= 0:
            self._timetable.note_stale()
        tracked.bucket = Tracked.NOWHERE
        if self._tempo.unreachable:
            self._arm(self._on_probe, self._loop.time() + _NEXT_PROBE)

    def _abandon(self, tracked: Tracked, task: asyncio.Task[None], error: BaseException) -> None:
        """Cut the poll in flight. Its place is free at once, even when a callable swallows the cancellation."""
        cut = error if isinstance(error, asyncio.CancelledError) else TransportError(_CUT)
        if self._hooks:
            self._hooks.emit(PollFailed(tracked.ref, cut, tracked.polls))
        tracked.task = None
        self._in_flight -= 1
        self._workers.discard(task)
        self._leaving[tracked.ref] = tracked
        task.cancel()
        self._pump()

    def notify(self, ref: JobRef) -> None:
        """Poll soon, once, because somebody says that something happened."""
        tracked = self._jobs.get(ref)
        if tracked is None:
            return
        if tracked.task is not None:
            tracked.again = True
        elif tracked.bucket >= 0:
            now = self._loop.time()
            soon = max(now, tracked.earliest + _NOTIFIED_EVERY)
            if self._tempo.due(soon, now) < tracked.bucket * RESOLUTION:
                self._place(tracked, soon, now)

    # Time passes.

    def _arm(self, alarm: Callable[[], None], when: float | None) -> None:
        """Let the loop call `alarm` at `when`, unless it does so earlier already."""
        armed = self._alarms.get(alarm)
        if when is None or (armed is not None and armed.when() <= when):
            return
        if armed is not None:
            armed.cancel()
        self._alarms[alarm] = self._loop.call_at(when, self._ring, alarm)

    def _ring(self, alarm: Callable[[], None]) -> None:
        del self._alarms[alarm]
        alarm()

    def _place(self, tracked: Tracked, when: float, now: float, at_most: int | None = None) -> None:
        """Have `tracked` polled at the loop time `when`, or when the clock of the polls comes to it."""
        if tracked.bucket >= 0:
            self._timetable.note_stale()
        tracked.bucket = self._timetable.add(tracked, self._tempo.due(when, now), at_most)
        self._arm_polls()

    def _arm_polls(self) -> None:
        first = self._timetable.first()
        if first is not None and not self._tempo.stopped:
            self._arm(self._on_due, self._tempo.to_loop(first))

    def _on_due(self) -> None:
        if self._tempo.stopped:
            return
        for tracked in self._timetable.take_due(self._tempo.time(self._loop.time())):
            tracked.bucket = Tracked.READY
            self._ready.append(tracked)
        self._arm_polls()
        self._pump()

    def _on_deadlines(self) -> None:
        now = self._loop.time()
        expired: list[Waiter] = []
        for waiter in self._deadlines.take_due(now):
            waiter.bucket = Tracked.NOWHERE
            tracked, timeout = waiter.tracked, waiter.timeout
            if tracked is None or timeout is None:
                continue
            if now >= waiter.started + timeout:
                expired.append(waiter)
            else:
                waiter.bucket = self._deadlines.add(waiter, waiter.started + timeout)
                self._hasten(tracked, now)
        self._arm(self._on_deadlines, self._deadlines.first())
        self._expire(expired, _GRACE_TURNS)

    def _expire(self, waiters: list[Waiter], turns: int) -> None:
        """End waits whose time is up. An answer that came while the loop stood still is read first, and counts."""
        flying = [waiter for waiter in waiters if waiter.tracked is not None and waiter.tracked.task is not None]
        if turns and flying:
            self._loop.call_soon(self._expire, flying, turns - 1)
        for waiter in waiters:
            tracked = waiter.tracked
            if tracked is not None and not (turns and tracked.task is not None):
                cut = TransportError(_CUT) if tracked.task is not None else tracked.error
                elapsed = self._loop.time() - waiter.started
                polls = tracked.polls - waiter.polls_before
                error = WaitTimeoutError(tracked.ref, tracked.job, cut, polls, elapsed)
                self.detach(waiter, error)
                waiter.finish(error)

    def _hasten(self, tracked: Tracked, now: float) -> None:
        """Poll before anybody else: a deadline is near, or this one is to find out for all."""
        if tracked.bucket in {Tracked.URGENT, Tracked.NOWHERE}:
            return
        if tracked.earliest > now:
            self._place(tracked, tracked.earliest, now)
            return
        if tracked.bucket >= 0:
            self._timetable.note_stale()
        tracked.bucket = Tracked.URGENT
        self._urgent.append(tracked)
        self._pump()

    # Polls go out.

    def _make_ready(self, tracked: Tracked) -> None:
        tracked.bucket = Tracked.READY
        self._ready.append(tracked)
        self._pump()

    def _pump(self) -> None:
        """Start workers for what is due, as far as there are places."""
        if self._tempo.stopped and not (self._tempo.unreachable and self._urgent):
            return
        backlog = len(self._ready) + len(self._urgent)
        while self._starting < backlog and len(self._workers) < self._places:
            self._starting += 1
            self._workers.add(self._loop.create_task(self._work()))

    def _next(self, now: float) -> Tracked | None:
        """Take the next that may be polled: deadlines first, then who has been due for longest."""
        tempo = self._tempo
        queues: tuple[tuple[deque[Tracked], int], ...]
        if tempo.stopped:
            queues = ((self._urgent, Tracked.URGENT),) if tempo.unreachable else ()
        else:
            queues = ((self._urgent, Tracked.URGENT), (self._ready, Tracked.READY))
        for queue, place in queues:
            while queue:
                tracked = queue[0]
                if tracked.bucket != place:
                    queue.popleft()
                    continue
                again_at = tempo.start(now)
                if again_at:
                    self._arm(self._pump, again_at)
                    return None
                queue.popleft()
                tracked.bucket = Tracked.NOWHERE
                return tracked
        return None

    async def _work(self) -> None:
        """Poll one after the other until nothing is due, giving the loop back in between."""
        self._starting -= 1
        clock = self._loop.time
        task = asyncio.current_task(self._loop)
        tracked = None
        now = clock()
        turn_ends = now + _TURN
        try:
            while (tracked := self._next(now)) is not None:
                tracked.task = task
                tracked.polls += 1
                self._in_flight += 1
                try:
                    answer: Answer | asyncio.CancelledError = await self._read(tracked.ref)
                except asyncio.CancelledError as error:
                    if tracked.task is not task or (task is not None and task.cancelling()):
                        raise
                    answer = error
                if tracked.task is not task:
                    return  # cut, and the callable swallowed it
                tracked.task = None
                self._in_flight -= 1
                now = clock()
                self._answered(tracked, answer, now)
                if now > turn_ends:
                    await asyncio.sleep(0)
                    now = clock()
                    turn_ends = now + _TURN
        finally:
            if task is not None:
                self._workers.discard(task)
            if tracked is not None:
                self._left(tracked)

    def _left(self, tracked: Tracked) -> None:
        """A poll that was cut has ended: who has come for the same job since then may be polled."""
        if self._leaving.get(tracked.ref) is tracked:
            del self._leaving[tracked.ref]
            successor = self._jobs.get(tracked.ref)
            if successor is not None:
                self._make_ready(successor)

    # Answers come in.

    def _answered(self, tracked: Tracked, answer: Answer | asyncio.CancelledError, now: float) -> None:
        self._counters.count_poll(now)
        if isinstance(answer, BaseException):
            self._failed(tracked, answer)
        else:
            self._saw(tracked, answer.job if isinstance(answer, Paced) else answer, now)
        self._reached(answer)
        if tracked.waiters is None:
            return  # they left when they were told
        if isinstance(answer, asyncio.CancelledError):
            self._finish(tracked, answer)
            return
        decision = self._decided(tracked, answer, now)
        if type(decision) is Again:
            self._again(tracked, answer, decision, now)
        elif isinstance(decision, Done):
            self._finish(tracked, decision.job)
        elif isinstance(decision, Failed):
            self._finish(tracked, decision.error)

    def _saw(self, tracked: Tracked, job: AgentJob, now: float) -> None:
        previous, tracked.job, tracked.error = tracked.job, job, None
        self._counters.observe(tracked.seen, now)
        tracked.seen = now
        if type(job.status) is not JobStatus and job.status not in self._warned:
            self._warned.add(job.status)
            warn_of_status(job)
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
        if self._hooks:
            self._hooks.emit(PollFailed(tracked.ref, error, tracked.polls))

    def _decided(self, tracked: Tracked, answer: Answer, now: float) -> Decision:
        try:
            decision = decide(self._policy, tracked, answer, now)
            if isinstance(decision, Failed) and self._outlived(tracked, decision.error, now):
                decision = decide(self._policy, tracked, answer, now)
        except Exception as error:  # noqa: BLE001 - a strategy of the user's must not stop the other jobs
            return Failed(error)
        return decision

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
        start = max(waiter.started for waiter in young)
        self._counters.observe(tracked.seen, start)
        tracked.seen = start
        return True

    def _again(self, tracked: Tracked, answer: Answer, again: Again, now: float) -> None:
        tracked.bad_answers = again.bad_answers
        tracked.earliest = again.earliest
        due = again.due
        if tracked.again:
            tracked.again = False
            due = again.earliest
        if isinstance(answer, RateLimitedError | ServerError) and answer.status in _FREEZING and again.earliest > now:
            self._tempo.stop(now, again.earliest)
            self._arm(self._on_resume, again.earliest)
        elif isinstance(answer, NotSentError):
            self._not_reached(tracked, due, now)
        delay = max(due - now, RESOLUTION)
        self._place(tracked, due, now, 1 + int(len(self._jobs) * RESOLUTION / (_SPREAD * delay)))

    def _finish(self, tracked: Tracked, result: AgentJob | BaseException) -> None:
        waiters = tracked.each()
        tracked.waiters = None
        self._forget(tracked)
        for index, waiter in enumerate(waiters):
            own = copy(result) if index and isinstance(result, AgentJobsError) else result
            waiter.tracked = None
            self._end(waiter, tracked, own)
            waiter.finish(own)

    # The server is gone, or wishes to be left alone.

    def _reached(self, answer: Answer | asyncio.CancelledError) -> None:
        if not isinstance(answer, NotSentError | asyncio.CancelledError):
            self._unreachable = 0
            if self._tempo.unreachable:
                self._resume()

    def _not_reached(self, tracked: Tracked, due: float, now: float) -> None:
        """Nobody listens: that holds for all jobs. After a few such answers in a row, one asks for all."""
        self._unreachable += 1
        if self._unreachable >= _UNREACHABLE_AFTER and len(self._jobs) > 1:
            self._tempo.stop(now, None)
        if self._tempo.unreachable and self._probe in {None, tracked}:
            self._probe = tracked
            self._arm(self._on_probe, due)

    def _on_probe(self) -> None:
        if not self._tempo.unreachable:
            return
        if not self._jobs:
            self._resume()
            return
        if self._probe is None or self._probe.waiters is None:
            self._probe = next(iter(self._jobs.values()))
        now = self._loop.time()
        self._arm(self._on_probe, now + _PROBE_AT_LEAST_EVERY)
        self._hasten(self._probe, now)

    def _on_resume(self) -> None:
        until = self._tempo.resume_at
        if until is not None and self._loop.time() < until:
            self._arm(self._on_resume, until)
        else:
            self._resume()

    def _resume(self) -> None:
        """Let polls go out again: what has become due in the meantime spread over as long a time as was lost."""
        now = self._loop.time()
        spread = min(self._tempo.resume(now), _LONGEST_RELEASE)
        self._probe = None
        released = [tracked for tracked in self._ready if tracked.bucket == Tracked.READY]
        released += self._timetable.take_due(self._tempo.time(now))
        self._ready.clear()
        for index, tracked in enumerate(released):
            tracked.bucket = Tracked.NOWHERE
            self._place(tracked, now + spread * index / len(released), now)
        self._arm_polls()
        self._pump()

    # And the end.

    def stats(self) -> TrackerStats:
        """Give a snapshot."""
        now = self._loop.time()
        return TrackerStats(
            jobs=len(self._jobs),
            due=len(self._ready) + len(self._urgent),
            in_flight=self._in_flight,
            polls=self._counters.polls,
            errors=self._counters.errors,
            rate=self._counters.rate(now),
            oldest_unobserved=self._counters.oldest(now),
        )

    def close(self, error: AgentJobsError) -> set[asyncio.Task[None]]:
        """End all waits with `error`, and cut all polls; give the tasks that are about to end."""
        tasks = set(self._workers)
        for tracked in tuple(self._jobs.values()):
            for waiter in tracked.each():
                own = copy(error)
                self.detach(waiter, own)
                waiter.finish(own)
        for task in tasks:
            task.cancel()
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        return tasks
