"""The command that moves a journal to another place."""

import asyncio

from agentjobs_async.batch import Journal, move_journal
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.process import Context

__all__ = ["move_rows"]


async def move_rows(context: Context, source: str, target: str) -> int:
    """Move all rows of a journal to a new one, and show how to continue with that."""
    screen = context.screen
    try:
        rows = await move_journal(source, target)
    except asyncio.CancelledError:
        screen.notice("If the old journal can't be opened any more, the same command continues with the move.")
        raise
    async with Journal.open(target, read_only=True) as journal:
        counts = await journal.counts()
        items = sum(counts.values())
        tries = f", with {rows - items} earlier tries" if rows > items else ""
        screen.notice(f"{items} items moved to {journal.name}{tries}: {tally(counts)}.")
    screen.notice("The old journal is closed for good; agentjobs status still shows it. Continue with:")
    screen.command(f"  {resume_command(journal.address, [])}")
    if journal.is_shared:
        screen.notice("or, on each of many machines, with agentjobs worker: see its --help.")
    return ExitCode.COMPLETED
