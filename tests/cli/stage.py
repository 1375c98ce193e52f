"""An emulator on a thread, and the command line in a child process or on a terminal."""

import asyncio
import codecs
import ctypes
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from agentjobs_async import policy
from agentjobs_async.batch import Journal, Limits, State
from agentjobs_async.batch import journal as journals
from agentjobs_async.batch._run import tasks as run_tasks
from agentjobs_async.batch._store import heartbeat
from agentjobs_async.cli import display, hooks
from agentjobs_async.cli._input import service
from agentjobs_async.testing import Emulator, JobScript, ReceivedRequest
from tests.forked import Forked, run_module, run_program
from tests.until import PATIENCE_SECONDS, until

ROOT = Path(__file__).parents[2]
POLL_SECONDS = 0.1
"""Between two polls, in place of the usual three seconds: what tests are about is not when a job is polled."""
LEAVING_SECONDS = 10.0
"""For which a child that ends waits for its journal: longer than the machine may stall."""
CAPABILITIES_VERSION = 0x20080522
CAP_DAC_OVERRIDE = 1


def without_power() -> None:
    """Remove the right to write where permissions forbid it, which root has, from this process."""
    libc, of_this_process = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    capabilities = (ctypes.c_uint32 * 6)()
    assert libc.capget(of_this_process, capabilities) == 0
    for kind in (0, 1):  # effective, permitted
        capabilities[kind] &= ~(1 << CAP_DAC_OVERRIDE)
    assert libc.capset(of_this_process, capabilities) == 0


def endless_planning() -> None:
    """Let the planning of a run stand still after its second page."""
    journal, pages = cast("Any", Journal), []
    add = journal.add

    async def add_two_pages(*arguments: object, **settings: object) -> object:
        pages.append(arguments)
        if len(pages) > 2:
            await asyncio.Event().wait()
        return await add(*arguments, **settings)

    journal.add = add_two_pages


def endless_opening() -> None:
    """Let a run stand still once it has made its journal."""
    journal = cast("Any", Journal)
    enter = journal.__aenter__

    async def made(opened: object) -> None:
        await enter(opened)
        print("made", flush=True)  # noqa: T201 - to the test
        await asyncio.Event().wait()

    journal.__aenter__ = made


def lasting_emulator() -> None:
    """Let the jobs of `--emulator` not end before the test is done."""
    cast("Any", service)._SPEED = 1e-6


def impatience() -> None:
    """Let a server that does not answer be shown at once."""
    hooks._SILENCE_SECONDS = 0.0


def own_terminal() -> None:
    """Make standard output the terminal of this process, which gets SIGHUP when its other side is closed."""
    os.setsid()
    fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSCTTY, 0)


