"""Worlds whose service honours idempotency keys, or whose keys change at a chosen moment."""

from tests.simulation.activities import Calls, Program
from tests.simulation.agreement import Agreement
from tests.simulation.cases import Case, explanation, run
from tests.simulation.world import Fault

_HONOURS = Agreement(idempotency_header="Idempotency-Key")
_CHANGES = Agreement(idempotency_header="Idempotency-Key", key="plain")


def _creates(agreement: Agreement, *faults: Fault) -> list[str]:
    """Return what became of each create, in a world of six jobs, whose promises were all kept."""
    case = Case(1, (Program("p0", (Calls("wait", 6, 0.0, 1800.0),), 5.0, 5, None),), faults, agreement)
    result = run(case)
    assert not result.violations, explanation(case, result)
    return [line.partition("create ")[2] for line in result.trace if "service: create" in line]


def test_repeated() -> None:
    """A create whose outcome is unknown is sent again with its key, and gets the job of the first try."""
    found = _creates(_HONOURS, Fault("create", 1, "504", 1.0, "seconds 30"))
    assert [line.split()[1] for line in found] == ["504", *["200"] * 6]


def test_another_api_key() -> None:
    """A create whose outcome is unknown is not sent again once the API key was replaced."""
    found = _creates(_CHANGES, Fault("create", 1, "504", 1.0, "seconds 30"), Fault("time", 10, "new key"))
    assert [line.split()[1] for line in found] == ["504", *["200"] * 5]


def test_refused_key() -> None:
    """A create that was refused with an old key is sent again with the new one."""
    found = _creates(Agreement(key="async"), Fault("create", 1, "429", 0.0, "seconds 30"), Fault("time", 10, "new key"))
    assert sorted({line.split()[1] for line in found}) == ["200", "429"]
