"""The command that plans ended items again."""

from collections.abc import Sequence

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, Where
from agentjobs_async.batch._retries import retried
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.listing import table_lines
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.process import Context

__all__ = ["retry_items", "retry_keys", "show_retries"]


async def retry_keys(context: Context, journal: str, keys: Sequence[str]) -> int:
    """Plan the items of these keys again; show why one can't be."""
    planned = 0
    async with Journal.open(journal) as opened:
        for key in keys:
            try:
                await opened.retry(key)
            except InvalidInputError as error:
                context.screen.notice(f"{key} ", ("refused", "bold red"), f": {described(error)}")
            else:
                planned += 1
        _show_planned(context, opened, journal, planned)
    return ExitCode.COMPLETED if planned == len(keys) else ExitCode.FAILED


async def retry_items(context: Context, journal: str, where: Where, max_tries: int | None) -> int:
    """Plan all items again that meet `where`."""
    async with Journal.open(journal) as opened:
        _show_planned(context, opened, journal, len(await opened.retry(where=where, max_tries=max_tries)))
    return ExitCode.COMPLETED


async def show_retries(context: Context, journal: str, where: Where, max_tries: int | None) -> int:
    """Show which items `retry_items` would plan again."""
    shown = 0
    where = retried(where)
    async with Journal.open(journal, read_only=True) as opened:
        opened._opened.check_not_moved()
        async for page in opened.rows(where=where).pages():
            rows = [row for row in page if max_tries is None or row.tries < max_tries]
            context.screen.lines(table_lines(rows, context.screen.width, header=not shown))
            shown += len(rows)
    context.screen.notice(f"{_items(shown)} would be planned again.")
    return ExitCode.COMPLETED


def _show_planned(context: Context, journal: Journal, given: str, planned: int) -> None:
    """Show how many were planned, and what sends them; `given` is the journal as the command was given it."""
    them = "it" if planned == 1 else "them"
    if not planned:
        context.screen.notice("0 items planned again.")
    elif journal.is_shared:  # its address may hold a password, which no command shows
        context.screen.notice(
            f"{_items(planned)} planned again; a worker that runs, or agentjobs resume, sends {them}."
        )
    else:
        context.screen.notice(f"{_items(planned)} planned again. Send {them} with:")
        context.screen.command(f"  {resume_command(given, [])}")


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"
