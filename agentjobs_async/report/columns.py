"""Rows as columns, the shape in which a page gets them: all at once in a file, or those that changed from a server.

A block is a JSON object with one list per column of `items`, of some rows. Each block stands alone: a page adds the
rows whose `number` it does not know, and replaces the others. A column of numbers or times has differences: each cell
is added to the sum of those above it. Times are whole milliseconds since the epoch; `null` stands for a time that has
not come, and adds nothing. Texts are whole. Where a block has no column `prompt`, `context` or `extra`, a page leaves
those of known rows as they are; a block whose rows have no context has no such column, nor one of extras without them.
The column `look` says where to look for the job of an unknown item; a block without unknown items has no such column.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.commands import COMMANDS, where_to_look
from agentjobs_async.report.items import COLUMNS, cell_text, field_columns
from agentjobs_async.report.source import Source
from agentjobs_async.report.texts import milliseconds, shown

__all__ = ["block", "block_line", "head_line"]

_COUNTS: Final = frozenset({"number", "polls", "tries"})
_TIMES: Final = frozenset({"planned_at", "sent_at", "created_at", "seen_at", "ended_at"})


def block(rows: Sequence[JournalRow], *, prompts: bool = True) -> dict[str, list[Any]]:
    """Return the columns of some rows; those of prompts, contexts and extras only with `prompts`."""
    columns = {name: _cells(name, rows) for name in COLUMNS if prompts or name != "prompt"}
    if any(row.state is State.UNKNOWN for row in rows):
        columns["look"] = [where_to_look(row) if row.state is State.UNKNOWN else None for row in rows]
    if prompts and any(row.context or row.extra for row in rows):
        fields = dict(zip(("context", "extra"), zip(*map(field_columns, rows), strict=True), strict=True))
        columns |= {name: list(map(_texts, found)) for name, found in fields.items() if any(found)}
    return columns


def _cells(name: str, rows: Sequence[JournalRow]) -> list[Any]:
    if name in _TIMES:
        return _differences(milliseconds(getattr(row, name)) for row in rows)
    if name in _COUNTS:
        return _differences(getattr(row, name) for row in rows)
    values = [COLUMNS[name].of(row) for row in rows]
    if name == "key":
        return values  # as it is: commands name it
    return [shown(value) if isinstance(value, str) else value for value in values]


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    return {name: cell_text(value) for name, value in fields.items()}


def _differences(values: Iterable[int | None]) -> list[int | None]:
    found: list[int | None] = []
    before = 0
    for value in values:
        found.append(None if value is None else value - before)
        before = before if value is None else value
    return found


def block_line(rows: Sequence[JournalRow], *, prompts: bool = True) -> str:
    """Return the columns of some rows as one line of JSON; the arguments are those of `block`."""
    return json.dumps(block(rows, prompts=prompts), ensure_ascii=False, separators=(",", ":"))


def head_line(source: Source, **more: str) -> str:
    """Return what a page knows besides its rows, as one line of JSON.

    `journal` is its name, `address` what commands name, `service` the options that lead them to its service, `made` the
    time in milliseconds since the epoch, `order` the states as they are shown, and `commands` what can be done about an
    item, by its state. A live page has `more`.
    """
    head = {
        "journal": shown(source.journal.name),
        "address": source.journal.address,
        "service": list(source.service),
        "made": round(source.made_at * 1000),
        "order": list(State),
        "commands": COMMANDS,
        **more,
    }
    return json.dumps(head, separators=(",", ":"))  # in ASCII: the path of a file may be no UTF-8
