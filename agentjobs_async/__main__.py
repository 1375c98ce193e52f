"""Entry point of the command line: `agentjobs`, or `python -m agentjobs_async`."""

import sys
from collections.abc import Sequence
from contextlib import suppress

from agentjobs_async._extras import MissingExtraError, extra_named
from agentjobs_async._start import INTERRUPTED, quiet_interrupts

__all__ = ["main"]

_USAGE = 2  # exit code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The arguments after the program's name; `None` takes those of the process.
    """
    try:
        with quiet_interrupts(), extra_named("agentjobs"):
            from agentjobs_async.cli.commands import run_command  # noqa: PLC0415 - the extra may not be installed

            return run_command(sys.argv[1:] if arguments is None else arguments)
    except MissingExtraError as error:
        with suppress(OSError, AttributeError):  # standard error may be closed, or on a full disk
            sys.stderr.write(f"{error}\n")
        return _USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
