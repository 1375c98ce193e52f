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
from agentjobs_async.batch import Journal, JournalRow, State, Where
from agentjobs_async.batch._database.file_lock import is_owned
from agentjobs_async.batch._monitoring import OwnerState, is_at_work, outlook_of, owners_of
from agentjobs_async.batch._service import options_to
from agentjobs_async.batch._store.late import late_tries
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.tries import with_earlier_tries
from agentjobs_async.batch.states import FAILED, open_in
from agentjobs_async.cli._input.limits import rate_notice
from agentjobs_async.cli._input.options import all_tries_option, filter_options, journal_argument, options_of
from agentjobs_async.cli._input.own_journals import directory, left_journals
from agentjobs_async.cli._output.endings import tally
from agentjobs_async.cli._output.hints import (
    export_command,
    late_answers,
    lost_jobs,
    resume_command,
    retry_of,
    unknown_items,
)
from agentjobs_async.cli._output.live import head_of
from agentjobs_async.cli._output.notices import Command, Hint, Sentence, lines_of, show_hints
from agentjobs_async.cli._output.outcomes import Outcome, described, exit_code
from agentjobs_async.cli._output.results import outcomes_of, shown_row
from agentjobs_async.cli._output.screen import Cell, Screen, Styled
from agentjobs_async.cli._output.tables import show_items
from agentjobs_async.cli._output.view import View
from agentjobs_async.cli.help import ALL_COMPLETED, command
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.items import document
from agentjobs_async.report.standing import NEEDING_A_PERSON, unseen_words
from agentjobs_async.session import EMULATOR

