"""What is kept of one job, and who waits for it."""

from typing import Any

import pytest

from agentjobs_async import AgentJob
from agentjobs_async._tracked import Tracked, Waiter
from tests.polled import REF


class Waits:
    """A waiter that only counts what it is told."""

    def __init__(self) -> None:
        self.tracked: Tracked | None = None
        self.started = 0.0
        self.timeout: float | None = None
        self.polls_before = 0
        self.bucket = Tracked.NOWHERE

    def saw(self, job: AgentJob) -> None: ...

    def finish(self, result: AgentJob | BaseException) -> None: ...


@pytest.fixture
def tracked() -> Tracked:
    return Tracked(REF, None, 7.0, 7)


def test_beginning(tracked: Tracked) -> None:
    """A job that is new has no polls, no waiters and no place; its grace begins now, and so may its first poll."""
    assert (tracked.ref, tracked.job, tracked.error, tracked.worker) == (REF, None, None, None)
    assert (tracked.started, tracked.seen, tracked.earliest, tracked.observed) == (7, 7, 7, 7)
    assert (tracked.polls, tracked.bad_answers, tracked.bucket) == (0, 0, Tracked.NOWHERE)
    assert tracked.each() == ()


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("order", [1, -1])
def test_come_and_go(tracked: Tracked, count: int, order: int) -> None:
    """Waiters come in order and leave in any; the last to leave is told so."""
    waiters: list[Waiter] = [Waits() for _ in range(count)]
    for waiter in waiters:
        tracked.join(waiter)
        assert waiter.tracked is tracked
    assert tracked.each() == tuple(waiters)
    leaving = waiters[::order]
    assert [tracked.leave(waiter) for waiter in leaving] == [False] * (count - 1) + [True]
    assert {waiter.tracked for waiter in waiters} == {None}
    assert (tracked.each(), tracked.waiters) == ((), None)


def test_back_to_one(tracked: Tracked) -> None:
    """When all but one have left, the one goes on, and others may join it."""
    first, second, third = Waits(), Waits(), Waits()
    for waiter in (first, second):
        tracked.join(waiter)
    tracked.leave(first)
    assert tracked.each() == (second,)
    tracked.join(third)
    assert tracked.each() == (second, third)


def test_lone_waiter_costs_nothing_more(tracked: Tracked) -> None:
    """A lone waiter is kept inline, without a container."""
    waiter: Any = Waits()
    tracked.join(waiter)
    assert tracked.waiters is waiter


def test_polls_before(tracked: Tracked) -> None:
    """A waiter that joins late remembers how many polls there were without it."""
    tracked.polls = 5
    late = Waits()
    tracked.join(late)
    assert late.polls_before == 5
