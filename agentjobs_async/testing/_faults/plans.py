"""Running fault plans, and the requests each of them applies to."""

from heapq import merge
from itertools import count, product
from operator import itemgetter

import attrs

from agentjobs_async.testing._faults.fault import Fault, FaultPlan
from agentjobs_async.testing._faults.kinds import kind_of

Wanted = tuple[str | None, str | None, str | None]
"""The project, job and prompt that a plan applies to; `None` for any."""


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

    Attributes:
        wanted: The project, job and prompt.
    """

    def __init__(
        self, plan: FaultPlan, *, project_id: str | None = None, job_id: str | None = None, prompt: str | None = None
    ) -> None:
        self._steps = plan.steps
        self.wanted: Wanted = (project_id, job_id, prompt)
        self._step = 0
        self._popped = 0

    @property
    def current(self) -> Fault | None:
        """The fault of the step it has reached; `None` after the last one."""
        return self._steps[self._step] if self._step < len(self._steps) else None

    def may_refuse(self) -> bool:
        """Return whether a step is a refusal."""
        return any(kind_of(fault.kind).refuses for fault in self._steps)

    def pop(self, operation: str | None) -> Fault | None:
        """Return the fault for a request that it is for, and count the request; `None` if no fault applies to it."""
        fault = self.current
        if fault is None or kind_of(fault.kind).refuses or fault.on not in (None, operation):
            return None
        return self._count(fault)

    def pop_refusal(self) -> Fault | None:
        """Return the refusal that is the current step, and count it."""
        fault = self.current
        return self._count(fault) if fault is not None and kind_of(fault.kind).refuses else None

    def _count(self, fault: Fault) -> Fault:
        self._popped += 1
        if self._popped == fault.times:
            self._step += 1
            self._popped = 0
        return fault


class Plans:
    """All running plans; the first that applies to a request counts.

    A request looks only at the plans for its own project, job and prompt, however many others run.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._running: dict[Wanted, dict[int, RunningPlan]] = {}
        """The plans that have not ended, by their numbers."""
        self._refusing: dict[int, RunningPlan] = {}
        """Those of them with a refusal among their steps."""

    def add(self, plan: RunningPlan) -> None:
        """Add a plan after the others."""
        number = next(self._numbers)
        if plan.current is not None:
            self._running.setdefault(plan.wanted, {})[number] = plan
            if plan.may_refuse():
                self._refusing[number] = plan

    def pop(self, subject: Subject) -> Fault | None:
        """Return the fault for a request."""
        met = product(*({None, value} for value in (subject.project_id, subject.job_id, subject.prompt)))
        applying = (self._running[wanted].items() for wanted in met if wanted in self._running)
        for number, plan in merge(*applying, key=itemgetter(0)):
            if (fault := plan.pop(subject.operation)) is not None:
                self._forget_if_ended(number, plan)
                return fault
        return None

    def pop_refusal(self) -> Fault | None:
        """Return the refusal that is the current step, and count it."""
        for number, plan in self._refusing.items():
            if (fault := plan.pop_refusal()) is not None:
                self._forget_if_ended(number, plan)
                return fault
        return None

    def _forget_if_ended(self, number: int, plan: RunningPlan) -> None:
        if plan.current is None:
            del self._running[plan.wanted][number]
            if not self._running[plan.wanted]:
                del self._running[plan.wanted]
            self._refusing.pop(number, None)
