"""Has the distribution of durations changed? A conformal test martingale, which hardly ever says so wrongly."""

from array import array
from bisect import bisect_left, bisect_right
from random import random
from typing import Final

__all__ = ["DriftTest"]

_ALARM_WEALTH: Final = 100.0  # by Ville's inequality a fair gambler ever reaches it with a chance of at most 1 %
_STAKES: Final = (-2.0, -1.0, 0.0, 1.0, 2.0)
_JUMP_RATE: Final = 0.01  # of the wealth, spread anew over all stakes at each bet
_MOST_KEPT: Final = 2_000


class DriftTest:
    """Bets against the durations being drawn from one distribution; wealth is evidence that they are not.

    The rank of each new duration among all before it is uniform as long as the order of the durations does not matter,
    and independent of the earlier ranks. Each stake multiplies its part of the wealth by 1 + stake x (rank - 1/2), with
    mean 1: the "simple jumper" of Vovk et al. (2021).

    The order matters where jobs run at the same time: they end in the order of their durations, not of their starts.
    Then the test reports changes that are none; sound bets would need the durations in the order of the starts.
    """

    __slots__ = ("_parts", "_sorted")

    def __init__(self) -> None:
        self._sorted = array("d")
        self._parts = [1.0 / len(_STAKES)] * len(_STAKES)

    def know(self, duration: float) -> None:
        """Add a duration of the past, without a bet."""
        self._sorted.insert(bisect_left(self._sorted, duration), duration)

    def add(self, duration: float) -> bool:
        """Bet on the rank of a new duration, in seconds; return whether the wealth has reached 100."""
        first, last = bisect_left(self._sorted, duration), bisect_right(self._sorted, duration)
        rank = (first + random() * (last - first + 1)) / (len(self._sorted) + 1)  # noqa: S311 - no secret
        spread = _JUMP_RATE * sum(self._parts) / len(_STAKES)
        self._parts = [
            ((1.0 - _JUMP_RATE) * part + spread) * (1.0 + stake * (rank - 0.5))
            for part, stake in zip(self._parts, _STAKES, strict=True)
        ]
        if len(self._sorted) >= _MOST_KEPT:
            # A fresh start keeps the bets fair: the new ranks do not depend on what was forgotten. To drop only the
            # oldest would make successive ranks depend on each other.
            self._sorted = array("d")
        self._sorted.insert(bisect_left(self._sorted, duration), duration)
        return sum(self._parts) >= _ALARM_WEALTH
