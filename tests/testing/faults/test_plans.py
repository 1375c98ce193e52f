"""Running plans."""

from agentjobs_async.testing import Fault, FaultPlan
from agentjobs_async.testing._faults.plans import Plans, RunningPlan, Subject

CREATE = Subject(operation="create", project_id="docs", prompt="write")
GET = Subject(operation="get", project_id="docs", job_id="job_1", prompt="write")


def running(text: str, **wanted: str) -> RunningPlan:
    return RunningPlan(FaultPlan.parse(text), **wanted)


def plans(*running: RunningPlan) -> Plans:
    added = Plans()
    for plan in running:
        added.add(plan)
    return added


def kinds(plans: Plans, *subjects: Subject) -> list[str | None]:
    return [fault.kind if fault else None for fault in map(plans.pop, subjects)]


def test_steps_follow_each_other() -> None:
    """Each step applies to its number of requests, if it has one; after the last step there is no fault."""
    assert kinds(plans(running("500 x2 then reset")), *[GET] * 4) == ["500", "500", "reset", None]
    assert kinds(plans(running("500 forever then reset")), *[GET] * 9) == ["500"] * 9


def test_a_step_waits_for_its_operation() -> None:
    """A step for reads does not apply to creates."""
    assert kinds(plans(running("500 on=get then reset")), CREATE, GET, CREATE) == [None, "500", "reset"]


def test_plan_applies_to_its_subject() -> None:
    """A plan applies to the project, job and prompt it names, and to everything when it names none; no other counts."""
    own: list[dict[str, str]] = [{"project_id": "docs"}, {"job_id": "job_1"}, {"prompt": "write"}, {}]
    own.append({"project_id": "docs", "job_id": "job_1", "prompt": "write"})
    others: list[dict[str, str]] = [{"project_id": "web"}, {"job_id": "job_2"}, {"prompt": "read"}]
    others.append({"project_id": "docs", "prompt": "read"})
    assert [kinds(plans(running("500", **wanted)), GET, GET) for wanted in own] == [["500", None]] * len(own)
    assert [kinds(plans(running("500", **wanted)), GET, GET) for wanted in others] == [[None, None]] * len(others)


def test_request_without_a_project() -> None:
    """A request whose address names no project meets the plans for any only."""
    assert kinds(plans(running("500", project_id="docs"), running("501")), Subject(), Subject()) == ["501", None]


def test_refusals_take_no_request() -> None:
    """A refusal needs no request, and is due when its turn comes."""
    all_plans = plans(running("500 then refuse for=3"))
    assert all_plans.pop_refusal() is None
    assert kinds(all_plans, GET, GET) == ["500", None]
    assert all_plans.pop_refusal() == Fault.parse("refuse for=3")
    assert all_plans.pop_refusal() is None


def test_first_plan_that_fits() -> None:
    """The first plan that applies to a request counts, then the next, whatever they name."""
    all_plans = plans(
        running("500", project_id="web"),
        running("501"),
        running("502 then refuse then 504", job_id="job_1"),
        running("503", project_id="docs"),
    )
    assert kinds(all_plans, *[GET] * 4) == ["501", "502", "503", None]
    assert all_plans.pop_refusal() == Fault("refuse")
    assert all_plans.pop_refusal() is None
    assert kinds(all_plans, GET, GET) == ["504", None]
