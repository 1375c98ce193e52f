"""What the scheduler knows of one job, of each wait for it, and of the worker that polls it."""

import asyncio
from contextvars import copy_context
from typing import Any, Final, Protocol

from agentjobs_async._polling.reading import as_runtime_error
from agentjobs_async._polling.wait_state import WaitState
from agentjobs_async.errors import ProtocolError, RateLimitedError, ResponseError, SessionClosedError
from agentjobs_async.models import AgentJob, JobRef, with_label
from agentjobs_async.telemetry.observers import GuardedCallback, call_in

_STOPPED: Final = "a strategy or get_job raised StopIteration"


class WaitParent(Protocol):
    """What a wait belongs to: the scheduler, which imports this module.

    Attributes:
        loop: The loop.
    """

    loop: asyncio.AbstractEventLoop

    def leave(self, watch: "Watch") -> None:
        """End the wait of a watch that its caller cancels."""


class Watch(asyncio.Future[AgentJob]):
    """One wait for a job, with a deadline of its own: a future of the ended job.

    The scheduler has its notes on the wait in the attributes, and calls `on_job` and `on_end`. What differs between
    the ways to wait is what their watches do in these two.

    Attributes:
        tracked: The record of the job; `None` before the wait has begun and once it is over.
        started: Loop time of the wait's start.
        timeout: Seconds from `started` to the deadline; `None` waits for ever.
        polls_before: The number of polls of the job before this wait.
        polls_at_end: The number of polls of this wait once it is over.
        bucket: The number of its bucket among the deadlines; `None` for none.
    """

    __slots__ = ("_scheduler", "bucket", "polls_at_end", "polls_before", "started", "timeout", "tracked")

    def __init__(self, scheduler: WaitParent, timeout: float | None) -> None:
        super().__init__(loop=scheduler.loop)
        self._scheduler = scheduler
        self.tracked: Tracked | None = None
        self.started = scheduler.loop.time()
        self.timeout = timeout
        self.polls_before = self.polls_at_end = 0
        self.bucket: int | None = None

    @property
    def polls(self) -> int:
        """How often the job was polled in this wait so far."""
        return self.polls_at_end if self.tracked is None else self.tracked.polls - self.polls_before

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this wait last showed the job; `None` before, and once the wait is over."""
        tracked = self.tracked
        return None if tracked is None or tracked.shown <= self.polls_before else tracked.seen

    def on_job(self, job: AgentJob, compact: AgentJob) -> None:
        """Do nothing with a state of the job: a plain watch is a future of the end only.

        Args:
            job: The state.
            compact: The same state without a large `raw`, for what stays in memory until the next one.
        """

    def on_end(self, result: AgentJob | BaseException) -> None:
        """End the future with a job or an error. Called once, after `tracked` was set to `None`."""
        if self.done():
            return
        if isinstance(result, AgentJob):
            self.set_result(result)
        elif isinstance(result, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(as_runtime_error(result, StopIteration, _STOPPED))
            if isinstance(result, SessionClosedError):
                self.exception()  # it counts as retrieved: the caller closed the session, and need not await the watch

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting, at once. The job continues remotely."""
        if self.done():
            return False
        self._scheduler.leave(self)
        return super().cancel(msg)


class WatchWithUpdates(Watch):
    """A watch that also calls `update` with each change, in the context in which the watch was made."""

    __slots__ = ("_context", "_last", "_update")

    def __init__(self, scheduler: WaitParent, timeout: float | None, update: GuardedCallback) -> None:
        super().__init__(scheduler, timeout)
        self._update = update
        self._context = copy_context()
        self._last: AgentJob | None = None

    def on_job(self, job: AgentJob, compact: AgentJob) -> None:
        """Call `update` when the job is new or has changed."""
        if self._last is None or self._last != job:
            self._last = compact
            call_in(self._context, self._update, job)


