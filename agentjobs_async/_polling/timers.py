"""Items and the times at which they are due, in buckets: one timer serves all, and one turn of the loop a bucket."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Final, Generic, TypeVar

__all__ = ["RESOLUTION_SECONDS", "TimerBuckets", "Timers", "bucket_of", "last_due"]

RESOLUTION_SECONDS: Final = 0.01
"""How late an item may come due; it never comes early. One turn of the loop serves all of such a time."""

_SIMILAR: Final = 1.1  # `full_above` may grow by this factor, as it does with more jobs, until a search begins anew
_FEW_STALE: Final = 1024  # stale entries that are not worth a sweep
_ROUNDING: Final = 1e-6  # of a bucket: a time that lies on its edge, but for the rounding of floats, is in it
_NEVER_SECONDS: Final = 1e12  # loop time; infinity fits no bucket
_LAST_BUCKET: Final = int(_NEVER_SECONDS / RESOLUTION_SECONDS)

T = TypeVar("T")


def bucket_of(when: float) -> int:
    """Return the number of the first bucket whose time is at or after `when`."""
    return ceil(when / RESOLUTION_SECONDS - _ROUNDING) if when < _NEVER_SECONDS else _LAST_BUCKET


def last_due(now: float) -> float:
    """Return the number up to which buckets are due."""
    return now / RESOLUTION_SECONDS + _ROUNDING


class _Bucket(list[T]):
    """The items that are due at one time. They share `number` as one object: there may be 100,000 of them."""

    __slots__ = ("number",)

    number: int


class TimerBuckets(Generic[T]):
    """Items by the time at which they are due. Items are hashable, and each is due once.

    Removal is lazy: an item that moved or ended stays in its old bucket. The owner must call `note_stale` for each such
    entry, after `is_current` has become false for it: while none is
    counted, due items are returned unchecked.

    Args:
        is_current: Returns whether an item found in a bucket, given by its number, is still to come due from there.
    """

    __slots__ = ("_buckets", "_full", "_heap", "_is_current", "_size", "_stale")

    def __init__(self, is_current: Callable[[T, int], bool]) -> None:
        self._is_current = is_current
        self._buckets: dict[int, _Bucket[T]] = {}
        self._heap: list[int] = []
        self._full: dict[int, tuple[int, float]] = {}
        """For a bucket that was full: the next that had room, where the search continues, and the largest `full_above`
        for which it does. For a larger one, a bucket between the two may have room."""
        self._size = 0
        self._stale = 0

    def add(self, item: T, when: float, full_above: float = inf, step: int = 1) -> int:
        """Put `item` into the bucket of `when`, or into the next if that one holds more than `full_above` items.

        Only every `step`-th bucket is used: fewer buckets take less memory, and fewer turns of the loop.

        Returns:
            The number of the bucket.
        """
        # As `bucket_of`, but for steps.
        steps = ceil(when / (RESOLUTION_SECONDS * step) - _ROUNDING) if when < _NEVER_SECONDS else _LAST_BUCKET // step
        bucket = steps * step
        items = self._buckets.get(bucket)
        if items is not None and len(items) > full_above:
            wanted, known = bucket, self._full.get(bucket)
            if known is not None and full_above <= known[1]:
                bucket = known[0]
                items = self._buckets.get(bucket)
            if items is not None and len(items) > full_above:
                bucket = self._with_room(wanted, bucket, full_above, step)
                items = self._buckets.get(bucket)
        if items is None:
            items = self._buckets[bucket] = _Bucket()
            items.number = bucket
            heappush(self._heap, bucket)
        items.append(item)
        self._size += 1
        return items.number

    def _with_room(self, wanted: int, bucket: int, full_above: float, step: int) -> int:
        while len(self._buckets.get(bucket, ())) > full_above:
            bucket += step
        self._full[wanted] = bucket, full_above * _SIMILAR
        return bucket

    def first(self) -> int | None:
        """Return the number of the first bucket; `None` without buckets."""
        return self._heap[0] if self._heap else None

    def take_due(self, now: float) -> list[T]:
        """Remove and return all items that are due, in order."""
        last = last_due(now)
        due: list[T] = []
        while self._heap and self._heap[0] <= last:
            bucket = heappop(self._heap)
            self._full.pop(bucket, None)
            items = self._buckets.pop(bucket)
            self._size -= len(items)
            current: list[T] = self._current(items) if self._stale else items
            self._stale -= len(items) - len(current)
            due += current
        return due

    def note_stale(self) -> None:
        """Record that one entry is stale; sweep once the stale ones outnumber the others."""
        self._stale += 1
        if self._stale > _FEW_STALE and self._stale * 2 > self._size:
            self._sweep()

    def _current(self, items: _Bucket[T]) -> list[T]:
        """Return the items that are to come due from their bucket, each once: one that came back has two entries."""
        return list(dict.fromkeys(item for item in items if self._is_current(item, items.number)))

    def _sweep(self) -> None:
        for items in self._buckets.values():
            items[:] = self._current(items)
        self._buckets = {bucket: items for bucket, items in self._buckets.items() if items}
        self._heap = list(self._buckets)
        heapify(self._heap)
        self._full.clear()
        self._size = sum(map(len, self._buckets.values()))
        self._stale = 0

    def clear(self) -> None:
        """Forget all items."""
        self._buckets.clear()
        self._sweep()


class Timers:
    """One timer for each callback; the earliest time wins. Callbacks run in an empty context.

    The key is the callback itself. Bound methods work, although each access makes a new one: they are equal.
    """

    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def set(self, callback: Callable[[], None], when: float) -> None:
        """Schedule a call of `callback` for the loop time `when`, unless an earlier call is scheduled already."""
        timer = self._timers.get(callback)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[callback] = self._loop.call_at(when, self._run, callback, context=Context())

    def _run(self, callback: Callable[[], None]) -> None:
        del self._timers[callback]  # first: the callback may schedule itself again
        callback()

    def cancel(self) -> None:
        """Cancel all calls."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
