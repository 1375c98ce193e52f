"""Worlds whose programs leave before their work is done: by a signal, a draining, a cancellation, at each moment."""

from typing import Any

import pytest

from tests.simulation.activities import Batch, Calls, Durable, Leave, Program
from tests.simulation.cases import Case, explanation, run
from tests.simulation.programs.sources import KINDS
from tests.simulation.world import Fault


def _batch(count: int = 6, max_active: int = 2, max_sending: int = 2, **options: Any) -> Batch:
    return Batch(count, 1, max_active, max_sending, None, 600.0, 0.0, retries=False, changes=False, **options)


def _case(activity: Batch | Calls | Durable, *faults: Fault, leave: Leave | None = None, in_flight: int = 5) -> Case:
    return Case(5, (Program("p0", (activity,), 20.0, in_flight, None, leave),), faults)


def broken(case: Case) -> str:
    """Return what explains the promises that a world breaks; an empty text if it keeps them all."""
    result = run(case)
    return explanation(case, result) if result.violations else ""


@pytest.mark.parametrize("way", ["drain", "close", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    "activity",
    [
        _batch(),
        Durable(2, 0.0, 0.0, waits=True),
        Calls("wait", 4, 0.01, 1800.0),
        Calls("updates", 4, 0.01, 1800.0, stores=3.0),
        Calls("stream", 4, 0.0, 1800.0, source="endless"),
    ],
    ids=["batch", "durable", "waits", "stored", "stream"],
)
def test_ways(activity: Batch | Calls | Durable, way: Any) -> None:
    """Each way to leave ends all that is under way, and the journal has what was answered."""
    for after in (0.005, 0.03):
        case = _case(activity, leave=Leave(way, after=after, again="signal" if way == "SIGTERM" else ""))
        result = run(case)
        assert not result.violations, explanation(case, result)
        assert any("p0.1" in line and "ended" in line for line in result.trace) or "signal" in str(result.trace)


def test_replaced() -> None:
    """A program that is started again while it leaves waits for its journal, and continues with it."""
    leave = Leave("SIGTERM", after=0.01, replaced_after=0.0, handles=True)
    case = _case(_batch(), Fault("connection", 1, "slow", 3.0, "both"), leave=leave)
    result = run(case)
    assert not result.violations, explanation(case, result)
    assert any("p0.db.lock is locked" in line for line in result.trace)


def test_slow_disk() -> None:
    """A draining waits for a slow disk until the ids are recorded, and only then does the signal end the process."""
    slow = [Fault("commit", number, "slow", 1.0) for number in range(4, 12)]
    for after in (2.0, 3.0, 4.0, 5.0, 6.0):
        assert broken(_case(_batch(), *slow, leave=Leave("SIGTERM", after=after + 0.1, grace=0.05))) == ""


def test_queued_reads() -> None:
    """Reads that wait for their turn end together with the session."""
    for after in (0.2, 0.5):
        assert broken(_case(Calls("read", 30, 0.0, 600.0), leave=Leave("close", after=after), in_flight=1)) == ""


def test_busy_reader() -> None:
    """What a program does with a change of a job may outlast the session that told it."""
    for number in range(1, 8):
        case = _case(
            Calls("updates", 1, 0.0, 1800.0), Fault("call", number, "swallow", 12.0), leave=Leave("drain", after=0.6)
        )
        assert not broken(case), broken(case)


def test_break() -> None:
    """No create begins once the loop over the results of a batch was left, though an item is being claimed."""
    for slow, count in ((13, 2), (17, 1)):
        assert broken(_case(_batch(12, 6, breaks_after=count), Fault("commit", slow, "slow", 0.5))) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_sources(kind: str) -> None:
    """Sources that raise, are silent or never end keep neither a batch nor a stream from its end."""
    assert broken(_case(_batch(3, source=kind))) == ""
    assert broken(_case(Calls("stream", 3, 0.0, 1800.0, source=kind))) == ""
    assert broken(_case(_batch(3, source=kind), leave=Leave("drain", after=1.0))) == ""


def test_cancelled_recording() -> None:
    """A run that is cancelled while an id is recorded leaves the id in its journal, and does not report it as lost."""
    for number in (330, 345, 380, 400):
        assert broken(_case(_batch(4, 4, 4), Fault("event", number, "cancel"))) == ""


def test_cancelled_create() -> None:
    """A create that is cancelled at any moment tells its job, or that its outcome is unknown."""
    for number in range(10, 40):
        assert broken(_case(Calls("wait", 1, 0.0, 600.0), Fault("event", number, "cancel"))) == ""
