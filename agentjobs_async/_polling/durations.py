"""Passing the durations of jobs on to wait strategies that learn from them."""

from math import inf
from typing import Final

from agentjobs_async._polling.wait_state import WaitState
from agentjobs_async.models import AgentJob
from agentjobs_async.policy import PollPolicy, parts_of
from agentjobs_async.telemetry.observers import GuardedCallback

__all__ = ["Durations"]

_TOLERATED_SECONDS: Final = 60.0  # clocks differ, and a create's answer takes a moment


class Durations:
    """Passes durations on to `policy.wait` and its parts, where these have a method `learn`; else does nothing.

    A duration counts from the job's creation. A job that had ended when the wait for it began, a minute or more after
    its creation, is left out: it may have taken any time. The first error of a method is logged; none ends a wait.
    """

    __slots__ = ("_learners",)

    def __init__(self, policy: PollPolicy) -> None:
        methods = (getattr(part, "learn", None) for part in parts_of(policy.wait))
        self._learners = tuple(GuardedCallback("policy.wait.learn", learn) for learn in methods if callable(learn))

    def ended(self, job: AgentJob, wait: WaitState, now: float) -> None:
        """Record that a job ended after it was last seen active, and by the loop time `now`."""
        if wait.seen > wait.started:
            self._learn(job, wait.seen - wait.created, now - wait.created)
        elif wait.started - wait.created < _TOLERATED_SECONDS:
            self._learn(job, 0.0, now - wait.created)

    def timed_out(self, wait: WaitState) -> None:
        """Record that a wait timed out, for a job that was active when it was last seen."""
        if wait.job is not None and wait.seen > wait.started:
            self._learn(wait.job, wait.seen - wait.created, inf)

    def _learn(self, job: AgentJob, earliest: float, latest: float) -> None:
        for learn in self._learners:
            learn(job.project_id, job.model, earliest, latest)
