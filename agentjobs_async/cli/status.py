"""The command that shows a journal: its numbers, then its items; or which journals were left."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from agentjobs_async import JournalError
from agentjobs_async._text import span
from agentjobs_async.batch import Journal, JournalRow, Limits, State, Where
from agentjobs_async.batch._database.file_lock import is_owned
from agentjobs_async.batch._estimates import Durations, End, end_of, recent_durations
from agentjobs_async.batch._monitoring import OwnerState, is_at_work, owners_of, unseen_for, was_seen
from agentjobs_async.batch._service import options_to
from agentjobs_async.batch._store.late import late_tries
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.tries import with_earlier_tries
from agentjobs_async.batch.states import FAILED, open_in
from agentjobs_async.cli._input.limits import rate_notice
from agentjobs_async.cli._input.options import all_tries_option, filter_options, journal_argument
from agentjobs_async.cli._input.own_journals import directory, left_journals
from agentjobs_async.cli._output.hints import (
    export_command,
    resume_command,
    show_late,
    show_lost_jobs,
    show_retry,
    show_unknown,
)
from agentjobs_async.cli._output.live import View, head_lines
from agentjobs_async.cli._output.outcomes import Outcome, described, exit_code
from agentjobs_async.cli._output.results import outcomes_of, shown_row
from agentjobs_async.cli._output.screen import Cell, Screen, Styled
from agentjobs_async.cli._output.tables import show_items
from agentjobs_async.cli.display import longest_queue
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.help import ALL_COMPLETED, command
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.items import document
from agentjobs_async.session import EMULATOR

_MOST_ROWS: Final = 50  # what a person reads; export has all
_NEEDING_A_PERSON: Final = (State.UNKNOWN, *FAILED)
_MOST_LATE: Final = 20  # tries
_MOST_ACTIVE: Final = 200  # rows: more than a terminal shows


@command("status", ALL_COMPLETED, "agentjobs status run.db --state failed")
@journal_argument("The journal; a run may be using it.", None)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    show_default=True,
    help="A table for people, or a JSON object for each item shown.",
)
@click.option("--summary", "is_summary", is_flag=True, help="Only how many items are in which state.")
@filter_options
@all_tries_option
def status(journal: str | None, form: str, where: Where, *, is_summary: bool, all_tries: bool) -> int:
    """Show what the journal FILE holds, while a run uses it or later, and what needs you.

    That is how many items are in which state, when the run will end, its workers, and up to 50 items: those that are
    unknown, failed or rejected; with --state, --grep, --key, --prefix, --project or --older-than, those that meet all
    of them. Without these, also jobs of creates that were answered after their items had been sent again: one agent too
    many each. agentjobs export writes all items. The exit code is that of all items.

    Without a journal, list those that runs without --journal have left, and how to continue with each.
    """
    as_json = form == "jsonl"
    if journal is None:
        return run_action(lambda context: _show_left_journals(context, as_json=as_json))
    how = {"as_json": as_json, "is_summary": is_summary, "all_tries": all_tries}
    return run_action(lambda context: _show(context, journal, where, **how))


async def _show(context: Context, given: str, where: Where, *, as_json: bool, is_summary: bool, all_tries: bool) -> int:
    """Write how many items of the journal are in which state, then those that `where` names."""
    screen = context.screen
    async with Journal.open(given, read_only=True) as journal:
        workers = await owners_of(journal)  # before the counts: what ends in between leaves no work without a process
        counts = await journal.counts()
        found = None if is_summary else await _found(journal, where, all_tries=all_tries)
        if as_json:
            screen.json_lines([_as_json(counts)] if found is None else map(document, found.rows))
        else:
            await _show_head(screen, journal, counts, workers)
            _show_table(screen, found, where)
        if found is not None:
            _show_more(screen, found, _location(journal, given))
            show_late(screen, found.late, await journal.store.rows_of({row.key for row in found.late}))
        if journal.moved_to is not None:
            screen.notice(f"This journal was moved to {journal.moved_to}, and can only be read.")
            screen.notice("A move that was cut off: the same command finishes it, agentjobs move --undo takes it back.")
        elif not as_json:
            await _show_what_is_next(context, journal, _location(journal, given), counts, workers)
    return exit_code(outcomes_of(counts))


def _location(journal: Journal, given: str) -> str:
    """Return the journal as a command names it: as it was given, or without the password that a URL may hold."""
    return journal.address if journal.is_shared else given


async def _show_head(
    screen: Screen, journal: Journal, counts: Mapping[State, int], workers: Sequence[OwnerState] | None
) -> None:
    """Write the counts; while a process works on open items, also when they end, and the workers."""
    if journal.moved_to is None and is_at_work(workers) and open_in(counts):
        for line in head_lines(await _view_of(journal, counts), screen.columns):
            screen.line(*line)
        _show_workers(screen, workers or ())
    else:
        screen.line(tally(counts))


async def _show_what_is_next(
    context: Context,
    journal: Journal,
    location: str,
    counts: Mapping[State, int],
    workers: Sequence[OwnerState] | None,
) -> None:
    """Show what the rate allows while items are planned; and where no process is at work, what goes on with them."""
    rate = (await journal.limits()).create_rate
    if counts[State.PLANNED] and rate is not None:
        context.screen.notice(rate_notice(rate))
    if not is_at_work(workers):
        await _show_ways_on(context, journal, location, counts)


async def _show_ways_on(context: Context, journal: Journal, location: str, counts: Mapping[State, int]) -> None:
    """Show what settles, continues or retries items."""
    screen = context.screen
    service = (await journal.store.meta()).service
    options = options_to(service)
    if service == EMULATOR:
        show_lost_jobs(screen, counts[State.ACTIVE])
    if counts[State.UNKNOWN]:
        show_unknown(screen, await journal.unknown(), location)
    if open_in(counts):
        screen.notice("No process works on it; continue with:")
        screen.command(f"  {resume_command(location, options)}")
    else:
        show_retry(screen, location, sum(counts[state] for state in FAILED), options)


@frozen
class _Found:
    """The items that are shown.

    Attributes:
        rows: They, in the order of their states, then of the input; with earlier tries, where these are shown. Last
            come the late ones.
        shown: How many items they are, without the late ones.
        number: How many there are in all.
        late: Tries whose creates were answered late, of whichever items; none where conditions were given.
    """

    rows: Sequence[JournalRow]
    shown: int
    number: int
    late: Sequence[JournalRow]


async def _found(journal: Journal, where: Where, *, all_tries: bool) -> _Found:
    """Return the first items that `where` names, without any condition those that need a person."""
    store = journal.store
    late = await late_tries(store, _MOST_LATE) if where == Where() else []
    where = Where(states=_NEEDING_A_PERSON) if where == Where() else where
    rows: list[JournalRow] = []
    shown = 0
    for state in State:
        if (where.states is None or state in where.states) and shown < _MOST_ROWS:
            query = Query(where=where, states={state}, size=_MOST_ROWS - shown)
            found = await store.select(query)
            shown += len(found)
            rows += await with_earlier_tries(store, found) if all_tries else found
    rows += [row for row in late if row not in rows]
    return _Found(rows, shown, await store.count(Query(where=where)), late)


def _show_table(screen: Screen, found: _Found | None, where: Where) -> None:
    """Write the items that were looked for, as a table."""
    if found is None:
        return
    if found.rows:
        show_items(screen, list(map(shown_row, found.rows)))
    elif where != Where():
        screen.notice("No item meets the filters.")


def _show_more(screen: Screen, found: _Found, location: str) -> None:
    """Show, if not all items are shown, how many there are and what writes all."""
    if found.number > found.shown:
        screen.notice(f"{found.shown:,} of {found.number:,} are shown; all items are written by:")
        screen.command(f"  {export_command(location)}")


def _show_workers(screen: Screen, workers: Sequence[OwnerState]) -> None:
    """Write a table of the processes that work on a shared journal."""
    if workers:
        screen.table(("WORKER", "ACTIVE", "LAST HEARTBEAT"), map(_worker_cells, workers))


def _worker_cells(worker: OwnerState) -> tuple[Cell, ...]:
    dead = ", counts as dead" if worker.is_dead else ""
    heard: Styled = (f"{span(worker.silent_for)} ago{dead}", "yellow" if dead else "")
    return ((worker.name,),), ((f"{worker.active:,}",),), ((heard,),)


def _as_json(counts: Mapping[State, int]) -> dict[str, Any]:
    states = {state: number for state, number in counts.items() if number}
    return {"items": sum(states.values()), "states": states}


async def _view_of(journal: Journal, counts: Mapping[State, int]) -> View:
    """Return a journal that other processes work on as its run would show it.

    Raises:
        JournalError: The journal can't be read.
    """
    durations = Durations()
    durations.replace(await recent_durations(journal.store))
    usual = durations.usual
    unseen_seconds = await unseen_for(journal)
    if unseen_seconds is not None:
        trouble = f"no active job was seen for {span(unseen_seconds)}: no run polls them, or no server answers"
        return View(counts, time.time(), usual=usual, trouble=trouble)
    limits = await journal.limits()
    is_known = counts[State.ACTIVE] or await was_seen(journal, limits.create_rate)
    end = await _end(journal, limits, usual, counts) if is_known else None
    return View(counts, time.time(), end=end, usual=usual)


async def _end(
    journal: Journal, limits: Limits, usual: tuple[float, float] | None, counts: Mapping[State, int]
) -> End | None:
    """Return when all items will have ended, by the ages of the oldest jobs; the others count as begun just now."""
    now = time.time()
    rows = await journal.store.select(Query(states={State.ACTIVE}, size=_MOST_ACTIVE))
    ages = [max(now - (row.created_at or row.updated_at).timestamp(), 0.0) for row in rows]
    younger = counts[State.ACTIVE] + counts[State.SENDING] - len(ages)
    return end_of(
        to_create=counts[State.PLANNED],
        queue=await longest_queue(journal, limits, counts),
        ages=[*ages, *[0.0] * max(younger, 0)],
        limits=limits,
        usual=usual,
    )


async def _show_left_journals(context: Context, *, as_json: bool) -> int:
    """Write which journals runs without --journal have left, and how to continue with each."""
    journals = left_journals()
    outcomes = Counter[Outcome]()
    for path in journals:
        outcomes += await _show_left(context, path, as_json=as_json)
    if not journals:
        context.screen.notice(f"No run without --journal has left a journal in {directory()}.")
    return exit_code(outcomes)


async def _show_left(context: Context, path: Path, *, as_json: bool) -> Counter[Outcome]:
    try:
        async with Journal.open(path, read_only=True) as opened:
            counts, options = await opened.counts(), options_to((await opened.store.meta()).service)
    except JournalError as error:  # one that is broken hides no other
        context.screen.notice(f"{path}: {described(error)}")
        return Counter({Outcome.ACTIVE: 1})
    in_use = is_owned(path)
    states = {state: number for state, number in counts.items() if number}
    if as_json:
        context.screen.json_lines([{"journal": str(path), "in_use": in_use, "states": states}])
    else:
        words = tally(counts) if states else "nothing planned"
        what_next, line = "continue with", resume_command(str(path), options)
        if in_use:
            what_next, line = "a run is using it", str(path)
        elif not states:
            what_next, line = "remove this, and run the prompts again", str(path)
        context.screen.line(f"{words}: ", what_next)
        context.screen.whole_line(f"  {line}")
    return outcomes_of(counts)
