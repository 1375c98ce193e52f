"""A process that imports what recipes need once, and runs them in forks that share it."""

import os
import runpy
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import cast

from tests.forked import Forked, become, run_module, run_program


def start(
    arguments: Sequence[str], imported: Sequence[str], env: Mapping[str, str], streams: tuple[int, int, int]
) -> None:
    """Start a process that runs a program for each line of its input, and writes the id and the exit code of each run.

    It ends when its standard input does.

    Args:
        arguments: A file, `-c` and a text, or `-m` and a module; then the arguments of the program.
        imported: The modules that the program imports.
        env: The environment.
        streams: The descriptors of standard input, output and error.
    """
    connection, pid = _importer(tuple(imported))
    connection.send((tuple(arguments), dict(env)))
    for stream in streams:
        send_handle(connection, stream, pid)


@cache
def _importer(imported: tuple[str, ...]) -> tuple[Connection, int]:
    """Return the connection to a process that has imported some modules, and its id: one for the whole test run."""
    here, there = Pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    process = Forked(_fork_for_each, there, imported, env=os.environ, streams=(nothing, nothing, 2))
    os.close(nothing)
    there.close()
    return here, process.pid


def _fork_for_each(requests: Connection, imported: Sequence[str]) -> None:
    """Import the modules, and fork a supervisor for each request."""
    warnings.resetwarnings()  # a framework may warn
    for name in imported:
        import_module(name)
    while True:
        try:
            arguments, env = requests.recv()
        except EOFError:  # the test run is over
            return
        streams = [Connection(recv_handle(requests)) for _ in range(3)]
        if os.fork() == 0:
            requests.close()
            become(env, streams)
            _supervise(arguments)
            return
        for stream in streams:
            stream.close()
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # an earlier one


def _supervise(arguments: Sequence[str]) -> None:
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run(*arguments)
            return
        print(f"<{pid} runs>")  # noqa: T201 - what the test reads
        _, status = os.waitpid(pid, 0)
        print(f"<{pid} ended: {os.waitstatus_to_exitcode(status)}>")  # noqa: T201 - as above


def _run(program: str, *arguments: str) -> None:
    if program == "-m":
        run_module(*arguments)
    elif program == "-c":
        run_program(*arguments)
    else:
        sys.argv = [program, *arguments]
        sys.path.insert(0, str(Path(program).parent))  # as Python does
        runpy.run_path(program, run_name="__main__")
