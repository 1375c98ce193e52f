"""The command line: one group of commands, and what is shown when its arguments are invalid."""

import io
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

from agentjobs_async import InvalidInputError, __version__
from agentjobs_async._loop.signals import exit_code_of
from agentjobs_async._text import one_line
from agentjobs_async.cli._output.outcomes import ExitCode, described
from agentjobs_async.cli._output.streams import silence
from agentjobs_async.cli.help import ALL_COMPLETED
from agentjobs_async.cli.process import show_error

COMMANDS: Final = {
    "run": ("run", "Create jobs and wait for all of them."),
    "plan": ("plan", "Show what a run would send, its duration and cost."),
    "resume": ("run", "Continue the run of a journal."),
    "status": ("status", "Show what a journal holds."),
    "retry": ("items", "Plan failed items again."),
    "resolve": ("items", "Settle an unknown item, or withdraw planned ones."),
    "export": ("journals", "Write the outcome of each item."),
    "report": ("report", "Write a page, or a file for other programs."),
    "serve": ("report", "Serve a live page of a journal until Ctrl-C."),
    "create": ("jobs", "Create a job and print its token project~.job."),
    "get": ("jobs", "Read one job once."),
    "wait": ("jobs", "Wait until jobs have ended."),
    "submit": ("fleet", "Hand items to workers on many machines."),
    "worker": ("fleet", "Run submitted items, beside other workers."),
    "limits": ("journals", "Show or change the limits that a journal keeps."),
    "move": ("journals", "Move a journal from a file to PostgreSQL."),
    "service": ("service", "Check a service file, sending nothing."),
    "emulator": ("emulator", "Run an emulator of the service until Ctrl-C."),
}
"""The module of each command, in which it has its own name, and what it is for."""


class _Group(click.Group):
    """The commands, each loaded when it is used: most need a database or a web server, which takes long to load."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"agentjobs_async.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = [] if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS)
        if near and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.group(cls=_Group, epilog=ALL_COMPLETED, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def _agentjobs() -> None:
    """Create background agent jobs and wait for them."""


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return its exit code."""
    stdout = sys.stdout
    try:
        return int(_agentjobs.main(list(arguments), prog_name="agentjobs", standalone_mode=False) or 0)
    except click.ClickException as error:
        show_error(_shown(error))
        return error.exit_code
    except click.Abort:
        return exit_code_of(signal.SIGINT)
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
