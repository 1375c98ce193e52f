"""Ending a command early: by a signal, or because the reader of its output has left."""

import asyncio
import errno
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from attrs import frozen

from agentjobs_async._loop.signals import HANGUP, end_process, exit_code_of, stop_signals
from agentjobs_async.cli._output.columns import fitted
from agentjobs_async.cli._output.outcomes import ExitCode, described, exit_code, names_unrecorded
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli._output.streams import guarded, leave, without_commands

T = TypeVar("T")


class Interruption:
    """A block in which SIGINT, SIGTERM and SIGHUP request a stop; a second one ends the process at once.

    A SIGHUP that was ignored before stays ignored. It never counts as the second signal: when a terminal is closed, the
    system and the shell both send one, and service managers send one right after a SIGTERM.
    The first SIGTERM after a SIGHUP does not count either: the end of a login sends both.

    Attributes:
        exit_code: The exit code of the stopped command; `None` until a stop is requested.
        last_words: Called at the second signal, before the process ends: they restore the terminal, and show what is
            recorded nowhere else. They must not wait for anything.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self.last_words: list[Callable[[], object]] = []
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._before: dict[signal.Signals, Any] = {}
        self._working: asyncio.Future[Any] | None = None

    def __enter__(self) -> Self:
        # asyncio's add_signal_handler is missing on Windows.
        self._before = {number: signal.signal(number, self._received) for number in stop_signals()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ask(self, exit_code: int) -> None:
        """Request a stop; the first request sets the exit code."""
        if self.exit_code is None:
            self.exit_code = exit_code
            self._asked.set()
            if self._working is not None:
                self._working.cancel()

    def hang_up(self) -> None:
        """Request the stop of a SIGHUP, because the terminal is gone: the signal itself may come later.

        If SIGHUP is ignored, do nothing.
        """
        if HANGUP is not None and HANGUP in self._before:
            self.ask(exit_code_of(HANGUP))

    async def stop_requested(self) -> None:
        """Wait until a stop is requested."""
        self._working = None
        await self._asked.wait()

    async def over(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, which a stop cancels until it calls `run_until_stop`.

        Raises:
            CancelledError: A stop was requested before.
        """
        working = asyncio.ensure_future(work)
        self._working = working
        return await working

    async def run_until_stop(self, work: Awaitable[T], stop: Callable[[], Awaitable[object]]) -> T:
        """Return the result of `work`; call `stop`, which must end it, when a stop is requested."""
        self._working = None  # from here on the command ends by itself, and shows its results
        working = asyncio.ensure_future(work)
        asking = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({working, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await stop()
            return await working
        finally:
            asking.cancel()

    def _received(self, number: int, frame: FrameType | None) -> None:
        del frame
        for each in self._before:
            if each is HANGUP:
                signal.signal(each, signal.SIG_IGN)
            elif not (number == HANGUP and each is signal.SIGTERM):  # the end of a login sends both
                signal.signal(each, self._received_again)
        self._loop.call_soon_threadsafe(self.ask, exit_code_of(number))

    def _received_again(self, number: int, frame: FrameType | None) -> None:
        """End by the signal itself; this may interrupt any line of the program, a write in its middle too."""
        del frame
        for each in self._before:
            signal.signal(each, signal.SIG_IGN)  # a third one must not cut the last words off
        for words in self.last_words:
            with suppress(Exception):
                words()
        end_process(number)


@frozen
class Context:
    """What every command's coroutine is given.

    Attributes:
        screen: Where it writes.
        interruption: Its stop, once requested.
    """

    screen: Screen
    interruption: Interruption


def show_error(text: str) -> None:
    """Write to standard error without a screen, before or after all actions; it may be closed, or on a full disk."""
    stream = guarded(sys.stderr)
    lines = map(without_commands, fitted(text, stream).split("\n"))
    stream.write("".join(f"{line}\n" for line in lines))
    stream.flush()


def run_action(action: Callable[[Context], Awaitable[int]]) -> int:
    """Run `action` on an event loop of its own and return the exit code."""
    return asyncio.run(_run_action(action))


async def _run_action(action: Callable[[Context], Awaitable[int]]) -> int:
    with Interruption() as interruption:
        screen = Screen(lambda error: _output_failed(screen, interruption, error))
        interruption.last_words.append(screen.restore_terminal)
        try:
            code = await interruption.over(action(Context(screen, interruption)))
        except asyncio.CancelledError:
            if interruption.exit_code is None:
                raise
            code = interruption.exit_code
            if code != ExitCode.BROKEN_PIPE:
                screen.notice("Stopped.")
        except Exception as error:  # noqa: BLE001 - a command's user gets one line, whatever it is
            screen.notice(("Error: ", "bold red"), described(error))
            code = exit_code(error=error)
            if names_unrecorded(error):
                return code
        if interruption.exit_code is None:
            return code
    if threading.active_count() > 1:
        # A name lookup that hangs in its thread would hold up the end of the loop and of the process.
        leave(interruption.exit_code)
    return interruption.exit_code


def _output_failed(screen: Screen, interruption: Interruption, error: OSError) -> None:
    """Stop quietly when the reader or the terminal left; say so when the output can't be written."""
    if isinstance(error, BrokenPipeError):
        interruption.ask(ExitCode.BROKEN_PIPE)
        return
    if screen.is_terminal and error.errno == errno.EIO:
        interruption.hang_up()
        return
    screen.notice(("Error: ", "bold red"), f"the output can't be written: {error.strerror}")
    interruption.ask(ExitCode.UNFINISHED)
