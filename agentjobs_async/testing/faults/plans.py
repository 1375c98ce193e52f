"""Running fault plans, and the requests each of them applies to."""

import attrs

from agentjobs_async.testing.faults.fault import Fault, FaultPlan
from agentjobs_async.testing.faults.grammar import kind_of

__all__ = ["Plans", "RunningPlan", "Subject"]


@attrs.frozen(kw_only=True)
class Subject:
    """The properties of a request by which a plan is chosen; `None` for one that it does not have."""

    operation: str | None = None
    project_id: str | None = None
    job_id: str | None = None
    prompt: str | None = None


class RunningPlan:
    """A plan and the step it has reached.

    Args:
        plan: The steps.
        project_id: The only project it applies to; `None` applies to any, also in the next two.
        job_id: The only job.
        prompt: The only prompt, of creates and of reads of the jobs they created.
    """

    def __init__(
        self, plan: FaultPlan, *, project_id: str | None = None, job_id: str | None = None, prompt: str | None = None
    ) -> None:
        self._steps = plan.steps
        self._wanted = (project_id, job_id, prompt)
        self._step = 0
        self._taken = 0

    def take(self, subject: Subject) -> Fault | None:
        """Return the fault for a request, and count the request; `None` if the plan does not apply to it."""
        fault = self._current()
        if fault is None or kind_of(fault.kind).refuses or not self._fits(subject, fault):
            return None
        return self._count(fault)

    def take_refusal(self) -> Fault | None:
        """Return the refusal that is the current step, and count it."""
        fault = self._current()
        return self._count(fault) if fault is not None and kind_of(fault.kind).refuses else None

    def _current(self) -> Fault | None:
        return self._steps[self._step] if self._step < len(self._steps) else None

    def _fits(self, subject: Subject, fault: Fault) -> bool:
        met = (subject.project_id, subject.job_id, subject.prompt)
        return fault.on in (None, subject.operation) and all(
            wanted in (None, value) for wanted, value in zip(self._wanted, met, strict=True)
        )

    def _count(self, fault: Fault) -> Fault:
        self._taken += 1
        if self._taken == fault.times:
            self._step += 1
            self._taken = 0
        return fault


class Plans:
    """All running plans; the first that applies to a request holds."""

    def __init__(self) -> None:
        self._running: list[RunningPlan] = []

    def add(self, plan: RunningPlan) -> None:
        """Add a plan after the others."""
        self._running.append(plan)

    def take(self, subject: Subject) -> Fault | None:
        """Return the fault for a request."""
        return next((fault for plan in self._running if (fault := plan.take(subject))), None)

    def take_refusal(self) -> Fault | None:
        """Return the refusal that is the current step, and count it."""
        return next((fault for plan in self._running if (fault := plan.take_refusal())), None)
