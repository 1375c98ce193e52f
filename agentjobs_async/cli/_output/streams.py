"""Output streams that may fail: the reader has gone, as `head` does, or the disk is full.

In the log of GitHub Actions they are read for commands, such as `::add-mask::x` or `##[error]x`: no key, prompt or
error may be able to give one.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Final, TextIO, cast

# The first kind begins a line, after any blanks; the second stands anywhere in it.
_COMMAND: Final = re.compile(r"^(?P<blanks>\s*):(?=:)|#(?=#\[)")


class _Guarded:
    """Writes to a stream until it fails; then reports the error once and writes nothing more.

    It is no `io.TextIOBase`, which would flush the stream, closed by then, when it is collected.
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

    def writelines(self, texts: Iterable[str], /) -> None:
        for text in texts:
            self.write(text)

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
    """Return a stream that never raises `OSError`: at the first one it calls `failed`, and discards all further output.

    Characters that the stream's encoding lacks are escaped. For `None`, the closed stream of a process, all output is
    discarded.
    """
    if stream is None:
        return io.StringIO()
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return cast("TextIO", _Guarded(stream, failed))  # it has all that rich and this package call


def silence(stream: TextIO) -> None:
    """Redirect a stream to the null device: the interpreter flushes it at exit, and would report a broken one."""
    with contextlib.suppress(OSError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)


def leave(code: int) -> None:
    """Flush the output and end the process at once, without finalizers."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)


def is_on_github() -> bool:
    """Return whether the output is the log of a step of GitHub Actions."""
    return bool(os.environ.get("GITHUB_ACTIONS"))


def without_commands(line: str) -> str:
    """Return a line that is no command: on GitHub Actions the first sign of one is escaped, as `repr` would."""
    if ("::" not in line and "##[" not in line) or not is_on_github():  # nearly every line, and this is the quick way
        return line
    return _COMMAND.sub(lambda found: "\\x23" if found["blanks"] is None else f"{found['blanks']}\\x3a", line)


def without_commands_in_json(line: str) -> str:
    """Return a line of JSON objects, which read the same, without a command: JSON has `##` in strings only."""
    return line.replace("##[", "#\\u0023[") if is_on_github() else line
