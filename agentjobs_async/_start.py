"""The start of the command line: Ctrl-C ends it without a traceback, and no collections slow its imports.

The package imports it first, since `python -m agentjobs_async` and the script `agentjobs` import the package before a
line of their own runs. In any other program it does nothing.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

__all__ = ["INTERRUPTED", "collect_garbage", "quiet_interrupts"]

_SCRIPTS: Final = frozenset({"agentjobs", "agentjobs.exe"})
INTERRUPTED: Final = 128 + signal.SIGINT  # the exit code, as shells count


def _quiet_start() -> None:
    """If this is the command line, collect no garbage yet, and end without a traceback at Ctrl-C."""
    if _is_command_line():
        gc.disable()  # imports make many objects and no garbage; `collect_garbage` enables it
        if _can_be_set():
            signal.signal(signal.SIGINT, _end)


def collect_garbage() -> None:
    """Collect garbage from here on, if `_quiet_start` has put it off; what was imported until now is left out of it."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """End the process without a traceback at Ctrl-C, inside of the block."""
    if not _can_be_set():
        yield
        return
    before = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_command_line() -> bool:
    if sys.argv[:1] == ["-m"]:  # the value while Python still looks for the module
        return ("-m", "agentjobs_async") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return bool(sys.argv) and Path(sys.argv[0]).name in _SCRIPTS


def _can_be_set() -> bool:
    """Return whether Ctrl-C would raise a KeyboardInterrupt here; a program in the background may ignore it."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) in {
        signal.default_int_handler,
        _end,
    }


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(INTERRUPTED)  # no KeyboardInterrupt: imports and finalizers would swallow or show it


_quiet_start()
