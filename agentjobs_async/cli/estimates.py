"""How long a run takes at least, and what decides that."""

import math
from collections import Counter, deque
from collections.abc import Collection, Sequence
from statistics import median
from typing import Final

from attrs import evolve, frozen

from agentjobs_async.batch import BatchItem, JournalRow, Rate
from agentjobs_async.cli.limits import rate_text

__all__ = [
    "RecentDurations",
    "RunEstimate",
    "Smoothed",
    "earliest_end",
    "estimate",
    "seconds_to_last_create",
    "time_left",
]

_MOST_DURATIONS: Final = 500  # the newest: the service may have become slower
_SMOOTHING_SECONDS: Final = 20.0  # in which an end that is shown comes nearly two thirds of the way to a new one
_SMOOTHING_SHARE: Final = 1 / 6  # of the time left, where that is less: else a short run is over before it is right
_LEAST_SMOOTHING_SECONDS: Final = 1.0
_LEAST_LEFT: Final = 0.1  # of the usual time of a job, for one that takes longer than that


@frozen
class RunEstimate:
    """How long a run takes if each job takes as long as expected.

    Attributes:
        seconds: From the start of the run to the end of its last job.
        binding: What decides that, in words.
        is_least: Whether it takes longer than that, since the time of a job is not known.
    """

    seconds: float
    binding: str
    is_least: bool = False


class RecentDurations:
    """How long jobs took, of the newest ones."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_MOST_DURATIONS)

    def add(self, row: JournalRow) -> None:
        """Add the time of a row, if it has a job that ended."""
        if row.created_at is not None and row.ended_at is not None and row.job_id is not None:
            self._seconds.append((row.ended_at - row.created_at).total_seconds())

    @property
    def median(self) -> float | None:
        """The median, in seconds; `None` without any."""
        return max(median(self._seconds), 0.0) if self._seconds else None


class Smoothed:
    """An end that is shown: it moves to each new estimate within a minute, faster when little time is left.

    It is never earlier than `earliest` seconds from now.
    """

    def __init__(self) -> None:
        self._end: float | None = None
        self._at = 0.0

    def shown(self, found: RunEstimate, earliest: float, now: float) -> RunEstimate:
        """Return the estimate to show at `now`, of which no less than `earliest` seconds are left."""
        end = now + found.seconds
        if self._end is not None:
            seconds = min(max(found.seconds * _SMOOTHING_SHARE, _LEAST_SMOOTHING_SECONDS), _SMOOTHING_SECONDS)
            share = 1 - math.exp(-max(now - self._at, 0.0) / seconds)
            end = self._end + share * (end - self._end)
        self._end, self._at = max(end, now + earliest), now
        return evolve(found, seconds=self._end - now)


def time_left(
    *,
    to_create: int,
    queue: int,
    ages: Sequence[float],
    max_active: int,
    create_rate: Rate | None,
    next_create: float,
    job_seconds: float | None,
) -> RunEstimate | None:
    """Return what is left of a run; `None` while neither a rate nor the time of a job is known.

    Args:
        to_create: The items that are still to be sent.
        queue: Those of them that share one limit of the rate.
        ages: How long each active job has been active, in seconds.
        max_active: The jobs active at once.
        create_rate: The limit of creates; `None` for no limit.
        next_create: Seconds until the next create may go.
        job_seconds: What a job usually takes; `None` while that is not known.
    """
    last_create = seconds_to_last_create(min(queue, to_create), create_rate, next_create)
    if job_seconds is None:
        if create_rate is None or not last_create:
            return None
        return RunEstimate(last_create, f"{rate_text(create_rate)} decides", is_least=True)
    active = _left(ages, job_seconds)
    by_slots = max((sum(active) + to_create * job_seconds) / max_active, *active, job_seconds * bool(to_create), 0.0)
    by_rate = last_create + job_seconds * bool(to_create)
    if create_rate is not None and by_rate > by_slots:
        return RunEstimate(by_rate, f"{rate_text(create_rate)} decides")
    return RunEstimate(max(by_rate, by_slots), f"--max-active {max_active} decides")


def earliest_end(*, to_create: int, ages: Sequence[float], last_create: float, job_seconds: float | None) -> float:
    """Return the seconds before which no run is shown to end: its last create is due, and each job takes some time.

    Args:
        to_create: The items that are still to be sent.
        ages: How long each active job has been active, in seconds.
        last_create: Seconds until the last create may go.
        job_seconds: What a job usually takes; `None` while that is not known.
    """
    if job_seconds is None:
        return last_create
    return max(last_create + job_seconds * bool(to_create), *_left(ages, job_seconds), 0.0)


def _left(ages: Sequence[float], job_seconds: float) -> list[float]:
    """Return how long each active job is expected to take still; never nothing, since it has not ended."""
    return [max(job_seconds - age, _LEAST_LEFT * job_seconds) for age in ages]


def seconds_to_last_create(queue: int, rate: Rate | None, next_create: float) -> float:
    """Return the seconds until the last create of a queue may go; a rate allows it in no earlier window."""
    if not queue:
        return 0.0
    return next_create + _seconds_after_the_first(queue, rate)


def estimate(
    items: Collection[BatchItem], *, max_active: int, create_rate: Rate | None, job_seconds: float
) -> RunEstimate:
    """Return how long a run of `items` takes.

    Args:
        items: The items to send.
        max_active: The jobs active at once.
        create_rate: The limit of creates; `None` for no limit.
        job_seconds: What each job is expected to take; with 0, only the rate counts.
    """
    rounds = math.ceil(len(items) / max_active) * job_seconds
    creates = _seconds_of_creates(items, create_rate) + job_seconds * bool(items)
    if create_rate is not None and creates > rounds:
        return RunEstimate(creates, f"the rate of {rate_text(create_rate)} decides")
    return RunEstimate(rounds, f"--max-active {max_active} decides")


def _seconds_of_creates(items: Collection[BatchItem], rate: Rate | None) -> float:
    """Return the seconds from the first create to the last; without spreading, a window begins with all its creates."""
    if rate is None or not items:
        return 0.0
    longest = len(items) if rate.scope == "all" else max(Counter(item.project_id for item in items).values())
    return _seconds_after_the_first(longest, rate)


def _seconds_after_the_first(creates: int, rate: Rate | None) -> float:
    if rate is None:
        return 0.0
    return (creates - 1) * rate.gap if rate.spread else (math.ceil(creates / rate.count) - 1) * rate.per
