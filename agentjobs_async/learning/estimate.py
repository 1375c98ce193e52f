"""How long a job has left."""

from math import inf
from time import time
from typing import Final

from attrs import frozen

from agentjobs_async._text import span
from agentjobs_async.models import AgentJob
from agentjobs_async.policy import KnownDurations

__all__ = ["Estimate", "estimate_job"]

_SOONEST_SECONDS: Final = 1.0  # as shown to people: nothing is known more exactly, since polls are seconds apart


@frozen
class Estimate:
    """How long a job has left; `str` says it: "about 2 min, 9 of 10 within 5 min".

    For a job that has ended, both are 0.0, and `str` is "0 s".

    Attributes:
        p50: Half of such jobs end within this many seconds from now.
        p90: Nine of ten end within this many seconds from now.
    """

    p50: float
    p90: float

    def __str__(self) -> str:
        if not self.p90:
            return span(0.0)
        half, most = (span(max(seconds, _SOONEST_SECONDS)) for seconds in (self.p50, self.p90))
        return f"about {half}, 9 of 10 within {most}"


def estimate_job(history: KnownDurations | None, job: AgentJob, age: float | None) -> Estimate | None:
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
