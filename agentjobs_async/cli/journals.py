"""The commands that list journals or resolve one of their items, without a run."""

from collections import Counter
from pathlib import Path

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal
from agentjobs_async.batch._store.file_lock import is_owned
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.item_results import outcomes_of
from agentjobs_async.cli.outcomes import ExitCode, Outcome, described, exit_code
from agentjobs_async.cli.own_journals import directory, left_journals
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.resolving import found_job

__all__ = ["abandon_row", "resolve_row", "show_left_journals"]


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


async def resolve_row(context: Context, journal: str, key: str, job_id: str | None) -> int:
    """Resolve an unknown item: by its job, or by planning it again."""
    async with Journal.open(journal) as opened:
        await opened.resolve(key, job_id=None if job_id is None else found_job(job_id), send_again=job_id is None)
    done = "is planned again" if job_id is None else "has its job"
    by_whom = "a running worker, or agentjobs resume," if opened.is_shared else "agentjobs resume"
    context.screen.notice(f"{key} {done}; {by_whom} continues with it.")
    return ExitCode.COMPLETED


async def abandon_row(context: Context, journal: str, key: str) -> int:
    """End an item as abandoned that can't be settled in any other way."""
    async with Journal.open(journal) as opened:
        await opened.abandon(key)
    context.screen.notice(f"{key} is abandoned; an agent that is at work continues.")
    return ExitCode.COMPLETED
