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
from agentjobs_async._loop.signals import exit_code_of, stop_signals

_USAGE: Final = 2  # exit code
_DEFAULTS: Final = (signal.SIG_DFL, signal.default_int_handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The arguments after the program's name; `None` takes those of the process.
    """
    try:
        with _ended_by_signals(), extra_named("agentjobs"):
            from agentjobs_async.cli.main import run_command  # noqa: PLC0415 - the extra may not be installed

            return run_command(sys.argv[1:] if arguments is None else arguments)
    except MissingExtraError as error:
        with suppress(OSError, AttributeError):  # standard error may be closed, or on a full disk
            sys.stderr.write(f"{error}\n")
        return _USAGE
    except KeyboardInterrupt:
        return exit_code_of(signal.SIGINT)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the process at a signal inside of the block, where nobody has put a handler of his own.

    It ends without a traceback at Ctrl-C, and as process 1 of a container too, for which the system would drop a
    SIGTERM that has no handler: what was to be stopped would then be started. A signal that is ignored stays so, such
    as Ctrl-C in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in stop_signals()}
    unhandled = {number: handler for number, handler in before.items() if handler in _DEFAULTS}
    for number in unhandled:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in unhandled.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    os._exit(exit_code_of(number))  # no KeyboardInterrupt: imports and finalizers would swallow or show it


if __name__ == "__main__":
    sys.exit(main())
