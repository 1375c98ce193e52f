"""The command that shows a journal: its numbers, then its items."""

from collections.abc import Mapping

from attrs import frozen

from agentjobs_async.batch import Journal, State, Where
from agentjobs_async.batch._active_jobs import ActiveJobs
from agentjobs_async.batch._workers import is_at_work, workers_of
from agentjobs_async.cli._output.github import show_on_github
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.listing import row_in_words, table_lines
from agentjobs_async.cli._output.moments import ends_in
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.item_results import outcomes_of
from agentjobs_async.cli.outcomes import exit_code
from agentjobs_async.cli.process import Context
from agentjobs_async.report.markdown import MOST_BYTES, MarkdownTable, chart_lines

__all__ = ["StatusOptions", "show_status"]


@frozen
class StatusOptions:
    """The options of `status`.

    Attributes:
        form: `table`, `markdown` or `jsonl`.
        where: Which items are shown.
        is_summary: Whether only the numbers are shown.
    """

    form: str
    where: Where
    is_summary: bool


async def show_status(context: Context, journal: str, options: StatusOptions) -> int:
    """Write how many items of the journal are in which state, then the items, as a table, Markdown or JSON Lines."""
    async with Journal.open(journal, read_only=True) as opened:
        is_table = options.form == "table"
        # Before the counts: what ends in between leaves no work without a process.
        is_idle = is_table and opened.moved_to is None and not is_at_work(await workers_of(opened))
        counts = await opened.counts()
        _show_counts(context, options, counts)
        if is_table and counts[State.ACTIVE] and not is_idle:
            left = await ActiveJobs(opened).time_left()
            context.screen.lines([] if left is None else [(ends_in(left),)])
        if options.form == "markdown" and not options.is_summary:
            await _show_markdown(context, options.where, opened, counts)
        elif not options.is_summary:
            await _show_rows(context, options, opened)
        words = tally(counts)
        await show_on_github(context.screen, opened, counts, words, is_for_people=is_table)
        if is_idle and any(number for state, number in counts.items() if state.is_open):
            _show_idle(context, opened, journal)
        if opened.moved_to is not None:
            context.screen.notice(f"This journal was moved to {opened.moved_to}, and can only be read.")
    return exit_code(outcomes_of(counts))


def _show_idle(context: Context, opened: Journal, given: str) -> None:
    """Show what continues a journal; `given` is the journal as the command was given it."""
    if opened.is_shared:  # its address may hold a password, which no command shows
        context.screen.notice("No process works on it; agentjobs worker or resume continues.")
    else:
        context.screen.notice("No process works on it; continue with:")
        context.screen.command(f"  {resume_command(given, [])}")


def _show_counts(context: Context, options: StatusOptions, counts: Mapping[State, int]) -> None:
    states = {state: number for state, number in counts.items() if number}
    if options.form != "jsonl":
        context.screen.line(tally(counts))
    elif options.is_summary:
        context.screen.json_lines([{"items": sum(states.values()), "states": states}])


async def _show_markdown(context: Context, where: Where, journal: Journal, counts: Mapping[State, int]) -> None:
    """Write a chart of all items, and a table of those that `where` names: both fit the summary of a step on GitHub."""
    table = MarkdownTable()
    async for page in journal.rows(where=where).pages():
        for row in page:
            table.add(row_in_words(row))
    above = [*chart_lines(counts), ""]  # without the blank line, the line before would be a row of the table
    room = MOST_BYTES - sum(len(line) + 1 for line in (tally(counts), *above))
    context.screen.lines(((line,) for line in (*above, *table.within(room))), wrap=False)


async def _show_rows(context: Context, options: StatusOptions, journal: Journal) -> None:
    """Write the items page by page, so that any number of them takes little memory."""
    shown = 0
    async for page in journal.rows(where=options.where).pages():
        if options.form == "jsonl":
            context.screen.json_lines(row.to_dict() for row in page)
        else:
            context.screen.lines(table_lines(page, context.screen.width, header=not shown))
        shown += len(page)
    if options.form == "table" and options.where != Where():
        context.screen.notice(f"{shown:,} of them {'is' if shown == 1 else 'are'} shown.")
