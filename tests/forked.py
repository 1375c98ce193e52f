"""Python processes that start at once: forked from one that has imported what the command line and the engines need.

A start of its own takes such a process half a second of CPU. What a test says about starting, about Python's options or
about closed streams needs one nevertheless: `subprocess` runs it.
"""

import gc
import os
import runpy
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import c_longlong
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

_IMPORTED: Final = (
    *("agentjobs_async.cli.run", "agentjobs_async.cli.fleet", "agentjobs_async.cli.status", "click._textwrap"),
    *("agentjobs_async.cli.main", "agentjobs_async.batch", "agentjobs_async.engines.procrastinate"),
    *("agentjobs_async.testing", "agentjobs_async.learning", "agentjobs_async.report.html"),
    *("agentjobs_async.report.live.app", "sqlalchemy.dialects.postgresql", "sqlalchemy.ext.asyncio"),
    *("rich.live", "rich.progress", "rich.markup", "tests.forked", "tests.engines.process"),
)
"""What they import, some of it only when they need it. Not `agentjobs_async.__main__`, which the child runs."""

_CONTEXT: Final = get_context("forkserver")  # its server has no threads, and no loop of a test
_CONTEXT.set_forkserver_preload([*_IMPORTED])


class Forked:
    """A process that calls a function, with every warning an error; as far as `subprocess.Popen` has the same names.

    Args:
        work: A function of a module; it may end with `sys.exit`.
        arguments: What it is called with.
        env: The environment.
        streams: The descriptors of standard input, output and error.

    Attributes:
        pid: The process id.
    """

    def __init__(
        self, work: Callable[..., object], *arguments: object, env: Mapping[str, str], streams: tuple[int, int, int]
    ) -> None:
        passed = [Connection(os.dup(stream)) for stream in streams]  # what can be passed to a process
        self._process = _CONTEXT.Process(target=_call, args=(work, arguments, dict(env), passed), daemon=True)
        self._process.start()
        for stream in passed:
            stream.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; minus the number of the signal that ended it; `None` while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self.returncode

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        self._process.join()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def shared_number() -> c_longlong:
    """Return a number that can be passed to such a process, and that both can read and write; it is 0."""
    return _CONTEXT.RawValue(c_longlong)


def run_module(name: str, *arguments: str) -> None:
    """Run a module as `python -m` does."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_program(text: str, *arguments: str) -> None:
    """Run a program as `python -c` does."""
    sys.argv = ["-c", *arguments]
    exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own program


def _call(
    work: Callable[..., object], arguments: tuple[Any, ...], env: Mapping[str, str], streams: list[Connection]
) -> None:
    warnings.simplefilter("error")
    become(env, streams)
    try:
        work(*arguments)
    finally:
        gc.collect()  # what nobody closed is told now: this process ends without Python's own last steps


def become(env: Mapping[str, str], streams: list[Connection]) -> None:
    """Take an environment, and standard streams as Python makes them at its start."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    renewed = {
        "stdin": open(0, encoding="utf-8", closefd=False),  # noqa: SIM115 - open for as long as it runs
        "stdout": open(1, "w", 1 if os.isatty(1) else -1, "utf-8", closefd=False),  # noqa: SIM115 - as above
        "stderr": open(2, "w", 1, "utf-8", "backslashreplace", closefd=False),  # noqa: SIM115 - as above
    }
    for name, renewed_stream in renewed.items():
        setattr(sys, name, renewed_stream)
        setattr(sys, f"__{name}__", renewed_stream)
