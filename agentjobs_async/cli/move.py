"""The command `move`: a journal goes to another location."""

import asyncio

import click

from agentjobs_async.batch import Journal, move_journal
from agentjobs_async.batch._service import options_to
from agentjobs_async.cli._input.options import TEXT
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action


@command("move", journal_exit_codes("all rows were moved"), "agentjobs move --from run.db --to postgresql:///jobs")
@click.option("--from", "source", metavar="FILE|URL", type=TEXT, required=True, help="The journal; nothing may use it.")
@click.option(
    "--to",
    "target",
    metavar="FILE|URL",
    type=TEXT,
    envvar="AGENTJOBS_JOURNAL",
    required=True,
    help="The new one: a file or database without rows.  [env var: AGENTJOBS_JOURNAL]",
)
def move(source: str, target: str) -> int:
    """Move all that a journal holds to a new one, rows under way included, and close the old one for good.

    What was being sent when the last run ended is unknown, as on a resume. If the command is killed, the same command
    continues with the move; in between, neither journal can be used.
    """
    return run_action(lambda context: _move(context, source, target))


async def _move(context: Context, source: str, target: str) -> int:
    """Move all rows of a journal to a new one, and show how to continue with that."""
    screen = context.screen
    try:
        rows = await move_journal(source, target)
    except asyncio.CancelledError:
        screen.notice("If the old journal can't be opened any more, the same command continues with the move.")
        raise
    async with Journal.open(target, read_only=True) as journal:
        counts, options = await journal.counts(), options_to(await journal._store.service())
        items = sum(counts.values())
        tries = f", with {rows - items} earlier tries" if rows > items else ""
        screen.notice(f"{items} items moved to {journal.name}{tries}: {tally(counts)}.")
    screen.notice("The old journal is closed for good; agentjobs status still shows it. Continue with:")
    screen.command(f"  {resume_command(journal.address, options)}")
    if journal.is_shared:
        screen.notice("or, on each of many machines, with agentjobs worker: see its --help.")
    return ExitCode.COMPLETED
