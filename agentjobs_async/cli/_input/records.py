"""The records of an input: the rows of a CSV file, the objects of JSON Lines, or plain lines."""

import errno
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Any, Final

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.cli._input.encodings import LINE_END, OF_ONE_BYTE, decoded, likely_encoding, undecodable_line
from agentjobs_async.cli._input.tables import USUAL, Table, option_of

FORMATS: Final = ("lines", "jsonl", "csv")
_BY_SUFFIX: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_FEWEST_DELIMITERS: Final = 3  # in every line: prose rarely has so many throughout; it has no tabs
_SHOWN: Final = 60  # characters of a name in a message
_TEMPLATE_ADVICE: Final = "give --prompt, such as --prompt 'Document {title}', or say --input-format lines"


@frozen
class Record:
    """One record of an input.

    Attributes:
        position: Where it is, such as `line 7`.
        fields: Its fields by their names; of a table it has all columns, a missing cell as `None`, and the cells beyond
            the last column as `column 4` and so on; a plain line is a text; `None` if it cannot be read.
        defect: Why it cannot be sent; empty if it can.
    """

    position: str
    fields: Mapping[str, Any] | str | None
    defect: str = ""


@frozen
class Reading:
    """How an input is read, as the options say.

    Attributes:
        form: Its format; `None` goes by the suffix of the file, whether it has a delimiter, and its first line.
        delimiter: What stands between two cells of a CSV file; `None` goes by its line `sep=;`, else takes a comma.
        encoding: Its encoding; `None` takes UTF-8.
    """

    form: str | None = None
    delimiter: str | None = None
    encoding: str | None = None


@frozen
class _Misreading:
    """Why an input can't be read as the options say.

    Attributes:
        words: What is wrong.
        right: The value with which it can be read.
        option: The option with this value.
    """

    words: str
    right: str
    option: str


def read_records(
    file: str, reading: Reading, wanted: Collection[str] = (), *, has_template: bool = True
) -> list[Record]:
    """Return the records of a file; `-` is standard input. Blank lines do not count.

    Args:
        file: The file.
        reading: How it is read.
        wanted: The columns or fields that templates need; none where each record is a prompt by itself.
        has_template: Whether one of these templates makes the prompts.

    Raises:
        InvalidInputError: It can't be read so; the message names the encoding and the delimiter with which it can.
    """
    name, data = _name(file), _read_bytes(file)
    wrong_encoding = _wrong_encoding(name, data, reading.encoding)
    encoding = reading.encoding or "utf-8" if wrong_encoding is None else wrong_encoding.right
    text = decoded(data, encoding)
    form = reading.form or _form(file, text, reading.delimiter)
    may_be_table = form == "csv" or (form == "lines" and reading.form is None)
    wrong_delimiter = _wrong_delimiter(Table.of(text, reading.delimiter), wanted) if may_be_table else None
    wrong = [each for each in (wrong_encoding, wrong_delimiter) if each is not None]
    if wrong:
        words, options = ", and ".join(each.words for each in wrong), " ".join(each.option for each in wrong)
        raise InvalidInputError(f"{name} {words}: use {options}")
    _check_form(name, text, form, reading, has_template=bool(wanted) and has_template, has_names=bool(wanted))
    return records_of(name, text, form, reading.delimiter)


def _read_bytes(file: str) -> bytes:
    """Return what is in a file; `-` is standard input.

    Raises:
        InvalidInputError: It can't be read.
    """
    try:
        return _read(file)
    except OSError as error:
        defect = f"{_name(file)} can't be read: {error.strerror}"
    raise InvalidInputError(defect)


def _read(file: str) -> bytes:
    if file != "-":
        return Path(file).read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()


def _wrong_encoding(name: str, data: bytes, encoding: str | None) -> _Misreading | None:
    """Return what is wrong with the encoding of a file; `None` if nothing is.

    Raises:
        InvalidInputError: It is wrong, and nothing shows the right one.
    """
    line = undecodable_line(data, encoding or "utf-8")
    if line is None:
        return None
    words, right = f"is not {encoding or 'UTF-8'} at line {line}", likely_encoding(data)
    if right is None:
        raise InvalidInputError(f"{name} {words}: name its encoding by --encoding, or save it as UTF-8")
    if right in OF_ONE_BYTE:  # text of another alphabet is no less valid in these: a person sees whether it reads right
        read = LINE_END.split(decoded(data, right))[line - 1]
        words = f'{words}, which reads "{one_line(read, _SHOWN)}" in {right}'
    return _Misreading(words, right, f"--encoding {right}")


