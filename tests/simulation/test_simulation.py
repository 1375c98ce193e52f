"""Simulated worlds: fixed seeds, and what failed once. New seeds are searched by `.ci/run search` alone."""

from typing import Final

import pytest

from tests.simulation.cases import Case, case_of, explanation, run
from tests.simulation.found import FOUND
from tests.simulation.ledger import Calls, Program
from tests.simulation.world import Fault

# Fifty whose worlds are short.
_SEEDS: Final = (
    *(50, 61, 63, 65, 67, 73, 81, 86, 91, 98, 100, 104, 105, 108, 109, 110, 115),
    *(128, 132, 133, 141, 142, 145, 148, 149, 153, 158, 164, 168, 169, 174, 175, 189),
    *(198, 199, 201, 203, 204, 205, 206, 211, 218, 222, 223, 224, 237, 242, 251, 254, 255),
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
