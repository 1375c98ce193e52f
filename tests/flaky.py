"""A pytest plugin of the gate: a test that failed is repeated once, alone, and the gate goes on if it passes then.

`pytest -p tests.flaky` prints `FLAKY` and the name of each such test. Nothing is repeated in a run with more than three
failures, with a crash, or with a test that was never run.
"""

import subprocess
import sys
from typing import Final

import pytest

_MOST: Final = 3  # more than these do not fail by chance
_STAGES: Final = {"setup", "call", "teardown"}  # elsewhere, a file has an error, or a process died


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Repeat the failed tests of a whole run; those that pass are counted as flaky, not as failed."""
    session = terminalreporter._session
    assert session is not None
    if exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldfail or session.shouldstop:
        return
    stats = terminalreporter.stats
    reports = [report for kind in stats.values() for report in kind if isinstance(report, pytest.TestReport)]
    failures = [report for kind in ("failed", "error") for report in stats.get(kind, ())]
    failed = {report.nodeid for report in failures}
    is_whole = len({report.nodeid for report in reports}) == session.testscollected
    if not is_whole or len(failed) > _MOST or any(report.when not in _STAGES for report in failures):
        return
    flaky = {name for name in sorted(failed) if _passes_alone(terminalreporter.config, name)}
    for kind in ("failed", "error"):
        ended = stats.pop(kind, [])
        stats.setdefault("flaky", []).extend(report for report in ended if report.nodeid in flaky)
        stats[kind] = [report for report in ended if report.nodeid not in flaky]
    for name in sorted(flaky):
        terminalreporter.write_line(f"FLAKY {name}")
    if flaky and flaky == failed:
        session.exitstatus = pytest.ExitCode.OK


def _passes_alone(config: pytest.Config, name: str) -> bool:
    """Return whether a test passes in a process of its own; one that skips there does not."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", f"no:{__name__}", name]
    done = subprocess.run(command, cwd=config.rootpath, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 - pytest itself
    sys.stdout.write(done.stdout)
    return done.returncode == 0 and done.stdout.splitlines()[-1].startswith("1 passed")
