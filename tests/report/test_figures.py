import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.figures import Counted, Figures, Tally, Tile

START = datetime(2026, 1, 1, tzinfo=UTC)


def counted(state: State, seconds: float | None = None, polls: int = 0) -> Counted:
    ended = None if seconds is None else START + timedelta(seconds=seconds)
    created = None if seconds is None else START
    times: dict[str, Any] = {"sent_at": START, "created_at": created, "ended_at": ended}
    return Counted.of(JournalRow("k", "p", "docs", state, None, None, None, START, 1, **times, polls=polls))


def shown(figures: Figures) -> list[Tile]:
    return [tile for tile in figures.outcomes if tile.is_shown]


def test_figures() -> None:
    """What needs a person comes first; quantiles are values that occurred, and rates are over the whole span.

    What was abandoned is no job that has ended.
    """
    tally = Tally()
    for seconds in range(1, 101):
        tally.add(counted(State.COMPLETED, seconds * 36, polls=seconds))
    tally.add(counted(State.ABANDONED, 3, polls=1))
    for state in (State.UNKNOWN, State.PLANNED):
        tally.add(counted(state))
    figures = tally.figures(START.timestamp())
    assert [(tile.name, tile.value) for tile in shown(figures)] == [
        ("unknown", "1"),
        ("failed", "0"),
        ("planned", "1"),
        ("abandoned", "1"),
        ("completed", "100"),
    ]
    assert [(tile.value, tile.note.replace("\u00a0", " ")) for tile in figures.times] == [
        ("30\u00a0min", "median; 9 of 10 within 54 min"),
        ("36\u00a0s", "median; 9 of 10 within 36 s"),
        ("100.0 / h", "jobs ended"),
    ]


def test_document() -> None:
    """A page gets a tile of each state, with whether it is worth showing, and the total in words."""
    document = json.loads(json.dumps(Figures(Counter({State.ACTIVE: 1})).document()))
    assert document["total"] == "1 item"
    assert [tile["state"] for tile in document["outcomes"]] == list(State)
    assert [tile["name"] for tile in document["outcomes"] if tile["is_shown"]] == [
        "unknown",
        "failed",
        "active",
        "completed",
    ]
    assert {tile["value"] for tile in document["outcomes"]} == {"0", "1"}
    assert [tile["name"] for tile in document["times"]] == ["duration", "polled every", "throughput"]


@pytest.mark.parametrize(
    ("total", "share", "rest"), [(1000, "0.1 %", "99.9 %"), (1001, "< 0.1 %", "> 99.9 %"), (1, "100.0 %", None)]
)
def test_extreme_shares(total: int, share: str, rest: str | None) -> None:
    """A share below a tenth of a percent is not shown as none, nor one above 99.9 as all; none and all are."""
    tally = Tally()
    for index in range(total):
        tally.add(counted(State.PLANNED if index else State.UNKNOWN))
    notes = {tile.name: tile.note for tile in shown(tally.figures(START.timestamp()))}
    assert (notes["unknown"], notes["failed"], notes.get("planned")) == (share, "0.0 %", rest)


def test_nothing_yet() -> None:
    """A journal without rows has figures, too."""
    figures = Tally().figures(0.0)
    assert [tile.value for tile in shown(figures)] == ["0", "0", "0"]
    assert [(tile.value, tile.note) for tile in figures.times] == 3 * [("-", "")]
