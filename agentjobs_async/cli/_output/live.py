"""The live view of a batch: its counts, when the next create may go, its probable end, and the active items."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final

from attrs import frozen

from agentjobs_async import Event, JobPolled, JobRef, WaitEnded
from agentjobs_async.batch import ActiveItem, BatchStats, Rate, State
from agentjobs_async.cli._output.moments import clock, span
from agentjobs_async.cli._output.screen import Styled, padded, shortened, styled_status
from agentjobs_async.cli.outcomes import described

__all__ = ["PollCounts", "View", "live_lines"]

Line = tuple[Styled, ...]

_NONE: Final = "-"
_STATE, _AGE, _POLLS = 9, 7, 6  # widths in columns
_SHORTEST_KEY, _LONGEST_KEY = 3, 24  # columns
_BESIDE_THE_KEY: Final = 1 + _STATE + 1 + _AGE + 1 + _POLLS + 2
_MINUTE, _HOUR = 60, 3600  # seconds
_HEADER_LINES: Final = 4
_FAILED: Final = (State.FAILED, State.REJECTED)


class PollCounts:
    """A hook that records the number of polls and the pull request of each watched job."""

    def __init__(self) -> None:
        self._polls: dict[JobRef, tuple[int, str | None]] = {}

    def __call__(self, event: Event, /) -> None:
        """Record a poll, or drop a job whose wait ended."""
        match event:
            case JobPolled(job, polls):
                self._polls[job.ref] = polls, job.pr_link
            case WaitEnded(ref):
                self._polls.pop(ref, None)

    def __getitem__(self, ref: JobRef | None, /) -> tuple[int, str | None]:
        """Return the number of polls of a job and its pull request."""
        return (0, None) if ref is None else self._polls.get(ref, (0, None))


@frozen
class View:
    """A batch at one moment.

    Attributes:
        counts: The number of items in each state.
        queue: The planned items that share one limit of the rate: those of the project with the most of them if the
            rate is per project, else all.
        stats: The counts of the run.
        active: The items under way.
        elapsed: Seconds since the run began.
        ended: The number of items that have ended in this run.
        rate: The rate limit of creates; `None` without one.
        now: The wall clock, in seconds since the epoch.
    """

    counts: Mapping[State, int]
    queue: int
    stats: BatchStats
    active: Sequence[ActiveItem]
    elapsed: float
    ended: int
    rate: Rate | None
    now: float

    @property
    def seconds_left(self) -> float | None:
        """An estimate of the seconds until the end: by the throughput so far, but no earlier than the rate allows.

        `None` if no item has ended and the rate allows all creates at once.
        """
        left = sum(self.counts[state] for state in (State.PLANNED, State.SENDING, State.CREATED))
        by_throughput = self.elapsed / self.ended * left if self.ended else None
        if self.rate is None or self.queue <= self.rate.count:
            return by_throughput
        spans = ceil(self.queue / self.rate.count) - 1
        return max(by_throughput or 0.0, spans * self.rate.per + (self.stats.next_create or 0.0))


def live_lines(view: View, polls: PollCounts, width: int, height: int) -> Iterator[Line]:
    """Return at most `height` lines of at most `width` columns; the oldest items come first."""
    yield from _head(view, width)
    room = height - _HEADER_LINES
    shown = sorted((item for item in view.active if item.state is not State.PLANNED), key=lambda item: -item.age)
    cut = max(room - 1, 0) if len(shown) > room else room
    longest = max(min(_LONGEST_KEY, width - _BESIDE_THE_KEY), _SHORTEST_KEY)
    key = min(max(_SHORTEST_KEY, *(len(shortened(item.key, longest)) for item in shown[:cut]), 0), longest)
    if room > 0:
        header = f"{'KEY':<{key}} {'STATE':<{_STATE}} {'AGE':>{_AGE}} {'POLLS':>{_POLLS}}  PULL REQUEST"
        yield ((header[:width], "bold"),)
    for item in shown[:cut]:
        yield _row(item, polls, key, width)
    if len(shown) > cut and room > 0:
        yield (shortened(f"… and {len(shown) - cut} more", width),)


def _head(view: View, width: int) -> Iterator[Line]:
    counts = view.counts
    total = sum(counts.values())
    waiting = view.stats.waiting
    later = max(counts[State.PLANNED] - waiting, 0)
    busy = f"{view.stats.active} active, {waiting} waiting to be created, {later} after them"
    yield (shortened(f"{busy}; {total} in all", width),)
    yield (shortened(_outlook(view), width),)
    words = (
        (f"{counts[State.COMPLETED]} done", "green"),
        (f"{sum(counts[state] for state in _FAILED)} failed", "bold red"),
        (f"{counts[State.ARCHIVED]} archived", "yellow"),
        (f"{counts[State.UNKNOWN]} unknown", "bold red"),
    )
    yield tuple(_cut([part for word in words for part in (word, "  ")][:-1], width))


def _cut(parts: Sequence[tuple[str, str] | str], width: int) -> Iterator[Styled]:
    """Return as many of the parts as fit, the last one shortened."""
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        yield shortened(text, width) if width < len(text) else text, style
        width -= len(text)
        if width <= 0:
            return


def _outlook(view: View) -> str:
    due = view.stats.next_create
    wait = "next create when one under way is answered" if due is None else "next create at any time"
    if view.stats.stopped:
        wait = "too many failures: nothing more is begun"
    elif due and view.stats.paused_by is not None:
        wait = f"next create {clock(view.now + due)}: {described(view.stats.paused_by)}"
    elif due:
        wait = f"rate limit: next create {clock(view.now + due)}"
    elif view.counts[State.PLANNED] and not view.stats.waiting:
        wait = "next create when an active job has ended"
    left = view.seconds_left
    return wait if left is None else f"{wait}; end about {clock(view.now + left)}, in {span(left)}"


def _row(item: ActiveItem, polls: PollCounts, key: int, width: int) -> Line:
    number, link = polls[item.ref]
    rest = f"{span(item.age):>{_AGE}} {number:>{_POLLS}}  {link or _NONE}"
    room = width - key - _STATE - 2
    return (
        f"{padded(item.key, key)} ",
        (f"{item.state:<{_STATE}}", styled_status(item.state)[1]),
        f" {shortened(rest, room)}",
    )
