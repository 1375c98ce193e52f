"""When polls may start: a clock that can be stopped, and a list of limiters."""

from math import ceil, inf
from typing import Final, Literal, Protocol

from attrs import frozen

from agentjobs_async._polling.adaptive import AdaptiveRate
from agentjobs_async._validation import checked_seconds

ROUNDING_SECONDS: Final = 1e-6
"""How early a timer may fire: its time and the clock's are rounded differently."""

_HELD_BACK_SECONDS: Final = 1.0
"""How often a process looks whether it may poll by now, while its share of the polls is 0 or not in force."""

_MAX_RELEASE_SECONDS: Final = 10.0  # no job waits for much longer than the outage or the pause that held it back
_MOST_TURNS_PER_SECOND: Final = 20.0  # a timer may be later than a shorter interval, and would miss turn after turn


class PollClock:
    """The clock of the polls: the loop's time without the time for which this clock stood still.

    Attributes:
        resume_at: Loop time at which it continues by itself; `None` while it runs, or stands until `resume` is called.
    """

    def __init__(self) -> None:
        self._behind = 0.0  # seconds: its time is the loop's without those for which it stood still so far
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
        return (now if self._stopped_at is None else self._stopped_at) - self._behind

    def due(self, when: float, now: float) -> float:
        """Return what its time will be at the loop time `when`, as far as that is known `now`."""
        if self._stopped_at is None:
            return when - self._behind
        return self.time(now) + max(0.0, when - (now if self.resume_at is None else self.resume_at))

    def to_loop(self, time: float) -> float:
        """Return the loop time at which it shows `time`; only while it runs."""
        return time + self._behind

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
        stopped_for = 0.0 if self._stopped_at is None else now - self._stopped_at
        self._behind += stopped_for
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
        per_second: Polls per second; infinity for no limit.
    """

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._last_start = -inf

    def next_start(self, now: float) -> float:  # noqa: ARG002 - as all limiters
        """Return when the next poll may start."""
        return self._last_start + 1 / self.per_second

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._last_start = max(now, self._last_start + 1 / self.per_second)


class Release:
    """A backlog that goes out evenly over `seconds`, at most 10 s, beside the polls that come due meanwhile."""

    def __init__(self, backlog: int, seconds: float, now: float) -> None:
        seconds = min(seconds, _MAX_RELEASE_SECONDS)
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


class Sharer(Protocol):
    """One of the processes that share a limit of polls."""

    @property
    def is_sure(self) -> bool:
        """Whether this process counts as alive for all others: one that counts as dead loses its share to them."""


@frozen
class PollShare:
    """The polls per second of one of the processes that share a limit.

    Processes that only kept an interval each might all poll at the same moment: twenty of them with a quarter of a poll
    per second each send twenty polls in one second. So each has turns of its own, one in each interval, which lie
    between those of the others.

    Attributes:
        per_second: Polls per second; 0 for none at present.
        turn: Loop time of one of the turns; `None` where polls may start at any time that keeps the interval.
        sharer: Has the share only while it is sure of it; `None` where no other process can use it.
    """

    per_second: float
    turn: float | None = None
    sharer: Sharer | None = None

    @property
    def interval(self) -> float:
        """Seconds between two polls."""
        return 1 / self.per_second if self.per_second else inf

    @property
    def may_poll(self) -> bool:
        """Whether any poll may start at present."""
        return self.per_second > 0 and (self.sharer is None or self.sharer.is_sure)


class ShareLimiter:
    """Keeps the polls of this process within its share, at its turns where it has them.

    Args:
        rate: The other limit of this process: where that is the lower one, turns are not needed.
    """

    _share: PollShare

    def __init__(self, rate: FixedRate) -> None:
        self._rate = rate
        self._turn: float | None = None  # the one that the next poll awaits
        self._last_start = -inf  # the turn, where the poll started a little later

    def use(self, share: PollShare) -> None:
        """Keep to `share` from now on; to be called before all else."""
        self._share = share
        self._turn = None  # of another share

    def next_start(self, now: float) -> float:
        """Return when the next poll may start.

        A timer may be late: a turn that a poll awaits counts until the next one. At any other time, a poll that comes
        up between two turns waits, as the polls of all processes may have come up together.
        """
        share = self._share
        if not share.may_poll:
            return now + _HELD_BACK_SECONDS
        interval = share.interval
        if share.turn is None or share.per_second > min(self._rate.per_second, _MOST_TURNS_PER_SECOND):
            return self._last_start + interval
        if self._turn is None or now >= self._turn + interval:
            earliest = max(now, self._last_start + interval / 2) - ROUNDING_SECONDS
            self._turn = share.turn + ceil((earliest - share.turn) / interval) * interval
        return self._turn

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._last_start = now if self._turn is None else self._turn
        self._turn = None


class PollLimits:
    """All limits of the polls of one tracker. A poll starts when each of them allows it.

    Attributes:
        adaptive: The limit that follows from the server's refusals, where the budget asks for it.
    """

    def __init__(self, per_second: float | Literal["auto"] | None) -> None:
        self.adaptive = AdaptiveRate() if per_second == "auto" else None
        self._budget = inf if per_second is None or per_second == "auto" else per_second
        self._rate = FixedRate(self._budget)
        self._shares: dict[object, PollShare] = {}
        self._share = ShareLimiter(self._rate)
        self._release: Release | None = None

    def limit(self, per_second: float | None) -> None:
        """Start at most `per_second` polls per second, within the budget's own limit; `None` for that alone.

        Raises:
            InvalidInputError: `per_second` is not a finite number above 0.
        """
        if per_second is not None:
            checked_seconds("per_second", per_second, unit="polls per second")
        self._rate.per_second = self._budget if per_second is None else min(self._budget, per_second)

    def share(self, sharer: object, share: PollShare | None) -> None:
        """Poll within `share` beside all other limits; `None` lifts that of `sharer`. The smallest counts."""
        if share is None:
            self._shares.pop(sharer, None)
        else:
            self._shares[sharer] = share
        if self._shares:
            self._share.use(min(self._shares.values(), key=lambda share: share.per_second))

    def release(self, backlog: int, seconds: float, now: float) -> None:
        """Spread the polls that are due `now` over some seconds."""
        self._release = Release(backlog, seconds, now)

    def add(self) -> None:
        """Count a poll that has come due."""
        if self._release is not None:
            self._release.add()

    @property
    def _limiters(self) -> list[Limiter]:
        rate = self._rate if self._rate.per_second < inf else None
        share = self._share if self._shares else None
        found: list[Limiter | None] = [rate, share, self.adaptive, self._release]
        return [limiter for limiter in found if limiter is not None]

    def next_start(self, now: float) -> float:
        """Return the loop time from which the next poll may start: `now` or later."""
        latest = max((limiter.next_start(now) for limiter in self._limiters), default=now)
        return now if latest <= now + ROUNDING_SECONDS else latest

    def start(self, now: float) -> None:
        """Count one poll as started."""
        for limiter in self._limiters:
            limiter.start(now)
