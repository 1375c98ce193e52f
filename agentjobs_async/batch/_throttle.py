"""One throttle of creates: a rate, and what the server's answers hold back."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from math import inf
from typing import Final

from agentjobs_async.batch.limits import Rate

_SLACK_SECONDS: Final = 1e-4  # loops run timers a moment early
_LEAST_GAP: Final = 0.9  # share of the gap: the way from the permit to the create does not always take equally long
_UNKNOWN_IN_A_ROW: Final = 3  # one or two are a hiccup; from the third on it is an outage
_FIRST_PROBE_SECONDS: Final = 1.0  # most hiccups are over by then
_LONGEST_PROBE_SECONDS: Final = 60.0  # so an outage of ten minutes costs 15 creates


class CreateThrottle:
    """Allows creates, one after the other, as a rate and the server's answers permit. Times are those of the loop.

    The rate is a sliding window, as servers count: a leaky bucket would allow twice the count in its first span. A
    create counts from its answer on, since that is no earlier than when the server counted it. A rate that is spread
    also keeps its gap between two creates: between the times at which they are allowed, and, since an allowed create
    may have to wait for a slot, once more between those at which they begin.

    After three unknown creates in a row without a definite answer between them, and once a refusal of the key has
    expired, one create at a time is allowed until one is answered definitely.

    Args:
        rate: `None` for no bound.
        ages: How many seconds ago earlier creates were sent.

    Attributes:
        holds: How many times creates were held back so far. A create that was allowed before the last time and has not
            been sent yet must be held back as well.
    """

    def __init__(self, rate: Rate | None, ages: Iterable[float] = ()) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        now = self._clock()
        self._sent = deque(sorted(now - age for age in ages))
        self._gap = 0.0 if rate is None else rate.gap
        self._under_way = 0
        self._allowed: deque[float] = deque()
        """When those under way were allowed that have not begun."""
        self._begun = deque(list(self._sent)[-1:])
        """When the creates of the last gap began; at first the last create of an earlier run."""
        self._paused_until = now
        self._reason: Exception | None = None
        self._held_until = now
        self.holds = 0
        self._unknown_in_a_row = 0
        self._one_at_a_time = False
        self._probe_at = now
        self._probe_delay = 0.0
        self._probe_reason: Exception | None = None
        self._refusal: Exception | None = None
        self._refused_until = now
        self._order = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def next_at(self) -> float | None:
        """When the next create may go; `None` when that depends on one that is under way."""
        now = self._clock()
        earliest = max(now, self._paused_until, self._held_until)
        if self._one_at_a_time:
            if self._under_way:
                return None
            earliest = max(earliest, self._probe_at)
        if self._rate is None:
            return earliest
        self._forget(now)
        if self._gap:
            earliest = max(earliest, max((*self._allowed, *self._begun), default=-inf) + self._gap)
        free = self._rate.count - self._under_way - len(self._sent)
        if free > 0:
            return earliest
        if len(self._sent) < 1 - free:
            return None
        return max(self._sent[-free] + self._rate.per, earliest)

    @property
    def paused(self) -> bool:
        """Whether a pause holds all creates back."""
        return self._clock() < self._paused_until

    @property
    def refused_by(self) -> Exception | None:
        """Why the server refuses the creates at present; `None` when it does not."""
        return self._refusal if self._clock() < self._refused_until else None

    async def take(self) -> int | None:
        """Wait until a create may go, and count it as under way; `spend` or `refund` must follow.

        Returns `holds` as it was then, or `None` when the creates are refused: then nothing is counted.
        """
        async with self._order:
            while self.refused_by is None and ((due := self.next_at) is None or due > self._clock()):
                self._changed.clear()
                await self._wait(due)
            if self.refused_by is not None:
                return None
            self._under_way += 1
            self._allowed.append(self._clock())
            return self.holds

    def begin(self) -> float | None:
        """Begin a create that was allowed, and return the time.

        Return `None` where another one has begun too recently, while this one waited for something else: `refund` and
        `take` must follow.
        """
        now = self._clock()
        while self._begun and self._begun[0] + self._gap <= now:
            self._begun.popleft()
        if self._begun and now < self._begun[-1] + self._gap * _LEAST_GAP:
            return None
        self._allowed.popleft()
        if self._gap:
            self._begun.append(now)
        return now

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        self._leave()
        if self._rate is not None:  # without one nothing would ever remove them
            self._sent.append(self._clock())
        self._changed.set()

    def refund(self, begun: float | None = None) -> None:
        """Discard a create that never reached the server; `begun` is what `begin` returned for it."""
        self._leave()
        if begun is not None and begun in self._begun:
            self._begun.remove(begun)
        self._changed.set()

    @property
    def paused_by(self) -> Exception | None:
        """Why creates are held back; `None` when nothing but the rate does so, or when an earlier run began it."""
        if self._one_at_a_time:
            return self._probe_reason
        return self._reason if self.paused else None

    def pause(self, seconds: float, reason: Exception | None = None) -> None:
        """Pause creates for `seconds`; a longer pause stands."""
        self._reason = reason
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._hold_back()

    def defer(self, seconds: float) -> None:
        """Defer further creates for `seconds`; unlike a pause, this does not hold back one that was let go."""
        self._held_until = max(self._held_until, self._clock() + seconds)
        self._changed.set()

    def mark_unknown(self, taken: int, reason: Exception, retry_after: float) -> bool:
        """Count a create that may have started an agent; return whether it begins an outage.

        Args:
            taken: What `take` returned for it. Creates that were under way before do not lengthen the delay.
            reason: Its error.
            retry_after: Seconds that the server asked for with it; 0 when it did not.
        """
        self._unknown_in_a_row += 1
        if self._unknown_in_a_row < _UNKNOWN_IN_A_ROW and not self._one_at_a_time:
            return False
        begins, self._one_at_a_time, self._probe_reason = not self._one_at_a_time, True, reason
        if taken == self.holds:
            self._probe_delay = min(max(2 * self._probe_delay, _FIRST_PROBE_SECONDS), _LONGEST_PROBE_SECONDS)
        self._probe_at = max(self._probe_at, self._clock() + self._probe_delay)
        # Kept apart from the delay, which a late definite answer ends: what a server asks for holds in any case.
        self._paused_until = max(self._paused_until, self._clock() + retry_after)
        self._hold_back()
        return begins

    def mark_definite(self) -> None:
        """Count an answer that shows whether its create started an agent; creates no longer go one at a time."""
        self._unknown_in_a_row, self._one_at_a_time, self._probe_delay = 0, False, 0.0
        self._probe_at = self._clock()
        self._changed.set()

    def refuse(self, reason: Exception, seconds: float) -> None:
        """Refuse all creates for `seconds`, those that wait included; then allow one at a time."""
        self._refusal, self._refused_until = reason, self._clock() + seconds
        self._one_at_a_time, self._probe_reason = True, reason
        self._hold_back()

    def accept(self) -> None:
        """End a refusal: a create with the same key has succeeded since."""
        self._refused_until = self._clock()

    def _leave(self) -> None:
        self._under_way -= 1
        while len(self._allowed) > self._under_way:
            self._allowed.popleft()

    def _hold_back(self) -> None:
        self.holds += 1
        self._changed.set()

    async def _wait(self, due: float | None) -> None:
        """Wait until `due`, or until something changes."""
        # Without the slack, a timer that runs early would make this a busy wait.
        timer = None if due is None else self._loop.call_at(due + _SLACK_SECONDS, self._changed.set, context=Context())
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _forget(self, now: float) -> None:
        assert self._rate is not None  # noqa: S101 - only called with one
        while self._sent and now - self._sent[0] >= self._rate.per:
            self._sent.popleft()
