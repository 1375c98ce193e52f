"""How long a run takes at least, and what decides that."""

import math
from collections import Counter
from collections.abc import Collection

from attrs import frozen

from agentjobs_async.batch import BatchItem, Rate
from agentjobs_async.cli.limits import rate_text

__all__ = ["Estimate", "estimate"]


@frozen
class Estimate:
    """How long a run takes if each job takes as long as expected.

    Attributes:
        seconds: From the start of the run to the end of its last job.
        binding: What decides that, in words.
    """

    seconds: float
    binding: str


def estimate(
    items: Collection[BatchItem], *, max_active: int, create_rate: Rate | None, job_seconds: float
) -> Estimate:
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
        return Estimate(creates, f"the rate of {rate_text(create_rate)} decides")
    return Estimate(rounds, f"{max_active} jobs at once decide")


def _seconds_of_creates(items: Collection[BatchItem], rate: Rate | None) -> float:
    """Return the seconds from the first create to the last; without spreading, a window begins with all its creates."""
    if rate is None or not items:
        return 0.0
    longest = len(items) if rate.scope == "all" else max(Counter(item.project_id for item in items).values())
    return (longest - 1) * rate.gap if rate.spread else (math.ceil(longest / rate.count) - 1) * rate.per
