"""The command line: one group of commands, and what is shown when its arguments are invalid."""

import io
import signal
import sys
from collections.abc import Sequence

import click

from agentjobs_async import InvalidInputError, __version__
from agentjobs_async._text import one_line
from agentjobs_async.cli._commands import batches, fleet, jobs, journals, reports
from agentjobs_async.cli._commands.help_pages import ALL_COMPLETED, CommandGroup
from agentjobs_async.cli._output.streams import silence
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.process import show_error

__all__ = ["run_command"]


@click.group(cls=CommandGroup, epilog=ALL_COMPLETED, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def _agentjobs() -> None:
    """Create background agent jobs and wait for them."""


for _command in (
    *(batches.run, batches.plan, batches.resume, journals.status, journals.retry, journals.resolve, journals.export),
    *(reports.report, reports.serve),
    *(jobs.create, jobs.get, jobs.wait, jobs.emulator),
    *(fleet.submit, fleet.worker, fleet.move),
):
    _agentjobs.add_command(_command)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return its exit code."""
    stdout = sys.stdout
    try:
        return int(_agentjobs.main(list(arguments), prog_name="agentjobs", standalone_mode=False) or 0)
    except click.ClickException as error:
        show_error(_shown(error))
        return error.exit_code
    except click.Abort:
        return 128 + signal.SIGINT  # as shells count
    except InvalidInputError as error:
        show_error(f"Error: {described(error)}")
        return ExitCode.USAGE
    except OSError as error:
        # Only click's own output can fail here: a help page, or a version.
        silence(sys.stdout)
        show_error(f"Error: the output can't be written: {error.strerror}")
        return ExitCode.UNFINISHED
    except SystemExit:
        # click replaces the stream whose reader left, and would end with 1, which means something else here.
        if sys.stdout is stdout:
            raise
        return ExitCode.BROKEN_PIPE


def _shown(error: click.ClickException) -> str:
    """Return click's message with each line escaped: it quotes what was typed, or pasted."""
    words = io.StringIO()
    error.show(words)
    return "\n".join(one_line(line) for line in words.getvalue().splitlines())
