"""When waits end by themselves. Very many may have one deadline: a turn of the loop tells a bounded number of them."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Final

from agentjobs_async._polling.clock import ROUNDING
from agentjobs_async._polling.decision import last_poll_lead
from agentjobs_async._polling.slices import Slice
from agentjobs_async._polling.timers import RESOLUTION, Timers
from agentjobs_async._polling.watch import Watch

__all__ = ["Deadlines"]

_CHUNK: Final = 64  # a wait that ends is looked for in its chunk; smaller ones would weigh more
_SHORTEST_LEAD: Final = 2 * RESOLUTION
_NEVER: Final = 1e12  # loop time; infinity fits no bucket
_FEW: Final = 1024  # stale numbers in the heap that are not worth a sweep


class _Chunk(list[Watch]):
    """Some of the waits in one bucket, and the chunk that was filled before this one."""

    __slots__ = ("before", "number")

    def __init__(self, number: int, before: "_Chunk | None") -> None:
        super().__init__()
        self.number = number
        self.before = before


class Deadlines:
    """Waits by the times of their last polls, and after that by their ends.

    A wait that has ended is taken out at once: it holds its result, and whatever its caller gave it.

    Args:
        near: Called with a wait whose last poll is due, and the loop time.
        over: Called with some waits whose time is up.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        near: Callable[[Watch, float], None],
        over: Callable[[list[Watch]], None],
    ) -> None:
        self._loop = loop
        self._near = near
        self._over = over
        self._alarms = Timers(loop)
        self._chunks: dict[int, _Chunk] = {}
        """The newest chunk of each bucket."""
        self._heap: list[int] = []
        """The numbers of the buckets, and of some that are empty by now."""
        self._due: deque[_Chunk] = deque()
        self._under_way = False

    def add(self, waiter: Watch) -> None:
        """Add a wait that starts now, if it has a timeout."""
        if waiter.timeout is not None:
            lead = max(last_poll_lead(waiter.timeout), _SHORTEST_LEAD)
            self._put(waiter, waiter.started + waiter.timeout - lead)

    def _put(self, waiter: Watch, when: float) -> None:
        number = ceil(min(when, _NEVER) / RESOLUTION - ROUNDING)
        chunk = self._chunks.get(number)
        if chunk is None or len(chunk) >= _CHUNK:
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
            if len(self._heap) > _FEW + 2 * len(self._chunks):
                self._heap = list(self._chunks)
                heapify(self._heap)

    def _arm(self) -> None:
        if self._heap:
            self._alarms.set(self._on_due, self._heap[0] * RESOLUTION)

    def _on_due(self) -> None:
        last = self._loop.time() / RESOLUTION + ROUNDING
        while self._heap and self._heap[0] <= last:
            self._due.extend(reversed([*_linked(self._chunks.pop(heappop(self._heap), None))]))
        self._arm()
        if not self._under_way:
            self._tell()

    def _tell(self) -> None:
        """Notify as many waits as one turn of the loop has time for; the next turns notify the others."""
        turn, now = Slice(self._loop), self._loop.time()
        self._under_way = True
        try:
            while self._due and turn.has_room():
                chunk = self._due.popleft()
                turn.take(len(chunk))
                for waiter in chunk:
                    waiter.chunk = None
                over = [waiter for waiter in chunk if self._is_over(waiter, now)]
                if over:
                    self._over(over)
        finally:
            self._under_way = bool(self._due)
            if self._under_way:
                self._loop.call_soon(self._tell, context=Context())

    def _is_over(self, waiter: Watch, now: float) -> bool:
        """Return whether the time of `waiter` is up; have it polled for the last time where it is not yet."""
        deadline = waiter.started + (waiter.timeout or 0.0)
        if now >= deadline - ROUNDING:
            return True
        self._put(waiter, deadline)
        self._near(waiter, now)
        return False

    def close(self) -> None:
        """Stop notifying."""
        self._alarms.cancel()
        self._due.clear()


def _linked(chunk: _Chunk | None) -> Iterator[_Chunk]:
    while chunk is not None:
        yield chunk
        chunk = chunk.before
