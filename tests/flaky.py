"""A pytest plugin of the gate: a test that failed is repeated once, alone, and the gate goes on if it passes then.

`pytest -p tests.flaky` prints `FLAKY` and the name of each such test. More than three failures are not repeated.
"""

import subprocess
import sys
from typing import Final

import pytest

_MOST: Final = 3  # more than these do not fail by chance


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Repeat the failed tests of a run that came to its end; those that pass are counted as flaky, not as failed."""
    session = terminalreporter._session
    assert session is not None
    if exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldfail or session.shouldstop:
        return
    stats = terminalreporter.stats
    failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())}
    if len(failed) > _MOST:
        return
    flaky = {name for name in sorted(failed) if _passes_alone(terminalreporter.config, name)}
    for kind in ("failed", "error"):
        reports = stats.pop(kind, [])
        stats.setdefault("flaky", []).extend(report for report in reports if report.nodeid in flaky)
        stats[kind] = [report for report in reports if report.nodeid not in flaky]
    for name in sorted(flaky):
        terminalreporter.write_line(f"FLAKY {name}")
    if flaky and flaky == failed:
        session.exitstatus = pytest.ExitCode.OK


def _passes_alone(config: pytest.Config, name: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", f"no:{__name__}", name]
    return subprocess.run(command, cwd=config.rootpath, check=False).returncode == 0  # noqa: S603 - pytest itself
