"""The live view of a journal: a pure function of its counts, its end, and the active items, drawn by rich.

A bar shows the share done; below it stand the probable end, the counts, and a table of the items under way.
"""

from collections.abc import Sequence
from typing import Any, Final

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentjobs_async._text import span
from agentjobs_async.cli._output.columns import cut_in_the_middle
from agentjobs_async.cli._output.screen import Drawn, Styled, drawn, drawn_lines, styled_status
from agentjobs_async.cli._output.view import ACTIVE, Active, View, counts_in_words, end_in_words, share_done

_LEAST_BAR: Final = 10  # columns: a shorter one shows nothing
_MOST_LINES_OF_THE_END: Final = 4
_KEY_SHARE: Final = 4  # a key has a quarter of the columns of the terminal, within these bounds
_LEAST_KEY, _LONGEST_KEY = 10, 24
_COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "KEY": {},
    "STATE": {"min_width": len("sending")},
    "AGE": {"min_width": len("9.5 min"), "justify": "right"},
    "POLLS": {"justify": "right"},
    "PROMPT": {"ratio": 1},
    "PULL REQUEST": {},
}
_FROM_WIDTH: Final = {"STATE": 60, "POLLS": 60, "PULL REQUEST": 110}  # columns of a terminal that shows them


def live_view(view: View, width: int, height: int) -> list[Drawn]:
    """Return what draws the view in at most `height` lines of `width` columns; the oldest items come first."""
    head = head_of(view, width)[: max(height, 0)]
    return [*head, *_items_under_way(view, width, height - len(head))]


def head_of(view: View, width: int) -> list[Drawn]:
    """Return what draws the view without the items under way, each in one line."""
    end = drawn_lines((end_in_words(view), "yellow" if view.trouble else ""), width) if view.open else []
    return [_share(view, width), *end[:_MOST_LINES_OF_THE_END], _counts(view, width)]


def _share(view: View, width: int) -> Drawn:
    """Return the first line: the share done and the time, then a bar as long as there is room, then the number."""
    share, count = share_done(view), f"{view.done:,} of {view.total:,} ended"
    room = width - len(share) - len(count) - 2
    if room < _LEAST_BAR:
        return drawn(f"{share}; {count}")
    bar = ProgressBar(view.total, view.done, width=room, style="dim", complete_style="cyan", finished_style="green")
    line = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    line.add_row(drawn(share), bar, drawn(count))
    return line


def _counts(view: View, width: int) -> Text:
    """Return how many items are in each state, then how long jobs usually take: as much of it as fits."""
    parts: list[Styled] = [(words, styled_status(words.split(" ")[1])[1]) for words in counts_in_words(view.counts)]
    if view.usual is not None:
        half, most = map(span, view.usual)
        parts.append(f"median {half}, 9 of 10 within {most}")
    line = Text()
    for part in parts:
        longer = Text("  ").join([line, drawn(part)]) if line else drawn(part)
        if longer.cell_len > width:
            break
        line = longer
    return line


def _items_under_way(view: View, width: int, height: int) -> list[Drawn]:
    """Return the items under way in at most `height` lines, the oldest first, and how many others there are."""
    number = max(view.number(*ACTIVE), len(view.active))
    room = height - 1  # below the names of the columns
    if number > min(room, len(view.active)):
        room -= 1  # the last line says how many others there are
    shown = sorted(view.active, key=lambda item: -item.age)[: max(room, 0)]
    if not shown:
        return []
    others = [drawn(f"… and {number - len(shown):,} more")] if number > len(shown) else []
    return [_table(shown, width), *others]


def _table(items: Sequence[Active], width: int) -> Table:
    """Return a table of items, with as many columns as a terminal has room for."""
    names = [name for name in _COLUMNS if width >= _FROM_WIDTH.get(name, 0)]
    if not any(item.pr_link for item in items) and "PULL REQUEST" in names:
        names.remove("PULL REQUEST")
    key = min(max(width // _KEY_SHARE, _LEAST_KEY), _LONGEST_KEY)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True, **_COLUMNS[name])
    for item in items:
        cells: dict[str, Styled] = {
            "KEY": cut_in_the_middle(item.key, key),
            "STATE": styled_status(item.state),
            "AGE": span(item.age),
            "POLLS": str(item.polls or "-"),
            "PROMPT": item.prompt,
            "PULL REQUEST": item.pr_link or "",
        }
        table.add_row(*(drawn(cells[name]) for name in names))
    return table
