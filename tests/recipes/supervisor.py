"""A process that runs a program again and again, each time in a fork that shares what the program imports."""

import os
import runpy
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import cast

from tests.forked import run_module, run_program


def supervise(arguments: Sequence[str], imported: Sequence[str]) -> None:
    """Run Python with some arguments for each line of standard input, and write the id and the exit code of each run.

    Args:
        arguments: A file, `-c` and a text, or `-m` and a module; then the arguments of the program.
        imported: The modules that the program imports.
    """
    warnings.resetwarnings()  # a framework may warn
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    for name in imported:
        import_module(name)
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
