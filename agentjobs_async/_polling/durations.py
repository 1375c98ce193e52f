"""Passing the durations of jobs on to a wait strategy that learns from them."""

from math import inf
from time import time
from typing import Final

from agentjobs_async.models import AgentJob
from agentjobs_async.policy import PollHistory, PollPolicy
from agentjobs_async.telemetry.observers import GuardedCallback

__all__ = ["Durations"]

_LATEST_START_SECONDS: Final = 10.0  # after the job's creation: clocks differ, and a create's answer takes a moment


class Durations:
    """Passes durations on to `policy.wait`, where that has a method `learn`; else does nothing.

    A duration counts from the start of the wait. So a job that was created long before, as its `created_at` and the
    local clock say, is left out. The first error of the method is logged; none ends a wait.
    """

    __slots__ = ("_learn",)

    def __init__(self, policy: PollPolicy) -> None:
        learn = getattr(policy.wait, "learn", None)
        self._learn = GuardedCallback("policy.wait.learn", learn) if callable(learn) else None

    def ended(self, job: AgentJob, wait: PollHistory, now: float) -> None:
        """Record that a job ended after it was last seen active, and by the loop time `now`."""
        self._record(job, wait, now - wait.started, now)

    def timed_out(self, wait: PollHistory, now: float) -> None:
        """Record that a wait timed out at the loop time `now`, for a job that was active when it was last seen."""
        if wait.job is not None and wait.seen > wait.started:
            self._record(wait.job, wait, inf, now)

    def _record(self, job: AgentJob, wait: PollHistory, latest: float, now: float) -> None:
        if self._learn is not None and not _is_late(job, time() - (now - wait.started)):
            self._learn(job.project_id, job.model, wait.seen - wait.started, latest)


def _is_late(job: AgentJob, began: float) -> bool:
    """Return whether a job was created long before the wait for it began, at the wall-clock time `began`."""
    return job.created_at is not None and began - job.created_at.timestamp() > _LATEST_START_SECONDS
