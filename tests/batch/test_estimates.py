from datetime import UTC, datetime
from typing import Any

from agentjobs_async.batch import BatchItem, JournalRow, Limits, Rate, State
from agentjobs_async.batch._estimates import (
    Durations,
    End,
    end_of,
    estimate,
    seconds_to_last_create,
    time_left,
)
from tests.cli.checks import unexpected

ITEMS = [BatchItem(str(number), "x", "docs" if number < 200 else "web") for number in range(250)]


def test_estimate() -> None:
    """A run lasts as long as its slots or the rate of its largest project make it, whichever is longer."""
    rate, of_all = Rate(100, per=3600), Rate(100, per=3600, scope="all")
    expected = {
        (None, 20, 180): End(13 * 180, "max_active 20"),
        (None, 20, None): None,
        (rate, 1000, 180): End(3600 + 180, "create_rate 100/h"),
        (of_all, 1000, 180): End(7200 + 180, "create_rate 100/h/all"),
        (Rate(1, per=36), 1000, 180): End(199 * 36 + 180, "create_rate 1/36s"),
        (rate, 2, 180): End(125 * 180, "max_active 2"),
        (rate, 20, None): End(3600, "create_rate 100/h", is_least=True),
    }

    def found(row: tuple[Rate | None, int, int | None]) -> End | None:
        return estimate(ITEMS, create_rate=row[0], max_active=row[1], job_seconds=row[2])

    assert unexpected(expected, found) == {}
    nothing = estimate([], max_active=1, create_rate=Rate(1, per=60), job_seconds=60)
    assert nothing is not None
    assert nothing.seconds == 0


def test_last_create() -> None:
    """The last create goes no earlier than the rate allows it, and never before the next one."""
    rate = Rate(100, per=3600)
    expected = {
        (9, None, 0.0): 0.0,
        (9, None, 5.0): 5.0,
        (0, rate, 1384.0): 0.0,
        (100, rate, 1384.0): 1384.0,
        (101, rate, 1384.0): 1384.0 + 3600,
        (101, Rate(1, per=36), 10.0): 10.0 + 3600,
    }
    assert unexpected(expected, lambda row: seconds_to_last_create(*row)) == {}


def test_time_left() -> None:
    """A run lasts until its last create may go and its job ends, or as long as its slots take; a limit shortens it."""
    by_slots, by_rate = "max_active 4", "create_rate 100/h"
    rows: list[tuple[dict[str, Any], End | None]] = [
        ({"job_seconds": None}, End(1000 + 3600, by_rate, is_least=True)),
        ({"job_seconds": None, "create_rate": None, "last_create": 0.0}, None),
        ({"job_seconds": 60.0}, End(1000 + 3600 + 60, by_rate)),
        ({"job_seconds": 600.0, "ages": [0.0, 300.0]}, End(38 * 600, by_slots)),  # two slots are free
        ({"job_seconds": 600.0, "ages": [0.0, 0.0, 300.0, 300.0]}, End(300 + 38 * 600, by_slots)),
        # The limit was lowered: three jobs end before a slot is free.
        (
            {"to_create": 1, "last_create": 0.0, "job_seconds": 60.0, "ages": [0, 10, 20, 30, 40, 50]},
            End(90.0, by_slots),
        ),
        ({"to_create": 0, "last_create": 0.0, "job_seconds": 60.0, "ages": [20.0]}, End(40.0, by_slots)),
        ({"to_create": 0, "last_create": 0.0, "job_seconds": 60.0, "ages": [90.0]}, End(6.0, by_slots)),
        ({"to_create": 1, "last_create": 1000.0, "job_seconds": 60.0}, End(1060.0, by_rate)),
    ]
    given: dict[str, Any] = {"to_create": 150, "last_create": 4600.0, "ages": [], "max_active": 4}
    given["create_rate"] = Rate(100, per=3600)
    for settings, expected in rows:
        assert time_left(**given | settings) == expected, settings


def test_what_jobs_usually_take() -> None:
    """Half of the jobs, and nine of ten, took at most so long; from that follows the end of all."""
    durations = Durations()
    durations.replace(float(seconds) for seconds in range(1, 11))
    assert durations.usual == (5.5, 9.0)
    given: dict[str, Any] = {"to_create": 0, "queue": 0, "limits": Limits(max_active=4), "ages": [1.5]}
    assert end_of(usual=durations.usual, **given) == End(4.0, "max_active 4")
    durations.replace([])
    durations.add(row(State.ABANDONED))  # nobody saw its job end
    assert durations.usual is None
    assert end_of(usual=None, **given) is None
    durations.add(row(State.FAILED))
    assert durations.usual == (4.0, 4.0)


def row(state: State) -> JournalRow:
    """Return a row of a job that was created at the epoch, and whose item ended after 4 s."""
    times: dict[str, Any] = {"created_at": datetime.fromtimestamp(0, UTC), "ended_at": datetime.fromtimestamp(4, UTC)}
    return JournalRow("k", "p", "docs", state, "job-1", None, None, datetime.now(UTC), 1, **times)
