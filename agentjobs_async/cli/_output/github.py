"""What a command writes for GitHub Actions: the summary of its step, and annotations of failed items."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from agentjobs_async import JournalError
from agentjobs_async._text import one_line
from agentjobs_async.batch import Journal, JournalRow, State
from agentjobs_async.cli._output.listing import markdown_lines
from agentjobs_async.cli._output.screen import Screen, Styled
from agentjobs_async.cli._output.workflow_commands import is_on_github
from agentjobs_async.cli.reasons import in_words
from agentjobs_async.report.markdown import chart_lines

_MOST_ANNOTATIONS: Final = 10  # errors of one step: GitHub shows no more
_MOST_BYTES: Final = 1_048_576  # of the summary of one step: GitHub drops a longer one
_MOST_ROWS: Final = 20_000  # of a summary: those of more than that never fit
_READING_SECONDS: Final = 30.0  # a database that is gone does not hold up the end of a step
_LONGEST_LINE: Final = 16_384  # characters
_ESCAPED: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}


async def show_on_github(
    screen: Screen, journal: Journal, counts: Mapping[State, int], words: str, *, is_for_people: bool
) -> None:
    """Append the step summary, and write an annotation for each of the first ten failed items; only on GitHub Actions.

    Args:
        screen: The screen to write to.
        journal: The open journal.
        counts: How many items are in each state.
        words: The same, in words.
        is_for_people: Whether standard output is for people: it gets the annotations then, else standard error.
    """
    if not is_on_github():
        return
    with suppress(JournalError, TimeoutError):  # what it holds is shown by other means, or its error is
        async with asyncio.timeout(_READING_SECONDS):
            rows = await _worst_rows(journal, _MOST_ROWS)
        for line in annotations(rows):
            screen.workflow_command(line, is_error=not is_for_people)
        if place := os.environ.get("GITHUB_STEP_SUMMARY"):
            above = "\n".join((words, *chart_lines(counts)))
            _append(screen, Path(place), rows, sum(counts.values()), above)


def annotations(rows: Sequence[JournalRow]) -> Iterator[str]:
    """Return the lines by which GitHub Actions shows the first ten failed items of these as errors."""
    failed = [row for row in rows if row.state.has_failed]
    for row in failed[:_MOST_ANNOTATIONS]:
        reason = (row.error and in_words(row.error)) or row.pr_link or "the agent has failed"
        text = one_line(f"{row.item_key} {row.state}: {reason}", _LONGEST_LINE)
        yield f"::error::{''.join(_ESCAPED.get(letter, letter) for letter in text)}"


def step_summary(rows: Sequence[JournalRow], total: int, words: str, room: int) -> str:
    """Return a summary in Markdown of at most `room` bytes in UTF-8; a sentence names what is cut off.

    Args:
        rows: The first rows, in the order in which they are to be shown.
        total: The number of all items.
        words: How many items are in each state, which a chart may follow.
        room: The most bytes; the summary is empty where not even the sentences fit.
    """
    head = f"### agentjobs\n\n{words}\n"
    cut = f"\n{{}} of {total} items are shown: a step's summary has at most 1 MiB.\n"
    room -= len(f"{head}\n{cut}{total}".encode())
    if room < 0:
        return ""
    header, *lines = (f"{_plain(line)}\n" for line in _table(rows))
    shown: list[str] = []
    for line in (header, *lines):
        room -= len(line.encode())
        if room < 0:
            break
        shown.append(line)
    items = max(len(shown) - 1, 0)
    table = "".join(shown) if items else ""
    return f"{head}\n{table}{'' if items == total else cut.format(items)}"


def _table(rows: Sequence[JournalRow]) -> Iterator[tuple[Styled, ...]]:
    """Return the lines of a table, of which the first two are one: without the second there is no table."""
    lines = markdown_lines(rows)
    yield (*next(lines), "\n", *next(lines))
    yield from lines


def _plain(line: tuple[Styled, ...]) -> str:
    words = "".join(part if isinstance(part, str) else part[0] for part in line)
    return "\n".join(one_line(piece, _LONGEST_LINE) for piece in words.split("\n"))


async def _worst_rows(journal: Journal, most: int) -> list[JournalRow]:
    """Return up to `most` rows, those that need a person first."""
    rows: list[JournalRow] = []
    for state in State:
        async for row in journal.rows(state):
            if len(rows) == most:
                return rows
            rows.append(row)
    return rows


def _append(screen: Screen, place: Path, rows: Sequence[JournalRow], total: int, words: str) -> None:
    try:
        with place.open("ab") as stream:
            stream.write(step_summary(rows, total, words, _MOST_BYTES - stream.tell()).encode())
    except OSError as error:
        screen.notice(f"GITHUB_STEP_SUMMARY: the summary can't be written: {error.strerror}")
