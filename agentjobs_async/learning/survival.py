"""How long jobs take: the share of them that is still active at each age, smoothed, from intervals."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf, log
from typing import Final

__all__ = ["AGES", "Survival"]

_FINE_STEP_SECONDS: Final = 0.5  # below 25 s; the default polls every 3.3 s there
_COARSE_STEP: Final = 1.03  # from there on each age is 3 % above the one before, as is fit for durations
_FINE_STEPS: Final = 50  # up to 25 s, where a fine step is 2 % of the age
_LONGEST_SECONDS: Final = 14_400.0  # 4 h: nothing is learned of jobs that take longer
_SHORTEST_PRIOR_SECONDS: Final = 1.0  # no agent ends sooner
_NEVER_ENDED: Final = 1e-6  # of the prior: a share that may be divided by
_WIDEST: Final = 1.0  # of the logarithm of time
_HALF_LIFE: Final = 50  # durations: with each of them, those before weigh 1.4 % less
_NEIGHBOURS_SHARE: Final = 1 / 12  # of all durations: what lies as near is one hump


def _ages() -> tuple[float, ...]:
    ages = [step * _FINE_STEP_SECONDS for step in range(_FINE_STEPS)]
    age = _FINE_STEPS * _FINE_STEP_SECONDS
    while age < _LONGEST_SECONDS:
        ages.append(age)
        age *= _COARSE_STEP
    return (*ages, _LONGEST_SECONDS)


AGES: Final = _ages()
"""The ages, in seconds, at which the share is computed. Between them it is a straight line."""

_LOGS: Final = (-inf, *map(log, AGES[1:]))


class Survival:
    """The share of jobs that is still active at each age: a mixture of the smoothed durations and a prior.

    A duration weighs half as much as one that was added 50 durations later. Each is spread by a triangular kernel on
    the logarithm of time, as wide as its interval and the distance to its nearest others demand: narrow within a hump,
    wide in a tail. A duration that is only known to be longer than a time is shared out among the longer ones, as
    Kaplan and Meier do. The prior is uniform on the logarithm of time from 1 s to 4 h: no duration is impossible.

    Args:
        intervals: (earliest, latest) of each duration in seconds, the oldest first; at least one. `latest` is infinite
            where the job was not seen to end.
        prior: The weight of the prior, above 0 and below 1.
        narrowest: The least half width of a kernel, on the logarithm of time: 0.1 is 10 % of a duration.
        extrapolated: Whether the share falls beyond the longest known duration, by kernels and prior. If not, what is
            known to end has ended by then, and no other job ever does.

    Attributes:
        longest: The longest time, in seconds, for which any job is known to have been active.
        alive: The share at each of `AGES`: from 1.0 down, never 0.
        known: The same without the prior.
    """

    def __init__(
        self, intervals: Sequence[tuple[float, float]], *, prior: float, narrowest: float, extrapolated: bool = True
    ) -> None:
        self.longest: float = max(low if high == inf else high for low, high in intervals)
        span = _LOGS[-1] - log(_SHORTEST_PRIOR_SECONDS)
        self.known: list[float] = [1.0 - share for share in _ended_by(intervals, narrowest, extrapolated=extrapolated)]
        self.alive: list[float] = [
            (1.0 - prior) * known + prior * min(max((_LOGS[-1] - at) / span, _NEVER_ENDED), 1.0)
            for known, at in zip(self.known, _LOGS, strict=True)
        ]
        self._end, self._left = _LONGEST_SECONDS, self.alive[-1]
        """The age in seconds from which on the share stays the same, and that share."""
        if not extrapolated:
            self._end = min(max(self.longest, _FINE_STEP_SECONDS), _LONGEST_SECONDS)
            index = bisect_left(AGES, self._end)
            self._left = self.alive[index] - (1.0 - prior) * (self.known[index] - self.known[-1])
        steps = ((end - begin) for begin, end in pairwise(AGES))
        means = ((before + after) / 2 for before, after in pairwise(self.alive))
        self._area = [0.0, *accumulate(step * mean for step, mean in zip(steps, means, strict=True))]

    def at(self, age: float) -> float:
        """Return the share of jobs that is still active at `age` seconds."""
        if age >= self._end:
            return self._left
        index = bisect_right(AGES, age) - 1
        before, after = self.alive[index], self.alive[index + 1]
        return before + (after - before) * (age - AGES[index]) / (AGES[index + 1] - AGES[index])

    def area(self, age: float) -> float:
        """Return the integral of the share from 0 to `age` seconds: the mean time that jobs are active until then."""
        if age >= _LONGEST_SECONDS:
            return self._area[-1] + (age - _LONGEST_SECONDS) * self.alive[-1]
        index = bisect_right(AGES, age) - 1
        span = age - AGES[index]
        slope = (self.alive[index + 1] - self.alive[index]) / (AGES[index + 1] - AGES[index])
        return self._area[index] + span * (self.alive[index] + slope * span / 2)

    def age_at(self, share: float) -> float:
        """Return the age in seconds at which only `share` of the jobs is still active; infinite if it never is."""
        if share < self._left:
            return inf
        index = bisect_left(self.alive, -share, key=lambda alive: -alive)
        if index == 0:
            return 0.0
        before, after = self.alive[index - 1], self.alive[index]
        return min(AGES[index - 1] + (AGES[index] - AGES[index - 1]) * (before - share) / (before - after), self._end)


def _ended_by(intervals: Sequence[tuple[float, float]], narrowest: float, *, extrapolated: bool) -> list[float]:
    """Return the share of the durations that have ended at each of `AGES`."""
    known, left = _weighted(intervals)
    growth = [0.0] * (len(AGES) + 1)
    logs = [log(max(middle, _FINE_STEP_SECONDS / 2)) for middle, _, _ in known]
    near = max(1, round(len(logs) * _NEIGHBOURS_SHARE))
    for index, (middle, spread, weight) in enumerate(known):
        width = max(min(_reach(logs, index, near), _WIDEST), narrowest, spread / max(middle, 1.0))
        _add_kernel(growth, logs[index], width, weight)
    if left is not None and extrapolated:
        _add_tail(growth, *left)
    return list(accumulate(growth[:-1]))


def _weighted(
    intervals: Sequence[tuple[float, float]],
) -> tuple[list[tuple[float, float, float]], tuple[float, float] | None]:
    """Return (middle, half of the width, weight) of each known duration, and what is left: (its begin, its weight).

    A duration that has only a lower bound shares its weight out among the longer ones, by theirs. Without longer ones
    it is left.
    """
    weights = [0.5 ** (age / _HALF_LIFE) for age in range(len(intervals))]
    middles = sorted(
        (low, 0.0, False, weight) if high == inf else ((low + high) / 2, (high - low) / 2, True, weight)
        for (low, high), weight in zip(reversed(intervals), weights, strict=True)
    )
    longer = sum(weights)
    share, known = 1.0 / longer, []
    for index, (middle, spread, is_known, weight) in enumerate(middles):
        longer -= weight
        if is_known:
            known.append((middle, spread, weight * share))
        elif index + 1 == len(middles):
            return known, (middle, weight * share)
        else:
            share *= 1.0 + weight / longer
    return known, None


def _reach(logs: Sequence[float], index: int, near: int) -> float:
    """Return the distance on the sorted `logs` from `index` within which `near` others lie, about half on each side."""
    first = max(0, min(index - near // 2, len(logs) - 1 - near))
    last = min(len(logs) - 1, first + near)
    return max(logs[index] - logs[first], logs[last] - logs[index])


def _add_kernel(growth: list[float], centre: float, width: float, weight: float) -> None:
    """Add to the growth of the share between two ages that of one duration, spread over `centre` ± `width`."""
    first, last = bisect_left(_LOGS, centre - width), bisect_left(_LOGS, centre + width)
    before = 0.0
    for index in range(first, min(last, len(_LOGS) - 1) + 1):
        at = (_LOGS[index] - centre) / width
        share = 1.0 if at >= 1 else (1 + at) ** 2 / 2 if at < 0 else 1 - (1 - at) ** 2 / 2
        growth[index] += (share - before) * weight
        before = share


def _add_tail(growth: list[float], begin: float, weight: float) -> None:
    """Add what is only known to take longer than `begin`: uniform on the logarithm of time up to 4 h."""
    low = log(max(begin, _FINE_STEP_SECONDS))
    span = _LOGS[-1] - low
    before = 0.0
    for index in range(bisect_right(_LOGS, low), len(_LOGS)):  # empty from 4 h on, where `span` is 0
        share = (_LOGS[index] - low) / span
        growth[index] += (share - before) * weight
        before = share
