"""The figures of a journal: how its items ended and why, how long they took, and when nobody saw them.

They are computed here alone: a page shows the tiles that it is given.
"""

import math
from array import array
from collections import Counter
from collections.abc import MutableSequence, Sequence
from datetime import datetime
from sys import intern
from typing import Any, Final, Self

from attrs import asdict, define, field, frozen

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.items import shared_reason
from agentjobs_async.report.texts import decimal, seconds_between, shown, span_text
from agentjobs_async.report.unseen import Seen, unseen_spans

__all__ = ["Counted", "Figures", "Tally", "Tile"]

_NONE: Final = "-"
_HOUR_SECONDS: Final = 3600.0
_LEAST_PERCENT, _MOST_PERCENT = 0.1, 99.9  # a smaller share is not shown as none, nor a larger one as all
_FAST_PER_HOUR: Final = 600.0  # from here on a rate is easier to grasp per minute
_MOST_REASONS: Final = 12  # more are no overview
_ALWAYS_SHOWN: Final = frozenset({State.UNKNOWN, State.FAILED, State.COMPLETED})


@frozen
class Tile:
    """One figure: its name, its value, and what explains it.

    Attributes:
        state: The state that it counts; `None` for another figure.
        is_shown: Whether it is worth showing. A page that has shown a tile goes on with it: others would move.
    """

    name: str
    value: str
    note: str = ""
    state: State | None = None
    is_shown: bool = True


@frozen
class Figures:
    """The figures of some rows.

    Attributes:
        counts: The number of rows in each state that occurs.
        durations: The seconds from create to end of each job that has ended, ascending.
        intervals: The mean seconds between the polls of each such job, ascending, as far as the journal knows them.
        first: When the first create was sent; `None` before.
        last: When the last item ended; `None` before.
        reasons: How many items have which reason, the most frequent first.
        unseen: The spans in which jobs were active and nobody saw them, in milliseconds since the epoch.
    """

    counts: Counter[State]
    durations: Sequence[float] = ()
    intervals: Sequence[float] = ()
    first: datetime | None = None
    last: datetime | None = None
    reasons: Sequence[tuple[str, int]] = ()
    unseen: Sequence[tuple[int, int]] = ()

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.counts.values())

    @property
    def total_text(self) -> str:
        """The number of rows in words."""
        return f"{self.total:,} item{'' if self.total == 1 else 's'}"

    @property
    def per_hour(self) -> float | None:
        """The jobs that ended in an hour, over the whole span; `None` before the first end."""
        span = seconds_between(self.first, self.last)
        return len(self.durations) / span * _HOUR_SECONDS if span and self.durations else None

    @property
    def outcomes(self) -> list[Tile]:
        """The number of items in each state, those that need a person first."""
        return [self._of_state(state) for state in State]

    def _of_state(self, state: State) -> Tile:
        count = self.counts[state]
        return Tile(
            state.value, f"{count:,}", _share(count, self.total), state, is_shown=count > 0 or state in _ALWAYS_SHOWN
        )

    @property
    def times(self) -> list[Tile]:
        """Durations, how often jobs were polled, and throughput."""
        rate = self.per_hour
        return [
            _median("duration", self.durations),
            _median("polled every", self.intervals),
            Tile("throughput", *((_NONE, "") if rate is None else _rate_text(rate))),
        ]

    def document(self) -> dict[str, Any]:
        """Return what a page shows of them, as JSON has it."""
        groups = {"outcomes": self.outcomes, "times": self.times}
        tiles = {name: list(map(asdict, tiles)) for name, tiles in groups.items()}
        return {"total": self.total_text, **tiles, "reasons": self.shown_reasons, "unseen": self.unseen}

    @property
    def shown_reasons(self) -> list[dict[str, Any]]:
        """The most frequent reasons as a page shows them: each `reason`, and the `words` with the number of items."""
        most = self.reasons[:_MOST_REASONS]
        return [{"reason": reason, "words": f"{number:,}\u00a0\u00d7 {reason}"} for reason, number in most]


@frozen
class Counted:
    """What a row adds to the figures.

    Attributes:
        state: Its state.
        sent_at: When its create was sent; `None` before.
        ended_at: When it ended; `None` before.
        duration: The seconds from its job's create to its end; `None` for what is no job that has ended.
        interval: The mean seconds between the polls of such a job; `None` without polls.
        reason: Why it has no result, as many items share it; `None` where it has one, or may get one.
        seen: When it was seen from its job's create on, and how often it was polled; `None` without a job.
    """

    state: State
    sent_at: datetime | None
    ended_at: datetime | None
    duration: float | None
    interval: float | None
    reason: str | None = None
    seen: Seen | None = None

    @classmethod
    def of(cls, row: JournalRow) -> Self:
        """Return what a row adds."""
        duration = None if row.state is State.ABANDONED else seconds_between(row.created_at, row.ended_at)
        interval = None if duration is None or not row.polls else duration / row.polls
        reason = shared_reason(row.why)
        known = None if reason is None else intern(shown(reason))  # many rows have the same one
        return cls(row.state, row.sent_at, row.ended_at, duration, interval, known, Seen.of(row))


def _share(count: int, total: int) -> str:
    if not total:
        return ""
    percent = 100 * count / total
    if 0 < percent < _LEAST_PERCENT:
        return "< 0.1 %"
    return "> 99.9 %" if percent > _MOST_PERCENT and count < total else f"{decimal(percent, 1)} %"


def _median(name: str, ascending: Sequence[float]) -> Tile:
    note = f"median; 9 of 10 within {_quantile_text(ascending, 0.9)}" if ascending else ""
    return Tile(name, _quantile_text(ascending, 0.5), note)


def _rate_text(per_hour: float) -> tuple[str, str]:
    fast = per_hour >= _FAST_PER_HOUR
    return f"{decimal(per_hour / 60, 0)} / min" if fast else f"{decimal(per_hour, 1)} / h", "jobs ended"


def _quantile_text(ascending: Sequence[float], share: float) -> str:
    """Return the smallest value that at least `share` of all do not exceed."""
    return span_text(ascending[max(math.ceil(share * len(ascending)) - 1, 0)]) if ascending else _NONE


@define
class Tally:
    """Counts rows one by one, some hundred bytes for each."""

    _counts: Counter[State] = field(factory=Counter)
    _durations: MutableSequence[float] = field(factory=lambda: array("d"))
    _intervals: MutableSequence[float] = field(factory=lambda: array("d"))
    _first: datetime | None = None
    _last: datetime | None = None
    _reasons: Counter[str] = field(factory=Counter)
    _seen: list[Seen] = field(factory=list)

    def add(self, row: Counted) -> None:
        """Count one row."""
        self._counts[row.state] += 1
        if row.sent_at is not None and (self._first is None or row.sent_at < self._first):
            self._first = row.sent_at
        if row.ended_at is not None and (self._last is None or row.ended_at > self._last):
            self._last = row.ended_at
        if row.duration is not None:
            self._durations.append(row.duration)
        if row.interval is not None:
            self._intervals.append(row.interval)
        if row.reason is not None:
            self._reasons[row.reason] += 1
        if row.seen is not None:
            self._seen.append(row.seen)

    def figures(self, now: float) -> Figures:
        """Return the figures of all rows so far, at a time in seconds since the epoch."""
        durations, intervals = sorted(self._durations), sorted(self._intervals)
        unseen = unseen_spans(self._seen, now)
        return Figures(self._counts, durations, intervals, self._first, self._last, self._reasons.most_common(), unseen)
