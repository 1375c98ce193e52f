"""A limit of the polls per second that follows from the server's refusals: cut at each, growing between them."""

from collections import deque
from math import inf
from typing import Final

_LEFT: Final = 0.8  # of the answered polls per second, after a refusal
_REGROWTH_SECONDS: Final = 60.0  # from a cut until the limit is back at what was answered; it then grows on as fast
_GROWTH: Final = (1 / _LEFT - 1) / _REGROWTH_SECONDS  # in each second, as a share of what a cut left
_MEASURED_SECONDS: Final = 65  # of answers: the minute by which quotas are mostly counted, and how long a poll may take
_FLOOR: Final = 0.2  # polls per second: slower ones would not notice that the server allows more
_CAUGHT_UP_SECONDS: Final = 0.03
"""How late a start may be without delaying the next one: timers are late, and would leave a part of a quota unused."""


class AutoRate:
    """Additive increase, multiplicative decrease: no limit before the first refusal.

    A refusal cuts the limit to 80 % of the polls per second that were answered in the last minute, unless it is lower
    already. In each minute from then on, the limit grows by a quarter of what the cut left. Refusals with no
    answer since the last cut say nothing new, but in the first minute: until then the quota is measured.
    """

    def __init__(self) -> None:
        self._left = inf  # polls per second, right after the last cut
        self._cut_at = self._next_start = -inf
        self._has_answered = False  # since the last cut
        self._began = inf  # loop time of the first answer
        self._answered: deque[tuple[int, int]] = deque(maxlen=_MEASURED_SECONDS)
        """Seconds of loop time, and how many polls were answered in each."""

    def at(self, now: float) -> float:
        """Return the limit at the loop time `now`, in polls per second; infinity before the first refusal."""
        return self._left * (1 + _GROWTH * (now - self._cut_at))

    def answered(self, now: float) -> None:
        """Count a poll that showed its job."""
        self._has_answered, self._began = True, min(self._began, now)
        second, count = self._answered.pop() if self._answered else (int(now), 0)
        if second == int(now):
            self._answered.append((second, count + 1))
        else:
            self._answered.extend([(second, count), (int(now), 1)])

    def refused(self, now: float) -> None:
        """Count a poll that the server refused for now."""
        is_first_minute = self._began <= now <= self._began + _MEASURED_SECONDS
        if self._has_answered or is_first_minute:
            self._cut(now)

    def _cut(self, now: float) -> None:
        since = max(self._began, now - _MEASURED_SECONDS)
        answers = sum(count for second, count in self._answered if second >= int(since))
        measured = answers / max(now - since, 1.0)
        self._left = max(min(_LEFT * measured, self.at(now)), _FLOOR)
        self._has_answered = False
        self._cut_at = now
        self._next_start = max(self._next_start, now)

    def opens_at(self, now: float) -> float:  # noqa: ARG002 - as all limiters
        """Return when the next poll may start."""
        return self._next_start

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._next_start = max(self._next_start, now - _CAUGHT_UP_SECONDS) + 1 / self.at(now)
