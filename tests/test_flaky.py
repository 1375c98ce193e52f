"""What the gate does with a test that fails: `tests/flaky.py`."""

import shutil
import sys
from pathlib import Path

import pytest

from tests import flaky

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

FAILS_ONCE = """
from pathlib import Path

def test_{name}():
    seen = Path("seen-{name}")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    """Run a file of tests with the plugin."""
    shutil.copy(Path(flaky.__file__), pytester.path / "flaky.py")
    pytester.makeini("[pytest]\naddopts = -p flaky -p xdist")
    pytester._monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_it=tests)
    return pytester.run(sys.executable, "-m", "pytest", "-q", *options)


def test_flaky_test(pytester: pytest.Pytester) -> None:
    """A test that fails, and passes when it is repeated, is named before the closing line, and the run succeeds."""
    ended = run(pytester, FAILS_ONCE.format(name="one") + "def test_other(): pass")
    assert ended.ret == 0
    assert ended.parseoutcomes() == {"flaky": 1, "passed": 1}
    assert ended.outlines[-2] == "FLAKY test_it.py::test_one"


def test_failing_test(pytester: pytest.Pytester) -> None:
    """A test that fails twice fails the run, whatever else is flaky."""
    ended = run(pytester, FAILS_ONCE.format(name="one") + "def test_other(): assert False")
    assert ended.ret == 1
    assert ended.parseoutcomes() == {"flaky": 1, "failed": 1}


def test_four_failing_tests(pytester: pytest.Pytester) -> None:
    """More than three failures are not repeated."""
    ended = run(pytester, "\n".join(FAILS_ONCE.format(name=name) for name in ("one", "two", "three", "four")))
    assert ended.ret == 1
    assert ended.parseoutcomes() == {"failed": 4}


def test_skipped_repetition(pytester: pytest.Pytester) -> None:
    """A test that fails, and skips when it is repeated, has failed: nothing shows that it can pass."""
    ended = run(pytester, "import pytest\n" + FAILS_ONCE.format(name="one") + "    pytest.skip()\n")
    assert ended.ret == 1
    assert ended.parseoutcomes() == {"failed": 1}


def test_crash(pytester: pytest.Pytester) -> None:
    """A process that dies fails the run, and so do the tests that were never run."""
    dies = FAILS_ONCE.format(name="one").replace("assert not first", "first and __import__('os')._exit(3)")
    for options in (["-n", "2"], ["-n", "2", "--max-worker-restart", "0"]):
        (pytester.path / "seen-one").unlink(missing_ok=True)
        ended = run(pytester, dies + "\n".join(f"def test_{number}(): pass" for number in range(20)), *options)
        assert ended.ret == 1
        assert ended.parseoutcomes()["failed"] == 1


def test_run_that_was_cut(pytester: pytest.Pytester) -> None:
    """A run that ended before its last test has failed, whatever a repetition would say."""
    ended = run(pytester, FAILS_ONCE.format(name="one") + "def test_other(): assert False", "-x")
    assert ended.ret != 0
    assert ended.parseoutcomes() == {"failed": 1}
