import asyncio
import threading

import pytest

from agentjobs_async.cli import process as execution
from agentjobs_async.cli.process import Context, run_action
from tests.cli.checks import Captured


def test_exit_code_of_the_action() -> None:
    """What the action gives is the exit code."""

    async def action(context: Context) -> int:
        context.screen.line("done")
        return 1

    assert run_action(action) == 1


def test_bug(capsys: Captured) -> None:
    """An error that nobody foresaw is one line as well, no traceback."""

    async def action(context: Context) -> int:
        del context
        raise RuntimeError("a\nbug")

    assert run_action(action) == 4
    assert capsys.readouterr().err == "Error: RuntimeError: a\\nbug\n"


def test_interruption_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked to stop decides about the exit code, and the first one does."""
    monkeypatch.setattr(execution, "leave", lambda code: code)  # other tests' threads would end this process

    async def action(context: Context) -> int:
        context.interruption.ask(130)
        context.interruption.ask(143)
        return 0

    assert run_action(action) == 130


@pytest.mark.parametrize(("code", "words"), [(130, "Stopped.\n"), (141, "")])
def test_interruption_of_what_makes_no_end_of_itself(
    code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A command that does not end by itself is cancelled when it is asked to stop, and has then left its blocks."""
    monkeypatch.setattr(execution, "leave", lambda code: code)  # other tests' threads would end this process
    left = []

    async def action(context: Context) -> int:
        try:
            context.interruption.ask(code)
            await asyncio.Event().wait()
        finally:
            left.append(context)
        return 0

    assert run_action(action) == code
    assert len(left) == 1
    assert capsys.readouterr().err == words


def test_thread_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command doesn't wait for threads that are left."""
    codes: list[int] = []
    monkeypatch.setattr(execution, "leave", codes.append)
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
