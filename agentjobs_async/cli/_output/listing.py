"""The rows of a journal as a table."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from agentjobs_async.batch import JournalRow
from agentjobs_async.cli._output.screen import Styled, padded, styled_status

__all__ = ["markdown_lines", "table_lines"]

Line = tuple[Styled, ...]

_STATE_COLUMNS: Final = 11
_KEY_COLUMNS: Final = 40  # the widest key, with a gap of 2
_LINK: Final = re.compile(r"(https?://\S+)")
_MARKUP: Final = "\\|`*_<>[]"
_MARKUP_IN_LINKS: Final = "\\|`*<>[]"  # no underscore: it is common in links, where Markdown does not read it as markup


def table_lines(rows: Sequence[JournalRow], width: int | None = None) -> Iterator[Line]:
    """Return the lines of a table for people. Keys are cut to 38 columns; links and errors are never cut.

    Args:
        rows: The rows of a journal.
        width: The columns of the terminal; `None` without one. A last cell that does not fit is put on the next line.
    """
    most = _KEY_COLUMNS if width is None else max(min(_KEY_COLUMNS, width - _STATE_COLUMNS), len("KEY") + 2)
    wide = min(max(len("KEY"), *(len(row.key) for row in rows), 0) + 2, most)
    header = (f"{'KEY':<{wide}}", f"{'STATE':<{_STATE_COLUMNS}}")
    yield from _fitted(header, "PULL REQUEST, JOB OR ERROR", width, "bold")
    for row in rows:
        detail = f"{row.pr_link or row.error or row.job_id or '-'}"
        yield from _fitted((f"{padded(row.key, wide - 2)}  ", _state_cell(row)), detail, width)


def _fitted(cells: Line, last: str, width: int | None, style: str = "") -> Iterator[Line]:
    """Return one line of all cells, or two if the last cell does not fit beside the others."""
    if style:
        cells = tuple((str(cell), style) for cell in cells)
    beside = sum(len(cell if isinstance(cell, str) else cell[0]) for cell in cells)
    if width is None or beside + len(last) <= width:
        yield (*cells, (last, style))
    else:
        yield cells
        yield ("  ", (last, style))


def _state_cell(row: JournalRow) -> tuple[str, str]:
    word, style = styled_status(row.state)
    return f"{word:<{_STATE_COLUMNS}}", style


def markdown_lines(rows: Sequence[JournalRow]) -> Iterator[Line]:
    """Return a table in Markdown, with the markup in every text escaped. Times are in UTC."""
    yield ("| key | state | job | pull request | error | sent | created | seen | ended | polls | tries |",)
    yield (f"|{' --- |' * 11}",)
    for row in rows:
        cells = (row.key, row.state, row.job_id or "", row.pr_link or "", row.error or "")
        times = map(_time, (row.sent_at, row.created_at, row.seen_at, row.ended_at))
        yield (f"| {' | '.join((*map(_cell, cells), *times, str(row.polls), str(row.tries)))} |",)


def _time(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _cell(text: str) -> str:
    return "".join(_link(piece) if _LINK.fullmatch(piece) else _plain(piece) for piece in _LINK.split(text))


def _plain(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in text)
    return escaped.replace("\n", " ")


def _link(address: str) -> str:
    """Return a bare link whose markup is percent-encoded: a backslash would become part of the address."""
    return "".join(f"%{ord(letter):02X}" if letter in _MARKUP_IN_LINKS else letter for letter in address)
