"""The two forms of the file of results: lines of JSON, and CSV with one line for each record."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from agentjobs_async._text import one_line
from agentjobs_async.cli.documents import identity
from agentjobs_async.report.texts import is_formula

__all__ = ["CsvLines", "Form", "JsonLines", "csv_line", "form_of"]

_COLUMNS: Final = ("key", "outcome", "pr_link", "job", "tries", "error", "prompt")
_LONGEST_PROMPT: Final = 8_192  # bytes of a cell: a spreadsheet takes 32,767 characters

Identity = tuple[object, ...]


def csv_line(cells: Iterable[object]) -> str:
    """Return the cells as one record with its line end; `None` is an empty cell.

    A cell that a spreadsheet would take for a formula gets an apostrophe before it; a number stays as it is.
    """
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(map(_inert, cells))
    return written.getvalue()


def _inert(cell: object) -> str:
    text = "" if cell is None else str(cell)
    return f"'{text}" if is_formula(text) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Form(Protocol):
    """How results are written and recognized."""

    header: str
    """The first line of the file, with its line end; empty for none."""

    def line(self, document: Mapping[str, Any]) -> str:
        """Return a result as one line, with its line end."""
        ...

    def identity(self, line: bytes) -> Identity | None:
        """Return what distinguishes a line from others; `None` for a line of another program."""
        ...

    def is_torn(self, last: bytes) -> bool:
        """Return whether a last line without a line end is a part of one of ours."""
        ...


class JsonLines:
    """A JSON object per line."""

    header = ""

    def line(self, document: Mapping[str, Any]) -> str:
        """Return the document as JSON."""
        return f"{json.dumps(document)}\n"

    def identity(self, line: bytes) -> Identity | None:
        """Return the identity of the document."""
        with suppress(ValueError, RecursionError, TypeError):
            document = json.loads(line)
            if isinstance(document, dict):
                name = identity(document)
                hash(name)
                return name
        return None

    def is_torn(self, last: bytes) -> bool:
        """Return whether it begins like an object and is not one."""
        if not last.startswith(b"{"):
            return False
        with suppress(ValueError, RecursionError):
            json.loads(last)
            return False
        return True


class CsvLines:
    """A record per line: line breaks in cells are escaped, so that an incomplete last line can be recognised."""

    header: str = csv_line(_COLUMNS)

    def line(self, document: Mapping[str, Any]) -> str:
        """Return the cells of the document, none of them a formula."""
        document = {"tries": 1, **document}
        cells = (document.get(name) for name in _COLUMNS)
        return csv_line(None if cell is None else one_line(str(cell), _LONGEST_PROMPT) for cell in cells)

    def identity(self, line: bytes) -> Identity | None:
        """Return the cells that name the item, the try and its end; of a refused one the reason, too."""
        with suppress(ValueError, csv.Error):
            (cells,) = csv.reader([line.decode()])
            key, outcome, _, job, tries, error, prompt = cells
            return key, tries, outcome, job, "" if prompt else error
        return None

    def is_torn(self, last: bytes) -> bool:
        """Return true: the header says that the file is ours."""
        return bool(last)


def form_of(file: str) -> Form:
    """Return the form of a file by its suffix."""
    return CsvLines() if file.lower().endswith(".csv") else JsonLines()