def own_terminal_under_nohup() -> None:
    """Do the same in a process that ignores SIGHUP from its start on."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    own_terminal()


def stop_before_the_view() -> None:
    """Let the live view begin only once a job is created, and SIGTERM come right then."""
    shown = cast("Any", display)  # which imports it
    queue = shown.longest_queue

    async def late(journal: Journal, limits: Limits, counts: Mapping[State, int]) -> int:
        shown.longest_queue = queue
        while not (await journal.counts())[State.ACTIVE]:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        return cast("int", await queue(journal, limits, counts))

    shown.longest_queue = late


def hanging_lookup() -> None:
    """Let every name lookup hang in its thread."""

    def hang(*_arguments: object, **_options: object) -> None:
        print("looking up", flush=True)  # noqa: T201 - to the test
        threading.Event().wait()

    cast("Any", socket).getaddrinfo = hang


class EmulatorThread:
    """An emulator on a thread, so that commands may run their loop in the test's thread."""

    def __enter__(self) -> Self:
        self._running = Emulator.in_thread(script=JobScript(duration=0))
        self.emulator = self._running.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, traceback)

    def live(self, outcome: Any = "completed", duration: float = 0, **script: Any) -> None:
        """Script the jobs of a `prompt`, or all."""
        prompt = script.pop("prompt", None)
        self.emulator.script(JobScript(outcome=outcome, duration=duration, **script), prompt=prompt)

    def inject(self, plan: str, **target: str) -> None:
        self.emulator.call(self.emulator.inject(plan, **target))

    def complete(self, **target: str) -> None:
        """Let jobs be completed from now on: none ends before its test wants it to."""
        self.inject("document status=completed forever on=get", **target)

    def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        self._wait_until(lambda requests: len(requests) >= count)

    def wait_for_agents(self, count: int) -> None:
        """Wait until so many agents were started."""
        self._wait_until(lambda _requests: self.emulator.agents_started.total() >= count)

    def wait_for_polls(self, jobs: int) -> None:
        """Wait until so many jobs have been polled: each is in the journal before its first poll."""
        self._wait_until(lambda requests: len({request.job_id for request in requests} - {None}) >= jobs)

    def _wait_until(self, condition: Callable[[Sequence[ReceivedRequest]], bool]) -> None:
        self.emulator.call(until(lambda: condition(self.emulator.requests)))

    @property
    def job_ids(self) -> tuple[str, ...]:
        """The ids of the jobs, in the order of creation."""
        return tuple(self.emulator.jobs)

    @property
    def environment(self) -> dict[str, str]:
        return self.emulator.environment("docs")


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment of a child: nothing of ours that the machine may have set, but `extra`; empty is unset."""
    foreign = ("AGENTJOBS_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    wanted = {**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **extra}
    return {name: value for name, value in wanted.items() if value or name != "TERM"}


def _work(before: Callable[[], object] | None, work: Callable[..., object], *arguments: str) -> None:
    type(policy.DEFAULT_WAIT).__call__ = lambda _wait, _state: POLL_SECONDS  # type: ignore[assignment]  # of this process
    for module, name in (
        *((run_tasks, "_SETTLING_SECONDS"), (run_tasks, "_CANCELLED_SECONDS")),
        *((journals, "_CLOSING_SECONDS"), (journals, "_CANCELLED_SECONDS"), (heartbeat, "_PARTING_SECONDS")),
    ):
        setattr(module, name, LEAVING_SECONDS)
    if before is not None:
        before()
    work(*arguments)


class Child:
    """`python -W error -m agentjobs_async ARGUMENTS` with pipes, or with `terminal`, whose output is all on stdout.

    Args:
        command: Another command of Python. If it begins with `-W error`, the child is forked from a process that has
            imported what it needs.
        before: What the child does first; if it is `fresh`, before it becomes Python.
        fresh: Whether it is not forked either way: for tests of starting, and of Python's own streams.
    """

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] = {},
        terminal: bool = False,
        command: Sequence[str] = ("-W", "error", "-m", "agentjobs_async"),
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        columns: int = 80,
        before: Callable[[], object] | None = None,
        fresh: bool = False,
    ) -> None:
        self._out: int | None
        self._error: int | None = None
        if terminal:
            self._out, out = pty.openpty()
            fcntl.ioctl(out, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            error = os.dup(out)
        else:
            self._out, out = os.pipe() if stdout is None else (None, stdout)
            self._error, error = os.pipe() if stderr is None else (None, stderr)
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams = (nothing if stdin is None else stdin, out, error)
        self.process: Forked | subprocess.Popen[bytes]
        if fresh or tuple(command[:2]) != ("-W", "error"):
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *command, *arguments],
                stdin=streams[0],
                stdout=out,
                stderr=error,
                env=environment(env),
                preexec_fn=before,  # noqa: PLW1509 - it starts no thread
            )
        else:
            work = run_module if command[2] == "-m" else run_program
            self.process = Forked(_work, before, work, *command[3:], *arguments, env=environment(env), streams=streams)
        for used in (nothing, out, error):
            os.close(used)
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {read: decoder() for read in (self._out, self._error) if read is not None}
        self._watchdog = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        self._watchdog.start()
        self.stdout = ""
        self.stderr = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        for descriptor in (self._out, self._error):
            if descriptor is not None:
                os.close(descriptor)

    def until(self, text: str) -> Self:
        """Read standard output until `text` is in it."""
        assert self._out is not None
        while text not in self.stdout:
            piece = self._read(self._out)
            assert piece, f"it ended without {text!r}: {self.stdout}{self.stderr}"
            self.stdout += piece
        return self

    def until_error(self, text: str) -> Self:
        """Read standard error until `text` is in it."""
        assert self._error is not None
        while text not in self.stderr:
            piece = self._read(self._error)
            assert piece, f"it ended without {text!r}: {self.stderr}"
            self.stderr += piece
        return self

    def send(self, number: signal.Signals) -> Self:
        self.process.send_signal(number)
        return self

    def resize(self, lines: int, columns: int) -> Self:
        """Change the size of the terminal."""
        assert self._out is not None
        fcntl.ioctl(self._out, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        return self

    def close_stdout(self) -> None:
        """Stop reading standard output, as `head` does; or close the terminal."""
        assert self._out is not None
        os.close(self._out)
        self._out = None

    def ended(self) -> int:
        """Read all that is left, and give the exit code."""
        while self._out is not None and (piece := self._read(self._out)):
            self.stdout += piece
        while self._error is not None and (piece := self._read(self._error)):
            self.stderr += piece
        return self.process.wait()

    def _read(self, descriptor: int) -> str:
        """Read what has come, at least one character; nothing at the end."""
        text, data = "", b"a piece"
        while data and not text:  # a piece may end amid a character
            try:
                data = os.read(descriptor, 65_536)
            except OSError:  # what a terminal gives when its other side has gone
                data = b""
            text = self._decoders[descriptor].decode(data)
        return text
