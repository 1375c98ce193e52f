"""When to poll again at each age: the gaps of equal expected lateness, for a given number of polls."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import chain, repeat
from math import exp, log
from typing import Final

from agentjobs_async.learning.survival import AGES, Survival
from agentjobs_async.policy import default_gap

__all__ = ["Cell", "default_gap", "gap_cells"]

Cell = tuple[float, float]
"""The range from which a gap is drawn evenly, up to ±10 % of it: (the least, the width), in seconds."""

_STEPS: Final = 8  # from the least factor to the greatest: each is 19 % above the one before
_FACTORS: Final[tuple[float, ...]] = tuple(0.5 * 4.0 ** (step / _STEPS) for step in range(_STEPS + 1))
"""Of the default's gap: what is tried, from half to twice. No history leads beyond."""

_JITTER: Final = 0.1  # of a gap, as the default has
_LEAST_JITTER: Final = 0.02  # at the bounds, which it must not cross: jobs that began at once drift apart all the same
_FINE_SECONDS: Final = 256  # up to here each second has a gap of its own: the default's grows up to an age of 190 s
_COARSE_SECONDS: Final = 16  # beyond it, this many seconds share a gap
_LAST_AGE_SECONDS: Final = 7_200  # 2 h: all later ages share the last gap
_BISECTIONS: Final = 12  # of seven powers of ten: the expected lateness to 0.4 %


_DEFAULT_GAPS: Final = tuple(map(default_gap, AGES))


def gap_cells(survival: Survival, polls_per_job: float | None) -> list[Cell]:
    """Return the gaps between polls by age: a cell for each second, so that the age is its index.

    The last one serves all later ages.

    Args:
        survival: How long jobs take.
        polls_per_job: The polls that a job may take on average, if it ends as `survival` says; `None` for as many as
            the default wait makes.
    """
    known = range(len(AGES))[: bisect_right(AGES, survival.longest) + 1]
    lateness = [_lateness(survival, index) for index in known]
    wanted = _polls(survival, _DEFAULT_GAPS) if polls_per_job is None else polls_per_job
    low, high = log(1e-4), log(1e3)  # s of expected lateness in each gap: far beyond what any gap reaches
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _polls(survival, _gaps(lateness, middle)) > wanted:
            low = middle
        else:
            high = middle
    gaps = _gaps(lateness, (low + high) / 2)
    return [
        cell
        for index, shortest, longest, seconds in _ranges()
        for cell in (_with_jitter(gaps[index], shortest, longest),) * seconds
    ]


@cache
def _ranges() -> list[tuple[int, float, float, int]]:
    """Return (index in `AGES`, shortest gap, longest gap, seconds of age that share it) of each gap."""
    begins = [*range(_FINE_SECONDS), *range(_FINE_SECONDS, _LAST_AGE_SECONDS, _COARSE_SECONDS)]
    ends = [*begins[1:], _LAST_AGE_SECONDS]
    return [
        (bisect_left(AGES, (begin + end) / 2), default_gap(end) / 2, default_gap(begin) * 2, end - begin)
        for begin, end in zip(begins, ends, strict=True)
    ]


def _with_jitter(gap: float, shortest: float, longest: float) -> Cell:
    """Return the range around `gap`, within the bounds."""
    centre = min(max(gap, shortest * (1 + _LEAST_JITTER)), longest * (1 - _LEAST_JITTER))
    jitter = min(_JITTER * centre, centre - shortest, longest - centre)
    return centre - jitter, 2 * jitter


def _lateness(survival: Survival, index: int) -> list[float]:
    """Return the expected lateness, in seconds, of each gap that may follow a poll at this age."""
    age, alive = AGES[index], survival.alive[index]
    before, gap = survival.area(age), default_gap(age)
    return [factor * gap - (survival.area(age + factor * gap) - before) / alive for factor in _FACTORS]


def _gaps(lateness: list[list[float]], log_target: float) -> list[float]:
    """Return the gap at each age: the least whose expected lateness reaches the target.

    At ages without a row it is the default's.
    """
    target = exp(log_target)
    factors = chain((_factor(row, target) for row in lateness), repeat(1.0))
    return [gap * factor for gap, factor in zip(_DEFAULT_GAPS, factors, strict=False)]


def _factor(row: list[float], target: float) -> float:
    index = bisect_left(row, target)
    if index == 0:
        return _FACTORS[0]
    if index == len(row):
        return _FACTORS[-1]
    share = (target - row[index - 1]) / (row[index] - row[index - 1])
    return _FACTORS[index - 1] + (_FACTORS[index] - _FACTORS[index - 1]) * share


def _polls(survival: Survival, gaps: Sequence[float]) -> float:
    """Return the expected number of polls of a job: one at once, then one for each gap that it begins."""
    known, polls = survival.known, 1.0  # without the prior: its rare long jobs would take a large part of all polls
    for index in range(len(AGES) - 1):
        polls += (AGES[index + 1] - AGES[index]) * (known[index] + known[index + 1]) / (gaps[index] + gaps[index + 1])
    return polls
