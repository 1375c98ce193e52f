"""Simulated worlds: fixed seeds, and what failed once. New seeds are searched by `.ci/run search` alone."""

from typing import Final

import pytest

from tests.simulation.cases import Case, case_of, explanation, run
from tests.simulation.found import FOUND
from tests.simulation.ledger import Calls, Program
from tests.simulation.world import Fault

# Fifty whose worlds are short.
_SEEDS: Final = (
    *(52, 54, 56, 63, 64, 65, 67, 69, 73, 77, 79, 80, 81, 83, 85, 86, 89),
    *(91, 93, 95, 96, 98, 100, 105, 106, 107, 108, 109, 110, 111, 112, 113, 116, 119),
    *(122, 125, 128, 129, 132, 133, 136, 138, 139, 142, 143, 144, 145, 146, 148, 149),
)


@pytest.mark.parametrize("part", range(5))
def test_seeds(part: int) -> None:
    """A seed gives the same events each time, to the byte, and no promise is broken in them."""
    for seed in _SEEDS[part::5]:
        case = case_of(seed, most=4)
        result = run(case)
        assert not result.violations, explanation(case, result)
        assert run(case).trace == result.trace


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_found(case: Case) -> None:
    """What broke a promise once does so no more, though all of its faults still happen."""
    result = run(case)
    assert not result.violations, explanation(case, result)
    assert result.happened == set(case.faults), f"these do not happen: {set(case.faults) - result.happened}"


def test_explanation() -> None:
    """A failure is shown with its programs, its faults and the last events."""
    case = Case(7, (Program("p0", (Calls("wait", 1, 0.0, 60.0),), 5.0, 1, None),), (Fault("create", 1, "500", 1.0),))
    result = run(case)
    said = explanation(case, result)
    assert "Fault(where='create', at=1, what='500'" in said
    assert any("! create 1: 500 1" in line for line in said.splitlines())
