"""A limit of the polls per second that follows from the server's refusals: none before the first 429, then CUBIC."""

from collections import deque
from math import inf
from typing import Final

__all__ = ["AdaptiveRate"]

_CUT: Final = 0.7  # the part of the measured rate that a refusal leaves, as in CUBIC (RFC 9438)
_PLATEAU: Final = 0.98  # of the refused rate: where the curve is flat, so that polls stay just below the quota
_REGROWTH_SECONDS: Final = 8.0  # to the plateau; the shorter, the less of the quota is left unused
_SEARCH_SECONDS: Final = 30.0  # the scale of the growth beyond; shorter is refused more often, longer finds quota late
_FLOOR: Final = 0.2  # polls per second: slower ones would not notice when the server allows more
_BETWEEN_CUTS_SECONDS: Final = 1.0  # a cut needs this long until the answers show what it has done
_MEASURED_SECONDS: Final = 10  # the busiest of them is the measured rate: a mean would count seconds without demand


class AdaptiveRate:
    """How many polls may start per second, learnt from the answers.

    A refusal cuts the measured rate. From then on the limit regrows along the curve of CUBIC: fast at first, hardly
    near the rate that was refused, then faster and faster, to find out whether the server allows more by now.

    Attributes:
        in_force: Whether there is a limit: whether a poll was refused.
    """

    __slots__ = ("_cut_at", "_peak", "_regrows_from", "_seconds", "in_force")

    def __init__(self) -> None:
        self.in_force = False
        self._peak = inf
        self._cut_at = self._regrows_from = -inf
        self._seconds: deque[list[int]] = deque(maxlen=_MEASURED_SECONDS)
        """Seconds of loop time, and the number of jobs that polls showed in each."""

    def count(self, now: float) -> None:
        """Count a poll that showed its job at the loop time `now`."""
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0])
        self._seconds[-1][1] += 1

    def refuse(self, began: float, now: float, until: float) -> None:
        """Cut the limit, since a poll that began at the loop time `began` was refused `now`.

        The limit does not regrow before `until`, when the pause ends that the server asked for. A poll that began
        before the last cut says nothing about the limit since then.
        """
        if began < self._cut_at or now < self._cut_at + _BETWEEN_CUTS_SECONDS:
            return
        busiest = max((count for second, count in self._seconds if second > now - _MEASURED_SECONDS), default=0)
        self._peak = max(min(busiest, self.at(now)), _FLOOR)
        self._cut_at = now
        self._regrows_from = max(now, until)
        self.in_force = True

    def at(self, now: float) -> float:
        """Return the limit at the loop time `now`, in polls per second; infinity before the first refusal."""
        if not self.in_force:
            return inf
        beyond = max(now - self._regrows_from, 0.0) - _REGROWTH_SECONDS
        curve = (beyond / (_REGROWTH_SECONDS if beyond < 0 else _SEARCH_SECONDS)) ** 3
        return max(self._peak * (_PLATEAU + (_PLATEAU - _CUT) * curve), _FLOOR)
