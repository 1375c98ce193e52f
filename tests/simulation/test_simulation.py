"""Simulated worlds: fixed seeds, and what failed once. New seeds are searched by `.ci/run search` alone."""

from typing import Final

import pytest

from tests.simulation.activities import Batch, Calls, Durable, Program
from tests.simulation.cases import Case, explanation, run
from tests.simulation.draws.worlds import case_of
from tests.simulation.found import FOUND
from tests.simulation.interventions import Intervention
from tests.simulation.world import Fault

# Those of the first 190 whose worlds are short, and not without faults.
_SEEDS: Final = (
    *(1, 3, 5, 9, 11, 13, 14, 15, 16, 17, 20, 21, 22, 25, 28, 39, 45, 47, 50),
    *(54, 58, 59, 61, 63, 64, 66, 67, 68, 69, 71, 72, 80, 102, 103, 105, 106),
    *(107, 112, 113, 115, 116, 120, 122, 123, 124, 125, 128, 133, 136, 137),
    *(138, 139, 140, 142, 144, 146, 149, 151, 153, 154, 164, 168, 170, 174),
    *(175, 176, 177, 184),
)


@pytest.mark.parametrize("part", range(5))
def test_seeds(part: int) -> None:
    """No promise is broken in the worlds of these seeds."""
    for seed in _SEEDS[part::5]:
        case = case_of(seed, most=4)
        result = run(case)
        assert not result.violations, explanation(case, result)


def test_the_same_events_again() -> None:
    """A seed gives the same events each time, to the byte."""
    for seed in _SEEDS[::6]:
        assert run(case_of(seed, most=4)).trace == run(case_of(seed, most=4)).trace


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_found(case: Case) -> None:
    """What broke a promise once does so no more, though all of its faults still happen."""
    result = run(case)
    assert not result.violations, explanation(case, result)
    assert result.happened == set(case.faults), f"these do not happen: {set(case.faults) - result.happened}"


@pytest.mark.parametrize(("more", "creates"), [((), 2), ((Intervention(50.0, "retry", 2, "told"),), 3)])
def test_withdrawn(more: tuple[Intervention, ...], creates: int) -> None:
    """A durable job that is withdrawn while it waits for the rate is sent only if it is tried again, and told once."""
    interventions = (Intervention(5.0, "withdraw", 2, "given"), *more)
    durable = Durable(3, 0.0, 0.0, waits=False, rate=(1, 20.0, "all"), interventions=interventions)
    result = run(_case(2, durable))
    assert (result.violations, result.creates) == ((), creates)


@pytest.mark.parametrize("is_durable", [False, True])
def test_notified(monkeypatch: pytest.MonkeyPatch, *, is_durable: bool) -> None:
    """Notifications cause no burst of polls; the referee would see one."""
    notices = tuple(Intervention(seconds, "notify", item, "create") for seconds in (0.1, 0.2) for item in range(3))
    work = (
        Durable(3, 0.0, 0.0, waits=True, interventions=notices)
        if is_durable
        else Batch(3, 1, 3, 3, None, 600.0, 0.0, retries=False, changes=False, interventions=notices)
    )
    assert run(_case(2, work)).violations == ()
    monkeypatch.setattr("agentjobs_async._polling.scheduler._NOTIFY_EVERY_SECONDS", 0.0)
    assert "P13" in run(_case(2, work)).violations[0]


def _case(seed: int, activity: Batch | Durable) -> Case:
    return Case(seed, (Program("p0", (activity,), 20.0, 5, None),), ())


def test_explanation() -> None:
    """A failure is shown with its programs, its faults and the last events."""
    case = Case(7, (Program("p0", (Calls("wait", 1, 0.0, 60.0),), 5.0, 1, None),), (Fault("create", 1, "500", 1.0),))
    result = run(case)
    said = explanation(case, result)
    assert "Fault(where='create', at=1, what='500'" in said
    assert any("! create 1: 500 1" in line for line in said.splitlines())
