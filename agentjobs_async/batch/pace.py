"""The pace of creates: so many in any span of time, and none while the service asks for patience."""

import asyncio
from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final

from attrs import field, frozen

from agentjobs_async import InvalidInputError

__all__ = ["Pace", "Rate"]

_SLACK: Final = 1e-4


@frozen
class Rate:
    """At most `count` in any span of `per` seconds.

    Raises:
        InvalidInputError: `count` is no whole number of at least 1, or `per` no finite number above 0.
    """

    count: int
    per: float = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        count: object = self.count
        per: object = self.per
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidInputError(f"count must be a whole number of at least 1, not {count!r:.100}")
        if isinstance(per, bool) or not isinstance(per, int | float) or not 0 < per < inf:
            raise InvalidInputError(f"per must be a finite number of seconds above 0, not {per!r:.100}")


class Pace:
    """Lets creates go, one after the other, as a rate and the service's wishes allow. Times are those of the loop.

    A sliding window, as services count: a leaky bucket would let twice the count go in its first span. A create
    counts from its answer on, since that is no earlier than when the service counted it.

    Args:
        rate: `None` lets all go that no wish holds back.
        ages: How many seconds ago earlier creates were sent.
    """

    def __init__(self, rate: Rate | None, ages: Iterable[float] = ()) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        now = self._clock()
        self._sent = deque(sorted(now - age for age in ages))
        self._under_way = 0
        self._paused_until = now
        self._reason: Exception | None = None
        self._held_until = now
        self._order = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def next_at(self) -> float | None:
        """When the next create may go; `None` when that depends on one that is under way."""
        now = self._clock()
        earliest = max(now, self._paused_until, self._held_until)
        if self._rate is None:
            return earliest
        self._forget(now)
        places = self._rate.count - self._under_way - len(self._sent)
        if places > 0:
            return earliest
        if len(self._sent) < 1 - places:
            return None
        return max(self._sent[-places] + self._rate.per, earliest)

    @property
    def paused(self) -> bool:
        """Whether a pause holds all creates back."""
        return self._clock() < self._paused_until

    async def take(self) -> None:
        """Wait until a create may go, and count it as under way; `spent` or `unspent` has to follow."""
        async with self._order:
            while (due := self.next_at) is None or due > self._clock():
                self._changed.clear()
                await self._wait(due)
            self._under_way += 1

    def spent(self) -> None:
        """Count a create that the service answered, or may have."""
        self._under_way -= 1
        self._sent.append(self._clock())
        self._changed.set()

    def unspent(self) -> None:
        """Forget a create that never reached the service."""
        self._under_way -= 1
        self._changed.set()

    @property
    def paused_by(self) -> Exception | None:
        """What the pause is for that holds all creates back; `None` without one, or when an earlier run began it."""
        return self._reason if self.paused else None

    def pause(self, seconds: float, reason: Exception | None = None) -> None:
        """Let no create go for so many seconds; a longer pause stands."""
        self._reason = reason
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._changed.set()

    def hold(self, seconds: float) -> None:
        """Let no further create go for so many seconds; one that was let go is not called back, as by a pause."""
        self._held_until = max(self._held_until, self._clock() + seconds)
        self._changed.set()

    async def _wait(self, due: float | None) -> None:
        """Wait until `due`, or until something changes."""
        # Loops run timers a moment early, by their clock's resolution; without the slack that would be a busy wait.
        timer = None if due is None else self._loop.call_at(due + _SLACK, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _forget(self, now: float) -> None:
        assert self._rate is not None  # noqa: S101 - only called with one
        while self._sent and now - self._sent[0] >= self._rate.per:
            self._sent.popleft()
