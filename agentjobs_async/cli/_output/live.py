"""The live view of a batch: the share done, its probable end, its counts, and the active items."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from agentjobs_async import Event, JobPolled, JobRef, WaitEnded
from agentjobs_async._text import span
from agentjobs_async.batch import ActiveItem, BatchStats, State
from agentjobs_async.cli._output.columns import columns_of, cut_at_a_word, cut_in_the_middle, padded, shortened
from agentjobs_async.cli._output.moments import clock, ends_in, is_shown
from agentjobs_async.cli._output.screen import Styled, styled_status
from agentjobs_async.cli.estimates import RunEstimate
from agentjobs_async.cli.outcomes import described

Line = tuple[Styled, ...]

_STATE, _AGE, _POLLS = 7, 7, 5  # widths in columns
_SHORTEST_KEY, _LONGEST_KEY = 3, 16  # columns
_SHORTEST_PROMPT: Final = 12  # columns that a link leaves to the prompt
_SHORTEST_CUT: Final = 30  # columns: less of a reason, or a time without its end, tells nothing
_ALL_COLUMNS: Final = 60  # on a narrower terminal a row has its key, its age and its prompt
_KEY_SHARE: Final = 4  # of the columns a key takes one in so many, on a terminal that is narrow
_LEAST_KEY: Final = 10  # columns of a key that is cut
_LEAST_BAR: Final = 10  # columns: a shorter one shows nothing
_LINK_HEAD: Final = ", PULL REQUEST"
_HEADER_LINES: Final = 4  # the share, the end, the counts, and the head of the table
_LATE_SECONDS: Final = 1.0  # beyond the usual time of a job; polls are seconds apart
_FAILED: Final = (State.FAILED, State.REJECTED)
_DONE: Final = (State.COMPLETED, State.ARCHIVED, State.ABANDONED)
_ACTIVE: Final = (State.SENDING, State.ACTIVE)


class PollCounts:
    """A hook that records the number of polls and the pull request of each watched job, and which jobs have ended."""

    def __init__(self) -> None:
        self._polls: dict[JobRef, tuple[int, str | None]] = {}
        self._ended: set[JobRef] = set()

    def __call__(self, event: Event, /) -> None:
        """Record a poll, or drop a job whose wait ended."""
        match event:
            case JobPolled(job, poll_number):
                self._polls[job.ref] = poll_number, job.pr_link
            case WaitEnded(ref, job):
                self._polls.pop(ref, None)
                if job is not None:
                    self._ended.add(ref)

    def __getitem__(self, ref: JobRef | None, /) -> tuple[int, str | None]:
        """Return the number of polls of a job and its pull request."""
        return (0, None) if ref is None else self._polls.get(ref, (0, None))

    def not_ended(self, items: Sequence[ActiveItem]) -> list[ActiveItem]:
        """Return the items without those whose jobs have ended: their ends may still be on their way to the journal."""
        self._ended &= {item.ref for item in items if item.ref is not None}
        return [item for item in items if item.ref not in self._ended]


@frozen
class View:
    """A batch at one moment.

    Attributes:
        counts: The number of items in each state.
        stats: The counts of the run.
        active: The items under way.
        elapsed: Seconds since the run began.
        estimate: What is left of the run; `None` while that is not known.
        job_seconds: How long half of the jobs took at most; `None` while that is not known.
        now: The wall clock, in seconds since the epoch.
    """

    counts: Mapping[State, int]
    stats: BatchStats
    active: Sequence[ActiveItem]
    elapsed: float
    estimate: RunEstimate | None
    job_seconds: float | None
    now: float

    @property
    def total(self) -> int:
        """The number of items."""
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """The number of items that have ended, in whatever way."""
        return self.number(*_DONE, *_FAILED)

    def number(self, *states: State) -> int:
        """Return the number of items in some states."""
        return sum(self.counts[state] for state in states)


def live_lines(view: View, polls: PollCounts, width: int, height: int) -> Iterator[Line]:
    """Return at most `height` lines of at most `width` columns; the oldest items come first."""
    yield from (_share(view, width), (_fitting(_end_in_words(view), width),), _counts(view, width))
    room = height - _HEADER_LINES
    if view.stats.left is not None and room > 1:
        yield (shortened(ends_in(view.stats.left), width),)
        room -= 1
    active = polls.not_ended([item for item in view.active if item.state is not State.PLANNED])
    shown = sorted(active, key=lambda item: -item.age)
    cut = max(room - 1, 0) if len(shown) > room else room
    longest = min(max(width // _KEY_SHARE, _LEAST_KEY), _LONGEST_KEY)
    key = max(_SHORTEST_KEY, *(min(columns_of(item.key), longest) for item in shown[:cut]), 0)
    if room > 0:
        head = [*_columns(width, padded("KEY", key), f"{'STATE':<{_STATE}}", "AGE", "POLLS"), f"PROMPT{_LINK_HEAD}"]
        yield ((shortened("".join(map(str, head)).removesuffix(_LINK_HEAD * (width < _ALL_COLUMNS)), width), "bold"),)
    for item in shown[:cut]:
        yield _row(item, polls, key, width)
    if len(shown) > cut and room > 0:
        yield (shortened(f"… and {len(shown) - cut} more", width),)


def in_one_line(view: View) -> str:
    """Return the view as one line of a log."""
    ended = f"{view.done:,} of {view.total:,} ended, {view.number(*_ACTIVE):,} active"
    left = [] if view.stats.left is None else [ends_in(view.stats.left)]
    return f"{_percent(view)} in {span(view.elapsed)}: {ended}; {'; '.join([*_end_in_words(view), *left])}"


def _percent(view: View) -> str:
    return f"{100 * view.done // max(view.total, 1)} %"


def _share(view: View, width: int) -> Line:
    """Return the first line: the share done and the time first, then a bar as long as there is room."""
    share, count = f"{_percent(view)} in {span(view.elapsed)}", f"{view.done:,} of {view.total:,}"
    room = width - len(share) - len(count) - 4
    if room < _LEAST_BAR:
        return (_fitting([share, count], width),)
    return (f"{share} [", *_bar(view, room), f"] {count}")


def _bar(view: View, columns: int) -> Iterator[Styled]:
    """Return a bar of all items; each part but the last is as long as its share, rounded to nearest."""
    parts = (
        (view.number(*_DONE), "#", "green"),
        (view.number(*_FAILED, State.UNKNOWN), "x", "bold red"),
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
    found, due, left = view.estimate, view.stats.next_create, view.number(State.PLANNED)
    words = [_end_or_none(view) or "no estimate of the end yet"]
    if view.stats.stopped:
        return [*words, "too many failures: nothing more is begun"]
    if due and view.stats.paused_by is not None:
        return [*words, f"next create {clock(view.now + due)}: {described(view.stats.paused_by)}"]
    words += [found.binding] if found is not None and left else []
    if due and left:
        return [*words, f"next create {clock(view.now + due)}"]
    return words


def _end_or_none(view: View) -> str | None:
    """Return the end of the run; `None` while it is not known. No run is said to end in 0 s: it has not ended."""
    found = view.estimate
    if found is None:
        return None
    if is_shown(found.seconds):
        how = "ends after" if found.is_least else "ends about"
        return f"{how} {clock(view.now + found.seconds)}, in {span(found.seconds)}"
    if found.is_least:
        return None
    usual = view.job_seconds or 0.0
    is_late = any(item.age - usual > _LATE_SECONDS for item in view.active if item.state in _ACTIVE)
    return "jobs take longer than usual" if is_late else "ends any moment now"


def _counts(view: View, width: int) -> Line:
    parts: list[tuple[str, str]] = [
        (f"{view.number(*_DONE[:1]):,} completed", "green"),
        (f"{view.number(*_FAILED):,} failed", "bold red"),
        (f"{view.number(*_ACTIVE):,} active", "cyan"),
        (f"{view.number(State.PLANNED):,} left", ""),
    ]
    for state, style in ((State.UNKNOWN, "bold red"), (State.ABANDONED, "yellow"), (State.ARCHIVED, "yellow")):
        if view.number(state):
            parts.insert(2, (f"{view.number(state):,} {state}", style))
    if view.job_seconds is not None:
        parts.append((f"half of the jobs took up to {span(view.job_seconds)}", ""))
    line: list[Styled] = []
    for words, style in parts:
        if sum(len(part[0]) for part in line) + len(words) + 2 * bool(line) > width:
            break
        line += [("  ", "")] * bool(line) + [(words, style)]
    return tuple(line)


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


def _row(item: ActiveItem, polls: PollCounts, key: int, width: int) -> Line:
    number, link = polls[item.ref]
    state = "sending" if item.state is State.SENDING else "active"
    styled = (f"{state:<{_STATE}}", styled_status(state)[1])
    before = _columns(width, padded(cut_in_the_middle(item.key, key), key), styled, span(item.age), str(number))
    room = width - key - sum(len(part) for part in _columns(width, "", " " * _STATE, "", ""))
    words = cut_at_a_word(item.prompt, room)
    if link is not None and room - len(link) > _SHORTEST_PROMPT:
        words = f"{cut_at_a_word(item.prompt, room - len(link) - 1)} {link}"
    return (*before, words)
