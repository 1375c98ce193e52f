"""The table of items or jobs: a line for each, or on a terminal two, so that a link has room and is never broken."""

from collections.abc import Sequence
from typing import Final

from attrs import evolve, frozen

from agentjobs_async.cli._output.columns import columns_of, cut_at_a_word
from agentjobs_async.cli._output.screen import Cell, Line, Screen, styled_status

_BESIDE: Final = 11  # columns of the longest state, and of the gap behind it
_PROMPT_COLUMNS: Final = 40  # of a line without a terminal
_LEAST_PROMPT: Final = 12  # columns: less of a prompt says nothing


@frozen
class ShownItem:
    """What a table shows of an item or a job.

    Attributes:
        name: Its key, or the token of a job.
        state: Its state, as in a journal.
        prompt: Its prompt; empty without one.
        detail: Its pull request, else what went wrong, else its job.
    """

    name: str
    state: str
    prompt: str
    detail: str


def show_items(screen: Screen, items: Sequence[ShownItem], *, is_brief: bool = False) -> None:
    """Write a table of items or jobs: their keys, links and reasons are whole, their prompts are cut.

    Args:
        screen: The screen to write to.
        items: The items.
        is_brief: Whether an item has two lines of a terminal at the most: a longer link or reason is cut.
    """
    if screen.width is None:
        screen.table(("STATE", "KEY", "PROMPT", "PULL REQUEST OR REASON"), map(_in_one_line, items))
        return
    room = max(screen.width - _BESIDE, _LEAST_PROMPT)
    shown = (evolve(item, detail=cut_at_a_word(item.detail, room)) if is_brief else item for item in items)
    rows = (_in_two_lines(item, room) for item in shown)
    screen.table(("STATE\n", "KEY, PROMPT\nPULL REQUEST OR REASON"), rows, room)


def _in_one_line(item: ShownItem) -> tuple[Cell, ...]:
    prompt = cut_at_a_word(item.prompt, _PROMPT_COLUMNS)
    state: Line = (styled_status(item.state),)
    return (state,), ((item.name,),), ((prompt,),), ((item.detail,),)


def _in_two_lines(item: ShownItem, room: int) -> tuple[Cell, ...]:
    """Return the cells of a row: its state; its name and prompt in one line, and its detail below them."""
    state: Line = (styled_status(item.state),)
    left = room - columns_of(item.name) - 2
    prompt = f"  {cut_at_a_word(item.prompt, left)}" if item.prompt and left >= _LEAST_PROMPT else ""
    first: Line = ((item.name, "bold"), prompt)
    return (state,), (first, (item.detail,)) if item.detail else (first,)
