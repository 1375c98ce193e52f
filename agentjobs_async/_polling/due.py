"""The jobs that are due to be polled, in three queues. Removal is lazy: a stale entry is skipped later, or swept."""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from agentjobs_async._polling.fair_queue import FairQueue
from agentjobs_async._polling.tracked import Tracked

__all__ = ["DueJobs", "Queue"]

Queue = deque[Tracked] | FairQueue

_FEW_STALE: Final = 64  # stale entries that are not worth a sweep
_BACKLOG_SECONDS: Final = 1.0  # from here on it matters in which order jobs wait
_REFUSED_SECONDS: Final = 60.0  # without a refusal until projects take turns: a turn of each would bring more of them


class DueJobs:
    """The queues that `Tracked.READY`, `Tracked.URGENT` and `Tracked.SET_ASIDE` name.

    Args:
        clock: The loop's clock.
        is_limited: Return whether a limit of polls per second is in force.

    Attributes:
        ready: In the order of arrival, which costs least, until jobs wait for their turns: under a limit, or while
            there are too few slots. A fair queue has no stale entries.
        stale: The number of entries whose job has moved on. The code that skips such an entry must subtract it.
        waiting_since: Loop time from which on some job has been ready.
    """

    __slots__ = ("_clock", "_is_limited", "_refused_at", "ready", "set_aside", "stale", "urgent", "waiting_since")

    def __init__(self, clock: Callable[[], float], is_limited: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_limited = is_limited
        self._refused_at = -inf
        self.waiting_since = -inf
        self.ready: Queue = deque()
        self.urgent: deque[Tracked] = deque()
        self.set_aside: deque[Tracked] = deque()
        self.stale = 0

    def begin_waiting(self) -> None:
        """Record that the first job is about to be ready: without a limit, jobs are in the order of arrival again."""
        self.waiting_since = self._clock()
        self._order_by_arrival()

    def take_turns(self) -> None:
        """Make projects take turns if jobs have waited for slots for a second, and no poll was refused for a minute.

        While polls are refused, turns would bring those of many small projects close together, and two refusals in a
        row hold back the polls of all.
        """
        now = self._clock()
        if now - self.waiting_since >= _BACKLOG_SECONDS and now - self._refused_at >= _REFUSED_SECONDS:
            self.order_by_gain()

    def refused(self) -> None:
        """Record that the server refused a poll and asked for a pause."""
        self._refused_at = self._clock()
        self._order_by_arrival()

    def _order_by_arrival(self) -> None:
        if isinstance(self.ready, FairQueue) and not self._is_limited():
            self.ready = deque(self.ready)

    def order_by_gain(self) -> None:
        """Order the ready jobs by projects and by what a poll gains, from now on."""
        if isinstance(self.ready, FairQueue):
            return
        ready = self.take_ready()
        self.ready = FairQueue(self._clock, ready)

    def put_aside(self, tracked: Tracked) -> None:
        """Set a slow job aside; one near a deadline goes before the others."""
        if tracked.bucket == Tracked.URGENT:
            self.set_aside.appendleft(tracked)
        else:
            self.set_aside.append(tracked)
        tracked.bucket = Tracked.SET_ASIDE

    def entries(self) -> int:
        """Return the number of entries, stale ones included."""
        return len(self.ready) + len(self.urgent) + len(self.set_aside)

    def note_stale(self, tracked: Tracked) -> None:
        """Record that the entry of `tracked` is stale; sweep once the stale ones outnumber the others."""
        if tracked.bucket == Tracked.READY and isinstance(self.ready, FairQueue):
            self.ready.discard(tracked)
            return
        self.stale += 1
        if self.stale > _FEW_STALE and self.stale * 2 > self.entries():
            tracked.bucket = Tracked.NOWHERE  # else the sweep would keep this entry
            if isinstance(self.ready, deque):
                self.ready = deque(_current(self.ready, Tracked.READY))
            self.urgent = deque(_current(self.urgent, Tracked.URGENT))
            self.set_aside = deque(_current(self.set_aside, Tracked.SET_ASIDE))
            self.stale = 0

    def take_ready(self) -> list[Tracked]:
        """Remove and return all ready jobs."""
        ready = _current(self.ready, Tracked.READY)
        self.ready.clear()
        current = len(_current(self.urgent, Tracked.URGENT)) + len(_current(self.set_aside, Tracked.SET_ASIDE))
        self.stale = self.entries() - current
        return ready

    def clear(self) -> None:
        """Forget all entries."""
        self.ready.clear()
        self.urgent.clear()
        self.set_aside.clear()
        self.stale = 0


def _current(queue: Iterable[Tracked], place: int) -> list[Tracked]:
    """Return the jobs that are still in a queue, each once: one that left and came back has two entries."""
    return list(dict.fromkeys(tracked for tracked in queue if tracked.bucket == place))
