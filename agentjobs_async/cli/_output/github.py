"""What a command writes for GitHub Actions: the summary of its step, and annotations of failed items."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agentjobs_async._text import one_line
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.batch.states import FAILED
from agentjobs_async.cli._output.columns import in_words
from agentjobs_async.cli._output.results import entry_of_row
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.report.markdown import MarkdownTable

_MOST_ANNOTATIONS: Final = 10  # errors of one step: GitHub shows no more
_MOST_BYTES: Final = 1_048_576  # of the summary of one step: GitHub drops a longer one
_LEAST_ROOM: Final = 2_000  # bytes: less holds no chart and no table
_LONGEST_LINE: Final = 16_384  # characters
_ESCAPED: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}


class StepSummary:
    """Gathers the items of a journal, then shows them as GitHub Actions does: only there is it of use."""

    def __init__(self) -> None:
        self._table = MarkdownTable()
        self._failed: dict[State, list[JournalRow]] = {state: [] for state in FAILED}

    def add(self, rows: Sequence[JournalRow]) -> None:
        """Add items."""
        for row in rows:
            self._table.add(row)
            failed = self._failed.get(row.state)
            if failed is not None and len(failed) < _MOST_ANNOTATIONS:
                failed.append(row)

    def show(self, screen: Screen, counts: Mapping[State, int], words: str, *, is_for_people: bool) -> None:
        """Append the step summary, and write an annotation for each of the first ten failed items.

        Args:
            screen: The screen to write to.
            counts: How many items are in each state.
            words: The same, in words.
            is_for_people: Whether standard output is for people: it gets the annotations then, else standard error.
        """
        for line in self._annotations():
            screen.workflow_command(line, is_error=not is_for_people)
        place = os.environ.get("GITHUB_STEP_SUMMARY")
        if not place:
            return
        try:
            with Path(place).open("ab") as stream:
                stream.write(self._text(counts, words, _MOST_BYTES - stream.tell()).encode())
        except OSError as error:
            screen.notice(f"GITHUB_STEP_SUMMARY: the summary can't be written: {error.strerror}")

    def _annotations(self) -> Iterator[str]:
        """Return the lines by which GitHub Actions shows failed items as errors."""
        failed = [row for rows in self._failed.values() for row in rows]
        for row in failed[:_MOST_ANNOTATIONS]:
            text = one_line(f"{in_words(row.item_key)} {row.state}: {entry_of_row(row).detail}", _LONGEST_LINE)
            yield f"::error::{''.join(_ESCAPED.get(letter, letter) for letter in text)}"

    def _text(self, counts: Mapping[State, int], words: str, room: int) -> str:
        """Return a summary in Markdown of at most `room` bytes; nothing where that is too little for any."""
        if room < _LEAST_ROOM:
            return ""
        return "".join(f"{line}\n" for line in self._table.lines(["### agentjobs", "", words], counts, room))
