"""The text of an input, and its records: CSV, TSV, JSON Lines, a JSON array, or plain lines."""

import csv
import errno
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Any, Final

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line

FORMATS: Final = ("lines", "jsonl", "json", "csv", "tsv")
_BY_SUFFIX: Final = {".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_DELIMITERS: Final = {"csv": ",", "tsv": "\t"}
_LINE_END: Final = re.compile("\r\n|\r|\n")
_FEWEST_COMMAS: Final = 3  # in every line: prose rarely has so many throughout
_SHOWN: Final = 60  # characters of a name in a message
_TEMPLATE_ADVICE: Final = "give --prompt, such as --prompt 'Document {title}', or say --input-format lines"


@frozen
class Record:
    """One record of an input.

    Attributes:
        place: Where it is, such as `line 7`.
        fields: Its fields by their names; of a table it has all columns, a missing cell as `None`, and the cells beyond
            the last column as `column 4` and so on; a plain line is a text; `None` if it cannot be read.
        defect: Why it cannot be sent; empty if it can.
    """

    place: str
    fields: Mapping[str, Any] | str | None
    defect: str = ""


def read_text(file: str, option: str = "--file") -> str:
    """Return the text of a file without its byte order mark; `-` is standard input.

    Raises:
        InvalidInputError: It cannot be read as UTF-8, or has characters NUL, as UTF-16 without a mark does.
    """
    name = _name(file)
    try:
        text = _read(file).decode("utf-8-sig")
    except OSError as error:
        defect = f"{option}: {name} can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        defect = f"{option}: {name} is not UTF-8 (byte {error.start}); convert it first"
    else:
        if "\0" not in text:
            return text
        defect = f"{option}: {name} has characters NUL, as UTF-16 does, and is no UTF-8; convert it first"
    raise InvalidInputError(defect)


def _read(file: str) -> bytes:
    if file != "-":
        return Path(file).read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()


def table_format(file: str, text: str, named: str | None, *, has_template: bool) -> str:
    """Return the format of an input: `named`, else that of the file's suffix, else what its first line shows.

    Raises:
        InvalidInputError: It looks like a table or an array and would be taken for plain prompts, or a template needs
            fields, which plain lines do not have.
    """
    found = named or _format_of_suffix(file) or _apparent(text, has_template=has_template)
    if found == "json" and not text.lstrip().startswith("["):
        found = "jsonl"
    if found in _DELIMITERS and not has_template:
        raise InvalidInputError(f"--file: {_name(file)} is a table: {_TEMPLATE_ADVICE}")
    if found == "lines" and has_template:
        raise InvalidInputError("--prompt and --key need columns or fields: say --input-format csv, tsv, jsonl or json")
    return found


def _format_of_suffix(file: str) -> str | None:
    """Return the format that a file's suffix stands for; `None` for any other suffix."""
    return _BY_SUFFIX.get(PurePath(file).suffix.lower())


def apparent_format(file: str, text: str) -> str:
    """Return the format of an input by its suffix, else by how it begins: JSON Lines, or plain lines."""
    found = _format_of_suffix(file) or ("jsonl" if text.lstrip().startswith("{") else "lines")
    return "jsonl" if found == "json" and not text.lstrip().startswith("[") else found


def records_of(file: str, text: str, form: str, option: str = "--file") -> list[Record]:
    """Return the records of `text`, the file of `option`; blank lines do not count.

    Raises:
        InvalidInputError: The text as a whole is not in this format.
    """
    if form == "json":
        return _array(f"{option}: {_name(file)}", text)
    if form in _DELIMITERS:
        return _table(f"{option}: {_name(file)}", text, _DELIMITERS[form])
    lines = [(number, line) for number, line in enumerate(_LINE_END.split(text), 1) if line.strip()]
    if form == "jsonl":
        return [_object(f"line {number}", line) for number, line in lines]
    return [Record(f"line {number}", line) for number, line in lines]


def _apparent(text: str, *, has_template: bool) -> str:
    beginning = text.lstrip()
    if beginning.startswith("{"):
        return "jsonl"
    if re.match(r"\[\s*\{", beginning):
        if has_template:
            return "json"
        raise InvalidInputError("--file: it begins like a JSON array: say --input-format json, or lines for prompts")
    lines = [line for line in _LINE_END.split(text) if line.strip()]
    if not has_template and len(lines) > 1 and min(line.count(",") for line in lines) >= _FEWEST_COMMAS:
        raise InvalidInputError(
            f"--file: it looks like CSV, with commas in every line: say --input-format csv and {_TEMPLATE_ADVICE}"
        )
    return "lines"


class _RepeatedNameError(ValueError):
    """An object has two members of one name, of which a lenient parser would take the last."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _RepeatedNameError(f"it has {_repeated([name for name, _ in pairs])!r} twice")
    return members


def _repeated(names: Sequence[str]) -> str:
    return one_line(next(name for at, name in enumerate(names) if name in names[:at]), _SHOWN)


def _object(place: str, line: str) -> Record:
    try:
        document = json.loads(line, object_pairs_hook=_members)
    except _RepeatedNameError as error:
        return Record(place, None, str(error))
    except (ValueError, RecursionError):
        return Record(place, None, "it is no JSON")
    return _record(place, document)


def _record(place: str, document: object) -> Record:
    if isinstance(document, dict):
        return Record(place, document)
    return Record(place, None, "it is no JSON object")


def _array(name: str, text: str) -> list[Record]:
    try:
        documents = json.loads(text, object_pairs_hook=_members)
    except _RepeatedNameError as error:
        defect = str(error)
    except RecursionError:
        defect = "it is nested too deeply"
    except ValueError as error:
        defect = f"it is no JSON ({error})"
    else:
        return [_record(f"item {number}", document) for number, document in enumerate(documents, 1)]
    raise InvalidInputError(f"{name}: {defect}")


def _table(name: str, text: str, delimiter: str) -> list[Record]:
    # For the whole process: a cell may be a whole document, and the text is in memory already.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows = list(_rows(reader))
    except csv.Error as error:
        defect = f"line {reader.line_num}: {error}"
    else:
        return _with_names(name, rows)
    raise InvalidInputError(f"{name}, {defect}")


def _rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Return the rows that are not blank, each with the number of the line where it begins."""
    begin = 1
    for row in reader:
        if any(cell.strip() for cell in row):
            yield begin, row
        begin = reader.line_num + 1


def _with_names(name: str, rows: list[tuple[int, list[str]]]) -> list[Record]:
    if not rows:
        return []
    head = rows[0][1]
    width = max(len(_trimmed(cells[: len(head)], 0)) for _, cells in rows)
    names = [name.strip() for name in head[:width]]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"{name} has two columns {_repeated(names)!r}")
    return [_row(f"line {number}", names, _trimmed(cells, width)) for number, cells in rows[1:]]


def _trimmed(cells: list[str], least: int) -> list[str]:
    """Return the cells without empty ones at the end, which spreadsheets save, but `least` of them."""
    while len(cells) > least and not cells[-1].strip():
        cells = cells[:-1]
    return cells


def _row(place: str, names: Sequence[str], cells: Sequence[str]) -> Record:
    beyond = [f"column {number}" for number in range(len(names) + 1, len(cells) + 1)]
    fields = dict(zip_longest([*names, *beyond], cells))
    return Record(place, fields, f"its number of cells is {len(cells)}, not {len(names)}" * (len(cells) != len(names)))


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the question whether the one of `names` is meant that is nearest to `name`; an empty text without one."""
    by_letters = {other.strip().casefold(): other for other in names if other != name}
    near = get_close_matches(name.strip().casefold(), by_letters, 1)
    return f"; did you mean {one_line(by_letters[near[0]], _SHOWN)!r}?" if near else ""


def repeated_key(record: Record, first: Record) -> str:
    """Return in words that a record has the key of an earlier one, each by its place."""
    return f"{record.place} repeats the key of {first.place}"


def _name(file: str) -> str:
    return "standard input" if file == "-" else one_line(file, 200)
