"""When polls may start: a clock that can be stopped, and a list of limiters."""

from math import inf
from typing import Final, Literal, Protocol

from agentjobs_async._polling.adaptive import AdaptiveRate
from agentjobs_async._polling.poll_share import PollShare, ShareLimiter
from agentjobs_async._validation import checked_seconds

__all__ = ["ROUNDING_SECONDS", "PollClock", "PollLimits", "Release"]

ROUNDING_SECONDS: Final = 1e-6
"""How early a timer may fire: its time and the clock's are rounded differently."""


class PollClock:
    """The clock of the polls: the loop's time without the time for which this clock stood still.

    Attributes:
        stopped_for: The seconds for which it stood still so far: its time is the loop's without them.
        resume_at: Loop time at which it continues by itself; `None` while it runs, or stands until `resume` is called.
    """

    __slots__ = ("_stopped_at", "resume_at", "stopped_for")

    def __init__(self) -> None:
        self.stopped_for = 0.0
        self._stopped_at: float | None = None
        self.resume_at: float | None = None

    @property
    def stopped(self) -> bool:
        """Whether it stands still."""
        return self._stopped_at is not None

    @property
    def unreachable(self) -> bool:
        """Whether it stands still until `resume` is called: the server can't be reached."""
        return self._stopped_at is not None and self.resume_at is None

    def time(self, now: float) -> float:
        """Return its time at the loop time `now`."""
        return (now if self._stopped_at is None else self._stopped_at) - self.stopped_for

    def due(self, when: float, now: float) -> float:
        """Return what its time will be at the loop time `when`, as far as that is known `now`."""
        if self._stopped_at is None:
            return when - self.stopped_for
        return self.time(now) + max(0.0, when - (now if self.resume_at is None else self.resume_at))

    def to_loop(self, time: float) -> float:
        """Return the loop time at which it shows `time`; only while it runs."""
        return time + self.stopped_for

    def stop(self, now: float, until: float | None) -> None:
        """Stand still until the loop time `until`, or, where it stands already, until the later of both times.

        With `None` it stands until `resume` is called, but a time that was given before or comes later counts.
        """
        if self._stopped_at is None:
            self._stopped_at = now
            self.resume_at = until
        elif until is not None:
            self.resume_at = until if self.resume_at is None else max(self.resume_at, until)

    def resume(self, now: float) -> float:
        """Continue; return the seconds for which it stood still."""
        if self._stopped_at is None:
            return 0.0
        stopped_for = now - self._stopped_at
        self.stopped_for += stopped_for
        self._stopped_at = self.resume_at = None
        return stopped_for


class Limiter(Protocol):
    """A limit of the polls that start."""

    def next_start(self, now: float) -> float:
        """Return the loop time from which the next poll may start; `now` or earlier where it may start at once."""

    def start(self, now: float) -> None:
        """Count one poll as started."""


class FixedRate:
    """A number of polls per second: no two starts are closer than that, and unused ones are not saved up.

    Attributes:
        interval: Seconds between two starts; 0.0 for no limit.
    """

    __slots__ = ("_last_start", "interval")

    def __init__(self, per_second: float | None) -> None:
        self.interval = 0.0 if per_second is None else 1 / per_second
        self._last_start = -inf

    def next_start(self, now: float) -> float:  # noqa: ARG002 - as all limiters
        """Return when the next poll may start."""
        return self._last_start + self.interval

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._last_start = max(now, self._last_start + self.interval)


class Release:
    """A backlog that goes out spread evenly over some seconds, beside the polls that come due meanwhile."""

    __slots__ = ("_allowed", "_counted_at", "_ends_at", "_per_second")

    def __init__(self, backlog: int, seconds: float, now: float) -> None:
        self._ends_at = now + seconds
        self._per_second = backlog / seconds
        self._allowed = 1.0  # polls that may start, as of `_counted_at`
        self._counted_at = now

    def add(self) -> None:
        """Count a poll that has come due: one more may start."""
        self._allowed += 1

    def next_start(self, now: float) -> float:
        """Return when the next poll may start."""
        if now >= self._ends_at or self._allowed >= 1:
            return now
        return min(self._counted_at + (1 - self._allowed) / self._per_second, self._ends_at)

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._allowed += (now - self._counted_at) * self._per_second - 1
        self._counted_at = now


class PollLimits:
    """All limits of the polls of one tracker. A poll starts when each of them allows it.

    Attributes:
        adaptive: The limit that follows from the server's refusals, where the budget asks for it.
    """

    def __init__(self, per_second: float | Literal["auto"] | None) -> None:
        self.adaptive = AdaptiveRate() if per_second == "auto" else None
        self._budget = FixedRate(None if per_second == "auto" else per_second)
        self._own = FixedRate(None)
        self._shares: dict[object, PollShare] = {}
        self._share = ShareLimiter()
        self._release: Release | None = None
        self._list()

    def limit(self, per_second: float | None) -> None:
        """Start at most `per_second` polls per second beside the budget's own limit; `None` for that alone.

        Raises:
            InvalidInputError: `per_second` is not a finite number above 0.
        """
        if per_second is not None:
            checked_seconds("per_second", per_second, unit="polls per second")
        self._own.interval = 0.0 if per_second is None else 1 / per_second
        self._list()

    def share(self, sharer: object, share: PollShare | None) -> None:
        """Poll within `share` beside all other limits; `None` lifts that of `sharer`. The smallest holds."""
        if share is None:
            self._shares.pop(sharer, None)
        else:
            self._shares[sharer] = share
        self._list()

    def release(self, backlog: int, seconds: float, now: float) -> None:
        """Spread the polls that are due `now` over some seconds."""
        self._release = Release(backlog, seconds, now)
        self._list()

    def add(self) -> None:
        """Count a poll that has come due."""
        if self._release is not None:
            self._release.add()

    def _list(self) -> None:
        self._limiters: list[Limiter] = [self._budget, self._own]
        if self.adaptive is not None:
            self._limiters.append(self.adaptive)
        if self._shares:
            least = min(self._shares.values(), key=lambda share: share.per_second)
            self._share.use(least, max(self._budget.interval, self._own.interval))
            self._limiters.append(self._share)
        if self._release is not None:
            self._limiters.append(self._release)

    def next_start(self, now: float) -> float:
        """Return the loop time from which the next poll may start: `now` or later."""
        latest = max(limiter.next_start(now) for limiter in self._limiters)
        return now if latest <= now + ROUNDING_SECONDS else latest

    def start(self, now: float) -> None:
        """Count one poll as started."""
        for limiter in self._limiters:
            limiter.start(now)
