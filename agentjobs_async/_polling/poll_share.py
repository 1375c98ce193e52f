"""The share of one of several processes in a limit of polls per second, and its turns among those of the others."""

from collections.abc import Callable
from math import ceil, inf
from typing import Final

from attrs import frozen

__all__ = ["PollShare", "ShareLimiter"]

_HELD_BACK_SECONDS: Final = 1.0
"""How often a process looks whether it may poll by now, while its share of the polls is 0 or not in force."""

_EARLY_SECONDS: Final = 1e-6  # a turn may lie so much before the time from which the next one is looked for
_LEAST_TURN_SECONDS: Final = 0.05  # a timer may be later than a shorter interval, and would miss turn after turn


def _always() -> bool:
    return True


@frozen
class PollShare:
    """The polls per second of one of the processes that share a limit.

    Processes that only kept an interval each might all poll at the same moment: twenty of them with a quarter of a poll
    per second each send twenty polls in one second. So each has turns of its own, one in each interval, which lie
    between those of the others.

    Attributes:
        per_second: Polls per second; 0 for none at present.
        turn: Loop time of one of the turns; `None` where polls may start at any time that keeps the interval.
        holds: Return whether the share is in force: while it is not, other processes may use it.
    """

    per_second: float
    turn: float | None = None
    holds: Callable[[], bool] = _always

    @property
    def interval(self) -> float:
        """Seconds between two polls."""
        return 1 / self.per_second if self.per_second else inf

    @property
    def has_turns(self) -> bool:
        """Whether polls start at its turns only."""
        return self.turn is not None and self.interval >= _LEAST_TURN_SECONDS

    @property
    def may_poll(self) -> bool:
        """Whether any poll may start at present."""
        return self.per_second > 0 and self.holds()

    def next_turn(self, time: float) -> float:
        """Return the first turn at the loop time `time` or later; only where it has turns."""
        assert self.turn is not None  # noqa: S101 - the caller has asked
        return self.turn + ceil((time - self.turn) / self.interval) * self.interval


class ShareLimiter:
    """Keeps the polls of this process within its share, at its turns where it has them."""

    __slots__ = ("_last_start", "_share", "_takes_turns", "_turn")

    def __init__(self) -> None:
        self._share = PollShare(0.0)
        self._takes_turns = False
        self._turn: float | None = None  # the one that the next poll awaits
        self._last_start = -inf  # the turn, where the poll started a little later

    def use(self, share: PollShare, interval: float) -> None:
        """Keep to `share` from now on; a process that polls less by itself, at this interval, needs no turns."""
        self._share = share
        self._takes_turns = share.has_turns and share.interval >= interval
        self._turn = None  # of another share

    def next_start(self, now: float) -> float:
        """Return when the next poll may start.

        A timer may be late: a turn that a poll awaits counts until the next one. At any other time, a poll that comes
        up between two turns waits, as the polls of all processes may have come up together.
        """
        share = self._share
        if not share.may_poll:
            return now + _HELD_BACK_SECONDS
        if not self._takes_turns:
            return self._last_start + share.interval
        if self._turn is None or now >= self._turn + share.interval:
            self._turn = share.next_turn(max(now, self._last_start + share.interval / 2) - _EARLY_SECONDS)
        return self._turn

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._last_start = now if self._turn is None else self._turn
        self._turn = None
