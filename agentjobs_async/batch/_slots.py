"""The places of `max_active`: who has one, who waits for one, and which ones unknown items keep."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Final

from attrs import define, field

from agentjobs_async._validation import MAX_COUNT

__all__ = ["Place", "Places"]

_SLACK_SECONDS: Final = 1e-3  # loops run timers a moment early


@define(eq=False)
class Place:
    """One item's: it waits for its place, has it, and leaves."""

    project: str | None
    taken: bool = field(default=False, init=False)
    left: bool = field(default=False, init=False)


class Places:
    """So many items may have an agent at once.

    Items wait for their creates without a place, so that a project that is held back keeps no place from another one.

    Args:
        count: How many; `None` for any number.
        on_change: Called after every change, except for an item that enters.
    """

    def __init__(self, count: int | None, on_change: Callable[[], None] = lambda: None) -> None:
        self._count = MAX_COUNT if count is None else count
        self._order = asyncio.Lock()
        self._changed = asyncio.Event()
        self._on_change = on_change
        self._taken = 0
        self._waiting: Counter[str | None] = Counter()
        self._numbers = 0
        self._kept: dict[int, tuple[float, asyncio.TimerHandle]] = {}
        self._closed = False

    @property
    def unclaimed(self) -> int:
        """How many places no item under way has; unknown ones may keep some of these."""
        return self._count - self._taken

    @property
    def free(self) -> int:
        """How many places nobody has."""
        return self._count - self._taken - len(self._kept)

    def waiting(self) -> Iterator[tuple[str | None, int]]:
        """Return how many items wait without a place, by project."""
        return iter(list(self._waiting.items()))

    def has_room(self, project: str | None) -> bool:
        """Return whether one more item of a project may wait for a place."""
        return self._taken + self._waiting[project] < self._count

    def has_room_for_job(self) -> bool:
        """Return whether an item may begin that has a job already."""
        return self._taken + self._waiting.total() < self._count

    @property
    def next_free_at(self) -> float | None:
        """Loop time at which an unknown item gives its place back, where no place is free; `None` without one."""
        return min(until for until, _ in self._kept.values()) if self._kept and self.free <= 0 else None

    def enter(self, project: str | None) -> Place:
        """Begin an item, which waits until it takes its place."""
        self._waiting[project] += 1
        return Place(project)

    async def take(self, place: Place, *, has_job: bool = False) -> None:
        """Wait for a place; an item that has a job takes one at once, since its agent is at work already."""
        if place.taken:
            return
        if not has_job:
            await self._one_is_free()
        place.taken = True
        self._taken += 1
        self._leave_queue(place.project)
        self._tell()

    def put_back(self, place: Place) -> None:
        """Return an item whose create was not sent to those that wait."""
        if place.taken:
            place.taken = False
            self._waiting[place.project] += 1
            self._taken -= 1
            self._tell()

    def leave(self, place: Place, keep_for: float = 0.0) -> None:
        """End an item; the place that it had stays taken for `keep_for` seconds."""
        if place.left:
            return
        place.left = True
        if not place.taken:
            self._leave_queue(place.project)
        else:
            self._taken -= 1
            if keep_for > 0:
                self.keep(keep_for)
        self._tell()

    def keep(self, seconds: float) -> None:
        """Keep a place for an unknown item, for `seconds`; nothing once closed, since no item takes one any more."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._numbers += 1
        number = self._numbers
        timer = loop.call_at(until + _SLACK_SECONDS, self._end_keeping, number, context=Context())
        self._kept[number] = (until, timer)

    def close(self) -> None:
        """Cancel the timers of all kept places. Items that become unknown while a run is left arm none."""
        self._closed = True
        for _, timer in self._kept.values():
            timer.cancel()

    async def _one_is_free(self) -> None:
        # One after the other: whoever came first gets the next one.
        async with self._order:
            while self.free <= 0:
                self._changed.clear()
                await self._changed.wait()

    def _leave_queue(self, project: str | None) -> None:
        self._waiting[project] -= 1
        if not self._waiting[project]:
            del self._waiting[project]

    def _end_keeping(self, number: int) -> None:
        del self._kept[number]
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._on_change()
