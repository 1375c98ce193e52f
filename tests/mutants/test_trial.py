import pytest

from tests.checkout import ROOT
from tests.mutants.mutant import Mutant
from tests.mutants.run import are_enough, main
from tests.mutants.trial import Verdict, first_failed, summary, tried

pytestmark = pytest.mark.slow  # the tests of a copy, and a world of it, are processes of their own

IMPORT = "from math import inf\n"
API_KEY = "tests/http/test_api_key.py"
NONE = Verdict("none", None, None)
BY_SEARCH = Verdict("by-search", "seed 1, after 2 s: P1: two agents", None)
BY_TEST = Verdict("by-test", None, "tests/test_a.py::test_b")
BY_BOTH = Verdict("by-both", BY_SEARCH.search, BY_TEST.test)


def test_a_fault_is_found_in_a_copy() -> None:
    """A fault is found by worlds and by its room's tests, in a copy: the checkout stays as it is."""
    module = ROOT / "agentjobs_async/_http/api_key.py"
    before = module.read_text()
    fault = Mutant("no-key", "_http/api_key.py", 'replace("{key}"', 'replace("{kee}"', "No.", (API_KEY,))
    verdict = tried(fault, 1.0)
    assert verdict.search is not None
    assert "seed 1, after" in verdict.search
    assert verdict.test is not None
    assert verdict.test.startswith(f"{API_KEY}::")
    assert module.read_text() == before


def test_a_fault_that_no_test_can_see() -> None:
    """A fault of a module that its tests do not use is found by none."""
    fault = Mutant("unseen", "_text.py", IMPORT, f"{IMPORT}import sys\n", "No.", ("tests/loop/test_wheel.py",))
    assert not tried(fault, 0.0).is_found


def test_tests_that_can_not_run() -> None:
    """A fault with which its tests can't be imported is an error, and not found."""
    with pytest.raises(RuntimeError, match="can't run"):
        tried(Mutant("broken", "_text.py", IMPORT, "import gone\n", "No.", ("tests/test_text.py",)), 0.0)


def test_a_fault_whose_text_is_gone() -> None:
    """A fault is not tried whose text is not there."""
    with pytest.raises(ValueError, match="0 times"):
        tried(Mutant("gone", "_text.py", "import gone\n", IMPORT, "No.", (API_KEY,)), 0.0)


def test_what_is_printed() -> None:
    """Each fault is printed with what found it, and the summary names those that nothing found."""
    assert [str(one) for one in (NONE, BY_SEARCH, BY_TEST, BY_BOTH)] == [
        "none: found by NONE",
        "by-search: found by search (seed 1, after 2 s: P1: two agents)",
        "by-test: found by test (tests/test_a.py::test_b)",
        "by-both: found by search (seed 1, after 2 s: P1: two agents) and by test (tests/test_a.py::test_b)",
    ]
    figures = "4 faults: 2 found by search, 2 by tests, 1 of these by both; 1 by none: none"
    assert summary([NONE, BY_SEARCH, BY_TEST, BY_BOTH]) == figures
    assert summary([BY_BOTH]).endswith("; 0 by none")


def test_enough() -> None:
    """Of thirty faults two may be found by nothing; of one, none."""
    assert are_enough([BY_TEST] * 28 + [NONE] * 2)
    assert not are_enough([BY_TEST] * 27 + [NONE] * 3)
    assert not are_enough([NONE])


def test_which_test_failed() -> None:
    """The first test or file that pytest names as failed is read from its summary."""
    assert (
        first_failed("..F\nFAILED tests/a.py::test_b[an id] - assert 1 == 2\n1 failed") == "tests/a.py::test_b[an id]"
    )
    assert first_failed("ERROR tests/a.py\n") == "tests/a.py"
    assert first_failed("ERROR    asyncio:base_events.py:1 no\nFAILED tests/a.py::test_b - no") == "tests/a.py::test_b"
    assert first_failed("3 passed in 1 s") is None


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that is not in the catalogue is an error of the command."""
    with pytest.raises(SystemExit):
        main(["--only", "no-such-fault"])
    assert "no-such-fault" in capsys.readouterr().err