class Tracked(WaitState):
    """One job, its polls and its waiters.

    Attributes:
        waiters: One waiter inline, a dict without values from the second on, `None` when all have left.
        wants_states: Whether some waiter, present or past, wants each state of the job; a plain `Watch` wants the end.
        notified: Whether `notify` was called while its poll was in flight: that may have missed the news.
        patience_seconds: How long a poll of it may hang while others wait, once one was cut; 0.0 before.
        is_urgent: Whether its next poll goes before all others, since a deadline is near; until that poll begins.
        bucket: The number of its time bucket, or one of the constants below.
        worker: The worker that polls it now.
    """

    # bucket     its next poll is      entered by                      left by
    # >= 0       in that time bucket   put                             its time, make_urgent -> READY
    # READY      due                   its time, enqueue,              a worker -> NOWHERE, no slow slot -> SET_ASIDE
    #                                  make_urgent: a near deadline
    # SET_ASIDE  due, the job is slow  slow jobs use all slots that    a worker -> NOWHERE, make_urgent -> READY,
    #                                  they may (a "slow slot")        its project is paused -> READY
    # NOWHERE    in flight, or none    new; a worker pops it           put, enqueue
    # REMOVED    none                  remove, from any state          -
    # The order of the constants counts: a job is queued exactly while `bucket` is above NOWHERE.
    # Once it is REMOVED, the waits that are left end with one result: no deadline and no later answer changes it.
    READY = -1
    SET_ASIDE = -2
    NOWHERE = -3
    REMOVED = -4

    __slots__ = (*("bucket", "is_urgent", "notified", "patience_seconds", "waiters", "wants_states", "worker"),)

    def __init__(self, ref: JobRef, job: AgentJob | None, now: float) -> None:
        super().__init__(ref, job, now)
        self.waiters: Any = None
        self.wants_states = self.notified = self.is_urgent = False
        self.patience_seconds = 0.0
        self.bucket = Tracked.NOWHERE
        self.worker: Worker | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is due to be polled, and waits for its turn."""
        return Tracked.NOWHERE < self.bucket < 0

    @property
    def is_refused(self) -> bool:
        """Whether the server refused its last poll for now, so that it keeps its position among the due jobs."""
        error = self.error
        if isinstance(error, RateLimitedError):
            return True
        return isinstance(error, ResponseError | ProtocolError) and (error.retry_after or 0.0) > 0

    @property
    def earliest(self) -> float:
        """Loop time before which no poll of it may start: as the server asked and, unless it is urgent, as due."""
        return self.not_before if self.is_urgent else max(self.not_before, self.due)

    @property
    def is_shared(self) -> bool:
        """Whether there is, or was, more than one waiter at a time."""
        return type(self.waiters) is dict

    def present(self) -> tuple[Watch, ...]:
        """Return the waiters as they are now, so that they may come and go in a loop over them."""
        waiters = self.waiters
        if waiters is None:
            return ()
        return tuple(waiters) if type(waiters) is dict else (waiters,)

    def join(self, waiter: Watch) -> None:
        """Add a waiter."""
        waiter.tracked = self
        waiter.polls_before = self.polls - (self.worker is not None)
        self.wants_states = self.wants_states or type(waiter) is not Watch
        waiters = self.waiters
        if waiters is None:
            self.waiters = waiter
        elif type(waiters) is dict:
            waiters[waiter] = None
        else:
            self.waiters = {waiters: None, waiter: None}

    def add_label(self, label: str | None) -> None:
        """Label the job as a later wait does, unless it has a label."""
        if self.label is None and label is not None:
            self.label, self.job = label, with_label(self.job, label)

    def leave(self, waiter: Watch) -> bool:
        """Remove a waiter; return whether it was the last."""
        waiter.polls_at_end = self.polls - waiter.polls_before
        waiter.tracked = None
        if type(self.waiters) is dict:
            del self.waiters[waiter]
            if self.waiters:
                return False
        self.waiters = None
        return True

    def tell_waiters(self, job: AgentJob) -> None:
        """Pass the state of the job to all waiters, which may leave or join meanwhile."""
        for waiter in self.present():
            if waiter.tracked is self:  # else it has left meanwhile
                waiter.on_job(job, self.job or job)


class Worker:
    """A task that polls one job after the other. It uses one of the slots of `PollBudget.in_flight`.

    Attributes:
        task: The task in which it runs.
        tracked: The job that it polls now; `None` between two polls, and from when it is cut.
        cut_ref: The job whose poll was cut, while the task is leaving; `None` before.
        began: Loop time at which the poll began.
        polls_before: The number of polls of all jobs that had been answered by then.
        slow: Whether it polls a slow job: one of which a poll was cut.
    """

    __slots__ = ("began", "cut_ref", "polls_before", "slow", "task", "tracked")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.tracked: Tracked | None = None
        self.cut_ref: JobRef | None = None
        self.began = 0.0
        self.polls_before = 0
        self.slow = False
