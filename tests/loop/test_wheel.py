"""Items and the times at which they are due; timers for callbacks."""

import asyncio
from collections import Counter
from math import inf
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._loop.wheel import RESOLUTION_SECONDS, Timers, TimerWheel
from tests.polled import clock, in_memory

TIMES: Final = st.floats(0, 100) | st.integers(0, 1000).map(lambda tenths: tenths / 10)


@given(st.lists(TIMES), TIMES)
def test_due(times: list[float], now: float) -> None:
    """Items come due in the order of their times, never early, and by one resolution late at the most."""
    wheel = TimerWheel[tuple[int, float]]()
    items = list(enumerate(times))
    due_at = {item: wheel.add(item, item[1]) for item in items}
    assert all(-1e-6 < due_at[item] - item[1] < RESOLUTION_SECONDS + 1e-6 for item in items)
    due = wheel.pop_due(now)
    assert wheel.first_due() > now
    left = wheel.pop_due(1000)
    assert Counter(due + left) == Counter(items)
    assert all(time <= now + 1e-6 for _, time in due)
    assert all(time > now - RESOLUTION_SECONDS - 1e-6 for _, time in left)
    assert due + left == sorted(items, key=lambda item: due_at[item])
    assert wheel.first_due() == inf


def test_first_due() -> None:
    """The first time is that of the earliest item, whatever came before it and has left."""
    wheel = TimerWheel[str]()
    assert wheel.first_due() == inf
    due_at = [wheel.add(name, when) for name, when in (("x", 5), ("y", 0.031), ("z", inf))]
    assert due_at[:2] == [5, 0.04]
    assert wheel.first_due() == 0.04
    assert wheel.pop_due(0.039) == []
    assert wheel.pop_due(0.04) == ["y"]
    assert wheel.first_due() == 5
    wheel.discard("x", 5)
    assert wheel.first_due() == 1e12


def test_same_bucket_in_order() -> None:
    """Items of the same time come due in the order in which they were added."""
    wheel = TimerWheel[int]()
    for number in range(20):
        wheel.add(number, 1.0)
    assert wheel.pop_due(1.0) == list(range(20))


def test_discarded() -> None:
    """A discarded item never comes due; one that has come due may be discarded, and one may come back."""
    wheel = TimerWheel[str]()
    for name, when in (("moved on", 1), ("gone", 1), ("here", 1), ("back", 2)):
        wheel.add(name, when)
    for name, when in (("moved on", 1), ("gone", 1), ("gone", 1), ("back", 2)):
        wheel.discard(name, when)
    wheel.add("moved on", 3)
    wheel.add("back", 2)
    assert wheel.pop_due(1) == ["here"]
    wheel.discard("here", 1)
    assert [wheel.pop_due(now) for now in (2, 3, 9)] == [["back"], ["moved on"], []]


def test_nothing_is_kept_of_what_left() -> None:
    """Items that left take no memory, and of their buckets only some numbers are left, until their time."""
    wheel = TimerWheel[int]()
    for item in range(20_000):
        wheel.add(item, 10 + item)
        wheel.discard(item, 10 + item)
        assert len(wheel._heap) <= 1024 + 1
    assert wheel._buckets == {}
    wheel.add(1, 5)
    assert wheel.pop_due(100_000) == [1]
    assert wheel._heap == []


@in_memory
async def test_timers() -> None:
    """The earliest time of each callback wins, and those that were cancelled or never are not called."""
    began, called = clock(), list[tuple[str, float]]()

    def first() -> None:
        called.append(("first", clock() - began))

    def second() -> None:
        called.append(("second", clock() - began))

    timers = Timers(asyncio.get_running_loop())
    for callback, after in ((first, 5), (first, 2), (first, 3), (second, 4)):
        timers.set(callback, began + after)
    await asyncio.sleep(10)
    assert called == [("first", 2), ("second", 4)]
    timers.set(first, clock() + 1)
    timers.set(second, clock() + 1)
    timers.cancel()
    await asyncio.sleep(10)
    assert len(called) == 2
    timers.set(second, inf)
    timers.set(first, clock() + 1)
    await asyncio.sleep(1)
    assert called[2:] == [("first", 21)]
