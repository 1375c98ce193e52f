"""Entry point of the command line: `agentjobs`, or `python -m agentjobs_async`."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from agentjobs_async._extras import MissingExtraError, extra_named

_USAGE: Final = 2  # exit code
_INTERRUPTED: Final = 128 + signal.SIGINT  # exit code, as shells count


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The arguments after the program's name; `None` takes those of the process.
    """
    try:
        with _quiet_interrupts(), extra_named("agentjobs"):
            from agentjobs_async.cli.main import run_command  # noqa: PLC0415 - the extra may not be installed

            return run_command(sys.argv[1:] if arguments is None else arguments)
    except MissingExtraError as error:
        with suppress(OSError, AttributeError):  # standard error may be closed, or on a full disk
            sys.stderr.write(f"{error}\n")
        return _USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """End the process without a traceback at Ctrl-C, inside of the block, if it would raise a KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield  # such as in the background, where a shell made the process ignore it
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(_INTERRUPTED)  # no KeyboardInterrupt: imports and finalizers would swallow or show it


if __name__ == "__main__":
    sys.exit(main())
