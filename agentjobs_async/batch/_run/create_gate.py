"""When creates may go, of one project or of all: a rate, and the reasons that hold them back."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from enum import Enum, auto
from math import inf
from typing import Final

from attrs import frozen

from agentjobs_async._loop.backoff import Backoff
from agentjobs_async.batch.limits import Rate

_SLACK_SECONDS: Final = 1e-4  # loops run timers a moment early
_UNKNOWN_IN_A_ROW: Final = 3  # one or two are a hiccup; from the third on it is an outage
_FIRST_PROBE_SECONDS: Final = 1.0  # most hiccups are over by then
_LONGEST_PROBE_SECONDS: Final = 60.0  # so an outage of ten minutes costs 15 creates
_SHORTEST_RETRY_AFTER_SECONDS: Final = 1.0
_LEAST_NEWS_SECONDS: Final = 0.5  # by which a longer hold is news: creates refused together are milliseconds apart
LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0  # a longer one holds creates back no longer than this


class Reason(Enum):
    """Why creates are held back."""

    LIMITED = auto()
    """The service refused one for now, or asked for a pause."""
    UNSENT = auto()
    """None can be sent."""
    OUTAGE = auto()
    """Three in a row have an unknown outcome. After its time, one at a time is let go until one is answered."""
    REFUSED = auto()
    """The service refuses the key. After its time, one at a time is let go until one is answered."""
    FULL = auto()
    """The limits of all owners leave no room. One that was let go may still go: nothing has failed."""


_PROBED: Final = (Reason.OUTAGE, Reason.REFUSED)


@frozen
class Hold:
    """Creates are held back.

    Attributes:
        until: The loop time at which one is tried again.
        expected: The loop time at which one may go, as far as that is known: no earlier than `until`.
        error: Why.
    """

    until: float
    expected: float
    error: Exception


class Window:
    """The creates of the last span of a rate. Times are those of the loop.

    It slides, as servers count: a leaky bucket would allow twice the count in its first span. A create counts as soon
    as it is let go, whatever it still waits for, and until `per` seconds after it was answered or given up, which is no
    earlier than when the server counted it.

    Args:
        rate: The rate; `None` for no limit.
        sent: When earlier creates were sent.
    """

    def __init__(self, rate: Rate | None, sent: Iterable[float]) -> None:
        self._rate = rate
        self._sent = deque(sorted(sent))

    def opens_at(self, earliest: float, now: float, under_way: int) -> float | None:
        """Return when the next create may go, from `earliest` on; `None` when that depends on one under way."""
        if self._rate is None:
            return earliest
        while self._sent and now - self._sent[0] >= self._rate.per:
            self._sent.popleft()
        free = self._rate.count - under_way - len(self._sent)
        if free > 0:
            return earliest
        if len(self._sent) < 1 - free:
            return None
        return max(self._sent[-free] + self._rate.per, earliest)

    def add(self, now: float) -> None:
        """Count a create that was answered or given up just now."""
        if self._rate is not None:  # without one nothing would ever remove them
            self._sent.append(now)


class CreateGate:
    """Lets creates go, one after the other, as a rate and what holds them back permit. Times are those of the loop.

    Args:
        rate: `None` for no limit.
        ages: How many seconds ago earlier creates were sent.

    Attributes:
        recalls: How many times creates were held back so far. One that was let go before the last time and has not been
            sent yet must be held back as well.
    """

    def __init__(self, rate: Rate | None, ages: Iterable[float] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        now = self._clock()
        self.recalls = 0
        self._window = Window(rate, (now - age for age in ages))
        self._under_way = 0
        self._holds: dict[Reason, Hold] = {}
        self._backoff = Backoff()
        self._unknown_in_a_row = 0
        self._probe_seconds = 0.0
        self._order = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def next_at(self) -> float | None:
        """When the next create may go, as far as known.

        `None` when that depends on one that is under way, and while the key is refused for as long as the run lasts.
        """
        now = self._clock()
        opens_at = self._opens_at([hold.expected for hold in self._holds.values() if now < hold.until], now)
        return None if opens_at == inf else opens_at

    @property
    def refused_by(self) -> Exception | None:
        """Why the service refuses the creates at present; `None` when it does not."""
        refused = self._holds.get(Reason.REFUSED)
        return refused.error if refused is not None and self._clock() < refused.until else None

    @property
    def paused_by(self) -> Exception | None:
        """Why creates are held back, the newest reason; `None` when nothing but its own rate does so.

        Where the limits of all owners leave no room, it is a `NoRoomError`.
        """
        now = self._clock()
        # A copy: an exporter asks in a thread of its own.
        in_force = [hold for reason, hold in tuple(self._holds.items()) if reason in _PROBED or now < hold.until]
        return in_force[-1].error if in_force else None

    @property
    def limited_for(self) -> float:
        """For how many seconds more the service wants no creates."""
        limited = self._holds.get(Reason.LIMITED)
        return 0.0 if limited is None else max(limited.until - self._clock(), 0.0)

    @property
    def _is_probing(self) -> bool:
        return any(reason in self._holds for reason in _PROBED)

    def _due(self) -> float | None:
        """Return when the next create is let go, to be held back again perhaps; `None` as of `next_at`."""
        # Not a refusal: what it holds does not wait for its end.
        ends = [hold.until for reason, hold in self._holds.items() if reason is not Reason.REFUSED]
        return self._opens_at(ends, self._clock())

    def _opens_at(self, ends: list[float], now: float) -> float | None:
        if self._is_probing and self._under_way:
            return None
        return self._window.opens_at(max([now, *ends]), now, self._under_way)

    async def take(self) -> int | None:
        """Wait until a create may go, and count it as under way; `spend` or `refund` must follow.

        Return `recalls` as it was then, or `None` when the creates are refused: then nothing is counted.
        """
        async with self._order:
            while self.refused_by is None and ((due := self._due()) is None or due > self._clock()):
                self._changed.clear()
                await self._wait(due)
            if self.refused_by is not None:
                return None
            self._under_way += 1
            return self.recalls

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        self._under_way -= 1
        self._window.add(self._clock())
        self._changed.set()

    def refund(self) -> None:
        """Discard a create that never reached the server."""
        self._under_way -= 1
        self._changed.set()

    def hold(self, reason: Reason, seconds: float, error: Exception, *, expected: float = 0.0) -> bool:
        """Hold creates back for `seconds`, and perhaps for `expected`; a longer hold for the same reason stands.

        Return whether this is news: they were not held back for this reason before, or not for so long.
        """
        earlier = self._holds.pop(reason, None)  # to the end: the newest reason is the one that is shown
        now = self._clock()
        until = now + seconds if earlier is None else max(earlier.until, now + seconds)
        self._holds[reason] = Hold(until, max(until, now + expected), error)
        self.recalls += reason is not Reason.FULL
        self._changed.set()
        return earlier is None or until - max(earlier.until, now) >= _LEAST_NEWS_SECONDS

    def limit(self, began: float, retry_after: float | None, error: Exception) -> bool:
        """Hold creates back because the server refused one for now; return whether this is news, as of `hold`.

        Args:
            began: Loop time at which that create began.
            retry_after: Seconds for which the server asks; they count as 1 at least, and as 3600 at most. For `None` or
                0, the pauses are those of a `Backoff`, until a create gives a job.
            error: The server's answer.
        """
        now = self._clock()
        if retry_after:
            seconds = min(max(retry_after, _SHORTEST_RETRY_AFTER_SECONDS), LONGEST_RETRY_AFTER_SECONDS)
        else:
            seconds = self._backoff.refused(began, now) - now
        return self.hold(Reason.LIMITED, seconds, error)

    def count_unknown(self, recalls: int, error: Exception, retry_after: float) -> bool:
        """Count a create that may have started an agent; return whether it begins an outage.

        Args:
            recalls: What `take` returned for it. Creates that were under way before do not lengthen the delay.
            error: Its error.
            retry_after: Seconds that the server asked for with it; 0 when it did not.
        """
        self._unknown_in_a_row += 1
        was_probing = self._is_probing
        if self._unknown_in_a_row < _UNKNOWN_IN_A_ROW and not was_probing:
            return False
        if recalls == self.recalls:
            self._probe_seconds = min(max(2 * self._probe_seconds, _FIRST_PROBE_SECONDS), _LONGEST_PROBE_SECONDS)
        self.hold(Reason.OUTAGE, self._probe_seconds, error)
        if retry_after:  # kept apart: a definite answer ends the outage, and what a server asks for holds in any case
            self.hold(Reason.LIMITED, retry_after, error)
        return not was_probing

    def count_definite(self) -> None:
        """Count an answer that shows whether its create started an agent; creates no longer go one at a time."""
        self._unknown_in_a_row, self._probe_seconds = 0, 0.0
        self._holds.pop(Reason.OUTAGE, None)
        if self.refused_by is None:
            self._holds.pop(Reason.REFUSED, None)
        self._changed.set()

    def accept(self) -> None:
        """End a refusal, since a create with the same key has succeeded; the next pause is the first of a row."""
        self._backoff.answered()
        self._holds.pop(Reason.REFUSED, None)

    async def _wait(self, due: float | None) -> None:
        """Wait until `due`, or until something changes."""
        # Without the slack, a timer that runs early would make this a busy wait.
        timer = None if due is None else self._loop.call_at(due + _SLACK_SECONDS, self._changed.set, context=Context())
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()
