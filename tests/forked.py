"""Python processes that start at once: forked from one that has imported what the command line needs.

A start of its own takes such a process half a second of CPU. What a test says about starting, about Python's options or
about closed streams needs one nevertheless: `subprocess` runs it.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

__all__ = ["ForkedProcess"]

_ROOT: Final = Path(__file__).parents[1]
_MAX_MESSAGE_BYTES: Final = 128 * 1024
_DESCRIPTORS: Final = 4  # standard input, output, error, and the socket on which the end is told
_IMPORTED: Final = (
    *("agentjobs_async.cli.commands", "agentjobs_async.batch", "agentjobs_async.engines.procrastinate"),
    *("agentjobs_async.testing", "agentjobs_async.learning", "agentjobs_async.report.html"),
    *("agentjobs_async.report.live.app", "sqlalchemy.dialects.postgresql", "sqlalchemy.ext.asyncio"),
    *("rich.live", "rich.progress", "rich.markup", "encodings.idna"),
)
"""What commands import, some of it only when they need it. Not `agentjobs_async.__main__`, which the child runs."""


class ForkedProcess:
    """`python -W error COMMAND` with these standard streams, as far as `subprocess.Popen` has the same names.

    Args:
        command: `-m` and a module, or `-c` and a program, and the arguments of either.
        env: Its environment.
        streams: The descriptors of its standard input, output and error.

    Attributes:
        pid: Its process id.
        returncode: Its exit code; minus the number of the signal that ended it; `None` until `poll` or `wait` saw that.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], streams: tuple[int, int, int]) -> None:
        self.returncode: int | None = None
        self._ended, theirs = socket.socketpair()
        with theirs:
            request = json.dumps({"command": [*command], "env": dict(env), "folder": os.getcwd()})  # noqa: PTH109 - text
            socket.send_fds(_parent(), [request.encode()], [*streams, theirs.fileno()])
        self.pid = int(self._line())

    def poll(self) -> int | None:
        """Return the exit code, or `None` while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        if self.returncode is None:
            self.returncode = int(self._line())
            self._ended.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._ended.recv(1)
            assert piece, "the parent of forked processes has ended"
            line += piece
        return line.decode()


@cache
def _parent() -> socket.socket:
    """Start the process from which all of this test process are forked; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        program = [sys.executable, "-W", "error", "-m", "tests.forked", str(theirs.fileno())]
        parent = subprocess.Popen(  # noqa: S603 - our own program
            program, cwd=_ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )

    def end() -> None:
        ours.close()
        parent.wait()

    atexit.register(end)
    return ours


# From here on the process that forks.


def _forked(control: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request, and tell its end. Return the request in the child, and `None` here at the end."""
    running: dict[int, socket.socket] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ends(running)
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, _MAX_MESSAGE_BYTES, _DESCRIPTORS)
            if not message:
                return None
            *streams, status = descriptors
            ended = socket.socket(fileno=status)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                for left in (ended, *running.values()):
                    left.close()
                for descriptor in (woken, wakes):
                    os.close(descriptor)
                _take_streams(streams)
                request: dict[str, Any] = json.loads(message)
                return request
            for descriptor in streams:
                os.close(descriptor)
            running[child] = ended
            ended.sendall(b"%d\n" % child)


def _tell_ends(running: dict[int, socket.socket]) -> None:
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with running.pop(child) as ended:
            ended.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _take_streams(descriptors: Sequence[int]) -> None:
    """Make these the standard streams, as Python makes them at its start."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    streams = {
        "stdin": open(0, encoding="utf-8", closefd=False),  # noqa: SIM115 - open for as long as it runs
        "stdout": open(1, "w", 1 if os.isatty(1) else -1, "utf-8", closefd=False),  # noqa: SIM115 - as above
        "stderr": open(2, "w", 1, "utf-8", "backslashreplace", closefd=False),  # noqa: SIM115 - as above
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _program(request: dict[str, Any]) -> Callable[[], object]:
    """Return the program of a request, in whose environment this process is from here on."""
    for number, handler in ((signal.SIGCHLD, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    option, program, *arguments = request["command"]
    sys.argv = [program if option == "-m" else option, *arguments]
    if option == "-m":
        return lambda: runpy.run_module(program, run_name="__main__", alter_sys=True)
    return lambda: exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own program


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        request = _forked(control)
    if request is not None:
        _program(request)()
