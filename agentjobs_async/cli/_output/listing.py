"""The rows of a journal as a table."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from agentjobs_async.batch import JournalRow
from agentjobs_async.cli._output.screen import Styled, padded, styled_status

__all__ = ["markdown_lines", "table_lines"]

Line = tuple[Styled, ...]

_STATE: Final = 11
_LINK: Final = re.compile(r"(https?://\S+)")
_MARKUP: Final = "\\|`*_<>[]"
_MARKUP_IN_LINKS: Final = (
    "\\|`*<>[]"  # an underscore is none: it is common in links, and Markdown leaves it alone there
)


def table_lines(rows: Sequence[JournalRow], width: int | None = None) -> Iterator[Line]:
    """Return the lines of a table for people: the widest key decides, up to 38 columns; no link or error is cut.

    Args:
        rows: Its rows.
        width: Columns of the terminal; `None` without one. What does not fit into it gets a line of its own.
    """
    most = 40 if width is None else max(min(40, width - _STATE), len("KEY") + 2)
    wide = min(max(len("KEY"), *(len(row.key) for row in rows), 0) + 2, most)
    yield from _fitted((f"{'KEY':<{wide}}", f"{'STATE':<{_STATE}}"), "PULL REQUEST, JOB OR ERROR", width, "bold")
    for row in rows:
        detail = f"{row.pr_link or row.error or row.job_id or '-'}"
        yield from _fitted((f"{padded(row.key, wide - 2)}  ", _state_cell(row)), detail, width)


def _fitted(cells: Line, last: str, width: int | None, style: str = "") -> Iterator[Line]:
    """Return a line of cells, or two where the last one fits beneath only."""
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
    return f"{word:<{_STATE}}", style


def markdown_lines(rows: Sequence[JournalRow]) -> Iterator[Line]:
    """Return a table in Markdown, in which no text of a row is markup."""
    yield ("| key | state | job | pull request | error |",)
    yield ("| --- | --- | --- | --- | --- |",)
    for row in rows:
        cells = (row.key, row.state, row.job_id or "", row.pr_link or "", row.error or "")
        yield (f"| {' | '.join(map(_cell, cells))} |",)


def _cell(text: str) -> str:
    return "".join(_link(piece) if _LINK.fullmatch(piece) else _plain(piece) for piece in _LINK.split(text))


def _plain(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in text)
    return escaped.replace("\n", " ")


def _link(address: str) -> str:
    """Return a bare link in which a backslash would be part of the address: what is markup there is percent-encoded."""
    return "".join(f"%{ord(letter):02X}" if letter in _MARKUP_IN_LINKS else letter for letter in address)
