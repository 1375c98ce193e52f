"""A limit of the polls per second that follows from the server's refusals: none before the first 429, then CUBIC."""

from collections import deque
from math import inf
from typing import Final

__all__ = ["AdaptiveRate"]

_CUT: Final = 0.7  # the part of the measured rate that a refusal leaves, as in CUBIC (RFC 9438)
_PLATEAU: Final = 0.98  # of the refused rate: where the curve is flat, so that polls stay just below the quota
_REGROWTH_SECONDS: Final = 8.0  # to the plateau; the shorter, the less of the quota is left unused
_SEARCH_SECONDS: Final = 50.0  # the scale of the growth beyond; each refusal leaves quota unused, also by its pause
_DOUBLES_BEYOND: Final = 1.05  # of the refused rate: a server that does not refuse this much allows more than before
_DOUBLES_AFTER_SECONDS: Final = _REGROWTH_SECONDS + _SEARCH_SECONDS * (
    (_DOUBLES_BEYOND - _PLATEAU) / (_PLATEAU - _CUT)
) ** (1 / 3)
"""Seconds from the end of the pause until the curve of `AdaptiveRate.at` has reached that rate."""

_DOUBLING_SECONDS: Final = 6.0  # in which the limit doubles from then on: four times the quota is found within a minute
_MAX_DOUBLINGS: Final = 64.0  # as much as no limit
_FLOOR: Final = 0.2  # polls per second: slower ones would not notice when the server allows more
_BETWEEN_CUTS_SECONDS: Final = 1.0  # a cut needs this long until the answers show what it has done
_CAUGHT_UP_SECONDS: Final = 0.03
"""How late a start may be for the next one to make up for it: timers are late, and would leave a quota unused.

On a busy machine, 10 ms left a tenth of the quota unused, and with 50 ms twice as many polls were refused.

A limit that the user has set is kept to more strictly: two starts are never closer than it allows.
"""

_MEASURED_SECONDS: Final = 10  # the busiest of them is the measured rate: a mean would count seconds without demand


class AdaptiveRate:
    """How many polls may start per second, learnt from the answers.

    A refusal cuts the measured rate. From then on the limit regrows along the curve of CUBIC: fast at first, hardly
    near the rate that was refused. Once it is beyond that rate, or where no poll was answered before the
    refusal, the server's limit is not known: this one doubles again and again, as in TCP's slow start, until the next
    refusal.

    Attributes:
        in_force: Whether there is a limit: whether a poll was refused.
    """

    __slots__ = ("_cut_at", "_doubles_from", "_next_start", "_peak", "_regrows_from", "_seconds", "in_force")

    def __init__(self) -> None:
        self.in_force = False
        self._next_start = -inf
        self._peak = inf
        self._cut_at = self._regrows_from = self._doubles_from = -inf
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
        # That second is over: a limit that doubles has grown since.
        grown = self.at(now) / self.at(now - 1.0) if self.in_force else 1.0
        self._peak = max(min(busiest * grown, self.at(now)), _FLOOR)
        self._cut_at = now
        self._regrows_from = max(now, until)
        self._doubles_from = self._regrows_from + (_DOUBLES_AFTER_SECONDS if busiest else 0.0)
        self.in_force = True

    def at(self, now: float) -> float:
        """Return the limit at the loop time `now`, in polls per second; infinity before the first refusal."""
        if not self.in_force:
            return inf
        if now > self._doubles_from:
            doublings = min((now - self._doubles_from) / _DOUBLING_SECONDS, _MAX_DOUBLINGS)
            return self._peak * _DOUBLES_BEYOND * 2**doublings
        beyond = max(now - self._regrows_from, 0.0) - _REGROWTH_SECONDS
        curve = (beyond / (_REGROWTH_SECONDS if beyond < 0 else _SEARCH_SECONDS)) ** 3
        return max(self._peak * (_PLATEAU + (_PLATEAU - _CUT) * curve), _FLOOR)

    def next_start(self, now: float) -> float:  # noqa: ARG002 - as all limiters
        """Return when the next poll may start."""
        return self._next_start

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._next_start = max(now - _CAUGHT_UP_SECONDS, self._next_start) + 1 / self.at(now)
