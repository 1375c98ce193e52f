"""Two worlds of real processes. New seeds are searched by `.ci/run search --postgresql` alone."""

from pathlib import Path

import pytest

from tests.postgresql import Server
from tests.simulation.postgresql.command import explanation, run_plan
from tests.simulation.postgresql.plan import plan_of
from tests.simulation.postgresql.world import prepare

pytestmark = pytest.mark.slow


def test_plans() -> None:
    """A seed decides the same each time; all kinds of programs and troubles, and all that a person does, come soon."""
    plans = [plan_of(seed) for seed in range(50)]
    assert plans == [plan_of(seed) for seed in range(50)]
    assert {program.kind for plan in plans for program in plan.programs} == {"batch", "worker", "durable"}
    troubles = {trouble.what for plan in plans for trouble in plan.troubles}
    assert troubles == {"kill", "terminate", "stop", "cut"}
    actions = {action.what for plan in plans for action in plan.actions}
    assert actions == {"abandon", "retry", "resolve", "resolve wrongly", "send again"}


@pytest.mark.parametrize("seed", [15, 61])
def test_seed(postgresql: Server, seed: int, tmp_path: Path) -> None:
    """Processes that share a journal keep all promises, though they are killed, stopped and cut off."""
    plan = plan_of(seed)
    prepare()
    with postgresql.database() as location:
        result = run_plan(plan, location, tmp_path)
    assert not result.violations, explanation(result, tmp_path)
    assert {one.what for one in result.records.happened} >= {one.what for one in plan.troubles}
    assert "programs:\n  Program(name='p0'" in explanation(result, tmp_path)
