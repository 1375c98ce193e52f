"""The formats with one line for each item: CSV, and the job log of GNU parallel."""

import csv
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TextIO

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.figures import job_seconds
from agentjobs_async.report.source import Source
from agentjobs_async.report.texts import is_formula, link_or_none, seconds_between, shown

__all__ = ["write_csv", "write_joblog"]

_MOST_CELL: Final = 32_000  # characters; spreadsheets refuse a cell of more than 32,767
_MOST_COMMAND: Final = 1000  # characters of a line of the log
_EXIT_CODES: Final = {State.COMPLETED: 0, State.FAILED: 1, State.ARCHIVED: 1, State.REJECTED: 1, State.UNKNOWN: 4}
"""The items that a log of ended jobs has, with the exit codes of the command line."""

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


async def write_joblog(source: Source, stream: TextIO) -> None:
    """Write what has ended as the job log of GNU parallel: Host is the project, Send the bytes of the prompt."""
    stream.write("Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n")
    async for row in source.rows():
        if row.state in _EXIT_CODES:
            begun = row.created_at or row.sent_at or row.planned_at
            cells = (
                str(row.number),
                _one_cell(row.project_id or ":"),  # parallel's own word for the local host
                f"{0 if begun is None else begun.timestamp():.3f}",
                f"{seconds_between(begun, row.ended_at) or 0:10.3f}",
                *(str(len(row.prompt.encode(errors="replace"))), "0", str(_EXIT_CODES[row.state]), "0"),
                _one_cell(f"{row.item_key} {row.prompt}" if source.prompts else row.item_key),
            )
            stream.write("\t".join(cells) + "\n")


def _one_cell(text: str) -> str:
    return shown(text, _MOST_COMMAND).replace("\t", " ").replace("\n", " ")
