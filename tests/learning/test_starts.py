from datetime import UTC, datetime, timedelta
from math import inf

import attrs
import pytest

from agentjobs_async import AgentJob
from agentjobs_async.learning.starts import _MOST_CLOSED, Start, Starts

KIND = ("docs", None)


@attrs.define(eq=False)
class Wait:
    """A wait that began at the loop time 0."""

    job: AgentJob | None = attrs.field(factory=lambda: AgentJob("job_1", "docs", "active"))
    seen: float = 0.0
    started: float = 0.0
    shown: int = 1
    polls: int = 1
    bad_answers: int = 0
    refused_since: float | None = None


def begun(*waits: Wait) -> Starts:
    starts = Starts()
    for wait in waits:
        starts.begin("docs", wait)
    return starts


def decided(starts: Starts, horizon: float = inf) -> list[tuple[int, float, float]]:
    def same(_start: Start) -> float:
        return horizon

    return [(start.number, start.earliest, start.latest) for start in starts.decided("docs", same)]


def test_durations_come_in_the_order_of_the_starts() -> None:
    """A duration comes once all waits that began earlier have ended."""
    first, second = Wait(), Wait()
    starts = begun(first, second)
    starts.end(second, KIND, 5.0, 6.0)
    assert decided(starts) == []
    starts.end(first, KIND, 50.0, 60.0)
    assert decided(starts) == [(1, 50.0, 60.0), (2, 5.0, 6.0)]


def test_a_job_beyond_the_horizon_comes_once() -> None:
    """A job that was seen active beyond the horizon comes before it has ended, and not again at its end."""
    wait = Wait(seen=30.0)
    starts = begun(wait)
    assert decided(starts, 30.0) == []
    assert decided(starts, 29.0) == [(1, 30.0, inf)]
    starts.end(wait, KIND, 50.0, 60.0)
    assert decided(starts) == []


def test_a_wait_that_was_left_holds_nothing_up() -> None:
    """A wait that was left comes with the time for which its job was seen active."""
    left, unseen, ended = Wait(seen=30.0), Wait(None), Wait()
    starts = begun(left, unseen, ended)
    starts.end(ended, KIND, 5.0, 6.0)
    starts.leave(left)
    starts.leave(unseen)
    assert decided(starts) == [(1, 30.0, inf), (2, 0.0, inf), (3, 5.0, 6.0)]


def test_a_job_that_no_answer_has_shown_holds_the_later_ones_up() -> None:
    """Of a job that was given as a reference, nothing is known before the first answer."""
    assert decided(begun(Wait(None, seen=30.0)), 0.0) == []


@pytest.mark.parametrize("leaves", [True, False])
def test_a_job_of_long_ago_says_nothing(*, leaves: bool) -> None:
    """The age of a job that was created long before its wait is not that of the wait: it comes with none."""
    old = Wait(AgentJob("job_1", "docs", "active", created_at=datetime.now(UTC) - timedelta(hours=1)), seen=30.0)
    starts = begun(old)
    if leaves:
        starts.leave(old)
    assert decided(starts, 20.0) == [(1, 0.0, inf)]


def test_what_began_before_is_ignored() -> None:
    """A wait of which the start is not known has no place in the order."""
    starts = begun()
    starts.end(Wait(), KIND, 5.0, 6.0)
    starts.leave(Wait())
    assert decided(starts) == []


def test_projects_do_not_hold_each_other_up() -> None:
    """Each queue has an order of its own."""
    starts = begun(Wait())
    starts.add("web", ("web", None), 5.0, 6.0)
    assert [start.number for start in starts.decided("web", lambda _start: inf)] == [2]


def test_memory_is_bounded() -> None:
    """Behind a job that never ends, a bounded number of durations is kept; after that the order begins anew."""
    stuck, later = Wait(), Wait()
    starts = begun(stuck)
    for _ in range(_MOST_CLOSED + 1):
        starts.add("docs", KIND, 5.0, 6.0)
    assert not starts._queues
    starts.begin("docs", later)
    starts.end(stuck, KIND, 50.0, 60.0)
    starts.end(later, KIND, 7.0, 8.0)
    assert decided(starts) == [(_MOST_CLOSED + 3, 7.0, 8.0)]
    assert starts._closed == 0
