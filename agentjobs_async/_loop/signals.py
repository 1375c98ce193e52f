"""The signals that ask a process to stop, and the end of a process by one of them."""

import os
import signal
from typing import Final, NoReturn

HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""Of a terminal that is closed, or a connection that is lost; Windows has none."""

_SIGNAL_BASE: Final = 128  # as shells count


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM, and SIGHUP unless the process ignores it now, as `nohup` makes it do."""
    if HANGUP is None or signal.getsignal(HANGUP) is signal.SIG_IGN:
        return signal.SIGINT, signal.SIGTERM
    return signal.SIGINT, signal.SIGTERM, HANGUP


def exit_code_of(number: int) -> int:
    """Return the exit code of a process that a signal has ended."""
    return _SIGNAL_BASE + number


def end_process(number: int) -> NoReturn:
    """End this process by a signal, without finalizers. Call it in the main thread.

    As process 1, of a container say, which the system protects from its own signals, it ends with the exit code.
    """
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(exit_code_of(number))
