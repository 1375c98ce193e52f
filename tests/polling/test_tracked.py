"""What is kept of one job, and who waits for it."""

import asyncio
from collections.abc import Iterator

import pytest

from agentjobs_async._polling.stats import Second
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async._polling.watch import Watch
from tests.polled import REF


@pytest.fixture
def watches() -> Iterator[list[Watch]]:
    """Return watches that no scheduler knows."""
    loop = asyncio.new_event_loop()
    yield [Watch(loop, None, lambda _watch: None) for _ in range(5)]
    loop.close()


@pytest.fixture
def tracked() -> Tracked:
    return Tracked(REF, None, 7.0, Second(7))


def test_back_to_one(tracked: Tracked, watches: list[Watch]) -> None:
    """When all but one have left, the one goes on, and others may join it."""
    first, second, third = watches[:3]
    for waiter in (first, second):
        tracked.join(waiter)
    tracked.leave(first)
    assert tracked.snapshot() == (second,)
    tracked.join(third)
    assert tracked.snapshot() == (second, third)


def test_lone_waiter_costs_nothing_more(tracked: Tracked, watches: list[Watch]) -> None:
    """A lone waiter is kept inline, without a container."""
    tracked.join(watches[0])
    assert tracked.waiters is watches[0]


def test_trouble(tracked: Tracked) -> None:
    """A healthy job keeps no record of trouble; a good answer ends the record, but for that the job is slow."""
    assert tracked.trouble is None
    assert (tracked.error, tracked.bad_answers, tracked.refused_since, tracked.patience_seconds) == (None, 0, None, 0.0)
    trouble = tracked.in_trouble()
    trouble.error, trouble.bad_answers, trouble.refused_since = OSError(), 3, 7.0
    assert (tracked.error, tracked.bad_answers, tracked.refused_since) == (trouble.error, 3, 7.0)
    tracked.recover()
    assert tracked.trouble is None
    tracked.in_trouble().patience_seconds = 4.0
    tracked.in_trouble().error = OSError()
    tracked.recover()
    assert (tracked.error, tracked.patience_seconds) == (None, 4.0)
