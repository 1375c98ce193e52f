"""The rows of a journal as a table."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, Self

from attrs import frozen

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli._output.screen import Styled, padded, shortened, styled_status
from agentjobs_async.cli.reasons import in_words

__all__ = ["markdown_lines", "table_lines"]

Line = tuple[Styled, ...]

_GAP: Final = "  "
_STATE_COLUMNS: Final = 11  # the longest state, with a gap of 2
_LONGEST_KEY: Final = 40  # columns
_LEAST_PROMPT: Final = 24  # columns
_LONGEST_PROMPT: Final = 60  # columns
_DETAIL: Final = "PULL REQUEST, REASON OR JOB"
_LINK: Final = re.compile(r"""(https?://[^\s<>]*[^\s<>.,;:!?'")\]])""")
_MARKUP: Final = "\\|`*_<>[]~&$"
_MARKUP_IN_LINKS: Final = "\\|`"  # between angle brackets nothing else is read as markup


def table_lines(rows: Sequence[JournalRow], width: int | None = None, *, header: bool = True) -> Iterator[Line]:
    """Return the lines of a table for people: of each item its key, its state, its prompt's beginning and one detail.

    The detail is its pull request, else what went wrong, else its job. Links and reasons are never cut.

    Args:
        rows: A page of the rows of a journal.
        width: The columns of the terminal; `None` without one: then each row is one line, however long. On a terminal
            that is too narrow, the details have lines of their own, then the prompts as well.
        header: Whether the first line names the columns.
    """
    details = [_detail(row) for row in rows]
    layout = _Layout.of([_name(row) for row in rows], [row.prompt for row in rows], details, width)
    if header:
        yield from layout.lines(f"{'KEY':<{layout.key}}{_GAP}{'STATE':<{_STATE_COLUMNS}}", "PROMPT", _DETAIL, "bold")
    for row, detail in zip(rows, details, strict=True):
        word, style = styled_status(row.state)
        cells = f"{padded(_name(row), layout.key)}{_GAP}", (f"{word:<{_STATE_COLUMNS}}", style)
        yield from layout.lines(cells, row.prompt, detail)


@frozen
class _Layout:
    """The widths of the table, in columns.

    Attributes:
        key: Of the key.
        prompt: Of the prompt beside the state; 0 if prompts have lines of their own.
        beneath: Of a prompt on a line of its own.
        one_line: Whether the details are beside the prompts.
    """

    key: int
    prompt: int
    beneath: int
    one_line: bool

    @classmethod
    def of(cls, names: Sequence[str], prompts: Sequence[str], details: Sequence[str], width: int | None) -> Self:
        """Return the layout for these rows: all on one line if it fits, else details beneath, then prompts, too."""
        key = min(max((len("KEY"), *map(len, names))), _LONGEST_KEY)
        prompt = min(max((len("PROMPT"), *map(len, prompts))), _LONGEST_PROMPT)
        if width is None:
            return cls(key, prompt, 0, one_line=True)
        key = max(min(key, width - _STATE_COLUMNS - len(_GAP)), len("KEY"))
        room = width - key - len(_GAP) - _STATE_COLUMNS
        beside = room - max((len(_DETAIL), *map(len, details))) - len(_GAP)
        if beside >= min(_LEAST_PROMPT, prompt):
            return cls(key, min(beside, prompt), 0, one_line=True)
        return cls(key, room if room >= _LEAST_PROMPT else 0, width - len(_GAP), one_line=False)

    def lines(self, cells: str | Line, prompt: str, detail: str, style: str = "") -> Iterator[Line]:
        """Return the lines of one row, in `style` if its cells are a text."""
        first: Line = ((cells, style),) if isinstance(cells, str) else cells
        if self.one_line:
            yield (*first, (f"{padded(prompt, self.prompt)}{_GAP}{detail}".rstrip(), style))
            return
        yield (*first, (shortened(prompt, self.prompt), style)) if self.prompt else first
        for text in ("" if self.prompt else shortened(prompt, self.beneath), detail):
            if text:
                yield ((f"{_GAP}{text}", style),)


def _name(row: JournalRow) -> str:
    return row.item_key if row.tries == 1 else f"{row.item_key} (try {row.tries})"


def _detail(row: JournalRow) -> str:
    if row.error is not None:
        return in_words(row.error)
    if row.pr_link is None and row.state is State.COMPLETED:
        return "no pull request"
    return row.pr_link or row.job_id or ""


def markdown_lines(rows: Sequence[JournalRow], *, header: bool = True) -> Iterator[Line]:
    """Return a table in Markdown, with the markup in every text escaped. Times are in UTC.

    Args:
        rows: A page of the rows of a journal.
        header: Whether the first two lines name the columns.
    """
    if header:
        yield ("| key | state | job | pull request | error | sent | created | seen | ended | polls | tries |",)
        yield (f"|{' --- |' * 11}",)
    for row in rows:
        error = "" if row.error is None else in_words(row.error)
        cells = (row.item_key, row.state, row.job_id or "", row.pr_link or "", error)
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
    """Return a link between angle brackets; what would be markup there is percent-encoded."""
    quoted = "".join(f"%{ord(letter):02X}" if letter in _MARKUP_IN_LINKS else letter for letter in address)
    return f"<{quoted}>"
