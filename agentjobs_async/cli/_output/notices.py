"""What a command says, as values: a sentence, a shell command, all results, the summary."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from agentjobs_async.cli._output.outcomes import Outcome
from agentjobs_async.cli._output.results import Result
from agentjobs_async.cli._output.screen import Screen, continued, drawn_lines

if TYPE_CHECKING:
    from agentjobs_async.cli._output.lines import Lines


@frozen
class Sentence:
    """A line for people, on standard error."""

    text: str


@frozen
class Command:
    """A shell command that a person may copy, on standard error."""

    text: str


@frozen
class Results:
    """All results together: a table for people."""

    results: tuple[Result, ...]


@frozen
class Summary:
    """How many ended in which way, and the exit code: the last line for machines."""

    outcomes: Mapping[Outcome, int]
    exit_code: int


Hint = Sentence | Command
"""What a screen alone can show."""
Notice = Hint | Results | Summary


def show_hints(screen: Screen, hints: Iterable[Hint]) -> None:
    """Write sentences and commands."""
    for hint in hints:
        if isinstance(hint, Sentence):
            screen.notice(hint.text)
        else:
            screen.command(f"  {hint.text}")


def lines_of(screen: Screen, hints: Iterable[Hint]) -> int:
    """Return how many lines of a terminal hints take."""
    return sum(_lines_of(hint, screen.columns) for hint in hints)


def _lines_of(hint: Hint, columns: int) -> int:
    if isinstance(hint, Command):
        return len(continued(f"  {hint.text}", columns))
    return len(drawn_lines(hint.text, columns))


def show_notices(screen: Screen, lines: "Lines", notices: Iterable[Notice]) -> None:
    """Write notices, in their order; `lines` shows results and the summary in the form that was asked for."""
    for notice in notices:
        match notice:
            case Results(results):
                lines.all_results(results)
            case Summary(outcomes, exit_code):
                lines.summary(outcomes, exit_code)
            case _:
                show_hints(screen, [notice])
