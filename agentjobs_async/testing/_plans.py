"""The fault plans under way, and whom each of them meets."""

import attrs

from agentjobs_async.testing.faults import Fault, FaultPlan

__all__ = ["Plans", "RunningPlan", "Target"]


@attrs.frozen(kw_only=True)
class Target:
    """What a plan can ask of a request; `None` where there is none."""

    operation: str | None = None
    project_id: str | None = None
    job_id: str | None = None
    prompt: str | None = None


class RunningPlan:
    """A plan on its way through its steps.

    Args:
        plan: The steps.
        project_id: The only project it meets; `None` meets any. The same holds for `job_id` and `prompt`.
        job_id: A job.
        prompt: The prompt of a create, and of the jobs it made.
    """

    def __init__(
        self, plan: FaultPlan, *, project_id: str | None = None, job_id: str | None = None, prompt: str | None = None
    ) -> None:
        self._steps = plan.steps
        self._wanted = (project_id, job_id, prompt)
        self._step = 0
        self._taken = 0

    def take(self, target: Target) -> Fault | None:
        """Give the fault that a request meets, and count it; `None` if the plan is not for it."""
        fault = self._current()
        if fault is None or fault.kind == "refuse" or not self._fits(target, fault):
            return None
        return self._count(fault)

    def take_refusal(self) -> Fault | None:
        """Give the refusal whose turn it is."""
        fault = self._current()
        return self._count(fault) if fault is not None and fault.kind == "refuse" else None

    def _current(self) -> Fault | None:
        return self._steps[self._step] if self._step < len(self._steps) else None

    def _fits(self, target: Target, fault: Fault) -> bool:
        met = (target.project_id, target.job_id, target.prompt)
        return fault.on in (None, target.operation) and all(
            wanted in (None, value) for wanted, value in zip(self._wanted, met, strict=True)
        )

    def _count(self, fault: Fault) -> Fault:
        self._taken += 1
        if self._taken == fault.times:
            self._step += 1
            self._taken = 0
        return fault


class Plans:
    """Every plan under way; a request meets the first that is for it."""

    def __init__(self) -> None:
        self._running: list[RunningPlan] = []

    def add(self, plan: RunningPlan) -> None:
        """Take a plan in, behind the others."""
        self._running.append(plan)

    def take(self, target: Target) -> Fault | None:
        """Give the fault that a request meets."""
        return next((fault for plan in self._running if (fault := plan.take(target))), None)

    def take_refusal(self) -> Fault | None:
        """Give the refusal whose turn it is."""
        return next((fault for plan in self._running if (fault := plan.take_refusal())), None)
