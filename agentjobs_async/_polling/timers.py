"""Many things and the times at which they are due, in buckets: one timer serves all, one turn of the loop a bucket."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Final, Generic, TypeVar

__all__ = ["RESOLUTION", "TimerBuckets", "Timers"]

RESOLUTION: Final = 0.01
"""How late a thing may be called due, in seconds; never early."""

_FEW: Final = 1024
_ROUNDING: Final = 1e-6
_NEVER: Final = 1e12
_LAST: Final = int(_NEVER / RESOLUTION)

T = TypeVar("T")


class _Bucket(list[T]):
    """What is due at one time. Its number is one object for all that lies in it: they are many."""

    __slots__ = ("number",)

    number: int


class TimerBuckets(Generic[T]):
    """Things by the time they are due. A thing that was added again, or is dead, still lies in its old bucket.

    Args:
        is_current: Tells of a thing, and the bucket it lies in, whether it is still to be called due from there.
    """

    __slots__ = ("_buckets", "_full", "_heap", "_is_current", "_size", "_stale")

    def __init__(self, is_current: Callable[[T, int], bool]) -> None:
        self._is_current = is_current
        self._buckets: dict[int, _Bucket[T]] = {}
        self._heap: list[int] = []
        self._full: dict[int, int] = {}
        self._size = 0
        self._stale = 0

    def add(self, thing: T, when: float, at_most: int | None = None, step: int = 1) -> int:
        """Put `thing` into the bucket of `when`, or into the next that has less than `at_most`; give the bucket.

        Only each `step`-th bucket is used: fewer of them weigh less.
        """
        bucket = ceil(when / RESOLUTION - _ROUNDING) if when < _NEVER else _LAST
        if step > 1:
            bucket += -bucket % step
        things = self._buckets.get(bucket)
        if things is not None and at_most is not None and len(things) >= at_most:
            bucket = self._with_room(bucket, at_most, step)
            things = self._buckets.get(bucket)
        if things is None:
            things = self._buckets[bucket] = _Bucket()
            things.number = bucket
            heappush(self._heap, bucket)
        things.append(thing)
        self._size += 1
        return things.number

    def _with_room(self, wanted: int, at_most: int, step: int) -> int:
        bucket = self._full.get(wanted, wanted)
        while len(self._buckets.get(bucket, ())) >= at_most:
            bucket += step
        self._full[wanted] = bucket
        return bucket

    def first(self) -> int | None:
        """Return the first bucket; `None` when there is none."""
        return self._heap[0] if self._heap else None

    def take_due(self, now: float) -> list[T]:
        """Remove and return all that is due, in order."""
        last = now / RESOLUTION + _ROUNDING
        due: list[T] = []
        while self._heap and self._heap[0] <= last:
            bucket = heappop(self._heap)
            self._full.pop(bucket, None)
            things = self._buckets.pop(bucket)
            self._size -= len(things)
            current = [thing for thing in things if self._is_current(thing, bucket)]
            self._stale -= len(things) - len(current)
            due += current
        return due

    def note_stale(self) -> None:
        """Record that one entry is stale; sweep once the stale ones outnumber the others."""
        self._stale += 1
        if self._stale > _FEW and self._stale * 2 > self._size:
            self._sweep()

    def _sweep(self) -> None:
        for bucket, things in self._buckets.items():
            things[:] = [thing for thing in things if self._is_current(thing, bucket)]
        self._buckets = {bucket: things for bucket, things in self._buckets.items() if things}
        self._heap = list(self._buckets)
        heapify(self._heap)
        self._full.clear()
        self._size = sum(map(len, self._buckets.values()))
        self._stale = 0


class Timers:
    """One timer for each function that is to be called; the earliest time wins. It rings in an empty context."""

    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def set(self, alarm: Callable[[], None], when: float) -> None:
        """Schedule a call of `alarm` for `when`, unless it is scheduled earlier already."""
        timer = self._timers.get(alarm)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[alarm] = self._loop.call_at(when, self._ring, alarm, context=Context())

    def _ring(self, alarm: Callable[[], None]) -> None:
        del self._timers[alarm]
        alarm()

    def cancel(self) -> None:
        """Cancel them all."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
