"""The command that writes what became of each item, beside the record of the input where one is given."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.cli._input.options import TEXT, WRITTEN_FILE, journal_argument
from agentjobs_async.cli._input.records import (
    FORMATS,
    Record,
    apparent_format,
    read_text,
    records_of,
    repeated_key,
    suggestion,
)
from agentjobs_async.cli._input.tasks import text_of
from agentjobs_async.cli._output.files import whole_file
from agentjobs_async.cli._output.outcomes import ExitCode, Outcome
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.items import COLUMNS, cell_text, context_column, csv_line, document

_OPTION: Final = "--join"
_OF_THE_RECORD: Final = frozenset({"number", "key", "prompt"})
"""The columns of an item that tell of a record what it tells itself."""

Fields = Mapping[str, Any]
Line = tuple[Fields, Fields]
"""The fields of a record, and the columns of its item."""
Entry = tuple[Record, Fields, str]
"""A record of the input, its fields and its key."""


@command(
    "export",
    journal_exit_codes("it is written, whatever has ended how", "no record of --join has an item"),
    "agentjobs export run.db --out results.csv",
)
@journal_argument("The journal; a run may be using it.", "agentjobs export FILE")
@click.option("--join", "file", metavar="FILE", type=TEXT, help="The input of run: its columns come first.")
@click.option("--input-format", type=click.Choice(FORMATS), help="The format of the input.  [default: as run takes it]")
@click.option("--key", metavar="NAME", type=TEXT, help="The column or field of keys.  [default: the record's number]")
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="The file to write.  [default: standard output]")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="[default: by the suffix of --out, or csv]")
def export(
    journal: str, file: str | None, input_format: str | None, key: str | None, out: str | None, form: str | None
) -> int:
    """Write a line for each item: its state, project, job, pull request, error, times, polls, tries and context.

    With --join, and --key as run was given it, write a line for each record of the input: its own columns, then those
    of its item. A record that was refused or never sent has a line, too.
    """
    if file is None and (key or input_format):
        raise InvalidInputError("--key and --input-format say how to read --join FILE")
    form = form or ("jsonl" if (out or "").endswith(".jsonl") else "csv")
    records = None if file is None else _read(file, input_format, key)
    return run_action(lambda context: _export(context, journal, records, form, out))


async def _export(context: Context, journal: str, records: Sequence[Entry] | None, form: str, out: str | None) -> int:
    """Write one line for each record of the input, or for each item of the journal."""
    async with Journal.open(journal, read_only=True) as opened:
        rows = {row.item_key: row async for row in opened.rows()}
    if records is None:
        lines: list[Line] = [({}, document(row)) for row in rows.values()]
        columns = dict.fromkeys(
            [*COLUMNS, *(context_column(name) for row in rows.values() for name in row.context or ())]
        )
    else:
        lines = list(_joined(records, rows))
        columns = dict.fromkeys(name for name in COLUMNS if name not in _OF_THE_RECORD)
        _warn_of_other_records(context, records, rows)
    text = "".join(_written(form, lines, list(columns)))
    if out is None:
        context.screen.raw_text(text)
    else:
        with whole_file(out) as stream:
            stream.write(text)
        context.screen.notice(f"{len(lines):,} lines written to {out}.")
    if records is not None and not any(key in rows for _, _, key in records):
        context.screen.notice("No record has an item in the journal: was run given another --key, or another file?")
        return ExitCode.FAILED
    return ExitCode.COMPLETED


def _read(file: str, form: str | None, key: str | None) -> list[Entry]:
    """Return the records of the input, each with its fields and the key that `run` gives it."""
    text = read_text(file, _OPTION)
    form = form or apparent_format(file, text)
    records = [(record, _fields(record)) for record in records_of(file, text, form, _OPTION)]
    names = dict.fromkeys(name for _, fields in records for name in fields)
    if key is not None and key not in names:
        raise InvalidInputError(f"{_OPTION} has no column or field {key!r:.60}{suggestion(key, names)}")
    key = key or ("key" if form in {"json", "jsonl"} else None)
    return [(record, fields, _key(fields, key, str(at))) for at, (record, fields) in enumerate(records, 1)]


def _fields(record: Record) -> Fields:
    """Return the columns of a record; a plain line is one of the name `prompt`."""
    return {"prompt": record.fields} if isinstance(record.fields, str) else record.fields or {}


def _key(fields: Fields, name: str | None, place: str) -> str:
    return place if name is None or name not in fields else text_of(fields[name]).strip()


def _joined(records: Sequence[Entry], rows: Mapping[str, JournalRow]) -> Iterator[Line]:
    """Yield the fields of each record, and what became of it: the first of each key has the item."""
    firsts: dict[str, Record] = {}
    for record, fields, key in records:
        if record.defect:
            yield fields, _unsent(Outcome.REFUSED, f"{record.place}: {record.defect}")
            continue
        if not key:
            yield fields, _unsent(Outcome.REFUSED, f"{record.place}: its key is empty")
        elif key in firsts:
            yield fields, _unsent(Outcome.REFUSED, repeated_key(record, firsts[key]))
        elif key in rows:
            yield fields, document(rows[key])
        else:
            yield fields, _unsent(None, "the journal has no such key: refused, or never planned")
        firsts.setdefault(key, record)


def _warn_of_other_records(context: Context, records: Sequence[Entry], rows: Mapping[str, JournalRow]) -> None:
    """Warn that items may stand beside the wrong records: without `--key` the key of a record is its place."""
    # Those that have the items: the first of each key.
    firsts = {key: fields for record, fields, key in reversed(records) if not record.defect}
    count = sum(_is_of_another_record(fields, rows.get(key)) for key, fields in firsts.items())
    if count:
        found = f"{count:,} records differ" if count > 1 else "1 record differs"
        context.screen.notice(
            f"{found} from what the item of the same key was made of: was run given another --key, or another file?"
        )


def _is_of_another_record(fields: Fields, row: JournalRow | None) -> bool:
    """Return whether the item of a record's key was made of another record, as far as its context tells."""
    context = {} if row is None else row.context or {}
    return any(fields.get(name, value) != value for name, value in context.items())


def _unsent(outcome: Outcome | None, error: str) -> Fields:
    return {"state": outcome and outcome.value, "error": error}


def _written(form: str, lines: Sequence[Line], columns: Sequence[str]) -> Iterator[str]:
    """Return the lines of the file: the fields of the records first, then the columns of their items."""
    names = list(dict.fromkeys(name for fields, _ in lines for name in fields))
    own = [_named_beside(names, name) for name in columns]
    if form == "csv":
        yield csv_line(map(cell_text, (*names, *own)))
    for fields, item in lines:
        if form == "csv":
            cells = (cell_text(item.get(name)) for name in columns)
            yield csv_line((*(_cell(fields.get(name)) for name in names), *cells))
        else:
            found = {
                named: item.get(name) for name, named in zip(columns, own, strict=True) if name in {*COLUMNS, *item}
            }
            yield f"{json.dumps({**fields, **found})}\n"


def _named_beside(names: Sequence[str], name: str) -> str:
    """Return the name of an item's column beside the fields of the input: with `agentjobs_` until no field has it."""
    return _named_beside(names, f"agentjobs_{name}") if name in names else name


def _cell(value: object) -> str:
    return "" if value is None else text_of(value)
