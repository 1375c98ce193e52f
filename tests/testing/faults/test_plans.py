"""Running plans."""

import pytest

from agentjobs_async.testing import Fault, FaultPlan
from agentjobs_async.testing.faults.plans import Plans, RunningPlan, Subject

CREATE = Subject(operation="create", project_id="docs", prompt="write")
GET = Subject(operation="get", project_id="docs", job_id="job_1", prompt="write")


def running(text: str, **wanted: str) -> RunningPlan:
    return RunningPlan(FaultPlan.parse(text), **wanted)


def kinds(plan: RunningPlan, *subjects: Subject) -> list[str | None]:
    return [fault.kind if fault else None for fault in map(plan.take, subjects)]


def test_steps_follow_each_other() -> None:
    """Each step applies to its number of requests; after the last step there is no fault."""
    assert kinds(running("500 x2 then reset"), *[GET] * 4) == ["500", "500", "reset", None]


def test_for_ever() -> None:
    """A step for ever never ends."""
    assert kinds(running("500 forever then reset"), *[GET] * 9) == ["500"] * 9


def test_a_step_waits_for_its_operation() -> None:
    """A step for reads does not apply to creates."""
    assert kinds(running("500 on=get then reset"), CREATE, GET, CREATE) == [None, "500", "reset"]


@pytest.mark.parametrize("wanted", [{"project_id": "docs"}, {"job_id": "job_1"}, {"prompt": "write"}, {}])
def test_plan_applies_to_its_subject(wanted: dict[str, str]) -> None:
    """A plan applies to the project, job or prompt it names, and to everything when it names none."""
    assert kinds(running("500", **wanted), GET) == ["500"]


@pytest.mark.parametrize("wanted", [{"project_id": "web"}, {"job_id": "job_2"}, {"prompt": "read"}])
def test_plan_lets_others_pass(wanted: dict[str, str]) -> None:
    """A plan for another project, job or prompt does not apply, and counts no request."""
    assert kinds(running("500", **wanted), GET, GET) == [None, None]


def test_refusals_take_no_request() -> None:
    """A refusal takes no request, and is due when its turn comes."""
    plan = running("500 then refuse for=3")
    assert plan.take_refusal() is None
    assert kinds(plan, GET, GET) == ["500", None]
    assert plan.take_refusal() == Fault.parse("refuse for=3")
    assert plan.take_refusal() is None


def test_first_plan_that_fits() -> None:
    """The first plan that applies to a request holds, then the next."""
    plans = Plans()
    plans.add(running("500", project_id="web"))
    plans.add(running("501"))
    plans.add(running("502 then refuse"))
    assert [str(plans.take(GET)), str(plans.take(GET)), plans.take(GET)] == ["501", "502", None]
    assert plans.take_refusal() == Fault("refuse")
    assert plans.take_refusal() is None
