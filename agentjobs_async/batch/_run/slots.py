"""The slots of `max_active`: which items have one, which wait for one, and which ones unknown items keep."""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Iterator
from contextvars import Context
from heapq import heappop, heappush
from typing import Final

from attrs import define, field

from agentjobs_async._validation import MAX_COUNT

_SLACK_SECONDS: Final = 1e-3  # loops run timers a moment early
_LONGEST_SECONDS: Final = 366 * 86_400.0  # no run lasts that long


@define(eq=False)
class Slot:
    """The slot of one item: the item waits for it, takes it, and leaves."""

    project: str
    taken: bool = field(default=False, init=False)
    left: bool = field(default=False, init=False)


_Waiter = tuple[Slot, asyncio.Future[None]]
_Kept = list[tuple[float, int, asyncio.TimerHandle]]  # a heap: loop time of the end, order, its timer


class Slots:
    """Bound how many items have an agent at once.

    An item that waits for its create has no slot, so that a project that is held back keeps none from another one.
    An unknown item keeps its slot for a time, since its agent may be at work. For its own project such a slot counts
    whole; for any other project all of them together count as half of `count` at most, so that an outage of one project
    does not stop the others.

    Free slots go to the projects by turns, and within a project to the item that has waited for longest.

    Args:
        count: The number of slots; `None` for no bound.
        changed: Set after every change, except when an item enters.
    """

    def __init__(self, count: int | None, changed: asyncio.Event) -> None:
        self._count = MAX_COUNT if count is None else count
        self._changed = changed
        self._taken = 0
        self._waiting: Counter[str] = Counter()
        # By project. The order of the keys is the order of turns: a project that was served moves to the end.
        self._queues: dict[str, deque[_Waiter]] = {}
        self._kept: dict[str | None, _Kept] = {}  # none for `None`, which `next_free_at` may ask for
        self._order = itertools.count()  # of those with one end: uvloop's timers can't be compared
        self._closed = False

    @property
    def unclaimed(self) -> int:
        """The number of slots that no item under way has; unknown items may keep some of these."""
        return self._count - self._taken

    @property
    def kept(self) -> int:
        """The number of slots that are kept for unknown items."""
        return sum(map(len, self._kept.values()))

    def free(self, project: str | None) -> int:
        """Return how many more items of a project may take a slot; 0 or less while none may."""
        own = len(self._kept.get(project, ()))
        others = sum(map(len, self._kept.values())) - own
        return self.unclaimed - own - min(others, self._count // 2)

    def waiting(self) -> Iterator[tuple[str, int]]:
        """Return how many items wait without a slot, by project."""
        return iter(list(self._waiting.items()))

    def has_room(self, project: str) -> bool:
        """Return whether one more item of a project may wait for a slot."""
        return self._taken + self._waiting[project] < self._count

    @property
    def room_for_jobs(self) -> int:
        """How many items may begin that have a job already; 0 or less while none may."""
        return self._count - self._taken - self._waiting.total()

    def next_free_at(self, project: str | None) -> float | None:
        """Return the loop time at which a project may use a kept slot; `None` if it has a free one, or none is kept."""
        if self.free(project) > 0:
            return None
        others = sorted(until for key, kept in self._kept.items() if key != project for until, *_ in kept)
        # Beyond half of all slots, one that another project gives back frees none.
        counted = others[max(len(others) - self._count // 2, 0) :]
        return min([*counted[:1], *(until for until, *_ in self._kept.get(project, ()))], default=None)

    def enter(self, project: str) -> Slot:
        """Begin an item, which waits until it takes its slot."""
        self._waiting[project] += 1
        return Slot(project)

    async def take(self, slot: Slot, *, has_job: bool = False) -> None:
        """Wait for a slot; an item that has a job takes one at once, since its agent is at work already.

        The slot may be taken even if this call is cancelled: `put_back` or `leave` must follow.
        """
        if slot.taken:
            return
        if has_job or (slot.project not in self._queues and self.free(slot.project) > 0):
            self._take(slot)
            self._changed.set()
            return
        waiter = (slot, asyncio.get_running_loop().create_future())
        self._queues.setdefault(slot.project, deque()).append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            self._discard(slot.project, waiter)
            raise

    def take_over(self, slot: Slot) -> None:
        """Assign it a slot that is kept for an unknown item of its project, if there is one: such an item goes on."""
        kept = self._kept.get(slot.project)
        if kept and not slot.taken:
            *_, timer = kept[0]
            timer.cancel()
            self._take(slot)
            self._end_keeping(slot.project)

    def put_back(self, slot: Slot) -> None:
        """Return an item whose create was not sent to those that wait."""
        if slot.taken:
            slot.taken = False
            self._waiting[slot.project] += 1
            self._taken -= 1
            self._grant()

    def leave(self, slot: Slot, keep_for: float | None = 0.0) -> None:
        """End an item; the slot that it had stays taken for `keep_for` seconds, `None` for ever."""
        if slot.left:
            return
        slot.left = True
        if not slot.taken:
            self._stop_waiting(slot.project)
        else:
            self._taken -= 1
            if keep_for is None or keep_for > 0:
                self.keep(slot.project, keep_for)
        self._grant()

    def keep(self, project: str, seconds: float | None) -> None:
        """Keep a slot for an unknown item of a project, for `seconds`, `None` for ever; do nothing once closed."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + (_LONGEST_SECONDS if seconds is None else seconds)
        timer = loop.call_at(until + _SLACK_SECONDS, self._end_keeping, project, context=Context())
        heappush(self._kept.setdefault(project, []), (until, next(self._order), timer))

    def close(self) -> None:
        """Cancel the timers of all kept slots. Items that become unknown while a run is left start none."""
        self._closed = True
        for kept in self._kept.values():
            for *_, timer in kept:
                timer.cancel()

    def _end_keeping(self, project: str) -> None:
        kept = self._kept[project]
        heappop(kept)  # the timers of a project run in the order of its heap, so that this one is its own
        if not kept:
            del self._kept[project]
        self._grant()

    def _grant(self) -> None:
        """Assign free slots to items that wait, then report the change that made room."""
        granted = True
        while granted and self.unclaimed > 0:
            granted = False
            for project in list(self._queues):
                if self.free(project) > 0:
                    granted = True
                    slot, waiter = self._next(project)
                    if not waiter.cancelled():  # else it was cancelled in this iteration, and is not removed yet
                        self._take(slot)
                        waiter.set_result(None)
        self._changed.set()

    def _take(self, slot: Slot) -> None:
        slot.taken = True
        self._taken += 1
        self._stop_waiting(slot.project)

    def _next(self, project: str) -> _Waiter:
        """Remove the first waiter of a project, whose next turn comes after those of all others."""
        queue = self._queues.pop(project)
        first = queue.popleft()
        if queue:
            self._queues[project] = queue
        return first

    def _discard(self, project: str, waiter: _Waiter) -> None:
        queue = self._queues.get(project, deque())
        if waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._queues[project]

    def _stop_waiting(self, project: str) -> None:
        self._waiting[project] -= 1
        if not self._waiting[project]:
            del self._waiting[project]
