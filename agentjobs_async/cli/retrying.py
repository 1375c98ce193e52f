"""The command that plans ended items again."""

from collections.abc import Sequence

from attrs import evolve

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, Where
from agentjobs_async.batch.states import RETRIED
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
        _show_planned(context, opened, planned)
    return ExitCode.COMPLETED if planned == len(keys) else ExitCode.FAILED


async def retry_items(context: Context, journal: str, where: Where, max_tries: int | None) -> int:
    """Plan all items again that meet `where`."""
    async with Journal.open(journal) as opened:
        _show_planned(context, opened, len(await opened.retry(where=where, max_tries=max_tries)))
    return ExitCode.COMPLETED


async def show_retries(context: Context, journal: str, where: Where, max_tries: int | None) -> int:
    """Show which items `retry_items` would plan again."""
    shown = 0
    states = where.states or RETRIED
    async with Journal.open(journal, read_only=True) as opened:
        async for page in opened.rows(where=evolve(where, states=RETRIED.intersection(states))).pages():
            rows = [row for row in page if max_tries is None or row.tries < max_tries]
            context.screen.lines(table_lines(rows, context.screen.width, header=not shown))
            shown += len(rows)
    context.screen.notice(f"{_items(shown)} would be planned again.")
    return ExitCode.COMPLETED


def _show_planned(context: Context, journal: Journal, planned: int) -> None:
    sender = "a worker that runs, or agentjobs resume, sends" if journal.is_shared else "agentjobs resume sends"
    goes_on = f"; {sender} {'it' if planned == 1 else 'them'}" if planned else ""
    context.screen.notice(f"{_items(planned)} planned again{goes_on}.")


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"
