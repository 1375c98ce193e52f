"""Rows as columns, the shape in which a page gets them: all at once in a file, or those that changed from a server.

A block is a JSON object with one list per column, of some rows. Each block stands alone: a page adds the rows whose
`number` it does not know, and replaces the others. So that 100,000 rows fit a mail, a cell holds only what the row
before, or the cell before in its own row, does not have:

- `number`, `planned_at` and `sent_at` are less those of the row before that has one, and 0 before the first.
- `created_at`, `seen_at` and `ended_at` are less the last time before them in their row that is not `null`. All times
  are whole milliseconds since the epoch; `null` stands for a time that has not come.
- A column of texts is an object: `text` less as many characters of the text before as `start` says at its start, and
  `end` at its end. The row's job is U+0001 in it, and a longer key U+0002.

The columns are those of `items`; `context` is left out of a block in which no row has one.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from agentjobs_async._validation import MAX_NAME_LENGTH
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.commands import COMMANDS
from agentjobs_async.report.items import cell_text, context_column
from agentjobs_async.report.source import Source
from agentjobs_async.report.texts import link_or_none, milliseconds, shown

__all__ = ["MOST_TEXT", "block", "block_line", "head_line", "most_prompt"]

MOST_TEXT: Final = 2000
"""Characters of a prompt or an error: what a person reads of one."""
_OTHERS_FACTOR: Final = 16  # times as many characters for items that are not completed: their prompts are read
_MOST_COMMON: Final = 255  # characters that are compared with the text before, at each end
_LEAST_KEY: Final = 4  # characters: a shorter one occurs in any text by chance
_LAST_UNIT: Final = "\uffff"
_JOB_MARK, _KEY_MARK = "\x01", "\x02"  # no text has them: `shown` escapes control characters


def block(rows: Sequence[JournalRow], *, prompts: bool = True, most: int = MOST_TEXT) -> dict[str, Any]:
    """Return the columns of some rows.

    Args:
        rows: The rows.
        prompts: Whether there are columns of prompts and contexts.
        most: The characters of the prompt of a completed item; the others have up to 16 times as many.
    """
    columns: dict[str, Any] = {
        "number": _less_before([row.number for row in rows]),
        "state": [row.state.value for row in rows],
        "polls": [row.polls for row in rows],
        "tries": [row.tries for row in rows],
        "key": _shortened(row.item_key for row in rows),  # as it is: commands name it
        "project": _shortened(_cut(row.project_id, MAX_NAME_LENGTH) for row in rows),
        "job_id": _shortened(_cut(row.job_id, MAX_NAME_LENGTH) for row in rows),
        "pr_link": _shortened(_marked(row, link_or_none(row.pr_link)) for row in rows),
        "error": _shortened(_marked(row, _cut(row.error, MOST_TEXT)) for row in rows),
        **_times(rows),
    }
    if prompts:
        columns["prompt"] = _shortened(_marked(row, _cut(row.prompt, most_prompt(row, most))) for row in rows)
        if any(row.context for row in rows):
            columns["context"] = [_context(row.context or {}) for row in rows]
    return columns


def most_prompt(row: JournalRow, most: int) -> int:
    """Return how many characters of its prompt a row has, where a completed item has `most`."""
    return most if row.state is State.COMPLETED else min(most * _OTHERS_FACTOR, MOST_TEXT)


def _context(context: dict[str, Any]) -> dict[str, str | None]:
    return {context_column(name): _cut(cell_text(value), MOST_TEXT) for name, value in context.items()}


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else shown(text, most)


def _marked(row: JournalRow, text: str | None) -> str | None:
    if text is None:
        return None
    if row.job_id:
        text = text.replace(row.job_id, _JOB_MARK)
    return text.replace(row.item_key, _KEY_MARK) if len(row.item_key) >= _LEAST_KEY else text


def _shortened(texts: Iterable[str | None]) -> dict[str, list[Any]]:
    """Return each text without what it has in common with the one before."""
    starts, ends, rests = [], [], []
    before = ""
    for text in texts:
        start = end = 0
        rest = text
        if text is not None:
            # A character beyond U+FFFF counts twice in a script: such a text has nothing in common with any.
            whole = text if text.isascii() or max(text) <= _LAST_UNIT else ""
            start = _common(before, whole)
            end = _common(before[start:][::-1], whole[start:][::-1])
            rest = text[start : len(text) - end]
            before = whole
        starts.append(start)
        ends.append(end)
        rests.append(rest)
    return {"start": starts, "end": ends, "text": rests}


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    low, high = 0, min(len(one), len(other), _MOST_COMMON)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _less_before(values: Iterable[int | None]) -> list[int | None]:
    less: list[int | None] = []
    before = 0
    for value in values:
        less.append(None if value is None else value - before)
        before = before if value is None else value
    return less


def _times(rows: Sequence[JournalRow]) -> dict[str, list[int | None]]:
    planned = [milliseconds(row.planned_at) for row in rows]
    sent = [milliseconds(row.sent_at) for row in rows]
    columns: dict[str, list[int | None]] = {"created_at": [], "seen_at": [], "ended_at": []}
    for row, *before in zip(rows, planned, sent, strict=True):
        last = next((time for time in reversed(before) if time is not None), 0)
        for name, column in columns.items():
            time = milliseconds(getattr(row, name))
            column.append(None if time is None else time - last)
            last = last if time is None else time
    return {"planned_at": _less_before(planned), "sent_at": _less_before(sent), **columns}


def block_line(rows: Sequence[JournalRow], *, prompts: bool = True, most: int = MOST_TEXT) -> str:
    """Return the columns of some rows as one line of JSON; the arguments are those of `block`."""
    return json.dumps(block(rows, prompts=prompts, most=most), ensure_ascii=False, separators=(",", ":"))


def head_line(source: Source, **more: str) -> str:
    """Return what a page knows besides its rows, as one line of JSON.

    `journal` is its name, `address` what commands name, `service` the options that lead them to its service, `made` the
    time in milliseconds since the epoch, `order` the states as they are shown, and `commands` what can be done about an
    item, by its state. A live page has `more`.
    """
    head = {
        "journal": shown(source.journal.name, MAX_NAME_LENGTH),
        "address": source.journal.address,
        "service": list(source.service),
        "made": round(source.made_at * 1000),
        "order": list(State),
        "commands": COMMANDS,
        **more,
    }
    return json.dumps(head, separators=(",", ":"))  # in ASCII: the path of a file may be no UTF-8
