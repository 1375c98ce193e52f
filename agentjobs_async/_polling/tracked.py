"""What the scheduler knows of one job, and of each wait for it."""

import asyncio
from contextvars import copy_context
from enum import Enum, auto
from math import inf
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

    def leave(self, watch: "Watch", why: BaseException) -> None:
        """End the wait of a watch, which its caller cancels."""


class Watch(asyncio.Future[AgentJob]):
    """One wait for a job, with a deadline of its own: a future of the ended job.

    The scheduler calls `on_job` and `on_end`: what differs between the ways to wait is what their watches do in these.

    Attributes:
        tracked: The record of the job; `None` before the wait has begun and once it is over.
        started: Loop time of the wait's start.
        timeout: Seconds from `started` to the deadline; `None` waits for ever.
    """

    __slots__ = ("_polls_at_end", "_polls_before", "_scheduler", "started", "timeout", "tracked")

    def __init__(self, scheduler: WaitParent, timeout: float | None) -> None:
        super().__init__(loop=scheduler.loop)
        self._scheduler = scheduler
        self.tracked: Tracked | None = None
        self.started = scheduler.loop.time()
        self.timeout = timeout
        self._polls_before = self._polls_at_end = 0

    @property
    def deadline(self) -> float:
        """Loop time at which the wait ends; infinity if it never does."""
        return inf if self.timeout is None else self.started + self.timeout

    @property
    def polls(self) -> int:
        """How often the job was polled in this wait so far."""
        return self._polls_at_end if self.tracked is None else self.tracked.polls - self._polls_before

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this wait last showed the job; `None` before, and once the wait is over."""
        tracked = self.tracked
        return None if tracked is None or tracked.shown <= self._polls_before else tracked.seen

    def begin(self, tracked: "Tracked", polls_before: int) -> None:
        """Begin the wait for a job that was polled so often before."""
        self.tracked, self._polls_before = tracked, polls_before

    def end(self) -> None:
        """End the wait."""
        self._polls_at_end, self.tracked = self.polls, None

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
        self._scheduler.leave(self, asyncio.CancelledError())
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


class Place(Enum):
    """Where the next poll of a job is."""

    LATER = auto()
    """Not due yet: in the wheel of later jobs."""
    DUE = auto()
    """Due: in a lane, until the gate and a slot let it start."""
    IN_FLIGHT = auto()
    """Under way; or answered a moment ago, and the next one is about to be put."""
    BLOCKED = auto()
    """To be made once an earlier poll of the job, which was cut, has left: a callable may swallow the cancellation."""
    GONE = auto()
    """Nowhere: all waits have ended, or are about to end with one result that no deadline and no later answer changes.
    """


class Tracked(WaitState):
    """One job, its polls and its waiters.

    Attributes:
        place: Where its next poll is; the queue alone moves it.
        is_notified: Whether its state may have changed while its poll was in flight, which may have missed the change.
        is_urgent: Whether its next poll goes before all others, since a deadline is near; until that poll begins.
        patience: Seconds that a poll of it may hang while others wait, after one was cut for that; 0.0 before, and
            again once one was answered quickly.
        created_here: Whether it was created right before the first wait for it began.
        wants_states: Whether some waiter, present or past, wants each state of the job; a plain `Watch` wants the end.
    """

    __slots__ = ("_waiters", "created_here", "is_notified", "is_urgent", "patience", "place", "wants_states")

    def __init__(
        self,
        ref: JobRef,
        job: AgentJob | None,
        now: float,
        not_before: float | None = None,
        *,
        created_here: bool = False,
    ) -> None:
        super().__init__(ref, job, now)
        if not_before is not None:
            self.hold_until(not_before)
        self.created_here = created_here
        self._waiters: Any = None  # one waiter inline, a dict without values from the second on, `None` without any
        self.wants_states = self.is_notified = self.is_urgent = False
        self.patience = 0.0
        self.place = Place.LATER

    # Its place.

    def put_off(self, when: float) -> None:
        """Record that it is polled at the loop time `when`."""
        self.due, self.place = when, Place.LATER

    def hurry(self, when: float) -> None:
        """Make its next poll due at the loop time `when`, unless it is earlier, and go before all others then."""
        self.due, self.is_urgent = min(self.due, when), True

    def come_due(self) -> None:
        """Record that it waits for its turn."""
        self.place = Place.DUE

    def hand_out(self) -> None:
        """Record that it has left the queue, since its poll is to begin now."""
        self.place, self.is_urgent = Place.IN_FLIGHT, False

    def block(self) -> None:
        """Record that its poll can't begin yet, since an earlier one has not left."""
        self.place = Place.BLOCKED

    def go(self) -> None:
        """Record that it is polled no more."""
        self.place = Place.GONE

    # Its polls.

    @property
    def was_at_work(self) -> bool:
        """Whether it is known to have been at work while it was waited for."""
        return self.shown > 0 or self.created_here

    @property
    def is_slow(self) -> bool:
        """Whether a poll of it was cut because it hung, and none was answered quickly since then."""
        return self.patience > 0

    def be_patient(self, seconds: float) -> None:
        """Allow polls of it to hang for so many seconds while others wait; 0.0 for as many as those of any job."""
        self.patience = seconds

    def notify(self) -> None:
        """Record that its state may have changed while its poll is in flight."""
        self.is_notified = True

    def forget_notice(self) -> None:
        """Record that it is polled again."""
        self.is_notified = False

    @property
    def is_refused(self) -> bool:
        """Whether the server refused its last poll for now, so that it keeps its position among the due jobs."""
        error = self.error
        if isinstance(error, RateLimitedError):
            return True
        return isinstance(error, ResponseError | ProtocolError) and (error.retry_after or 0.0) > 0

    # Its waiters.

    @property
    def is_shared(self) -> bool:
        """Whether there is, or was, more than one waiter at a time."""
        return type(self._waiters) is dict

    def present(self) -> tuple[Watch, ...]:
        """Return the waiters as they are now, so that they may come and go in a loop over them."""
        waiters = self._waiters
        if waiters is None:
            return ()
        return tuple(waiters) if type(waiters) is dict else (waiters,)

    def join(self, waiter: Watch) -> None:
        """Add a waiter."""
        waiter.begin(self, self.polls - (self.place is Place.IN_FLIGHT))
        self.wants_states = self.wants_states or type(waiter) is not Watch
        waiters = self._waiters
        if waiters is None:
            self._waiters = waiter
        elif type(waiters) is dict:
            waiters[waiter] = None
        else:
            self._waiters = {waiters: None, waiter: None}

    def add_label(self, label: str | None) -> None:
        """Label the job as a later wait does, unless it has a label."""
        if self.label is None and label is not None:
            self.label, self.job = label, with_label(self.job, label)

    def leave(self, waiter: Watch) -> bool:
        """Remove a waiter; return whether it was the last."""
        waiter.end()
        if type(self._waiters) is dict:
            del self._waiters[waiter]
            if self._waiters:
                return False
        self._waiters = None
        return True

    def tell_waiters(self, job: AgentJob) -> None:
        """Pass the state of the job to all waiters, which may leave or join meanwhile."""
        for waiter in self.present():
            if waiter.tracked is self:  # else it has left meanwhile
                waiter.on_job(job, self.job or job)
