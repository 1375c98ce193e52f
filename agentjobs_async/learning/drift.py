"""The test for a change in the distribution of durations: a conformal test martingale, which is hardly ever wrong."""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from math import inf
from random import random
from typing import Final

__all__ = ["DriftTest"]

_ALARM_WEALTH: Final = 100.0  # by Ville's inequality a fair gambler ever reaches it with a chance of at most 1 %
_STAKES: Final = (-2.0, -1.0, 0.0, 1.0, 2.0)  # against longer and shorter durations; beyond 2, wealth could be negative
_JUMP_RATE: Final = 0.01  # of the wealth, spread anew over all stakes at each bet
_MOST_KEPT: Final = 2_000  # durations: bounds the memory and the time of one bet
_LEAST_FOR_HORIZON: Final = 20  # durations
_HORIZON_SHARE: Final = 0.9  # of them end within the horizon: one job that hangs must not hold up the test


class DriftTest:
    """Bets against the durations being drawn from one distribution; wealth is evidence that they are not.

    The rank of each new duration among all before it is uniform as long as the order of the durations does not matter,
    and independent of the earlier ranks. Each stake multiplies its part of the wealth by 1 + stake x (rank - 1/2), with
    mean 1: the "simple jumper" of Vovk et al. (2021).

    The order matters where jobs run at the same time: they end in the order of their durations. So the durations must
    be added in the order of the starts. Those above `horizon` count as equal, and among equal ones the rank is drawn at
    random: a job that is older than the horizon can be added before it ends, and the ranks stay uniform.

    Args:
        known: Durations of the past, in seconds, on which no bet is made.

    Attributes:
        horizon: Seconds. Infinite until there are 20 durations, then above nine tenths of those; it stays from then on.
    """

    __slots__ = ("_parts", "_sorted", "horizon")

    def __init__(self, known: Iterable[float] = ()) -> None:
        self._sorted = array("d", sorted(known))
        self._parts = [1.0 / len(_STAKES)] * len(_STAKES)
        self.horizon = inf
        self._set_horizon()

    def _set_horizon(self) -> None:
        # Once only: it may depend on durations that were bet on before, and on no later one.
        known = self._sorted
        if self.horizon == inf and len(known) >= _LEAST_FOR_HORIZON:
            self.horizon = known[int(_HORIZON_SHARE * len(known))]
            self._sorted = array("d", (duration if duration <= self.horizon else inf for duration in known))

    def add(self, duration: float) -> bool:
        """Bet on the rank of a new duration, in seconds; return whether the wealth has reached 100.

        Any duration above `horizon` stands for all of these.
        """
        duration = duration if duration <= self.horizon else inf
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
        insort(self._sorted, duration)
        self._set_horizon()
        return sum(self._parts) >= _ALARM_WEALTH
