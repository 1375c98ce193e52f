"""Which signals stop a process, and how it ends by one of them."""

import signal
import subprocess
import sys

from agentjobs_async._loop.signals import exit_code_of, stop_signals
from tests.first_process import run_first

ENDING = "import signal; from agentjobs_async._loop.signals import end_process; end_process(signal.SIGTERM)"


def test_an_ignored_hangup_does_not_stop() -> None:
    """SIGHUP stops a process unless it is ignored, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_exit_codes() -> None:
    """The exit code of a signal is the one that shells show."""
    assert [exit_code_of(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)] == [129, 130, 143]


def test_end_by_a_signal() -> None:
    """A process ends by the signal itself; as process 1, which no own signal ends, with its exit code."""
    assert subprocess.run([sys.executable, "-c", ENDING], check=False).returncode == -signal.SIGTERM  # noqa: S603 - our own program
    assert run_first(sys.executable, "-c", ENDING).returncode == 143
