"""The deadlines of waits: when each has its last poll, and when it ends. Very many waits may share a deadline."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Final

from agentjobs_async._polling.pace import ROUNDING_SECONDS
from agentjobs_async._polling.slices import Slice
from agentjobs_async._polling.timers import RESOLUTION_SECONDS, Timers, bucket_of, last_due
from agentjobs_async._polling.tracked import Watch
from agentjobs_async._polling.wait_state import last_poll_lead

__all__ = ["Deadlines"]

_CHUNK_WAITS: Final = 64  # a wait that ends is searched for in its chunk; smaller chunks take more memory
_MIN_LEAD_SECONDS: Final = 2 * RESOLUTION_SECONDS  # so that the last poll and the end are two buckets
_FEW_STALE: Final = 1024  # stale numbers in the heap that are not worth a sweep
# When the loop comes late to a deadline, the answer to a poll in flight may have arrived already. Each callback and
# each task that hands it on takes a turn of the loop; only after these turns does the wait end without it.
_GRACE_TURNS: Final = 5


class _Chunk(list[Watch]):
    """Some of the waits in one bucket, and `before`, the chunk of the same bucket that was filled before this one."""

    __slots__ = ("before", "number")

    def __init__(self, number: int, before: "_Chunk | None") -> None:
        super().__init__()
        self.number = number
        self.before = before


class Deadlines:
    """Waits by the times of their last polls, and after that by their ends.

    A wait that has ended is removed at once, not lazily: it would keep its result and the caller's objects in memory.

    Args:
        on_near: Called with a wait whose last poll is due, and the loop time.
        on_over: Called with a wait whose time is up, and the loop time. Such a wait may have ended meanwhile.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_near: Callable[[Watch, float], None],
        on_over: Callable[[Watch, float], None],
    ) -> None:
        self._loop = loop
        self._on_near = on_near
        self._on_over = on_over
        self._timers = Timers(loop)
        self._chunks: dict[int, _Chunk] = {}
        """The newest chunk of each bucket."""
        self._heap: list[int] = []
        """The numbers of the buckets, and stale ones of buckets that are empty by now."""
        self._due: deque[_Chunk] = deque()
        self._under_way = False

    def add(self, waiter: Watch) -> None:
        """Add a wait that starts now, if it has a timeout."""
        if waiter.timeout is not None:
            lead = max(last_poll_lead(waiter.timeout), _MIN_LEAD_SECONDS)
            self._put(waiter, waiter.started + waiter.timeout - lead)

    def _put(self, waiter: Watch, when: float) -> None:
        number = bucket_of(when)
        chunk = self._chunks.get(number)
        if chunk is None or len(chunk) >= _CHUNK_WAITS:
            chunk = self._chunks[number] = _Chunk(number, chunk)
            if chunk.before is None:
                heappush(self._heap, number)
                if number == self._heap[0]:
                    self._arm()
        chunk.append(waiter)
        waiter.chunk = chunk

    def remove(self, waiter: Watch) -> None:
        """Remove a wait that ends."""
        chunk: _Chunk | None = waiter.chunk
        if chunk is None:
            return
        waiter.chunk = None
        chunk.remove(waiter)
        if not chunk and chunk.before is None and self._chunks.get(chunk.number) is chunk:
            del self._chunks[chunk.number]
            if len(self._heap) > _FEW_STALE + 2 * len(self._chunks):
                self._heap = list(self._chunks)
                heapify(self._heap)

    def _arm(self) -> None:
        if self._heap:
            self._timers.set(self._on_due, self._heap[0] * RESOLUTION_SECONDS)

    def _on_due(self) -> None:
        last = last_due(self._loop.time())
        while self._heap and self._heap[0] <= last:
            self._due.extend(reversed([*_linked(self._chunks.pop(heappop(self._heap), None))]))
        self._arm()
        if not self._under_way:  # else the next turn processes these, too
            self._go_on()

    def _go_on(self) -> None:
        """Process as many waits as one turn of the loop has time for; the next turns process the others."""
        turn, now = Slice(self._loop), self._loop.time()
        self._under_way = True
        try:
            while self._due and turn.has_room():
                chunk = self._due.popleft()
                turn.take(len(chunk))
                for waiter in chunk:
                    waiter.chunk = None
                self._expire([waiter for waiter in chunk if self._is_over(waiter, now)], _GRACE_TURNS)
        finally:  # even if a callback raised: the other waits end nevertheless
            self._under_way = bool(self._due)
            if self._under_way:
                self._loop.call_soon(self._go_on, context=Context())

    def _is_over(self, waiter: Watch, now: float) -> bool:
        """Return whether the time of `waiter` is up; where it is not yet, have its job polled for the last time."""
        deadline = waiter.started + (waiter.timeout or 0.0)
        if now >= deadline - ROUNDING_SECONDS:
            return True
        self._put(waiter, deadline)
        self._on_near(waiter, now)
        return False

    def _expire(self, waiters: list[Watch], turns: int) -> None:
        """End `waiters`, those with a poll in flight after `turns` turns of the loop: an answer that came counts."""
        in_flight: list[Watch] = []
        now = self._loop.time()
        for waiter in waiters:
            if turns and waiter.tracked is not None and waiter.tracked.worker is not None:
                in_flight.append(waiter)
            else:
                self._on_over(waiter, now)
        if in_flight:
            self._loop.call_soon(self._expire, in_flight, turns - 1, context=Context())

    def close(self) -> None:
        """Stop all timers, and end no more waits."""
        self._timers.cancel()
        self._due.clear()


def _linked(chunk: _Chunk | None) -> Iterator[_Chunk]:
    while chunk is not None:
        yield chunk
        chunk = chunk.before
