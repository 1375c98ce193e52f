"""The deadlines of waits: when each has its last poll, and when it ends. Very many waits may share a deadline."""

import asyncio
from contextvars import Context
from typing import Final, Protocol

from agentjobs_async._loop.slices import SlicedWork
from agentjobs_async._loop.wheel import RESOLUTION_SECONDS, Timers, TimerWheel
from agentjobs_async._polling.limiters import ROUNDING_SECONDS
from agentjobs_async._polling.tracked import Place, Watch
from agentjobs_async._polling.wait_state import last_poll_lead

_MIN_LEAD_SECONDS: Final = 2 * RESOLUTION_SECONDS  # so that the last poll and the end are two buckets
# When the loop comes late to a deadline, the answer to a poll in flight may have arrived already. Each callback and
# each task that hands it on takes an iteration of the loop; only after these does the wait end without it.
_GRACE_ITERATIONS: Final = 6


class OnDeadlines(Protocol):
    """What is done at the two times of a wait."""

    def on_near(self, waiter: Watch, now: float) -> None:
        """Cause the last poll for `waiter`, whose deadline is near."""

    def on_over(self, waiter: Watch, now: float) -> None:
        """End `waiter`, whose time is up, unless it has ended meanwhile."""


class Deadlines:
    """Waits by the times of their last polls, and after that by their ends.

    A wait that has ended is removed at once: it would keep its result and the caller's objects in memory.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, parent: OnDeadlines) -> None:
        self._loop = loop
        self._parent = parent
        self._timers = Timers(loop)
        self._wheel: TimerWheel[Watch] = TimerWheel()
        self._due = SlicedWork(loop)
        self._late: list[Watch] = []  # whose time is up while a poll of their job is in flight

    def add(self, waiter: Watch) -> None:
        """Add a wait that starts now, if it has a timeout."""
        if waiter.timeout is not None:
            self._put(waiter, _near(waiter, waiter.timeout))

    def _put(self, waiter: Watch, when: float) -> None:
        self._wheel.add(waiter, when)
        self._arm()

    def remove(self, waiter: Watch) -> None:
        """Remove a wait that ends, which waits for its last poll or for its end."""
        if waiter.timeout is not None:
            self._wheel.discard(waiter, _near(waiter, waiter.timeout))
            self._wheel.discard(waiter, waiter.deadline)

    def _arm(self) -> None:
        self._timers.set(self._on_due, self._wheel.first_due())

    def _on_due(self) -> None:
        due = self._wheel.pop_due(self._loop.time())
        self._arm()  # first: of very many, the last are served some iterations later
        self._due.add(map(self._on_time, due))

    def _on_time(self, waiter: Watch) -> None:
        """Cause the last poll for `waiter`, or end it, if its time is up."""
        if waiter.tracked is None:
            return  # it has ended in an iteration between its time and this one
        now = self._loop.time()
        if now < waiter.deadline - ROUNDING_SECONDS:
            self._put(waiter, waiter.deadline)
            self._parent.on_near(waiter, now)
        elif waiter.tracked.place is not Place.IN_FLIGHT:
            self._parent.on_over(waiter, now)
        else:
            if not self._late:
                self._loop.call_soon(self._wait_for_answers, self._late, _GRACE_ITERATIONS, context=Context())
            self._late.append(waiter)

    def _wait_for_answers(self, waiters: list[Watch], iterations: int) -> None:
        """End `waiters` after as many iterations of the loop: an answer that came counts."""
        if self._late is waiters:
            self._late = []  # whoever comes from here on waits for its own iterations
        if iterations:
            self._loop.call_soon(self._wait_for_answers, waiters, iterations - 1, context=Context())
        else:
            self._due.add(map(self._over, waiters))

    def _over(self, waiter: Watch) -> None:
        self._parent.on_over(waiter, self._loop.time())

    def close(self) -> None:
        """Stop all timers, and end no more waits."""
        self._timers.cancel()
        self._due.clear()


def _near(waiter: Watch, timeout: float) -> float:
    """Return the loop time of the last poll before the end of a wait."""
    return waiter.deadline - max(last_poll_lead(timeout), _MIN_LEAD_SECONDS)
