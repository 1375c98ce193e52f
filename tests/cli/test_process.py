import asyncio
import threading

import pytest

from agentjobs_async import JobRef, JournalError
from agentjobs_async.cli import process
from agentjobs_async.cli.process import Context, run_action
from tests.cli.checks import Captured


def test_exit_code_of_the_action(capsys: Captured) -> None:
    """What the action returns is the exit code; an error that nobody foresaw is one line as well, no traceback."""

    async def action(context: Context) -> int:
        context.screen.line("done")
        return 1

    async def bug(_: Context) -> int:
        raise RuntimeError("a\nbug")

    assert run_action(action) == 1
    assert run_action(bug) == 4
    assert capsys.readouterr() == ("done\n", "Error: RuntimeError: a\\nbug\n")


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which the process would have been left: other tests' threads would end this one."""
    codes: list[int] = []
    monkeypatch.setattr(process, "leave", codes.append)
    return codes


@pytest.mark.usefixtures("codes")
def test_interruption_wins(capsys: Captured) -> None:
    """Who asks first to stop decides about the exit code; what does not end by itself is cancelled, and cleans up."""
    left: list[int] = []

    async def action(context: Context) -> int:
        context.interruption.ask(130)
        context.interruption.ask(143)
        return 0

    async def endless(context: Context) -> int:
        try:
            context.interruption.ask(code)
            await asyncio.Event().wait()
        finally:
            left.append(code)
        return 0

    for code, words in ((130, "Stopped.\n"), (141, "")):
        assert run_action(endless) == code
        assert capsys.readouterr().err == words
    assert left == [130, 141]
    assert run_action(action) == 130


@pytest.mark.usefixtures("codes")
def test_unrecorded_jobs_win(capsys: Captured) -> None:
    """A command that a signal has stopped, and that names jobs which no journal has, ends with 4."""

    async def action(context: Context) -> int:
        context.interruption.ask(143)
        raise JournalError("the disk is full", "io", (JobRef("docs", "job_1"),))

    assert run_action(action) == 4
    assert capsys.readouterr().err.startswith("Error: the disk is full")


def test_thread_that_hangs(codes: list[int]) -> None:
    """An interrupted command doesn't wait for threads that are left."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()

    async def action(context: Context) -> int:
        context.interruption.ask(130)
        return 0

    assert run_action(action) == 130
    release.set()
    thread.join()
    assert codes == [130]
