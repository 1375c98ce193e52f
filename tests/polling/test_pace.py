"""The clock of the polls, and the limit of their rate."""

import pytest

from agentjobs_async._polling.pace import PollClock, PollLimits
from tests.rows import failures


def start(polls: PollLimits, now: float) -> float:
    """Start a poll and return 0; or return when the next may start."""
    next_start = polls.next_start(now)
    if next_start == now:
        polls.start(now)
    return 0 if next_start == now else next_start


def test_stands_still() -> None:
    """While it is stopped its time does not go on; afterwards what was due later still is, by the time lost."""
    polls = PollClock()
    due = polls.due(12, 10)
    polls.stop(10, 15)
    assert (polls.stopped, polls.unreachable, polls.resume_at) == (True, False, 15)
    assert [polls.time(now) for now in (10, 12, 30)] == [10, 10, 10]
    assert polls.resume(16) == 6
    assert (polls.stopped, polls.resume_at) == (False, None)
    assert (polls.time(16), polls.to_loop(due)) == (10, 18)
    polls.stop(20, 21)
    assert polls.resume(21) == 1
    assert (polls.to_loop(due), polls.to_loop(polls.due(30, 25))) == (19, 30)


def test_due_without_a_known_end() -> None:
    """A poll placed while the server is unreachable keeps its delay, counted from when the clock goes on."""
    polls = PollClock()
    polls.stop(10, None)
    due = [polls.due(when, 12) for when in (11, 15)]
    polls.resume(50)
    assert [polls.to_loop(time) for time in due] == [50, 53]


def test_stopped_twice() -> None:
    """The latest time holds, and any time stands above `None`: it says when to go on."""

    def check(stops: list[float | None], resume_at: float | None) -> None:
        polls = PollClock()
        for number, until in enumerate(stops):
            polls.stop(10 + number, until)
        assert (polls.resume_at, polls.unreachable) == (resume_at, resume_at is None)
        assert polls.resume(20) == 10

    rows = ([20, 15], 20), ([15, 20], 20), ([15, None], 15), ([None, 15], 15), ([None, None], None)
    assert failures(check, *rows) == {}


def test_rate() -> None:
    """No two starts are closer than the rate allows, and unused starts are not saved up."""
    polls = PollLimits(4)
    assert [start(polls, now) for now in (10, 10, 10.2, 10.25, 10.26)] == [0, 10.25, 10.25, 0, 10.5]
    assert [start(polls, now) for now in (100, 100.1)] == [0, 100.25]
    assert start(polls, 100.25 - 1e-9) == 0
    assert start(polls, 100.3) == 100.5


def test_late_starts_of_a_learnt_limit() -> None:
    """A start that is a few milliseconds late does not delay those after it, once a limit was learnt."""
    polls = PollLimits("auto")
    assert polls.adaptive is not None
    for _ in range(10):
        polls.adaptive.count(10.0, 10.0)
    polls.adaptive.refuse(10.0, 10.0, 10.0)
    polls.adaptive.count(10.0, 10.0)
    due = polls.next_start(10.0)
    polls.start(due + 0.005)
    assert polls.next_start(due + 0.005) == pytest.approx(due + 1 / polls.adaptive.at(due), abs=0.002)