_MOST_ROWS: Final = 50  # what a person reads; export has all
_LEAST_ROWS: Final = 1  # however small the terminal is
_LINES_OF_A_ROW: Final = 2  # on a terminal
_LINES_AROUND_ROWS: Final = 3  # the names of the columns, and the shell's next line
_MOST_UNKNOWN: Final = 3  # of those that are told how to settle: the others are settled in the same way
_MOST_WORKERS: Final = 6  # lines of a terminal
_MOST_LATE: Final = 20  # tries


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

    That is how many items are in which state, when the run will end, its workers, and those items that are unknown,
    failed or rejected: 50 of them at most, on a terminal as many as fit on one screen. With --state, --grep, --key,
    --prefix, --project or --older-than, up to 50 items that meet all of them. Without these, also jobs of late answers:
    creates that were answered after their items had been sent again, so that a second agent got the prompt. agentjobs
    export writes all items, and has the same options. The exit code is that of all items.

    Without a journal, list those that runs without --journal have left, and how to continue with each.
    """
    as_json = form == "jsonl"
    if journal is None:
        return run_action(lambda context: _show_left_journals(context, as_json=as_json))
    asked = _Asked(where, as_json, is_summary, all_tries)
    return run_action(lambda context: _show(context.screen, journal, asked))


@frozen
class _Asked:
    """What the command was asked for.

    Attributes:
        where: The items to show; without any condition, those that need a person.
        as_json: Whether it writes JSON.
        is_summary: Whether it shows no items.
        all_tries: Whether items are shown with their earlier tries.
    """

    where: Where
    as_json: bool
    is_summary: bool
    all_tries: bool

    @property
    def is_overview(self) -> bool:
        """Whether it shows what needs a person, on one screen of a terminal."""
        return self.where == Where()

    @property
    def looked_for(self) -> Where:
        """The items to show, named by conditions."""
        return Where(states=NEEDING_A_PERSON) if self.is_overview else self.where


@frozen
class _Snapshot:
    """What was read of the journal.

    Attributes:
        journal: The open journal.
        location: The journal, as a command names it.
        workers: The processes that work on it, as `owners_of` returns them.
        counts: How many items are in each state.
        late: Tries that were answered late; none where items were named by conditions.
        hints: What is said below all else: what to do next.
    """

    journal: Journal
    location: str
    workers: Sequence[OwnerState] | None
    counts: Mapping[State, int]
    late: Sequence[JournalRow]
    hints: Sequence[Hint]


async def _show(screen: Screen, given: str, asked: _Asked) -> int:
    """Write how many items of the journal are in which state, then those that were asked for, and what to do next."""
    async with Journal.open(given, read_only=True) as journal:
        snapshot = await _snapshot(journal, given, asked)
        write = _write_json if asked.as_json else _write_screen
        others = await write(screen, snapshot, asked)
        show_hints(screen, [*others, *snapshot.hints])
    return exit_code(outcomes_of(snapshot.counts))


async def _snapshot(journal: Journal, given: str, asked: _Asked) -> _Snapshot:
    location = _location(journal, given)
    workers = await owners_of(journal)  # before the counts: what ends in between leaves no work without a process
    counts = await journal.counts()
    late = await late_tries(journal.store, _MOST_LATE) if asked.is_overview and not asked.is_summary else []
    hints = late_answers(late, await journal.store.rows_of({row.key for row in late}))
    if journal.moved_to is not None:
        hints += _moved(journal.moved_to)
    elif not asked.as_json:
        hints += await _what_is_next(journal, location, counts, workers)
    return _Snapshot(journal, location, workers, counts, late, hints)


async def _write_json(screen: Screen, snapshot: _Snapshot, asked: _Asked) -> list[Hint]:
    """Write the counts or the items as JSON; return where the other items are."""
    if asked.is_summary:
        screen.json_lines([_as_json(snapshot.counts)])
        return []
    found = await _found(snapshot, asked, _MOST_ROWS)
    screen.json_lines(map(document, found.rows))
    return _others(found.shown, found.number, asked, snapshot.location)


async def _write_screen(screen: Screen, snapshot: _Snapshot, asked: _Asked) -> list[Hint]:
    """Write the counts, and the items as a table; return where the other items are.

    The overview leaves room on the same screen for what is said below it.
    """
    lines = await _write_head(screen, snapshot)
    if asked.is_summary:
        return []
    most = _MOST_ROWS
    if asked.is_overview:
        others = _others(0, _MOST_ROWS, asked, snapshot.location)  # they may be said as well
        most = _rows_that_fit(screen, lines, [*others, *snapshot.hints])
    found = await _found(snapshot, asked, most)
    if found.rows:
        show_items(screen, list(map(shown_row, found.rows)), is_brief=asked.is_overview)
    elif not asked.is_overview:
        screen.notice("No item meets the filters.")
    return _others(found.shown, found.number, asked, snapshot.location)


def _location(journal: Journal, given: str) -> str:
    """Return the journal as a command names it: as it was given, or without the password that a URL may hold."""
    return journal.address if journal.is_shared else given


async def _write_head(screen: Screen, snapshot: _Snapshot) -> int:
    """Write the counts; while a process works on open items, also when they end, and the workers. Return the lines."""
    is_running = snapshot.journal.moved_to is None and is_at_work(snapshot.workers) and open_in(snapshot.counts)
    if not is_running:
        screen.line(tally(snapshot.counts))
        return 1
    head = head_of(await _view_of(snapshot.journal, snapshot.counts), screen.columns)
    screen.draw(head)
    return len(head) + _show_workers(screen, snapshot.workers or ())


def _moved(target: str) -> list[Hint]:
    return [
        Sentence(f"This journal was moved to {target}, and can only be read."),
        Sentence("A move that was cut off: the same command finishes it, agentjobs move --undo takes it back."),
    ]


async def _what_is_next(
    journal: Journal, location: str, counts: Mapping[State, int], workers: Sequence[OwnerState] | None
) -> list[Hint]:
    """Return what the rate allows while items are planned; and where no process is at work, what goes on with them."""
    rate = (await journal.limits()).create_rate
    hints: list[Hint] = [Sentence(rate_notice(rate))] if counts[State.PLANNED] and rate is not None else []
    return hints if is_at_work(workers) else [*hints, *await _ways_on(journal, location, counts)]


async def _ways_on(journal: Journal, location: str, counts: Mapping[State, int]) -> list[Hint]:
    """Return what settles, continues or retries items."""
    service = (await journal.store.meta()).service
    options = options_to(service)
    hints = lost_jobs(counts[State.ACTIVE]) if service == EMULATOR else []
    if counts[State.UNKNOWN]:
        hints += unknown_items(await journal.unknown(), location, _MOST_UNKNOWN)
    if open_in(counts):
        return [
            *hints,
            Sentence("No process works on it; continue with:"),
            Command(resume_command(location, options)),
        ]
    return [*hints, *retry_of(location, sum(counts[state] for state in FAILED), options)]


def _rows_that_fit(screen: Screen, lines: int, hints: Sequence[Hint]) -> int:
    """Return how many items fit on one screen of a terminal beside so many lines and hints; at least one."""
    if screen.height is None:
        return _MOST_ROWS
    room = screen.height - lines - lines_of(screen, hints) - _LINES_AROUND_ROWS
    return min(max(room // _LINES_OF_A_ROW, _LEAST_ROWS), _MOST_ROWS)


@frozen
class _Found:
    """The items that are shown.

    Attributes:
        rows: Their rows, in the order of their states, then of the input; with earlier tries, where these are shown.
            Last come tries that were answered late.
        shown: How many items these are, without the late tries.
        number: How many items were asked for.
    """

    rows: Sequence[JournalRow]
    shown: int
    number: int


async def _found(snapshot: _Snapshot, asked: _Asked, most: int) -> _Found:
    """Return the first `most` items that were asked for, those that need a person first, then tries answered late."""
    store, where = snapshot.journal.store, asked.looked_for
    rows: list[JournalRow] = []
    shown = 0
    for state in State:
        if (where.states is None or state in where.states) and shown < most:
            found = await store.select(Query(where=where, states={state}, size=most - shown))
            shown += len(found)
            rows += await with_earlier_tries(store, found) if asked.all_tries else found
    rows += [row for row in snapshot.late if row not in rows]
    return _Found(rows, shown, await store.count(Query(where=where)))


def _others(shown: int, number: int, asked: _Asked, location: str) -> list[Hint]:
    """Return, if not all items are shown, how many there are and what writes all."""
    if number <= shown:
        return []
    words = f"{shown:,} of {number:,} are shown; all of them are written by:"
    options = options_of(asked.looked_for)
    if asked.all_tries:
        options += ["--tries", "all"]
    return [Sentence(words), Command(export_command(location, options))]


def _show_workers(screen: Screen, workers: Sequence[OwnerState]) -> int:
    """Write a table of the processes that work on a shared journal, the dead ones first, and return its lines.

    A terminal gets the first of very many: they leave room for the items.
    """
    if not workers:
        return 0
    most = len(workers) if screen.height is None else _MOST_WORKERS
    shown = sorted(workers, key=lambda worker: not worker.is_dead)[:most]
    screen.table(("WORKER", "ACTIVE", "LAST HEARTBEAT"), map(_worker_cells, shown))
    if len(shown) == len(workers):
        return 1 + len(shown)
    screen.line(f"… and {len(workers) - len(shown):,} more")
    return 2 + len(shown)


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
    outlook = await outlook_of(journal, counts)
    trouble = "" if outlook.unseen_seconds is None else unseen_words(outlook.unseen_seconds)
    held_by = await _held_by(journal)
    end = None if held_by else outlook.end
    return View(counts, time.time(), end=end, usual=outlook.usual, held_by=held_by, trouble=trouble)


async def _held_by(journal: Journal) -> str:
    """Return why the create of the next planned item is held back, if its row says so; the next claim clears that."""
    planned = await journal.store.select(Query(states={State.PLANNED}, size=1))
    return "".join(row.error or "" for row in planned)


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
