"""The live view of a journal: the share done, its probable end, its counts, and the active items."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from attrs import frozen

from agentjobs_async._text import span
from agentjobs_async.batch import State
from agentjobs_async.batch._estimates import End
from agentjobs_async.batch.states import open_in
from agentjobs_async.cli._output.columns import columns_of, cut_at_a_word, cut_in_the_middle, padded, shortened
from agentjobs_async.cli._output.screen import Line, Styled, styled_status

_STATE, _AGE, _POLLS = 7, 7, 5  # widths in columns
_SHORTEST_KEY, _LONGEST_KEY = 3, 16  # columns
_SHORTEST_PROMPT: Final = 12  # columns that a link leaves to the prompt
_SHORTEST_CUT: Final = 30  # columns: less of a reason, or a time without its end, says nothing
_ALL_COLUMNS: Final = 60  # on a narrower terminal a row has its key, its age and its prompt
_KEY_SHARE: Final = 4  # of the columns a key has one in so many, on a terminal that is narrow
_LEAST_KEY: Final = 10  # columns of a key that is cut
_LEAST_BAR: Final = 10  # columns: a shorter one shows nothing
_LINK_HEAD: Final = ", PULL REQUEST"
_LEAST_SECONDS: Final = 1.0  # a shorter time to come, or that has passed, is rounded to none
_LATE_SECONDS: Final = 1.0  # beyond the usual time of a job; polls are seconds apart
_SOON_SECONDS: Final = 12 * 3600.0  # a time further away needs its day
_DONE: Final = (State.COMPLETED, State.ARCHIVED, State.ABANDONED)
_BROKEN: Final = (State.UNKNOWN, State.FAILED, State.REJECTED)
_ACTIVE: Final = (State.ACTIVE, State.SENDING)


@frozen
class Active:
    """An item under way.

    Attributes:
        key: Its key.
        prompt: Its prompt.
        state: active or sending.
        age: Seconds that it has been in this state.
        polls: How often its job was polled.
        pr_link: The pull request of its job; `None` without one.
    """

    key: str
    prompt: str
    state: State
    age: float
    polls: int = 0
    pr_link: str | None = None


@frozen
class View:
    """A journal at one moment, as the run that works on it sees it, or as any other process does.

    Attributes:
        counts: The number of items in each state.
        now: The wall clock, in seconds since the epoch.
        active: The items under way, or the oldest of them.
        end: When all have ended; `None` while that is not known.
        usual: The seconds that half of the jobs took at most, and nine of ten; `None` while that is not known.
        elapsed: Seconds since the run began; `None` for another process.
        next_create: Seconds until the next create may go; `None` if that is not known.
        held_by: What holds back creates, in words; empty for nothing but a rate.
        trouble: Why nothing goes on, in words; empty as long as something may.
    """

    counts: Mapping[State, int]
    now: float
    active: Sequence[Active] = ()
    end: End | None = None
    usual: tuple[float, float] | None = None
    elapsed: float | None = None
    next_create: float | None = None
    held_by: str = ""
    trouble: str = ""

    @property
    def total(self) -> int:
        """The number of items."""
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """The number of items whose end is known, whichever it is."""
        return self.total - self.open - self.number(State.UNKNOWN)

    @property
    def open(self) -> int:
        """The number of items that have not ended."""
        return open_in(self.counts)

    def number(self, *states: State) -> int:
        """Return the number of items in some states."""
        return sum(self.counts.get(state, 0) for state in states)


def live_lines(view: View, width: int, height: int) -> Iterator[Line]:
    """Return at most `height` lines of at most `width` columns; the oldest items come first."""
    head = list(head_lines(view, width))
    yield from head
    yield from _item_lines(view, width, height - len(head))


def head_lines(view: View, width: int) -> Iterator[Line]:
    """Return the view without the items under way: its first lines, of at most `width` columns."""
    yield _share(view, width)
    if view.open:
        yield ((_fitting(_end_in_words(view), width), "yellow" if view.trouble else ""),)
    yield _counts(view, width)


def in_one_line(view: View) -> str:
    """Return the view as one line of a log."""
    share = f"{clock(view.now)} {_done_in(view)}: {', '.join(_counts_in_words(view.counts))}"
    if not view.open:
        return share if view.number(State.UNKNOWN) else f"{share}; all have ended"
    return "; ".join([share, *_end_in_words(view)])


def clock(moment: float) -> str:
    """Return a moment, in seconds since the epoch, as local time, with the day when it is further away."""
    local = datetime.fromtimestamp(moment, UTC).astimezone()
    return f"{local:%H:%M:%S}" if moment - time.time() < _SOON_SECONDS else f"{local:%a %H:%M}"


def _done_in(view: View) -> str:
    percent = f"{100 * view.done // max(view.total, 1)} %"
    is_long = view.elapsed is not None and view.elapsed >= _LEAST_SECONDS
    return f"{percent} in {span(view.elapsed or 0.0)}" if is_long else percent


def _share(view: View, width: int) -> Line:
    """Return the first line: the share done and the time first, then a bar as long as there is room."""
    share, count = _done_in(view), f"{view.done:,} of {view.total:,} ended"
    room = width - len(share) - len(count) - 4
    if room < _LEAST_BAR:
        return (_fitting([share, count], width),)
    return (f"{share} [", *_bar(view, room), f"] {count}")


def _bar(view: View, columns: int) -> Iterator[Styled]:
    """Return a bar of all items; each part but the last is as long as its share, rounded to nearest."""
    parts = (
        (view.number(*_DONE), "#", "green"),
        (view.number(*_BROKEN), "x", "bold red"),
        (view.number(*_ACTIVE), "+", "cyan"),
    )
    at = items = 0
    for number, sign, style in parts:
        items += number
        until = round(columns * items / max(view.total, 1))
        yield sign * (until - at), style
        at = until
    yield "." * (columns - at), "dim"


def _end_in_words(view: View) -> list[str]:
    """Return the end, then what decides it and when the next create may go; the last ones are left out first."""
    if view.trouble:
        return [view.trouble]
    planned, due = view.number(State.PLANNED), view.next_create
    words = [_end_or_none(view) or "no estimate of the end yet"]
    if view.held_by:
        return [*words, f"next create {clock(view.now + due)}: {view.held_by}" if due else view.held_by]
    words += [decision(view.end)] if view.end is not None and planned else []
    return [*words, f"next create {clock(view.now + due)}"] if due and planned else words


def decision(end: End) -> str:
    """Return what decides an end, as the option of the limit."""
    return f"--{end.decided_by.replace('_', '-')} decides"


def _end_or_none(view: View) -> str | None:
    """Return the end of the run; `None` while it is not known. No run is said to end in 0 s: it has not ended."""
    found = view.end
    if found is None:
        return None
    if found.seconds >= _LEAST_SECONDS:
        how = "ends after" if found.is_least else "ends about"
        return f"{how} {clock(view.now + found.seconds)}, in {span(found.seconds)}"
    if found.is_least or view.number(State.PLANNED):  # what is planned and not to be sent has no end
        return None
    usual = 0.0 if view.usual is None else view.usual[0]
    return (
        "jobs take longer than usual" if any(item.age - usual > _LATE_SECONDS for item in view.active) else "ends soon"
    )


def _counts_in_words(counts: Mapping[State, int]) -> Iterator[str]:
    """Return how many items are in each state that occurs, in the order of the states; sending counts as active."""
    active = sum(counts.get(state, 0) for state in _ACTIVE)
    for state in State:
        number = active if state is State.ACTIVE else counts.get(state, 0)
        if number and state is not State.SENDING:
            yield f"{number:,} {state}"


def _counts(view: View, width: int) -> Line:
    parts = [(words, styled_status(words.split(" ")[1])[1]) for words in _counts_in_words(view.counts)]
    if view.usual is not None:
        half, most = map(span, view.usual)
        parts.append((f"median {half}, 9 of 10 within {most}", ""))
    line: list[Styled] = []
    for words, style in parts:
        if sum(len(part[0]) for part in line) + len(words) + 2 * bool(line) > width:
            break
        line += [("  ", "")] * bool(line) + [(words, style)]
    return tuple(line)


def _item_lines(view: View, width: int, height: int) -> Iterator[Line]:
    """Return at most `height` lines: the items under way, the oldest first, and how many others there are."""
    number = max(view.number(*_ACTIVE), len(view.active))
    if not number or height < 1 or not view.active:
        return
    room = height - 1
    cut = max(room - 1, 0) if number > min(room, len(view.active)) else room
    shown = sorted(view.active, key=lambda item: -item.age)[:cut]
    longest = min(max(width // _KEY_SHARE, _LEAST_KEY), _LONGEST_KEY)
    key = max((_SHORTEST_KEY, *(min(columns_of(item.key), longest) for item in shown)))
    head = [*_columns(width, padded("KEY", key), f"{'STATE':<{_STATE}}", "AGE", "POLLS"), f"PROMPT{_LINK_HEAD}"]
    yield ((shortened("".join(map(str, head)).removesuffix(_LINK_HEAD * (width < _ALL_COLUMNS)), width), "bold"),)
    for item in shown:
        yield _row(item, key, width)
    if number > len(shown) and room > 0:
        yield (shortened(f"… and {number - len(shown):,} more", width),)


def _fitting(parts: Sequence[str], width: int) -> str:
    """Return as many of the parts as fit, the first one in any case; the last of them may be cut at a word."""
    line = cut_at_a_word(parts[0], width)
    for part in parts[1:]:
        cut = cut_at_a_word(part, width - len(line) - 2)
        if len(cut) < min(len(part), _SHORTEST_CUT):
            break
        line += f"; {cut}"
    return line


def _columns(width: int, key: str, state: Styled, age: str, polls: str) -> list[Styled]:
    """Return what comes before the prompt."""
    if width < _ALL_COLUMNS:
        return [key, f" {age:>{_AGE}}  "]
    return [key, " ", state, f" {age:>{_AGE}} {polls:>{_POLLS}}  "]


def _row(item: Active, key: int, width: int) -> Line:
    styled = (f"{item.state:<{_STATE}}", styled_status(item.state)[1])
    before = _columns(
        width, padded(cut_in_the_middle(item.key, key), key), styled, span(item.age), str(item.polls or "-")
    )
    room = width - key - sum(len(part) for part in _columns(width, "", " " * _STATE, "", ""))
    words, link = cut_at_a_word(item.prompt, room), item.pr_link
    if link is not None and room - len(link) > _SHORTEST_PROMPT:
        words = f"{cut_at_a_word(item.prompt, room - len(link) - 1)} {link}"
    return (*before, words)