def _wrong_delimiter(table: Table, wanted: Collection[str]) -> _Misreading | None:
    """Return what is wrong with the delimiter of a table that lacks columns; `None` if another one does not help."""
    right, names = table.better_delimiter(wanted), table.names()
    if right is None:
        return None
    missing = next(name for name in wanted if name not in names)
    shown = ", ".join(f'"{one_line(name, _SHOWN)}"' for name in names[:3])
    there = f", but {'one column' if len(names) == 1 else 'the columns'} {shown}" * bool(names)
    return _Misreading(f'has no column "{one_line(missing, _SHOWN)}"{there}', right, option_of(right))


def _form(file: str, text: str, delimiter: str | None) -> str:
    """Return the format of an input that no option names."""
    by_suffix = _BY_SUFFIX.get(PurePath(file).suffix.lower())
    by_text = "jsonl" if text.lstrip().startswith("{") else "lines"
    return by_suffix or ("csv" if delimiter is not None else by_text)


def _check_form(name: str, text: str, form: str, reading: Reading, *, has_template: bool, has_names: bool) -> None:
    """Raise the error of an input that is not what its format and templates make of it."""
    if reading.delimiter is not None and form != "csv":
        raise InvalidInputError(f"--delimiter is for CSV, and {name} is not: say --input-format csv if it is")
    if form == "csv" and not has_template:
        raise InvalidInputError(f"{name} is a table: {_TEMPLATE_ADVICE}")
    if form == "lines" and has_names:
        names = "--prompt and --key need" if has_template else "the {names} of --extra need"
        raise InvalidInputError(f"{names} columns or fields: say --input-format csv or jsonl")
    if form == "lines" and reading.form is None:
        _check_prompts(name, text)


def _check_prompts(name: str, text: str) -> None:
    """Raise the error of a text whose lines are hardly prompts."""
    if re.match(r"\s*\[\s*\{", text):
        raise InvalidInputError(
            f"{name} begins like a JSON array: write one object per line, or say --input-format lines"
        )
    lines = [line for line in LINE_END.split(text) if line.strip()]
    if len(lines) < 2:  # noqa: PLR2004 - a table has column names and a row
        return
    if Table.of(text, None).is_declared:
        raise InvalidInputError(
            f"{name} looks like CSV, with a first line {one_line(lines[0], _SHOWN)}:"
            f" say --input-format csv and {_TEMPLATE_ADVICE}"
        )
    for delimiter, words in USUAL.items():
        fewest = 1 if delimiter == "\t" else _FEWEST_DELIMITERS
        if min(line.count(delimiter) for line in lines) >= fewest:
            option = "--input-format csv" if delimiter == "," else option_of(delimiter)
            raise InvalidInputError(
                f"{name} looks like CSV, with {words} in every line: say {option} and {_TEMPLATE_ADVICE}"
            )


def records_of(name: str, text: str, form: str, delimiter: str | None = None) -> list[Record]:
    """Return the records of a text, the file of this name; blank lines do not count.

    Raises:
        InvalidInputError: The text as a whole is not in this format.
    """
    if form == "csv":
        return _records_of_table(name, Table.of(text, delimiter))
    lines = [(number, line) for number, line in enumerate(LINE_END.split(text), 1) if line.strip()]
    if form == "jsonl":
        return [_object(f"line {number}", line) for number, line in lines]
    return [Record(f"line {number}", line) for number, line in lines]


class _RepeatedNameError(ValueError):
    """An object has two members of one name, of which a lenient parser would take the last."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _RepeatedNameError(f"it has {_repeated([name for name, _ in pairs])!r} twice")
    return members


def _repeated(names: Sequence[str]) -> str:
    return one_line(next(name for at, name in enumerate(names) if name in names[:at]), _SHOWN)


def _object(position: str, line: str) -> Record:
    try:
        document = json.loads(line, object_pairs_hook=_members)
    except _RepeatedNameError as error:
        return Record(position, None, str(error))
    except (ValueError, RecursionError):
        return Record(position, None, "it is no JSON")
    if isinstance(document, dict):
        return Record(position, document)
    return Record(position, None, "it is no JSON object")


def _records_of_table(name: str, table: Table) -> list[Record]:
    try:
        rows = list(table.rows())
    except InvalidInputError as error:
        defect = f"{name}, {error}"
    else:
        return _with_names(name, rows)
    raise InvalidInputError(defect)


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


def _row(position: str, names: Sequence[str], cells: Sequence[str]) -> Record:
    beyond = [f"column {number}" for number in range(len(names) + 1, len(cells) + 1)]
    fields = dict(zip_longest([*names, *beyond], cells))
    defect = "" if len(cells) == len(names) else f"its number of cells is {len(cells)}, not {len(names)}"
    return Record(position, fields, defect)


def _name(file: str) -> str:
    return "standard input" if file == "-" else one_line(file, 200)
