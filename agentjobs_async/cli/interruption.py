"""Ending a command early: by a signal, or because nobody reads its output any more."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

__all__ = ["Interruption"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SIGNAL_BASE: Final = 128

T = TypeVar("T")


class Interruption:
    """A block in which SIGINT and SIGTERM only ask to stop; a second signal ends the process at once.

    Attributes:
        exit_code: What the command is to end with; `None` while nobody asked to stop.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # asyncio's add_signal_handler is missing on Windows.
        self._before = {number: signal.signal(number, self._received) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ask(self, exit_code: int) -> None:
        """Ask to stop; the first one who asks decides about the exit code."""
        if self.exit_code is None:
            self.exit_code = exit_code
            self._asked.set()

    async def asked(self) -> None:
        """Wait until somebody asks to stop."""
        await self._asked.wait()

    async def cuts(self, work: Awaitable[T], stop: Callable[[], Awaitable[object]]) -> T:
        """Give what `work` gives. When somebody asks to stop, `stop` is called, and has to make an end of `work`."""
        working = asyncio.ensure_future(work)
        asking = asyncio.ensure_future(self.asked())
        try:
            await asyncio.wait({working, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await stop()
            return await working
        finally:
            asking.cancel()

    def _received(self, number: int, frame: FrameType | None) -> None:
        del frame
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self._loop.call_soon_threadsafe(self.ask, _SIGNAL_BASE + number)
