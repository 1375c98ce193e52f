"""What is known of one job, and the futures of those who wait for it."""

import asyncio
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from agentjobs_async import AgentJob, JobTracker
from agentjobs_async._polling.tracked import Tracked, Watch
from tests.polled import ACTIVE, DONE, REF, Polled, assert_nothing_left, changed, every, in_memory

pytestmark = in_memory


@pytest.fixture
def watches() -> Iterator[list[Watch]]:
    """Return watches that no scheduler knows."""
    loop = asyncio.new_event_loop()
    scheduler: Any = SimpleNamespace(loop=loop)
    yield [Watch(scheduler, None) for _ in range(5)]
    loop.close()


@pytest.fixture
def tracked() -> Tracked:
    return Tracked(REF, None, 7.0)


def test_back_to_one(tracked: Tracked, watches: list[Watch]) -> None:
    """When all but one have left, the one goes on, and others may join it."""
    first, second, third = watches[:3]
    for waiter in (first, second):
        tracked.join(waiter)
    tracked.leave(first)
    assert tracked.present() == (second,)
    tracked.join(third)
    assert tracked.present() == (second, third)


def test_lone_waiter_costs_nothing_more(tracked: Tracked, watches: list[Watch]) -> None:
    """A lone waiter is stored inline, without a container."""
    tracked.join(watches[0])
    assert tracked._waiters is watches[0]


async def test_watch() -> None:
    """A watch is a future: awaited by many, with callbacks, and its job stays in it."""
    called: list[object] = []
    async with JobTracker(Polled("active", "completed"), policy=every(2)) as tracker:
        watch = tracker.watch(REF)
        assert asyncio.isfuture(watch)
        watch.add_done_callback(called.append)
        results = await asyncio.gather(watch, watch, asyncio.wait_for(watch, 10))
        assert list(results) == [DONE] * 3
        assert (called, watch.result()) == ([watch], DONE)
        assert not watch.cancel()
        assert_nothing_left(tracker)


async def test_watch_cancelled() -> None:
    """Cancelling a watch leaves, once, with its message; cancelling it again is no more than with any future."""
    events: list[Any] = []
    async with JobTracker(Polled("active"), policy=every(2), hooks=[events.append]) as tracker:
        watch = tracker.watch(REF)
        await asyncio.sleep(1)
        assert watch.cancel("enough")
        assert not watch.cancel()
        assert watch.cancelled()
        assert_nothing_left(tracker)
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await watch
    assert [type(event).__name__ for event in events] == ["WaitStarted", "JobPolled", "WaitEnded"]


async def test_on_update_of_one_who_knows_more() -> None:
    """Who joins with a state of the job of its own is told that first, then what the next poll shows."""
    seen: list[AgentJob] = []
    async with JobTracker(Polled("active", "active", "completed"), policy=every(2)) as tracker:
        first = tracker.watch(REF)
        await asyncio.sleep(1)
        second = tracker.watch(changed("older"), on_update=seen.append)
        await asyncio.gather(first, second)
    assert seen == [changed("older"), ACTIVE, DONE]


async def test_late_comer_is_told_at_once() -> None:
    """Who joins a job that the tracker has seen already is told its state at once."""
    seen: list[AgentJob] = []
    async with JobTracker(Polled(), policy=every(60)) as tracker:
        watch = tracker.watch(REF)
        await asyncio.sleep(10)
        late = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=seen.append))
        await asyncio.sleep(0)
        assert seen == [ACTIVE]
        watch.cancel()
        late.cancel()
        await asyncio.gather(watch, late, return_exceptions=True)


async def test_on_update_that_leaves() -> None:
    """`on_update` may cancel its own wait and others: they leave and are told nothing more, and the others go on."""
    waits: list[asyncio.Task[AgentJob]] = []
    told: list[int] = []

    def leave(_job: AgentJob, number: int) -> None:
        told.append(number)
        for wait in waits[:2]:
            wait.cancel()

    async with JobTracker(Polled("active", "completed", latency=1), policy=every(1)) as tracker:
        waits += [
            asyncio.ensure_future(tracker.wait_for_job(REF, on_update=partial(leave, number=number)))
            for number in range(3)
        ]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert_nothing_left(tracker)
    assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError, AgentJob]
    assert told == [0, 2, 2]
