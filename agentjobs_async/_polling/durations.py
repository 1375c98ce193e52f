"""Passing the durations of jobs on to a wait strategy that learns from them."""

from collections.abc import Callable
from math import inf
from time import time
from typing import Any, Final

from agentjobs_async.models import AgentJob
from agentjobs_async.policy import PollPolicy
from agentjobs_async.telemetry.observers import Hooks

__all__ = ["Durations"]

_LATEST_START_SECONDS: Final = 10.0  # after the job's creation: clocks differ, and a create's answer takes a moment


class Durations:
    """Passes durations on to `policy.wait`, where that has a method `learn`; else does nothing.

    A duration counts from the start of the wait. So a job that was created long before, as its `created_at` and the
    local clock say, is left out.
    """

    __slots__ = ("_hooks", "_learn")

    def __init__(self, policy: PollPolicy, hooks: Hooks) -> None:
        self._learn: Callable[..., Any] | None = getattr(policy.wait, "learn", None)
        self._hooks = hooks

    @property
    def learns(self) -> bool:
        """Whether there is such a method."""
        return self._learn is not None

    def ended(self, job: AgentJob, started: float, seen: float, now: float) -> None:
        """Record that a job ended after the loop time `seen`, and by `now`; the wait for it began at `started`."""
        if self._learn is not None:
            self._record(job, started, seen - started, now - started, now)

    def left(self, job: AgentJob | None, started: float, seen: float, now: float) -> None:
        """Record that a wait timed out at the loop time `now`, for a job that was active at `seen`."""
        if self._learn is not None and job is not None and seen > started:
            self._record(job, started, seen - started, inf, now)

    def _record(self, job: AgentJob, started: float, earliest: float, latest: float, now: float) -> None:
        if self._learn is None or _age(job) - (now - started) > _LATEST_START_SECONDS:
            return
        for event in self._learn(job.project_id, job.model, earliest, latest):
            self._hooks.emit_apart(event)


def _age(job: AgentJob) -> float:
    """Return the seconds since the job was created, by the local clock; 0.0 if the service does not say when."""
    return 0.0 if job.created_at is None else time() - job.created_at.timestamp()
