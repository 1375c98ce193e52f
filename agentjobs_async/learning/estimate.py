"""How long jobs have left."""

from collections.abc import Callable, Sequence
from math import inf
from time import time
from typing import Final

from attrs import frozen

from agentjobs_async._text import span
from agentjobs_async.learning.history import History
from agentjobs_async.learning.survival import AGES, Survival
from agentjobs_async.models import AgentJob

__all__ = ["Estimate", "estimate_job", "estimate_many"]

_MOST_SAMPLED: Final = 32  # jobs: more change the figures by less than they are worth
_BISECTIONS: Final = 20  # of 4 h: to 0.01 s
_SOONEST_SECONDS: Final = 1.0  # as shown to people: nothing is known more exactly, since polls are seconds apart


@frozen
class Estimate:
    """How long a job, or one of several, has left; `str` says it: "about 2 min, 9 of 10 within 5 min".

    For a job that has ended, both are 0.0, and `str` is "0 s".

    Attributes:
        p50: Half of the jobs end within this many seconds from now.
        p90: Nine of ten end within this many seconds from now.
    """

    p50: float
    p90: float

    def __str__(self) -> str:
        if not self.p90:
            return span(0.0)
        half, most = (span(max(seconds, _SOONEST_SECONDS)) for seconds in (self.p50, self.p90))
        return f"about {half}, 9 of 10 within {most}"


def estimate_job(history: History | None, job: AgentJob, age: float | None) -> Estimate | None:
    """Return how long a job has left; `None` if that is unknown.

    Args:
        history: The one that serves the job; `None` for none.
        job: The job as it was last seen.
        age: Seconds since its creation, at least; `None` where only its `created_at` can tell.
    """
    if job.is_terminal:
        return Estimate(0.0, 0.0)
    if job.created_at is not None:
        age = max(time() - job.created_at.timestamp(), age or 0.0)
    if history is None or age is None:
        return None
    found = Estimate(history.quantile(0.5, age), history.quantile(0.9, age))
    return found if found.p90 < inf else None


def estimate_many(jobs: Sequence[tuple[History, float]]) -> Estimate | None:
    """Return how long the jobs under way have left, taken together; `None` if nine of ten have no known end.

    Args:
        jobs: The history that serves each job, and its age in seconds.
    """
    step = -(-len(jobs) // _MOST_SAMPLED) or 1
    sample = [(history._survival(), age) for history, age in jobs[::step]]  # noqa: SLF001 - private to users
    if not sample:
        return None
    found = Estimate(_left(sample, 0.5), _left(sample, 0.9))
    return found if found.p90 < AGES[-1] else None


def _left(sample: Sequence[tuple[Survival, float]], share: float) -> float:
    """Return the seconds within which `share` of the sampled jobs ends; 4 h or slightly more where none is enough."""
    active = [(survival, age, survival.at(age)) for survival, age in sample]

    def still_active(seconds: float) -> float:
        return sum(survival.at(age + seconds) / now for survival, age, now in active) / len(active)

    return _bisected(still_active, 1.0 - share)


def _bisected(falling: Callable[[float], float], wanted: float) -> float:
    low, high = 0.0, AGES[-1] * 1.01
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if falling(middle) <= wanted else (middle, high)
    return high
