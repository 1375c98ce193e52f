"""The table of items or jobs: a line for each, in the columns of a terminal, or of a page of text without one."""

import os
from collections.abc import Iterator, Sequence
from typing import Final, Self

from attrs import evolve, frozen

from agentjobs_async._text import one_line
from agentjobs_async.cli._output.columns import LONGEST_LINE, columns_of, cut_at_a_word, cut_in_the_middle, padded
from agentjobs_async.cli._output.screen import Styled, styled_status

Line = tuple[Styled, ...]

_GAP: Final = "  "
_STATE_COLUMNS: Final = 9  # the longest state
_KEY, _STATE, _PROMPT, _DETAIL = "KEY", "STATE", "PROMPT", "PULL REQUEST OR REASON"
_NAME_SHARE: Final = 3  # of the columns, a name takes one in so many
_LONGEST_NAME: Final = 40  # columns
_LONGEST_PROMPT: Final = 60  # columns
_LEAST_PROMPT: Final = 12  # columns: what a detail leaves to the prompt
_USUAL_DETAIL: Final = 36  # columns of a column in which details are broken
_LEAST_DETAIL: Final = 20  # columns: with less, the prompt is left out


@frozen
class Entry:
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


def table_lines(entries: Sequence[Entry], width: int, *, header: bool = True, is_cut: bool = True) -> Iterator[Line]:
    """Return the lines of a table of at most `width` columns: one for each entry, and more below a long detail.

    Prompts are cut to the room that the details leave, and then go without what all of them begin with. A detail is
    broken between words, and no word of it is cut, such as a link, which may be longer than a line.

    Args:
        entries: A page of the entries.
        width: The columns.
        header: Whether the first line names the columns.
        is_cut: Whether a long name is cut in its middle; a whole one can be copied.
    """
    layout = _Layout.of(entries, width, is_cut=is_cut)
    if any(columns_of(entry.prompt) > layout.prompt > 0 for entry in entries):
        entries = _told_apart(entries)
    if header:
        yield from layout.lines(Entry(_KEY, "", _PROMPT, _DETAIL), (_STATE, "bold"), "bold")
    for entry in entries:
        yield from layout.lines(entry, styled_status(entry.state))


def _told_apart(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries without the words that all prompts begin with, such as those of one template."""
    prompts = {entry.prompt for entry in entries}
    common = os.path.commonprefix(list(prompts))  # noqa: RUF071 - of words, not of paths
    start = common.rfind(" ") + 1
    if len(prompts) == 1 or not start:
        return entries
    return [evolve(entry, prompt=f"…{entry.prompt[start:]}") for entry in entries]


@frozen
class _Layout:
    """The widths of the table, in columns.

    Attributes:
        name: Of the name.
        prompt: Of the prompt; 0 without prompts, or without room for them.
        detail: Of the detail.
        width: Of the whole.
        is_cut: Whether a longer name is cut.
    """

    name: int
    prompt: int
    detail: int
    width: int
    is_cut: bool

    @classmethod
    def of(cls, entries: Sequence[Entry], width: int, *, is_cut: bool) -> Self:
        """Return the layout for these entries."""
        most = min(width // _NAME_SHARE, _LONGEST_NAME)
        name = min(max((len(_KEY), *(columns_of(entry.name) for entry in entries))), most)
        room = width - name - _STATE_COLUMNS - 2 * len(_GAP)
        wanted = min(max((0, *(columns_of(entry.prompt) for entry in entries))), _LONGEST_PROMPT)
        beside = room - len(_GAP) - max(min(wanted, _LEAST_PROMPT), len(_PROMPT))
        if not wanted or beside < _LEAST_DETAIL:
            return cls(name, 0, room, width, is_cut)
        details = [columns_of(entry.detail) for entry in entries]
        longest = max((len(_DETAIL), *(columns for columns in details if columns <= beside)))
        # One that takes several lines anyway leaves more to the prompts.
        detail = min(max(longest, _USUAL_DETAIL if max(details, default=0) > beside else 0), beside)
        prompt = min(max(wanted, len(_PROMPT)), room - len(_GAP) - detail)
        return cls(name, prompt, room - len(_GAP) - prompt, width, is_cut)

    def lines(self, entry: Entry, state: tuple[str, str], style: str = "") -> Iterator[Line]:
        """Return the lines of one entry; in `style`, but for its state."""
        name = cut_in_the_middle(entry.name, self.name) if self.is_cut else one_line(entry.name, LONGEST_LINE)
        name += " " * (self.name - columns_of(name)) + _GAP
        first, *others = self._broken(entry.detail)
        if first and self.prompt:
            first = f"{padded(cut_at_a_word(entry.prompt, self.prompt), self.prompt)}{_GAP}{first}"
        elif not first:  # the detail is below, or there is none
            first = cut_at_a_word(entry.prompt, self.width - self.name - _STATE_COLUMNS - 2 * len(_GAP))
        word = (f"{state[0]:<{_STATE_COLUMNS}}" if first else state[0], state[1])
        rest = f"{_GAP}{first}" if first else ""
        yield ((name, style), word, (rest, style)) if rest else ((name, style), word)
        for text in others:
            yield ((f"{' ' * self._indent(text)}{text}", style),)

    def _broken(self, detail: str) -> list[str]:
        """Return a detail in lines that fit its column; the first one is empty where not even its first word does."""
        if columns_of(detail) <= self.detail:
            return [detail]
        lines = [""]
        for word in one_line(detail, LONGEST_LINE).split(" "):
            longer = f"{lines[-1]} {word}".lstrip()
            if columns_of(longer) <= self.detail:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines

    def _indent(self, text: str) -> int:
        """Return where a further line begins: below its column, or further left where it is longer than that."""
        return max(min(self.width - self.detail, self.width - columns_of(text)), len(_GAP))
