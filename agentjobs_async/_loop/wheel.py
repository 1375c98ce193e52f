"""When very many things are due, in buckets of 10 ms; and exact timers, one for each callback."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Final, Generic, TypeVar

RESOLUTION_SECONDS: Final = 0.01
"""How late an item of a wheel may come due; it never comes early. One iteration serves all of such a time."""

_FEW_EMPTY: Final = 1024  # numbers of emptied buckets that are not worth a sweep
_ROUNDING: Final = 1e-6  # of a bucket: a time that lies on its edge, but for the rounding of floats, is in it
_NEVER_SECONDS: Final = 1e12  # loop time; infinity fits no bucket

T = TypeVar("T")


class TimerWheel(Generic[T]):
    """Items by the time at which they are due. Items are hashable, and each is in the wheel once at most.

    An item that is discarded leaves at once: nothing of it is kept until its time. Only the number of a bucket that was
    emptied so stays in the heap, until its time or until such numbers outnumber the buckets.
    """

    __slots__ = ("_buckets", "_heap")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[T, None]] = {}
        self._heap: list[int] = []
        """The numbers of all buckets, and of some that were emptied: these may be in it twice."""

    def add(self, item: T, when: float) -> float:
        """Put an item into the bucket of the time `when`.

        Returns:
            The time at which it comes due: `when`, or up to `RESOLUTION_SECONDS` later.
        """
        number = _number_of(when)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heappush(self._heap, number)
        bucket[item] = None
        return number * RESOLUTION_SECONDS

    def discard(self, item: T, when: float) -> None:
        """Remove an item that was put into the bucket of `when`, unless it has come due."""
        number = _number_of(when)
        bucket = self._buckets.get(number)
        if bucket is None:
            return
        bucket.pop(item, None)
        if not bucket:
            del self._buckets[number]
            if len(self._heap) > 2 * len(self._buckets) + _FEW_EMPTY:
                self._heap = list(self._buckets)
                heapify(self._heap)

    def first_due(self) -> float:
        """Return the time at which the first items come due; infinity without items."""
        heap = self._heap
        while heap and heap[0] not in self._buckets:
            heappop(heap)
        return heap[0] * RESOLUTION_SECONDS if heap else inf

    def pop_due(self, now: float) -> list[T]:
        """Remove and return all items that are due, in order."""
        last = now / RESOLUTION_SECONDS + _ROUNDING
        due: list[T] = []
        while self._heap and self._heap[0] <= last:
            due += self._buckets.pop(heappop(self._heap), ())
        return due


def _number_of(when: float) -> int:
    """Return the number of the bucket of a time: it comes due at this number times `RESOLUTION_SECONDS`."""
    return ceil(min(when, _NEVER_SECONDS) / RESOLUTION_SECONDS - _ROUNDING)


class Timers:
    """One timer for each callback; the earliest time wins. Callbacks run in an empty context.

    The key is the callback itself. Bound methods work, although each access makes a new one: they are equal.
    """

    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def set(self, callback: Callable[[], None], when: float) -> None:
        """Schedule a call of `callback` for the loop time `when`, unless an earlier one is; none for infinity."""
        timer = self._timers.get(callback)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        if when < inf:
            self._timers[callback] = self._loop.call_at(when, self._run, callback, context=Context())

    def _run(self, callback: Callable[[], None]) -> None:
        del self._timers[callback]  # first: the callback may schedule itself again
        callback()

    def cancel(self) -> None:
        """Cancel all calls."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
