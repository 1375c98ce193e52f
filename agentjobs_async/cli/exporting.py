"""The command that writes the outcome of each item, beside the row of the input where one is given."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.cli._input.records import Record, apparent_format, read_text, records_of
from agentjobs_async.cli._input.tasks import text_of
from agentjobs_async.cli._output.files import whole_file
from agentjobs_async.cli.item_results import row_result
from agentjobs_async.cli.out_forms import csv_line
from agentjobs_async.cli.outcomes import ExitCode, Outcome
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.reasons import reason

__all__ = ["Export", "Join", "export"]

_OPTION: Final = "--join"
_OWN: Final = ("outcome", "pr_link", "job", "tries", "sent_at", "created_at", "ended_at", "error")
_ITEM: Final = ("key", "prompt", "project")

Fields = Mapping[str, Any]
Line = tuple[Fields, Fields]
"""The fields of a record or an item, and what became of it."""
Entry = tuple[Record, Fields, str]
"""A record of the input, its fields and its key."""


@frozen
class Join:
    """The input beside which the outcomes are written.

    Attributes:
        file: The file; `-` is standard input.
        form: Its format; `None` goes by the suffix and the first line.
        key: The column or field that is the key; `None` for the key that `run` takes without `--key`.
    """

    file: str
    form: str | None
    key: str | None


@frozen
class Export:
    """The options of `export`.

    Attributes:
        journal: The file or URL of the journal.
        form: `csv` or `jsonl`.
        out: The file to write; `None` for standard output.
        join: The input; `None` for the items as the journal has them.
    """

    journal: str
    form: str
    out: str | None
    join: Join | None


async def export(context: Context, options: Export) -> int:
    """Write one line for each record of the input, or for each item of the journal."""
    records = None if options.join is None else _read(options.join)
    async with Journal.open(options.journal, read_only=True) as journal:
        rows = {row.item_key: row async for row in journal.rows()}
    if records is None:
        names: tuple[str, ...] = _ITEM
        lines = [(_planned(row), _told(row)) for row in rows.values()]
    else:
        names = tuple(dict.fromkeys(name for _, fields, _ in records for name in fields))
        lines = list(_joined(records, rows))
        # Those that have the items: the first of each key.
        firsts = {key: fields for record, fields, key in reversed(records) if not record.defect}
        _warn_of_other_records(
            context, sum(_is_of_another_record(fields, rows.get(key)) for key, fields in firsts.items())
        )
    text = "".join(_written(options.form, names, lines))
    if options.out is None:
        context.screen.raw_text(text)
    else:
        with whole_file(options.out) as stream:
            stream.write(text)
        context.screen.notice(f"{len(lines):,} lines written to {options.out}.")
    return ExitCode.COMPLETED


def _read(join: Join) -> list[Entry]:
    """Return the records of the input, each with its fields and the key that `run` gives it."""
    text = read_text(join.file, _OPTION)
    form = join.form or apparent_format(join.file, text)
    records = [(record, _fields(record)) for record in records_of(join.file, text, form, _OPTION)]
    if join.key is not None and not any(join.key in fields for _, fields in records):
        raise InvalidInputError(f"{_OPTION} has no column or field {join.key!r:.60}")
    key = join.key or ("key" if form in {"json", "jsonl"} else None)
    return [(record, fields, _key(fields, key, str(at))) for at, (record, fields) in enumerate(records, 1)]


def _fields(record: Record) -> Fields:
    """Return the columns of a record; a plain line is one of the name `prompt`."""
    return {"prompt": record.fields} if isinstance(record.fields, str) else record.fields or {}


def _key(fields: Fields, name: str | None, place: str) -> str:
    return place if name is None or name not in fields else text_of(fields[name]).strip()


def _joined(records: list[Entry], rows: Mapping[str, JournalRow]) -> Iterator[Line]:
    """Yield the fields of each record, and what became of it: the first of each key has the item."""
    met: set[str] = set()
    for record, fields, key in records:
        if record.defect:
            yield fields, _unsent(Outcome.REJECTED, f"{record.place}: {record.defect}")
            continue
        if not key:
            yield fields, _unsent(Outcome.REJECTED, f"{record.place}: its key is empty")
        elif key in met:
            yield fields, _unsent(Outcome.REJECTED, "the key came before in this file")
        elif key in rows:
            yield fields, _told(rows[key])
        else:
            yield fields, _unsent(Outcome.NOT_SENT, "the journal has no such key: refused, or never planned")
        met.add(key)


def _is_of_another_record(fields: Fields, row: JournalRow | None) -> bool:
    """Return whether the item of a record's key was made of another record, as far as its context tells."""
    context = {} if row is None else row.context or {}
    return any(fields.get(name, value) != value for name, value in context.items())


def _warn_of_other_records(context: Context, count: int) -> None:
    """Warn that outcomes may stand beside the wrong records: without `--key` the key of a record is its place."""
    if count:
        found = f"{count:,} records differ" if count > 1 else "1 record differs"
        context.screen.notice(
            f"{found} from what the item of the same key was made of: was run given another --key, or another file?"
        )


def _unsent(outcome: Outcome, error: str) -> Fields:
    return {"outcome": outcome.value, "error": error}


def _planned(row: JournalRow) -> Fields:
    return {"key": row.item_key, "prompt": row.prompt, "project": row.project_id}


def _told(row: JournalRow) -> Fields:
    """Return what became of an item, by the names of its columns."""
    result = row_result(row)
    times = {name: time and time.isoformat() for name in _OWN if (time := getattr(row, name, None)) and "_at" in name}
    return {
        "outcome": result.outcome.value,
        "pr_link": row.pr_link,
        "job": result.ref and result.ref.to_token(),
        "tries": row.tries,
        **times,
        "error": reason(result),
    }


def _written(form: str, names: Sequence[str], lines: Sequence[Line]) -> Iterator[str]:
    own = [f"agentjobs_{name}" if name in names else name for name in _OWN]
    if form == "csv":
        yield csv_line((*names, *own))
    for fields, told in lines:
        values = [told.get(name) for name in _OWN]
        if form == "csv":
            yield csv_line((*(_cell(fields.get(name)) for name in names), *values))
        else:
            yield f"{json.dumps({**fields, **dict(zip(own, values, strict=True))})}\n"


def _cell(value: object) -> str:
    return "" if value is None else text_of(value)
