"""Output whose reader may leave, as `head` does, or whose disk may be full."""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO, cast

__all__ = ["guarded", "leave", "silence"]


class _Guarded:
    """Hands on to a stream until it fails; says so once, and writes nothing more.

    No `io.TextIOBase`: that one would flush the stream, closed by then, when it is collected.
    """

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None]) -> None:
        self._stream = stream
        self._failed = failed
        self._broken = False

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str, /) -> int:
        if not self._broken:
            self._guard(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        if not self._broken:
            self._guard(self._stream.flush)

    def _guard(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            self._broken = True
            silence(self._stream)
            self._failed(error)


def guarded(stream: TextIO | None, failed: Callable[[OSError], None] = lambda _: None) -> TextIO:
    """Return a stream that never raises an `OSError`: at the first one it calls `failed` and falls silent.

    What the stream's encoding can't say is escaped. `None`, a process's closed stream, is silent from the start.
    """
    if stream is None:
        return io.StringIO()
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return cast("TextIO", _Guarded(stream, failed))  # it has all that rich and this package call


def silence(stream: TextIO) -> None:
    """Send to nowhere what is still buffered: else the interpreter complains of the broken stream at its end."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def leave(code: int) -> None:
    """End the process now, with all output written."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)
