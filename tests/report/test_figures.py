from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.figures import Tally

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(state: State, seconds: float | None = None, polls: int = 0) -> JournalRow:
    ended = None if seconds is None else START + timedelta(seconds=seconds)
    created = None if seconds is None else START
    times: dict[str, Any] = {"sent_at": START, "created_at": created, "ended_at": ended}
    return JournalRow("k", "p", "docs", state, None, None, None, START, 1, **times, polls=polls)


def test_figures() -> None:
    """What needs a person comes first; quantiles are values that occurred, and rates are over the whole span.

    What was abandoned is no job that has ended.
    """
    tally = Tally()
    for seconds in range(1, 101):
        tally.add(row(State.COMPLETED, seconds * 36, polls=seconds))
    tally.add(row(State.ABANDONED, 3, polls=1))
    for state in (State.UNKNOWN, State.PLANNED):
        tally.add(row(state))
    figures = tally.figures()
    assert [(tile.name, tile.value) for tile in figures.outcomes] == [
        ("unknown", "1"),
        ("failed", "0"),
        ("planned", "1"),
        ("abandoned", "1"),
        ("completed", "100"),
    ]
    assert [(tile.value, tile.note) for tile in figures.times] == [
        ("30 min", "median; 9 of 10 within 54 min"),
        ("36 s", "median; 9 of 10 within 36 s"),
        ("100.0 / h", "jobs ended"),
    ]


@pytest.mark.parametrize(
    ("total", "share", "rest"), [(1000, "0.1 %", "99.9 %"), (1001, "< 0.1 %", "> 99.9 %"), (1, "100.0 %", None)]
)
def test_extreme_shares(total: int, share: str, rest: str | None) -> None:
    """A share below a tenth of a percent is not told as none, nor one above 99.9 as all; none and all are."""
    tally = Tally()
    for place in range(total):
        tally.add(row(State.PLANNED if place else State.UNKNOWN))
    notes = {tile.name: tile.note for tile in tally.figures().outcomes}
    assert (notes["unknown"], notes["failed"], notes.get("planned")) == (share, "0.0 %", rest)


def test_nothing_yet() -> None:
    """A journal without rows has figures, too."""
    figures = Tally().figures()
    assert [tile.value for tile in figures.outcomes] == ["0", "0", "0"]
    assert [(tile.value, tile.note) for tile in figures.times] == 3 * [("-", "")]
