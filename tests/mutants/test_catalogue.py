from pathlib import Path

from attrs import evolve

from tests.mutants.catalogue import MUTANTS, problems
from tests.mutants.mutant import Mutant

MODULE = "policy.py"
ROOM = "tests/test_policy.py"


def fault(there: str, instead: str) -> Mutant:
    return Mutant("a-fault", MODULE, there, instead, "Harm.", (ROOM,))


def checkout(folder: Path, code: str) -> Path:
    (folder / "agentjobs_async").mkdir()
    (folder / "agentjobs_async" / MODULE).write_text(code)
    (folder / "tests").mkdir()
    (folder / ROOM).touch()
    return folder


def test_all_faults_can_be_made() -> None:
    """The text of each fault is in its module, once: who rewrites the code moves the fault along."""
    assert problems() == []


def test_faults_in_all_rooms_that_act() -> None:
    """There are faults in each room that sends, waits, records or tells."""
    rooms = {one.module.partition("/")[0] for one in MUTANTS}
    assert rooms >= {"_http", "_loop", "_polling", "batch", "cli", "durable", "learning", "telemetry", "web"}


def test_each_says_what_a_user_would_suffer() -> None:
    """The harm of each fault is a sentence."""
    assert [one.name for one in MUTANTS if not (one.harm[0].isupper() and one.harm.endswith("."))] == []


def test_what_is_wrong_with_a_fault(tmp_path: Path) -> None:
    """A fault is refused whose module, text or tests are gone, whose text is there twice, or that changes nothing."""
    code = checkout(tmp_path, "a = 1\nb = 1\nc = 2\n")
    good = fault("a = 1", "a = 2")
    assert problems((good,), code) == []
    bad = {
        "no module": evolve(good, module="gone.py"),
        "0 times": fault("a = 3", "a = 4"),
        "2 times": fault("= 1", "= 2"),
        "no Python": fault("a = 1", "a = "),
        "the same": fault("a = 1", "a = 1"),
        "no tests": evolve(good, tests=("tests/gone",)),
    }
    for words, one in bad.items():
        (problem,) = problems((one,), code)
        assert words in problem
    (twice,) = problems((good, fault("c = 2", "c = 3")), code)
    assert "2 faults" in twice


def test_tests_of_a_room() -> None:
    """A fault that names no tests is tested by those of its module's room."""
    one = Mutant("a-fault", "_polling/wait.py", "", "", "Harm.")
    assert one.places == ("tests/polling",)
    assert evolve(one, module="session.py").places == ("tests/test_session.py",)
    assert evolve(one, tests=("tests/contract",)).places == ("tests/contract",)
