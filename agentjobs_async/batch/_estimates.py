"""When a run ends, and what decides that: the one estimate of the live view, of `status`, `plan` and `BatchStats`."""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Final

from attrs import frozen

from agentjobs_async.batch._store.measures import durations
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.items import BatchItem
from agentjobs_async.batch.limits import Limits, Rate, rate_text

_MOST_SHARE: Final = 0.9
_MOST_DURATIONS: Final = 500  # the newest: the service may have become slower
_LEAST_LEFT: Final = 0.1  # of the usual time of a job, for one that takes longer than that


@frozen
class End:
    """When a run ends, if each job takes as long as jobs usually do.

    Attributes:
        seconds: Until its last job ends.
        decided_by: The limit that decides that, and its value.
        is_least: Whether it takes longer than that, since the time of a job is not known.
    """

    seconds: float
    decided_by: str
    is_least: bool = False

    @property
    def decision(self) -> str:
        """What decides it, as the option of the limit: `--create-rate 100/h decides`."""
        return f"--{self.decided_by.replace('_', '-')} decides"


async def recent_durations(store: Store) -> list[float]:
    """Return how many seconds jobs took that ended of late, the newest first.

    Raises:
        JournalError: The journal can't be read.
    """
    return [seconds for _, seconds, _, has_ended in await durations(store, _MOST_DURATIONS) if has_ended]


class Durations:
    """How long the last jobs took that ended: from that follows when a run ends."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_MOST_DURATIONS)

    def add(self, row: JournalRow) -> None:
        """Add the time of a row, if it has a job that ended."""
        if row.state.is_job_end and row.created_at is not None and row.ended_at is not None and row.job_id is not None:
            self._seconds.append((row.ended_at - row.created_at).total_seconds())

    def replace(self, durations: Iterable[float]) -> None:
        """Use these times in seconds, the newest first, in place of all so far."""
        self._seconds = deque(reversed([*durations]), maxlen=_MOST_DURATIONS)

    @property
    def usual(self) -> tuple[float, float] | None:
        """The seconds that half of the jobs took at most, and nine of ten; `None` without any."""
        if not self._seconds:
            return None
        most = sorted(self._seconds)[math.ceil(_MOST_SHARE * len(self._seconds)) - 1]
        return max(median(self._seconds), 0.0), max(most, 0.0)


def end_of(
    *,
    to_create: int,
    queue: int,
    ages: Sequence[float],
    limits: Limits,
    usual: tuple[float, float] | None,
    next_create: float = 0.0,
) -> End | None:
    """Return when all items have ended; `None` while neither a rate nor the time of a job is known.

    Args:
        to_create: The items that are still to be sent.
        queue: Those of them that share one limit of the rate.
        ages: How long each active job has been active, in seconds.
        limits: Those in force.
        usual: As of `Durations`.
        next_create: Seconds until the next create may go.
    """
    rate = limits.create_rate
    return time_left(
        to_create=to_create,
        last_create=seconds_to_last_create(min(queue, to_create), rate, next_create),
        ages=ages,
        max_active=limits.max_active or max(to_create + len(ages), 1),
        create_rate=rate,
        job_seconds=None if usual is None else usual[0],
    )


def time_left(
    *,
    to_create: int,
    last_create: float,
    ages: Sequence[float],
    max_active: int,
    create_rate: Rate | None,
    job_seconds: float | None,
) -> End | None:
    """Return what is left of a run; `None` while neither a rate nor the time of a job is known.

    Args:
        to_create: The items that are still to be sent.
        last_create: Seconds until the last create may go.
        ages: How long each active job has been active, in seconds.
        max_active: The jobs active at once.
        create_rate: The limit of creates; `None` for no limit.
        job_seconds: What a job usually takes; `None` while that is not known.
    """
    if job_seconds is None:
        if create_rate is None or not last_create:
            return None
        return End(last_create, f"create_rate {rate_text(create_rate)}", is_least=True)
    by_slots = _seconds_by_slots(to_create, sorted(_left(ages, job_seconds)), max_active, job_seconds)
    by_rate = last_create + job_seconds * bool(to_create)
    if create_rate is not None and by_rate > by_slots:
        return End(by_rate, f"create_rate {rate_text(create_rate)}")
    return End(max(by_rate, by_slots), f"max_active {max_active}")


def _seconds_by_slots(to_create: int, active: Sequence[float], max_active: int, job_seconds: float) -> float:
    """Return when all jobs have ended if each slot gets the next item at once; `active` ascends."""
    last_active = max(active, default=0.0)
    if not to_create:
        return last_active
    rounds, slot = divmod(to_create - 1, max_active)  # of the last item; its slot may be free at first
    later = slot - (max_active - len(active))
    first_free = active[later] if later >= 0 else 0.0
    return max(first_free + (rounds + 1) * job_seconds, last_active)


def _left(ages: Sequence[float], job_seconds: float) -> list[float]:
    """Return how long each active job is expected to take still; never nothing, since it has not ended."""
    return [max(job_seconds - age, _LEAST_LEFT * job_seconds) for age in ages]


def seconds_to_last_create(queue: int, rate: Rate | None, next_create: float) -> float:
    """Return the seconds until the last create of a queue may go, as far as the rate allows it."""
    if not queue:
        return 0.0
    return next_create + _seconds_after_the_first(queue, rate)


def estimate(
    items: Collection[BatchItem], *, max_active: int | None, create_rate: Rate | None, job_seconds: float | None
) -> End | None:
    """Return how long a run of `items` takes; `None` while neither a rate nor the time of a job is known.

    Args:
        items: The items to send.
        max_active: The jobs active at once; `None` for any number.
        create_rate: The limit of creates; `None` for no limit.
        job_seconds: What each job is expected to take; `None` while that is not known.
    """
    return time_left(
        to_create=len(items),
        last_create=_seconds_of_creates(items, create_rate),
        ages=(),
        max_active=max_active or max(len(items), 1),
        create_rate=create_rate,
        job_seconds=job_seconds,
    )


def _seconds_of_creates(items: Collection[BatchItem], rate: Rate | None) -> float:
    """Return the seconds from the first create to the last: `count` go at once, the others as the span moves on."""
    if rate is None or not items:
        return 0.0
    longest = len(items) if rate.scope == "all" else max(Counter(item.project_id for item in items).values())
    return _seconds_after_the_first(longest, rate)


def _seconds_after_the_first(creates: int, rate: Rate | None) -> float:
    if rate is None:
        return 0.0
    return (math.ceil(creates / rate.count) - 1) * rate.per
