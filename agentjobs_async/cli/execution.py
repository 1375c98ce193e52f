"""Running one command's coroutine, whose every error becomes one line and an exit code."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from attrs import frozen

from agentjobs_async.cli.interruption import Interruption
from agentjobs_async.cli.outcomes import ExitCode, described, exit_code_of
from agentjobs_async.cli.screen import Screen
from agentjobs_async.cli.streams import leave

__all__ = ["Context", "executed"]


@frozen
class Context:
    """What every command's coroutine gets.

    Attributes:
        screen: Where it writes.
        interruption: Who may ask it to stop.
    """

    screen: Screen
    interruption: Interruption


def executed(action: Callable[[Context], Awaitable[int]]) -> int:
    """Run `action` on a loop of its own and give the exit code."""
    return asyncio.run(_executed(action))


async def _executed(action: Callable[[Context], Awaitable[int]]) -> int:
    with Interruption() as interruption:
        screen = Screen(lambda error: _output_failed(screen, interruption, error))
        try:
            code = await action(Context(screen, interruption))
        except Exception as error:  # noqa: BLE001 - a command's user gets one line, whatever it is
            screen.notice(("Error: ", "bold red"), described(error))
            code = exit_code_of(error)
        if interruption.exit_code is None:
            return code
    if threading.active_count() > 1:
        # A name lookup that hangs in its thread would hold up the end of the loop and of the process.
        leave(interruption.exit_code)
    return interruption.exit_code


def _output_failed(screen: Screen, interruption: Interruption, error: OSError) -> None:
    """Stop quietly when the reader left, as `head` does; say so when the output can't be written."""
    if isinstance(error, BrokenPipeError):
        interruption.ask(ExitCode.BROKEN_PIPE)
        return
    screen.notice(("Error: ", "bold red"), f"the output can't be written: {error.strerror}")
    interruption.ask(ExitCode.UNFINISHED)
