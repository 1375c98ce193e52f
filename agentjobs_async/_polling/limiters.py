"""Limits of the polls that start: each says from when the next one may, and counts those that did."""

from collections.abc import Mapping
from math import inf
from typing import Final, Literal, Protocol

from agentjobs_async._polling.auto import AutoRate
from agentjobs_async._validation import checked_seconds

ROUNDING_SECONDS: Final = 1e-6
"""How early a timer may fire: its time and the clock's are rounded differently."""

_HELD_BACK_SECONDS: Final = 1.0
"""How often a process looks whether it may poll by now, while its share of the polls is 0."""


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


class PollShare(Protocol):
    """What one process has of a limit that several share. It changes as they come and go."""

    @property
    def per_second(self) -> float:
        """Polls per second; 0 for none at present, infinity for any number."""


class ShareLimiter:
    """Keeps the polls of one tracker within the smallest of its shares: no two starts are closer than that.

    Args:
        shares: The shares, by who gave them.
    """

    def __init__(self, shares: Mapping[object, PollShare]) -> None:
        self._shares = shares
        self._last_start = -inf

    def opens_at(self, now: float) -> float:
        """Return when the next poll may start; while it is not known, when to ask again."""
        per_second = min(share.per_second for share in self._shares.values())
        return self._last_start + 1 / per_second if per_second else now + _HELD_BACK_SECONDS

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._last_start = now


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
        self._share_limiter = ShareLimiter(self._shares)
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
        """Keep to `share` besides all other limits, as it changes; `None` lifts that of `sharer`."""
        if share is None:
            self._shares.pop(sharer, None)
        else:
            self._shares[sharer] = share
        self.in_force = self._in_force()
