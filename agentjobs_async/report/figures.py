"""The figures of a journal: how its items ended, how long they took, and how late their ends were noticed."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from attrs import define, field, frozen

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.texts import decimal, seconds_between, span_text

__all__ = ["Figures", "Tally", "Tile", "job_seconds"]

_NONE: Final = "-"
_HOUR_SECONDS: Final = 3600.0
_LEAST_PERCENT, _MOST_PERCENT = 0.1, 99.9  # a smaller share is not told as none, nor a larger one as all
_FAST_PER_HOUR: Final = 600.0  # from here on a rate is easier to grasp per minute


@frozen
class Tile:
    """One figure: its name, its value, and what explains it.

    Attributes:
        state: The state that it counts; `None` for another figure.
    """

    name: str
    value: str
    note: str = ""
    state: State | None = None


@frozen
class Figures:
    """The figures of some rows.

    Attributes:
        counts: The number of rows in each state that occurs.
        durations: The seconds from create to end of each job that has ended, ascending.
        intervals: The mean seconds between the polls of each such job, ascending: about how late its end was noticed,
            as far as the journal knows.
        first: When the first create was sent; `None` before.
        last: When the last item ended; `None` before.
    """

    counts: Counter[State]
    durations: Sequence[float]
    intervals: Sequence[float]
    first: datetime | None
    last: datetime | None

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.counts.values())

    @property
    def per_hour(self) -> float | None:
        """The jobs that ended in an hour, over the whole span; `None` before the first end."""
        span = seconds_between(self.first, self.last)
        return len(self.durations) / span * _HOUR_SECONDS if span and self.durations else None

    @property
    def outcomes(self) -> list[Tile]:
        """The number of items in each state, those that need a person first."""
        return [
            Tile(state.value, f"{self.counts[state]:,}", _share(self.counts[state], self.total), state)
            for state in State
            if self.counts[state] or state in {State.UNKNOWN, State.FAILED, State.COMPLETED}
        ]

    @property
    def times(self) -> list[Tile]:
        """Durations, how late ends were noticed, and throughput."""
        rate = self.per_hour
        return [
            _median("duration", self.durations),
            _median("noticed within", self.intervals),
            Tile("throughput", *((_NONE, "") if rate is None else _rate_text(rate))),
        ]


def job_seconds(row: JournalRow) -> float | None:
    """Return the seconds from a job's create to its end; `None` for what is no job that has ended."""
    return None if row.state is State.ABANDONED else seconds_between(row.created_at, row.ended_at)


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
    """Counts rows one by one: 16 bytes for each, so that a journal of any size fits."""

    _counts: Counter[State] = field(factory=Counter)
    _durations: "array[float]" = field(factory=lambda: array("d"))
    _intervals: "array[float]" = field(factory=lambda: array("d"))
    _first: datetime | None = None
    _last: datetime | None = None

    def add(self, row: JournalRow) -> None:
        """Count one row."""
        self._counts[row.state] += 1
        if row.sent_at is not None and (self._first is None or row.sent_at < self._first):
            self._first = row.sent_at
        if row.ended_at is not None and (self._last is None or row.ended_at > self._last):
            self._last = row.ended_at
        duration = job_seconds(row)
        if duration is not None:
            self._durations.append(duration)
            if row.polls:
                self._intervals.append(duration / row.polls)

    def figures(self) -> Figures:
        """Return the figures of all rows so far."""
        durations, intervals = sorted(self._durations), sorted(self._intervals)
        return Figures(self._counts, durations, intervals, self._first, self._last)
