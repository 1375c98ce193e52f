"""The commands about a journal as a whole: `export`, `limits` and `move`."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, JournalRow, Where, move_journal, undo_move
from agentjobs_async.batch._service import options_to
from agentjobs_async.cli._input.limits import changed_limits, limit_texts
from agentjobs_async.cli._input.options import (
    LIMITS,
    TEXT,
    WRITTEN_FILE,
    all_tries_option,
    filter_options,
    journal_argument,
    limit_options,
)
from agentjobs_async.cli._output.columns import in_words
from agentjobs_async.cli._output.endings import tally
from agentjobs_async.cli._output.files import whole_file
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.items import ColumnNames, cell_text, csv_line, document


@command(
    "export",
    journal_exit_codes("it is written, whatever has ended how"),
    "agentjobs export run.db --out results.csv",
)
@journal_argument("The journal; a run may be using it.", "agentjobs export FILE")
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="The file to write.  [default: standard output]")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="[default: by the suffix of --out, or csv]")
@filter_options
@all_tries_option
def export(journal: str, out: str | None, form: str | None, where: Where, *, all_tries: bool) -> int:
    """Write a line for each item: its state, project, job, pull request, error, times, polls, tries, context and extra.

    With --state, --grep, --key, --prefix, --project or --older-than, only for those items that meet all of them.

    The context has the columns of the input that make neither key nor prompt nor --extra.
    """
    form = form or ("jsonl" if (out or "").endswith(".jsonl") else "csv")
    return run_action(lambda context: _export(context, journal, form, out, where, all_tries=all_tries))


async def _export(context: Context, journal: str, form: str, out: str | None, where: Where, *, all_tries: bool) -> int:
    async with Journal.open(journal, read_only=True) as opened:
        rows = await opened.rows(where=where, all_tries=all_tries)
    text = "".join(_csv_lines(rows) if form == "csv" else _json_lines(rows))
    if out is None:
        context.screen.raw_text(text)
    else:
        with whole_file(out) as stream:
            stream.write(text)
        context.screen.notice(f"{len(rows):,} lines written to {out}.")
    return ExitCode.COMPLETED


def _csv_lines(rows: Sequence[JournalRow]) -> Iterator[str]:
    """Yield the line of all columns, then the line of each item."""
    columns = ColumnNames()
    for row in rows:
        columns.add(row)
    names = columns.names
    yield csv_line(map(cell_text, names))
    for item in map(document, rows):
        yield csv_line(cell_text(item.get(name)) for name in names)


def _json_lines(rows: Sequence[JournalRow]) -> Iterator[str]:
    for item in map(document, rows):
        yield f"{json.dumps(item)}\n"


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
