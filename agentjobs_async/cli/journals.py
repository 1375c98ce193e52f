"""The journals that runs without --journal have left."""

from collections import Counter
from pathlib import Path

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal
from agentjobs_async.batch._store.file_lock import is_owned
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.item_results import outcomes_of
from agentjobs_async.cli.outcomes import Outcome, described, exit_code
from agentjobs_async.cli.own_journals import directory, left_journals
from agentjobs_async.cli.process import Context

__all__ = ["show_left_journals"]


async def show_left_journals(context: Context, form: str) -> int:
    """Write which journals runs without --journal have left, and how to continue with each."""
    journals = left_journals()
    outcomes = Counter[Outcome]()
    for path in journals:
        outcomes += await _show_left(context, path, form)
    if not journals:
        context.screen.notice(f"No run without --journal has left a journal in {directory()}.")
    return exit_code(outcomes)


async def _show_left(context: Context, path: Path, form: str) -> Counter[Outcome]:
    try:
        async with Journal.open(path, read_only=True) as opened:
            counts = await opened.counts()
    except JournalError as error:  # one that is broken hides no other
        context.screen.notice(f"{path}: {described(error)}")
        return Counter({Outcome.UNFINISHED: 1})
    in_use = is_owned(path)
    states = {state: number for state, number in counts.items() if number}
    if form == "jsonl":
        context.screen.json_lines([{"journal": str(path), "in_use": in_use, "states": states}])
    else:
        context.screen.line(f"{tally(counts)}: ", "a run is using it" if in_use else "continue with")
        context.screen.whole_line(f"  {path}" if in_use else f"  {resume_command(str(path), [])}")
    return outcomes_of(counts)
