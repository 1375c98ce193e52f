"""Lines of CSV that a spreadsheet shows as they are: no cell is a formula."""

import csv
import io
from collections.abc import Iterable

from agentjobs_async.report.texts import is_formula

__all__ = ["csv_line"]


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
