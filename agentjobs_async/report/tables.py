"""The items of a journal as comma-separated values."""

import csv
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TextIO

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.figures import job_seconds
from agentjobs_async.report.source import Source
from agentjobs_async.report.texts import is_formula, link_or_none, shown

__all__ = ["write_csv"]

_MOST_CELL: Final = 32_000  # characters; spreadsheets refuse a cell of more than 32,767

_COLUMNS: Final[dict[str, Callable[[JournalRow], Any]]] = {
    "number": lambda row: row.number,
    "key": lambda row: row.item_key,
    "project": lambda row: row.project_id,
    "state": lambda row: row.state.value,
    "job_id": lambda row: row.job_id,
    "pr_link": lambda row: link_or_none(row.pr_link),
    "error": lambda row: row.error,
    "planned_at": lambda row: _time(row.planned_at),
    "sent_at": lambda row: _time(row.sent_at),
    "created_at": lambda row: _time(row.created_at),
    "seen_at": lambda row: _time(row.seen_at),
    "ended_at": lambda row: _time(row.ended_at),
    "seconds": job_seconds,
    "polls": lambda row: row.polls,
    "tries": lambda row: row.tries,
}
"""The columns of the table, as the page's own CSV has them: named as those of `agentjobs export`, and as rows are."""


def _time(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


async def write_csv(source: Source, stream: TextIO) -> None:
    """Write all rows as comma-separated values. A text that a spreadsheet would run as a formula begins with `'`."""
    columns = {**_COLUMNS, "prompt": lambda row: row.prompt} if source.prompts else _COLUMNS
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    async for row in source.rows():
        writer.writerow([_inert(value(row)) for value in columns.values()])


def _inert(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = shown(value, _MOST_CELL)
    return f"'{text}" if is_formula(text) else text
