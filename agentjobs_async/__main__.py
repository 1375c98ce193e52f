"""Entry point of the command line: `agentjobs`, or `python -m agentjobs_async`."""

import sys
from collections.abc import Sequence
from contextlib import suppress

from agentjobs_async._start import quiet_interrupts

__all__ = ["main"]

_EXTRAS = {
    **dict.fromkeys(("click", "rich"), "cli"),
    **dict.fromkeys(("sqlalchemy", "aiosqlite"), "batch"),
    **dict.fromkeys(("procrastinate", "psycopg"), "procrastinate"),
}
_USAGE = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code.

    Args:
        arguments: What follows the program's name; `None` takes the process's own.
    """
    try:
        with quiet_interrupts():
            from agentjobs_async.cli.commands import run_command  # noqa: PLC0415 - the extra may not be installed

            return run_command(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        with suppress(OSError, AttributeError):  # standard error may be closed, or on a full disk
            sys.stderr.write(f"agentjobs needs the extra {extra}: pip install 'agentjobs-async[{extra}]'\n")
        return _USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
