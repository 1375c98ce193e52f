"""Limits of the polls that start: each says from when the next one may, and counts those that did."""

from math import ceil, inf
from typing import Final, Literal, Protocol

from attrs import frozen

from agentjobs_async._polling.auto import AutoRate
from agentjobs_async._validation import checked_seconds

ROUNDING_SECONDS: Final = 1e-6
"""How early a timer may fire: its time and the clock's are rounded differently."""

_HELD_BACK_SECONDS: Final = 1.0
"""How often a process looks whether it may poll by now, while its share of the polls is 0 or not in force."""

_MOST_TURNS_PER_SECOND: Final = 20.0  # a timer may be later than a shorter interval, and would miss turn after turn


class Limiter(Protocol):
    """A limit of the polls that start."""

    def opens_at(self, now: float) -> float:
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

    def use(self, per_second: float) -> None:
        """Start at most `per_second` polls per second from now on."""
        self.per_second = per_second

    def opens_at(self, now: float) -> float:  # noqa: ARG002 - as all limiters
        """Return when the next poll may start."""
        return self._last_start + 1 / self.per_second

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._last_start = max(now, self._last_start + 1 / self.per_second)


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


_UNLIMITED: Final = PollShare(inf)


class ShareLimiter:
    """Keeps the polls of this process within its share, at its turns where it has them.

    Args:
        rate: The other limit of this process: where that is the lower one, turns are not needed.
    """

    def __init__(self, rate: FixedRate) -> None:
        self._rate = rate
        self._share = _UNLIMITED
        self._turn: float | None = None  # the one that the next poll awaits
        self._last_start = -inf  # the turn, where the poll started a little later

    def use(self, share: PollShare) -> None:
        """Keep to `share` from now on."""
        self._share = share
        self._turn = None  # of another share

    def opens_at(self, now: float) -> float:
        """Return when the next poll may start.

        A turn that a poll awaits counts until the next turn, since a timer may be late. A poll that comes up between
        two turns waits for the next one: polls of all processes may have come up together.
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
    """What a user and the journals allow the polls of one tracker. A poll starts when each limit in force allows it.

    Attributes:
        auto: The limit that follows from the server's refusals, where the budget asks for it.
        in_force: The limits that are set.
    """

    def __init__(self, per_second: float | Literal["auto"] | None) -> None:
        self.auto = AutoRate() if per_second == "auto" else None
        self._budget = inf if per_second is None or per_second == "auto" else per_second
        self._rate = FixedRate(self._budget)
        self._shares: dict[object, PollShare] = {}
        self._share_limiter = ShareLimiter(self._rate)
        self.in_force = self._in_force()

    def _in_force(self) -> tuple[Limiter, ...]:
        rate = self._rate if self._rate.per_second < inf else None
        share = self._share_limiter if self._shares else None
        limiters: tuple[Limiter | None, ...] = (rate, share, self.auto)
        return tuple(limiter for limiter in limiters if limiter is not None)

    def limit(self, per_second: float | None) -> None:
        """Start at most `per_second` polls per second, within the budget's own limit; `None` for that alone.

        Raises:
            InvalidInputError: `per_second` is not a finite number above 0.
        """
        if per_second is not None:
            checked_seconds("per_second", per_second, unit="polls per second")
        self._rate.use(self._budget if per_second is None else min(self._budget, per_second))
        self.in_force = self._in_force()

    def share(self, sharer: object, share: PollShare | None) -> None:
        """Keep to `share` besides all other limits; `None` lifts that of `sharer`. Of several, the smallest counts."""
        if share is None:
            self._shares.pop(sharer, None)
        else:
            self._shares[sharer] = share
        if self._shares:
            self._share_limiter.use(min(self._shares.values(), key=lambda share: share.per_second))
        self.in_force = self._in_force()
