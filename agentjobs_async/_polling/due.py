"""The jobs that are due to be polled, in three queues. Removal is lazy: a stale entry is skipped later, or swept."""

from collections import deque
from typing import Final

from agentjobs_async._polling.tracked import Tracked

__all__ = ["DueJobs"]

_FEW_STALE: Final = 64  # stale entries that are not worth a sweep


class DueJobs:
    """The queues that `Tracked.READY`, `Tracked.URGENT` and `Tracked.SET_ASIDE` name.

    Attributes:
        stale: The number of entries whose job has moved on. The code that skips such an entry must subtract it.
    """

    __slots__ = ("ready", "set_aside", "stale", "urgent")

    def __init__(self) -> None:
        self.ready: deque[Tracked] = deque()
        self.urgent: deque[Tracked] = deque()
        self.set_aside: deque[Tracked] = deque()
        self.stale = 0

    def entries(self) -> int:
        """Return the number of entries, stale ones included."""
        return len(self.ready) + len(self.urgent) + len(self.set_aside)

    def note_stale(self, tracked: Tracked) -> None:
        """Record that the entry of `tracked` is stale; sweep once the stale ones outnumber the others."""
        self.stale += 1
        if self.stale > _FEW_STALE and self.stale * 2 > self.entries():
            tracked.bucket = Tracked.NOWHERE  # else the sweep would keep this entry
            self.ready = deque(tracked for tracked in self.ready if tracked.bucket == Tracked.READY)
            self.urgent = deque(tracked for tracked in self.urgent if tracked.bucket == Tracked.URGENT)
            self.set_aside = deque(tracked for tracked in self.set_aside if tracked.bucket == Tracked.SET_ASIDE)
            self.stale = 0

    def take_ready(self) -> list[Tracked]:
        """Remove and return all ready jobs."""
        ready = [tracked for tracked in self.ready if tracked.bucket == Tracked.READY]
        self.ready.clear()
        self.stale = sum(tracked.bucket != Tracked.URGENT for tracked in self.urgent)
        self.stale += sum(tracked.bucket != Tracked.SET_ASIDE for tracked in self.set_aside)
        return ready

    def clear(self) -> None:
        """Forget all entries."""
        self.ready.clear()
        self.urgent.clear()
        self.set_aside.clear()
        self.stale = 0
