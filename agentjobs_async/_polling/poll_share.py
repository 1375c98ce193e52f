"""The share of one of several processes in a limit of polls per second, and its turns among those of the others."""

from collections.abc import Callable
from math import ceil, inf
from typing import Final

from attrs import frozen

__all__ = ["PollShare"]

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
