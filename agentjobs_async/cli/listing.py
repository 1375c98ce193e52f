"""The rows of a journal as a table."""

from collections.abc import Iterator, Sequence

from agentjobs_async.batch import JournalRow
from agentjobs_async.cli.screen import Styled, padded, styled_status

__all__ = ["markdown_lines", "table_lines"]

Line = tuple[Styled, ...]


def table_lines(rows: Sequence[JournalRow]) -> Iterator[Line]:
    """Give a table for people: the widest key decides, up to 38 columns; nothing is cut at the end of a line."""
    wide = min(max(len("KEY"), *(len(row.key) for row in rows), 0) + 2, 40)
    yield ((f"{'KEY':<{wide}}{'STATE':<11}PULL REQUEST, JOB OR ERROR", "bold"),)
    for row in rows:
        yield (
            f"{padded(row.key, wide - 2)}  ",
            _state_cell(row),
            f"{row.pr_link or row.error or row.job_id or '-'}",
        )


def _state_cell(row: JournalRow) -> tuple[str, str]:
    word, style = styled_status(row.state)
    return f"{word:<11}", style


def markdown_lines(rows: Sequence[JournalRow]) -> Iterator[Line]:
    """Give a table in Markdown, in which no text of a row is markup."""
    yield ("| key | state | job | pull request | error |",)
    yield ("| --- | --- | --- | --- | --- |",)
    for row in rows:
        cells = (row.key, row.state, row.job_id or "", row.pr_link or "", row.error or "")
        yield (f"| {' | '.join(map(_cell, cells))} |",)


def _cell(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "\\|`*_<>[]" else letter for letter in text)
    return escaped.replace("\n", " ")
