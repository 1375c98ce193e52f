"""Passing the durations of jobs on to a wait strategy that learns from them."""

from collections.abc import Callable
from math import inf
from time import time
from typing import Any

from agentjobs_async.learning.starts import is_late
from agentjobs_async.models import AgentJob
from agentjobs_async.policy import PollHistory, PollPolicy, WaitStrategy
from agentjobs_async.telemetry.observers import GuardedCallback, Hooks

__all__ = ["Durations"]


class Durations:
    """Passes durations on to `policy.wait`, where that has a method `learn`; else does nothing.

    A duration counts from the start of the wait. So a job that was created long before, as its `created_at` and the
    local clock say, is left out. Where the strategy has a method `start`, it is told of each wait that begins (`start`)
    or is over (`learn`, `leave`), since the order in which jobs end says nothing about the order of their starts. An
    error of these methods ends no wait; the first one of each is logged.

    Attributes:
        learns: Whether `policy.wait` learns. If not, no method does anything, and callers skip the calls: they are made
            for each wait.
    """

    __slots__ = ("_hooks", "_learn", "_leave", "_start", "learns")

    def __init__(self, policy: PollPolicy, hooks: Hooks) -> None:
        self._learn = _guarded(policy.wait, "learn", lambda events: tuple(events or ()))
        self._start = _guarded(policy.wait, "start") if self._learn else None
        self._leave = _guarded(policy.wait, "leave") if self._start else None
        self._hooks = hooks
        self.learns = self._learn is not None

    def began(self, project_id: str, wait: PollHistory) -> None:
        """Record that the wait for a job of this project begins."""
        if self._start is not None:
            self._start(project_id, wait)

    def ended(self, job: AgentJob, wait: PollHistory, now: float) -> None:
        """Record that a job ended after it was last seen active, and by the loop time `now`."""
        if self._learn is not None:
            self._record(job, wait, now - wait.started, now)

    def timed_out(self, wait: PollHistory, now: float) -> None:
        """Record that a wait timed out at the loop time `now`, for a job that was active when it was last seen."""
        if self._learn is not None and wait.job is not None and wait.seen > wait.started:
            self._record(wait.job, wait, inf, now)

    def left(self, wait: PollHistory) -> None:
        """Record that a wait is over, whatever its job does. Does nothing after `ended` and `timed_out`."""
        if self._leave is not None:
            self._leave(wait)

    def _record(self, job: AgentJob, wait: PollHistory, latest: float, now: float) -> None:
        if self._learn is None or is_late(job, time() - (now - wait.started)):
            self.left(wait)
            return
        known = () if self._start is None else (wait,)
        for event in self._learn(job.project_id, job.model, wait.seen - wait.started, latest, *known) or ():
            self._hooks.emit_apart(event)


def _guarded(wait: WaitStrategy, name: str, read: Callable[[Any], Any] = lambda _: None) -> GuardedCallback | None:
    """Return the method `name` of a strategy, with its errors contained; `None` if it has none.

    `read` is called with what the method returns; its errors are contained as well.
    """
    method = getattr(wait, name, None)
    if not callable(method):  # `wait_incrementing.start` is a number
        return None
    return GuardedCallback(f"policy.wait.{name}", lambda *arguments: read(method(*arguments)))
