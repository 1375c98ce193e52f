"""A journal in Markdown, such as GitHub shows as the summary of a step: figures, a chart, and a table of the items."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TextIO

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.figures import Counted, Figures, Tally
from agentjobs_async.report.items import COLUMNS
from agentjobs_async.report.late import LATE_ADVICE, LATE_TITLE, late_lines
from agentjobs_async.report.source import Source
from agentjobs_async.report.standing import Standing, standing_of
from agentjobs_async.report.texts import shown

__all__ = ["write_markdown"]

_SHOWN: Final = tuple(COLUMNS[name] for name in ("key", "state", "job_id", "pr_link", "error"))
_TIMES: Final = tuple(COLUMNS[f"{name}_at"] for name in ("sent", "created", "seen", "ended"))
_NUMBERS: Final = (COLUMNS["polls"], COLUMNS["tries"])
_NAMES: Final = [column.words for column in (*_SHOWN, *_TIMES, *_NUMBERS)]
_TABLE_HEAD: Final = (f"| {' | '.join(_NAMES)} |", f"|{' --- |' * len(_NAMES)}")
_TO_SECONDS: Final = 19  # characters of a time in UTC
_MOST_BYTES: Final = 1_000_000  # of a summary of a step, with room left below GitHub's 1 MiB
_BRACKETS: Final = r"\([^\s<>()]*\)"  # round ones belong to a link if both are there
_LINK: Final = re.compile(rf"""(https?://(?:[^\s<>()]|{_BRACKETS})*(?:[^\s<>.,;:!?'"()\]]|{_BRACKETS}))""")
_MARKUP: Final = "\\|`*_<>[]~&$"
_MARKUP_IN_LINKS: Final = "\\|`"  # between angle brackets nothing else is read as markup


async def write_markdown(source: Source, stream: TextIO) -> None:
    """Write at most 1,000,000 bytes: those items that need a person come first, and the last ones are left out."""
    tally, table = Tally(), _Table()
    async for row in source.journal.rows():
        tally.add(Counted.of(row))
        table.add(row)
    figures, stands = tally.figures(source.made_at), await standing_of(source.journal)
    late = await late_lines(source.journal)
    head = [*_head(source, figures, stands), *_chart_lines(figures.counts), *_late_lines(late)]
    stream.writelines(f"{line}\n" for line in table.lines(head))


def _head(source: Source, figures: Figures, stands: Standing) -> Iterator[str]:
    made = datetime.fromtimestamp(source.made_at, UTC)
    yield f"## {_cell(source.journal.name)}"
    yield f"\n**{_cell(stands.words)}**"
    if stands.command is not None:
        yield f"\n```sh\n{stands.command}\n```"
    if figures.reasons:
        yield f"\n{_cell(' · '.join(reason['words'] for reason in figures.shown_reasons))}"
    yield f"\n{figures.total_text}, {made:%Y-%m-%d %H:%M} UTC\n"
    tiles = [tile for tile in (*figures.outcomes, *figures.times) if tile.is_shown]
    for cells in ([tile.name for tile in tiles], ["---:"] * len(tiles), [tile.value for tile in tiles]):
        yield _row(cells)


def _late_lines(late: Sequence[str]) -> Iterator[str]:
    """Return what says which creates were answered late; nothing if none was."""
    if late:
        yield from ("", f"### {LATE_TITLE}", "", LATE_ADVICE, "")
        yield from (f"- {_cell(line)}" for line in late)


def _chart_lines(counts: Mapping[State, int]) -> Iterator[str]:
    """Return a blank line and a chart in Mermaid of how many items are in which state; nothing if there is no item."""
    if any(counts.values()):
        yield from ("", "```mermaid", "pie showData")
        yield from (f'    "{state}" : {counts[state]}' for state in State if counts.get(state))
        yield "```"


class _Table:
    """A table of items, those that need a person first, with as many lines as could fit."""

    def __init__(self) -> None:
        self._by_state: dict[State, list[str]] = {state: [] for state in State}
        self._bytes = dict.fromkeys(State, 0)
        self._rows = 0

    def add(self, row: JournalRow) -> None:
        """Add the line of an item."""
        self._rows += 1
        if self._bytes[row.state] < _MOST_BYTES:
            line = _item_line(row)
            self._by_state[row.state].append(line)
            self._bytes[row.state] += len(line.encode()) + 1

    def lines(self, head: Iterable[str]) -> Iterator[str]:
        """Return the lines of `head` and of the table: as many as a summary holds."""
        # Without the blank line, the line before would be a row of the table.
        above = [*head, "", *_TABLE_HEAD]
        yield from above
        # The last line says how many are left out.
        left, written = _MOST_BYTES - sum(len(line.encode()) + 1 for line in above) - 100, 0
        for line in (line for lines in self._by_state.values() for line in lines):
            left -= len(line.encode()) + 1
            if left < 0:
                break
            written += 1
            yield line
        if written < self._rows:
            yield from ("", f"… and {self._rows - written:,} more")


def _item_line(row: JournalRow) -> str:
    texts = [_cell(str(column.of(row) or "")) for column in _SHOWN]
    times = [str(column.of(row) or "")[:_TO_SECONDS].replace("T", " ") for column in _TIMES]
    return _row([*texts, *times, *(str(column.of(row)) for column in _NUMBERS)])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    pieces = _LINK.split(shown(text))
    return "".join(_link(piece) if _LINK.fullmatch(piece) else _plain(piece) for piece in pieces)


def _plain(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in text)
    # GitHub makes links of these by itself, and reads no escapes in them.
    return escaped.replace("\n", " ").replace("www.", "www\\.").replace("://", ":\\/\\/")


def _link(address: str) -> str:
    """Return a link between angle brackets; what would be markup there is percent-encoded."""
    quoted = "".join(f"%{ord(letter):02X}" if letter in _MARKUP_IN_LINKS else letter for letter in address)
    return f"<{quoted}>"
