"""The commands about a journal as a whole: `limits` and `move`."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, move_journal, undo_move
from agentjobs_async.batch._service import options_to
from agentjobs_async.cli._input.limits import changed_limits, limit_texts
from agentjobs_async.cli._input.options import LIMITS, TEXT, journal_argument, limit_options
from agentjobs_async.cli._output.columns import in_words
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action


@command("limits", journal_exit_codes("they are shown, or changed"), "agentjobs limits run.db --max-active 50")
@journal_argument("The journal; to change limits in a file, no run may be using it.", "agentjobs limits FILE")
@limit_options(**LIMITS)
def limits(journal: str, limits: Mapping[str, Any]) -> int:
    """Show the limits that the journal FILE keeps, each as the option that sets it. Options change them first.

    In a database they apply at once to all runs, workers and bots together; in a file, to the next run.
    """
    return run_action(lambda context: _show_limits(context, journal, limits))


async def _show_limits(context: Context, journal: str, given: Mapping[str, Any]) -> int:
    async with Journal.open(journal, read_only=not given) as opened:
        kept = await changed_limits(opened, given)
    for name, text in limit_texts(kept).items():
        context.screen.raw_line(f"--{name.replace('_', '-')} {text}")
    return ExitCode.COMPLETED


@command("move", journal_exit_codes("all items were moved"), "agentjobs move run.db postgresql:///jobs")
@click.argument("source", metavar="FILE", type=TEXT)
@click.argument("target", metavar="[URL]", type=TEXT, required=False, envvar="AGENTJOBS_JOURNAL")
@click.option("--undo", is_flag=True, help="Open FILE again, whose move was cut off; give no URL.")
def move(source: str, target: str | None, *, undo: bool) -> int:
    """Move all that the journal FILE holds to PostgreSQL, rows under way included, and close the file for good.

    URL names a database without items, such as postgresql+psycopg://host/database; without one, the environment
    variable AGENTJOBS_JOURNAL does. Nothing may use FILE. What was being sent when its last run ended is unknown, as
    on a resume.

    If the command is killed, the same command finishes the move, and --undo takes it back. In between, nothing is sent
    from either journal.
    """
    if undo:
        if click.get_current_context().get_parameter_source("target") is ParameterSource.COMMANDLINE:
            raise InvalidInputError("--undo takes the file alone, which knows where it was moved to")
        return run_action(lambda context: _undo(context, source))
    if target is None:
        raise InvalidInputError("say where to: agentjobs move FILE URL, or set AGENTJOBS_JOURNAL")
    return run_action(lambda context: _move(context, source, target))


async def _move(context: Context, source: str, target: str) -> int:
    """Move all items of a journal to a new one, and show how to continue with that."""
    screen = context.screen
    try:
        moved = await move_journal(source, target)
    except asyncio.CancelledError:
        screen.notice("If the file can't be opened any more, the same command finishes the move; --undo takes it back.")
        raise
    async with Journal.open(target, read_only=True) as journal:
        counts, options = await journal.counts(), options_to((await journal.store.meta()).service)
        items = "1 item" if moved == 1 else f"{moved:,} items"
        screen.notice(f"{items} moved to {journal.name}: {tally(counts)}.")
    screen.notice("The file is closed for good; agentjobs status still shows it. Continue with:")
    screen.command(f"  {resume_command(journal.address, options)}")
    screen.notice("or, on each of many machines, with agentjobs worker: see its --help.")
    return ExitCode.COMPLETED


async def _undo(context: Context, source: str) -> int:
    """Undo a move that was cut off, and show how to continue with the file."""
    screen = context.screen
    await undo_move(source)
    async with Journal.open(source, read_only=True) as journal:
        options = options_to((await journal.store.meta()).service)
    screen.notice(f"{in_words(source)} is open again, with all of its items. Continue with:")
    screen.command(f"  {resume_command(source, options)}")
    return ExitCode.COMPLETED
