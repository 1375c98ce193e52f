"""The command that shows a journal: its numbers, then its items; or how it changes; or which journals were left."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import click

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async._text import span
from agentjobs_async.batch import FleetLimits, Journal, JournalRow, State, Where
from agentjobs_async.batch._monitoring import is_at_work, unseen_for, workers_of
from agentjobs_async.batch._service import options_to
from agentjobs_async.batch._store.file_lock import is_owned
from agentjobs_async.batch.states import FAILED, open_in
from agentjobs_async.cli._input.options import filter_options, journal_argument
from agentjobs_async.cli._input.own_journals import directory, left_journals
from agentjobs_async.cli._output.hints import resume_command, show_lost_jobs, show_retry, show_unknown
from agentjobs_async.cli._output.lines import show_rows
from agentjobs_async.cli._output.live import Active, End, View, head_lines, in_one_line, live_lines
from agentjobs_async.cli._output.outcomes import Outcome, described, exit_code
from agentjobs_async.cli._output.results import outcomes_of
from agentjobs_async.cli.display import longest_queue, recent_durations
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.estimates import Expected
from agentjobs_async.cli.help import ALL_COMPLETED, command
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.items import document
from agentjobs_async.session import EMULATOR

_LOOK_SECONDS: Final = 1.0
_REST_PER_LOOK: Final = 20.0  # looking takes at most a twentieth of the database's time
_LINE_SECONDS: Final = 60.0  # between two lines of a log
_MOST_ALIGNED: Final = 500  # rows: any number of them takes little memory
_MOST_ACTIVE: Final = 200  # rows: more than a terminal shows


@command("status", ALL_COMPLETED, "agentjobs status run.db --state failed")
@journal_argument("The journal; a run may be using it.", None)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    show_default=True,
    help="A table for people, or a JSON object per row.",
)
@click.option("--watch", is_flag=True, help="Show it as it changes, until all items have ended.")
@click.option("--summary", "is_summary", is_flag=True, help="Only how many items are in which state.")
@filter_options
def status(journal: str | None, form: str, where: Where, *, watch: bool, is_summary: bool) -> int:
    """Show what the journal FILE holds, while a run uses it or later: how many items are in which state, then each.

    With --state, --grep, --project or --older-than, show those items that meet all of them. The exit code is that of
    all items. Without a journal, list those that runs without --journal have left, and how to continue with each.

    With --watch a terminal shows the journal as its run does; any other output gets a line each minute.
    """
    if watch and (form != "table" or journal is None):
        raise InvalidInputError("--watch shows one journal to people: give its FILE or URL, and no --format")
    if journal is None:
        return run_action(lambda context: _show_left_journals(context, form))
    if watch:
        return run_action(lambda context: _watch(context, journal))
    return run_action(lambda context: _show(context, journal, form, where, is_summary=is_summary))


async def _show(context: Context, journal: str, form: str, where: Where, *, is_summary: bool) -> int:
    """Write how many items of the journal are in which state, then the items, as a table or as JSON Lines."""
    screen, is_table = context.screen, form == "table"
    async with Journal.open(journal, read_only=True) as opened:
        # Before the counts: what ends in between leaves no work without a process.
        is_live = opened.moved_to is None and is_at_work(await workers_of(opened))
        counts = await opened.counts()
        words = tally(counts)
        if is_table and is_live and open_in(counts):
            screen.lines(head_lines(await _Watched(opened).look(), screen.columns), wrap=False)
        elif form != "jsonl":
            screen.line(words)
        elif is_summary:
            shown = {state: number for state, number in counts.items() if number}
            screen.json_lines([{"items": sum(shown.values()), "states": shown}])
        if not is_summary:
            await _show_rows(context, form, where, opened, counts)
        if opened.moved_to is not None:
            screen.notice(f"This journal was moved to {opened.moved_to}, and can only be read.")
        elif is_table and not is_live:
            await _show_ways_on(context, opened, journal, counts)
    return exit_code(outcomes_of(counts))


async def _show_ways_on(context: Context, journal: Journal, given: str, counts: Mapping[State, int]) -> None:
    """Show what settles, continues or retries items; `given` is the journal as the command was given it."""
    screen = context.screen
    # The address of a shared journal may hold a password, which no command shows.
    place = journal.address if journal.is_shared else given
    service = await journal._entries.service()
    options = options_to(service)
    if service == EMULATOR:
        show_lost_jobs(screen, counts[State.ACTIVE])
    if counts[State.UNKNOWN]:
        show_unknown(screen, await journal.unknown(), place)
    if open_in(counts):
        screen.notice("No process works on it; continue with:")
        screen.command(f"  {resume_command(place, options)}")
    else:
        show_retry(screen, place, sum(counts[state] for state in FAILED), options)


async def _pages(journal: Journal, where: Where, counts: Mapping[State, int]) -> AsyncIterator[list[JournalRow]]:
    """Return the rows in the order of their states, then of the input, in lists that are laid out together."""
    pending: list[JournalRow] = []
    for state in State:
        if counts[state] and (where.states is None or state in where.states):
            async for page in journal.rows(where=attrs.evolve(where, states={state})).pages():
                pending += page
                if len(pending) >= _MOST_ALIGNED:
                    yield pending
                    pending = []
    if pending:
        yield pending


async def _show_rows(context: Context, form: str, where: Where, journal: Journal, counts: Mapping[State, int]) -> None:
    """Write the items page by page, so that any number of them takes little memory."""
    screen, shown = context.screen, 0
    async for page in _pages(journal, where, counts):
        if form == "jsonl":
            screen.json_lines(map(document, page))
        else:
            show_rows(screen, page, header=not shown)
        shown += len(page)
    if form == "table" and where != Where():
        screen.notice(f"{shown:,} of them {'is' if shown == 1 else 'are'} shown.")


async def _watch(context: Context, journal: str) -> int:
    """Show a journal until all items have ended; return the exit code of all items."""
    screen = context.screen
    async with Journal.open(journal, read_only=True) as opened:
        watched = _Watched(opened)
        view = await watched.look()
        line_at = -_LINE_SECONDS
        async with screen.live_view(lambda width, height: live_lines(view, width, height)):
            while view.open:
                if not screen.shows_live_view and time.monotonic() - line_at >= _LINE_SECONDS:
                    screen.line(in_one_line(view))
                    line_at = time.monotonic()
                await asyncio.sleep(max(_LOOK_SECONDS, _REST_PER_LOOK * watched.took))
                view = await watched.look()
    screen.line(tally(view.counts))
    return exit_code(outcomes_of(view.counts))


class _Watched:
    """A journal that other processes work on, seen from outside.

    Attributes:
        took: How many seconds the last look took.
    """

    def __init__(self, journal: Journal) -> None:
        self.took = 0.0
        self._journal = journal
        self._expected = Expected()

    async def look(self) -> View:
        """Return the journal as it is now.

        Raises:
            JournalError: The journal can't be read.
        """
        started, journal = time.monotonic(), self._journal
        workers = await workers_of(journal)  # before the counts: what ends in between leaves no work without a process
        counts, limits = await journal.counts(), await journal.limits()
        self._expected.replace(await recent_durations(journal))
        active = await self._active()
        is_live = is_at_work(workers)
        trouble = _trouble(is_live=is_live, unseen_seconds=await unseen_for(journal))
        # Only a job that was seen of late shows that the service answers.
        is_known = counts[State.ACTIVE] and not trouble
        view = View(
            counts,
            time.time(),
            active,
            await self._end(counts, limits, active) if is_known else None,
            self._expected.usual,
            workers=workers or (),
            trouble=trouble,
        )
        self.took = time.monotonic() - started
        return view

    async def _active(self) -> list[Active]:
        """Return the oldest items under way."""
        now = time.time()
        rows = await self._journal._entries.page(0, state=State.ACTIVE, size=_MOST_ACTIVE)
        return [
            Active(
                row.item_key,
                row.prompt,
                row.state,
                max(now - (row.created_at or row.updated_at).timestamp(), 0.0),
                row.polls,
                row.pr_link,
            )
            for row in rows
        ]

    async def _end(self, counts: Mapping[State, int], limits: FleetLimits, active: list[Active]) -> End | None:
        ages = [item.age for item in active]
        more = counts[State.ACTIVE] + counts[State.SENDING] - len(ages)
        return self._expected.end(
            to_create=counts[State.PLANNED],
            queue=await longest_queue(self._journal, limits, counts),
            ages=[*ages, *[0.0] * max(more, 0)],
            limits=limits,
        )


def _trouble(*, is_live: bool, unseen_seconds: float | None) -> str:
    if not is_live:
        return "no process works on it; agentjobs resume continues"
    if unseen_seconds is not None:
        return f"no active job was seen for {span(unseen_seconds)}: no run polls them, or no server answers"
    return ""


async def _show_left_journals(context: Context, form: str) -> int:
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
            counts, options = await opened.counts(), options_to(await opened._entries.service())
    except JournalError as error:  # one that is broken hides no other
        context.screen.notice(f"{path}: {described(error)}")
        return Counter({Outcome.ACTIVE: 1})
    in_use = is_owned(path)
    states = {state: number for state, number in counts.items() if number}
    if form == "jsonl":
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
