"""The rows of a journal as a table."""

from collections.abc import Iterator, Sequence
from typing import Final, Self

from attrs import evolve, frozen

from agentjobs_async._text import one_line
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli._output.columns import LONGEST_LINE, columns_of, cut_at_a_word, cut_in_the_middle, padded
from agentjobs_async.cli._output.screen import Styled, styled_status
from agentjobs_async.cli.reasons import in_words
from agentjobs_async.report import markdown as report

Line = tuple[Styled, ...]

_GAP: Final = "  "
_STATE_COLUMNS: Final = 11  # the longest state, with a gap of 2
_LONGEST_KEY: Final = 40  # columns
_LEAST_PROMPT: Final = 24  # columns
_LONGEST_PROMPT: Final = 60  # columns
_DETAIL: Final = "PULL REQUEST, REASON OR JOB"


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
        cells = f"{layout.name(_name(row))}{_GAP}", (f"{word:<{_STATE_COLUMNS}}", style)
        yield from layout.lines(cells, row.prompt, detail)


@frozen
class _Layout:
    """The widths of the table, in columns.

    Attributes:
        key: Of the key.
        prompt: Of the prompt beside the state; 0 if prompts have lines of their own.
        beneath: Of a prompt on a line of its own.
        one_line: Whether the details are beside the prompts.
        cuts_keys: Whether a longer key is cut, in its middle: without a terminal a key can always be copied.
    """

    key: int
    prompt: int
    beneath: int
    one_line: bool
    cuts_keys: bool = True

    @classmethod
    def of(cls, names: Sequence[str], prompts: Sequence[str], details: Sequence[str], width: int | None) -> Self:
        """Return the layout for these rows: all on one line if it fits, else details beneath, then prompts, too."""
        key = min(max((len("KEY"), *map(columns_of, names))), _LONGEST_KEY)
        prompt = min(max((len("PROMPT"), *map(columns_of, prompts))), _LONGEST_PROMPT)
        if width is None:
            return cls(key, prompt, 0, one_line=True, cuts_keys=False)
        key = max(min(key, width - _STATE_COLUMNS - len(_GAP)), len("KEY"))
        room = width - key - len(_GAP) - _STATE_COLUMNS
        beside = room - max((len(_DETAIL), *map(len, details))) - len(_GAP)
        if beside >= min(_LEAST_PROMPT, prompt):
            return cls(key, min(beside, prompt), 0, one_line=True)
        return cls(key, room if room >= _LEAST_PROMPT else 0, width - len(_GAP), one_line=False)

    def name(self, name: str) -> str:
        """Return the name of a row, padded to the width of the keys."""
        shown = cut_in_the_middle(name, self.key) if self.cuts_keys else one_line(name, LONGEST_LINE)
        return shown + " " * (self.key - columns_of(shown))

    def lines(self, cells: str | Line, prompt: str, detail: str, style: str = "") -> Iterator[Line]:
        """Return the lines of one row, in `style` if its cells are a text."""
        first: Line = ((cells, style),) if isinstance(cells, str) else cells
        if self.one_line:
            yield (*first, (f"{padded(cut_at_a_word(prompt, self.prompt), self.prompt)}{_GAP}{detail}".rstrip(), style))
            return
        yield (*first, (cut_at_a_word(prompt, self.prompt), style)) if self.prompt else first
        for text in ("" if self.prompt else cut_at_a_word(prompt, self.beneath), detail):
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


def row_in_words(row: JournalRow) -> JournalRow:
    """Return a row whose error has no names of classes."""
    return row if row.error is None else evolve(row, error=in_words(row.error))


def markdown_lines(rows: Sequence[JournalRow]) -> Iterator[Line]:
    """Return a table in Markdown, with the markup in every text escaped. Times are in UTC."""
    yield from ((line,) for line in report.markdown_lines(map(row_in_words, rows)))
