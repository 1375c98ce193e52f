"""What is shown of an item: the one table of its columns, and the writers of CSV and JSON Lines.

Every file and every document of an item has these columns by these names in this order, then those of its context
and of its extra. It reads no journal and needs no extra of the package, so that jobs without a journal are shown with
it as well.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

from attrs import frozen

from agentjobs_async._deferred import deferred
from agentjobs_async.batch.states import WITHOUT_ERROR
from agentjobs_async.report.texts import is_formula, link_or_none, shown

if TYPE_CHECKING:
    from agentjobs_async.batch import JournalRow
    from agentjobs_async.report.source import Source
else:
    JournalRow = deferred("agentjobs_async.batch", "JournalRow")
    Source = deferred("agentjobs_async.report.source", "Source")

__all__ = [
    "COLUMNS",
    "Column",
    "ColumnNames",
    "cell_text",
    "context_column",
    "csv_line",
    "document",
    "field_columns",
    "pull_request_of",
    "shared_reason",
    "time_text",
    "without_error",
    "write_csv",
    "write_jsonl",
]

# ASCII, no user before the host, no query: a name must not hide that a link leads elsewhere.
_PULL_REQUEST: Final = re.compile(r"https?://[\w.-]+(?::\d+)?/([\w.-]+/[\w.-]+)/pull/([\w-]+)/?", re.ASCII)
_JOB_OF_ERROR: Final = re.compile(r"\Ajob \S+: ")
_DETAILS: Final = re.compile(r":(?:\s|\Z)|\s\(")  # of an error, which few items share
_LONGEST_REASON: Final = 80  # characters
_PREFIX: Final = "context."
_EXTRA_PREFIX: Final = "extra."
_PREFIXES: Final = re.compile(rf"\A(?:{re.escape(_PREFIX)})+")


@frozen
class Column:
    """A column of an item.

    Attributes:
        words: Its name as people read it.
        of: Returns what a row has in it: a text, a number, or `None` for nothing.
    """

    words: str
    of: "Callable[[JournalRow], str | int | None]"


def time_text(time: datetime | None) -> str | None:
    """Return a time to the nearest millisecond, as the page has it."""
    if time is None:
        return None
    time += timedelta(microseconds=500)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def without_error(state: str, job: str | None) -> str | None:
    """Return why an item has no result where no error says so, with its job; `None` if it has or may get a result."""
    words = WITHOUT_ERROR.get(state)
    return words if words is None or job is None else f"{words} ({job})"


def shared_reason(error: str | None) -> str | None:
    """Return the beginning of an error that many items share, such as `HTTP 422` of `HTTP 422: the prompt is empty`.

    It ends before the first colon or bracket, or with the last whole word of the first 80 characters. `None` without
    an error.
    """
    if error is None:
        return None
    first_line = _JOB_OF_ERROR.sub("", error).partition("\n")[0]
    reason = _DETAILS.split(first_line, maxsplit=1)[0].strip()
    if len(reason) <= _LONGEST_REASON:
        return reason or None
    whole_words = reason[: _LONGEST_REASON + 1].rpartition(" ")[0]
    return whole_words or reason[:_LONGEST_REASON]


def pull_request_of(link: str | None) -> str | None:
    """Return how people name a pull request, such as `acme/docs#123`, where its link has that form; else the link."""
    checked = link_or_none(link)
    found = None if checked is None else _PULL_REQUEST.fullmatch(checked)
    return checked if found is None else f"{found[1]}#{found[2]}"


COLUMNS: Final = {
    "number": Column("number", lambda row: row.number),
    "key": Column("key", lambda row: row.key),
    "state": Column("state", lambda row: row.state.value),
    "project": Column("project", lambda row: row.project_id),
    "job_id": Column("job", lambda row: row.job_id),
    "pr_link": Column("link of the pull request", lambda row: link_or_none(row.pr_link)),
    "pull_request": Column("pull request", lambda row: pull_request_of(row.pr_link)),
    "reason": Column("reason", lambda row: shared_reason(row.why)),
    "error": Column("error", lambda row: row.why),
    "planned_at": Column("planned", lambda row: time_text(row.planned_at)),
    "sent_at": Column("sent", lambda row: time_text(row.sent_at)),
    "created_at": Column("created", lambda row: time_text(row.created_at)),
    "seen_at": Column("seen", lambda row: time_text(row.seen_at)),
    "ended_at": Column("ended", lambda row: time_text(row.ended_at)),
    "polls": Column("polls", lambda row: row.polls),
    "tries": Column("tries", lambda row: row.tries),
    "prompt": Column("prompt", lambda row: row.prompt),
}
"""The columns of an item by their names, in their order."""


def context_column(name: str) -> str:
    """Return the name of the column that has a field of the context; two fields never have the same one.

    A field that is named as a column, or as the column of such a field, gets the prefix `context.`: `key` becomes
    `context.key`, and so `context.key` becomes `context.context.key`.
    """
    return f"{_PREFIX}{name}" if _PREFIXES.sub("", name) in COLUMNS else name


def field_columns(row: "JournalRow") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a row's context, and those of its extra, by the names of their columns, which all differ.

    A field of the extra that is named as a column, or as a field of this context, gets the prefix `extra.`.
    """
    context = {context_column(name): value for name, value in (row.context or {}).items()}
    extra: dict[str, Any] = {}
    for name, value in (row.extra or {}).items():
        column = name
        while column in COLUMNS or column in context or column in extra:
            column = f"{_EXTRA_PREFIX}{column}"
        extra[column] = value
    return context, extra


