"""What a command shows while it runs and at its end: lines for people, or JSON lines for machines."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from agentjobs_async._text import shown_status
from agentjobs_async.cli._output.columns import in_words, shortened
from agentjobs_async.cli._output.outcomes import Outcome
from agentjobs_async.cli._output.results import (
    Change,
    Result,
    change_document,
    detail_of,
    outcomes_in_words,
    result_document,
    shown_result,
    summary_document,
)
from agentjobs_async.cli._output.screen import Screen, styled_status
from agentjobs_async.cli._output.tables import show_items

_LONGEST_LINE: Final = 200  # columns of a line without a terminal
_LEAST_PROMPT: Final = 24  # columns
_ORDER: Final = {outcome: position for position, outcome in enumerate(Outcome)}


class Lines(Protocol):
    """Shows what happens to items or jobs."""

    @property
    def shows_changes(self) -> bool:
        """Whether `change` shows anything."""
        ...

    def change(self, change: Change) -> None:
        """Show a change of a job that has not ended."""
        ...

    def end(self, result: Result) -> None:
        """Show how one ended."""
        ...

    def all_results(self, results: Sequence[Result]) -> None:
        """Show all results together, at the end of the command."""
        ...

    def summary(self, outcomes: Mapping[Outcome, int], exit_code: int) -> None:
        """Show how many ended in which way; nothing comes after it."""
        ...


class JobLines:
    """A line for each change and each end of a job, and a table at the end: for a few jobs."""

    shows_changes: Final = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def change(self, change: Change) -> None:
        """Write a create with its prompt, a status, or the error of the polls; an end is left to `end`."""
        token = change.ref.to_token()
        if change.job is None:
            self._screen.line(token, " ", ("no news", "yellow"), f", still polling: {change.error}")
        elif change.event == "created":
            room = (self._screen.width or _LONGEST_LINE) - len(f"{token} created: ")
            prompt = shortened(change.prompt or "", max(room, _LEAST_PROMPT))
            self._screen.line(token, " ", ("created", "cyan"), f": {prompt}")
        elif not change.job.is_terminal:
            # The live view shows it as time passes: there, a line that stays would soon be wrong.
            left = None if self._screen.shows_live_view else change.left
            end = [] if left is None else [f", ends in {left}"]
            self._screen.line(token, " ", styled_status(shown_status(change.job.status)), *end)

    def end(self, result: Result) -> None:
        """Write the outcome, and the pull request or the error."""
        _write_end(self._screen, f"prompt {result.number}" if result.ref is None else result.ref.to_token(), result)

    def all_results(self, results: Sequence[Result]) -> None:
        """Write the table between empty lines, then how many ended in which way."""
        if results:
            in_order = sorted(results, key=lambda result: _ORDER[result.outcome])
            self._screen.line()
            show_items(self._screen, list(map(shown_result, in_order)))
            self._screen.line()
            self._screen.line(outcomes_in_words(Counter(result.outcome for result in results)))

    def summary(self, outcomes: Mapping[Outcome, int], exit_code: int) -> None:
        """Write nothing: the table has the numbers."""


class ItemLines:
    """One line for each end of an item, named by its key: for any number of items."""

    shows_changes: Final = False

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def change(self, change: Change) -> None:
        """Write nothing: the live view shows the active items."""

    def end(self, result: Result) -> None:
        """Write the outcome, and the pull request or the error."""
        again = f" (try {result.tries})" if result.tries > 1 else ""
        _write_end(self._screen, f"{in_words(result.key or '')}{again}", result)

    def all_results(self, results: Sequence[Result]) -> None:
        """Write nothing: each end has its line."""

    def summary(self, outcomes: Mapping[Outcome, int], exit_code: int) -> None:
        """Write nothing: the journal is summed up in the words of its states."""


class JsonLines:
    """One JSON object per line, in ASCII."""

    shows_changes: Final = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._ended: set[int | None] = set()

    def change(self, change: Change) -> None:
        """Write `created`, `status` or `trouble`."""
        self._screen.json_lines([change_document(change)])

    def end(self, result: Result) -> None:
        """Write `ended`."""
        self._ended.add(result.number)
        self._screen.json_lines([result_document(result)])

    def all_results(self, results: Sequence[Result]) -> None:
        """Write `ended` for those that do not have it yet: the command left them open."""
        for result in results:
            if result.number not in self._ended:
                self.end(result)

    def summary(self, outcomes: Mapping[Outcome, int], exit_code: int) -> None:
        """Write `summary`."""
        self._screen.json_lines([summary_document(outcomes, exit_code)])


def _write_end(screen: Screen, name: str, result: Result) -> None:
    token = None if result.ref is None else result.ref.to_token()
    detail = detail_of(result.outcome, result.error, result.pr_link, None if name == token else token)
    screen.line(name, " ", styled_status(result.outcome), f": {detail}" if detail else "")