def document(row: "JournalRow", *, prompts: bool = True) -> dict[str, Any]:
    """Return what each column has of a row, then its context and extra; they and its prompt only with `prompts`."""
    own = {name: column.of(row) for name, column in COLUMNS.items() if prompts or name != "prompt"}
    context, extra = field_columns(row) if prompts else ({}, {})
    return own | context | extra


class ColumnNames:
    """The columns of a table of items: those of each item, then the fields of all contexts, then those of all extras.

    Args:
        prompts: Whether they have the prompts, contexts and extras.
    """

    def __init__(self, *, prompts: bool = True) -> None:
        self._prompts = prompts
        self._contexts: dict[str, None] = {}
        self._extras: dict[str, None] = {}

    def add(self, row: "JournalRow") -> None:
        """Add the fields of a row."""
        if self._prompts and (row.context or row.extra):
            context, extra = field_columns(row)
            self._contexts |= dict.fromkeys(context)
            self._extras |= dict.fromkeys(extra)

    @property
    def names(self) -> list[str]:
        """Their names, each once."""
        own = (name for name in COLUMNS if self._prompts or name != "prompt")
        return list(dict.fromkeys([*own, *self._contexts, *self._extras]))


def cell_text(value: object) -> str:
    """Return a value as a cell has it: a whole text without what acts on a screen, `None` as nothing, else JSON."""
    if value is None:
        return ""
    return shown(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _inert(text: str) -> str:
    """Return a text as a cell has it: one that a spreadsheet would run as a formula begins with `'`."""
    return f"'{text}" if is_formula(text) else text


def csv_line(cells: Iterable[str]) -> str:
    """Return texts, made inert, as one record with its line end."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(map(_inert, cells))
    return written.getvalue()


async def _columns_of(source: "Source") -> list[str]:
    columns = ColumnNames(prompts=source.prompts)
    if source.prompts:
        async for row in source.journal.rows():
            columns.add(row)
    return columns.names


async def write_csv(source: "Source", stream: TextIO) -> None:
    """Write all rows as comma-separated values."""
    names = await _columns_of(source)
    stream.write(csv_line(map(cell_text, names)))
    async for row in source.rows():
        found = document(row, prompts=source.prompts)
        stream.write(csv_line(cell_text(found.get(name)) for name in names))


async def write_jsonl(source: "Source", stream: TextIO) -> None:
    """Write all rows as JSON objects, one per line."""
    async for row in source.rows():
        stream.write(f"{json.dumps(document(row, prompts=source.prompts))}\n")
