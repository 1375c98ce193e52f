"""Items and the times at which they are due; timers for callbacks."""

import asyncio
from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._polling.timers import RESOLUTION_SECONDS, TimerBuckets, Timers
from tests.polled import clock, in_memory

TIMES: Final = st.floats(0, 100) | st.integers(0, 1000).map(lambda tenths: tenths / 10)


def always(_item: object, _bucket: int) -> bool:
    return True


@given(st.lists(TIMES), TIMES)
def test_due(times: list[float], now: float) -> None:
    """Items come due in the order of their times, never early, and by one resolution late at the most."""
    table = TimerBuckets[float](always)
    buckets = {time: table.add(time, time) for time in times}
    due = table.take_due(now)
    left = table.take_due(1000)
    assert Counter(due + left) == Counter(times)
    assert all(time <= now + 1e-6 for time in due)
    assert all(time > now - RESOLUTION_SECONDS - 1e-6 for time in left)
    assert due + left == sorted(due + left, key=lambda time: buckets[time])
    assert table.first() is None


def test_first() -> None:
    """The first bucket is that of the earliest item, whatever came before it."""
    table = TimerBuckets[str](always)
    assert table.first() is None
    buckets = [table.add("x", when) for when in (5, 0.031, 7)]
    assert buckets == [500, 4, 700]
    assert table.first() == 4
    assert table.take_due(0.039) == []
    assert table.take_due(0.04) == ["x"]
    assert table.first() == 500


def test_same_bucket_in_order() -> None:
    """Items of the same time come due in the order in which they were added."""
    table = TimerBuckets[int](always)
    for number in range(20):
        table.add(number, 1.0)
    assert table.take_due(1.0) == list(range(20))


def test_spread() -> None:
    """An item whose bucket is full goes into the next that has room; one without `full_above` joins the full bucket."""
    table = TimerBuckets[int](always)
    assert [table.add(number, 1.0, 2.9) for number in range(8)] == [100, 100, 100, 101, 101, 101, 102, 102]
    assert table.add(8, 1.01, 2) == 102
    assert table.add(9, 1.01, 2) == 103
    assert table.add(10, 1.0) == 100
    assert table.add(11, 1.0, 3) == 102
    assert table.take_due(1.0) == [0, 1, 2, 10]


def test_room_before_what_was_full_for_others() -> None:
    """Where one item found room says nothing to another for which buckets hold more: that one is late by less."""
    table = TimerBuckets[int](always)
    assert [table.add(number, 1.0, 0) for number in range(5)] == [100, 101, 102, 103, 104]
    assert [table.add(number, 1.0, 1) for number in range(5)] == [100, 101, 102, 103, 104]
    assert table.add(5, 1.0, 1) == 105


def test_searches_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search continues where the last one ended, also while buckets hold more and more: few begin anew."""
    searches: list[bool] = []
    search = TimerBuckets._with_room

    def counted(table: TimerBuckets[int], wanted: int, bucket: int, full_above: float, step: int) -> int:
        searches.append(bucket == wanted)
        return search(table, wanted, bucket, full_above, step)

    monkeypatch.setattr(TimerBuckets, "_with_room", counted)
    table = TimerBuckets[int](always)
    for number in range(20_000):
        table.add(number, 1.0, 10 + number / 2_000)
    assert len(searches) > 1_000
    assert sum(searches) < 10


def test_steps() -> None:
    """With a step, only every `step`-th bucket is used, also where one was full."""
    table = TimerBuckets[int](always)
    assert [table.add(number, 1.01, 1, 7) for number in range(5)] == [105, 105, 112, 112, 119]
    assert table.add(5, 1.05, 1, 7) == 119


def test_spread_forgets() -> None:
    """A bucket that was full takes items again once it was emptied."""
    table = TimerBuckets[int](always)
    assert [table.add(number, 1.0, 0) for number in range(3)] == [100, 101, 102]
    table.take_due(1.02)
    assert [table.add(number, 1.0, 0) for number in range(2)] == [100, 101]


def test_only_where_it_is_current() -> None:
    """An item that was moved, forwards or back, and was reported, is called due once, and a dead one never."""
    lies: dict[str, int] = {}
    table = TimerBuckets[str](lambda item, bucket: lies.get(item) == bucket)
    for item, when in [("moved on", 1), ("moved on", 3), ("moved up", 3), ("moved up", 1), ("dead", 1), ("dull", 2)]:
        if item in lies:
            table.note_stale()
        lies[item] = table.add(item, when)
    del lies["dead"]
    table.note_stale()
    assert [table.take_due(now) for now in (1, 2, 3, 9)] == [["moved up"], ["dull"], ["moved on"], []]


def test_item_that_came_back() -> None:
    """An item that left its bucket and came back comes due once, and its stale entry is forgotten."""
    table = TimerBuckets[str](always)
    table.add("x", 1.0)
    table.note_stale()
    table.add("x", 1.0)
    assert table.take_due(1.0) == ["x"]
    table.add("y", 2.0)
    table.add("y", 2.0)
    assert table.take_due(2.0) == ["y", "y"]  # no entry is counted as stale any more: unchecked


def test_item_that_came_back_before_a_sweep() -> None:
    """A sweep leaves one entry of an item that left its bucket and came back."""
    dead: set[str] = set()
    table = TimerBuckets[str](lambda item, _bucket: item not in dead)
    table.add("x", 1.0)
    table.note_stale()
    table.add("x", 1.0)
    for number in range(1100):
        dead.add(f"dead {number}")
        table.add(f"dead {number}", 1.0)
        table.note_stale()
    assert table.take_due(1.0) == ["x"]


def test_sweep() -> None:
    """Once stale entries outnumber the current ones they are removed, and current ones come due as before."""
    dead: set[int] = set()
    table = TimerBuckets[int](lambda item, _bucket: item not in dead)
    for item in range(10_000):
        table.add(item, 1000 + item % 100, 59)
    held = []
    for item in range(9_900):
        dead.add(item)
        table.note_stale()
        held.append(sum(map(len, table._buckets.values())))
    assert max(held) == held[4_000] == 10_000
    assert held[-1] < 2 * 1_024 + 100
    assert table.take_due(2000) == sorted(range(9_900, 10_000), key=lambda item: item % 100)
    assert (table._buckets, table._heap, table._full, table._size, table._stale) == ({}, [], {}, 0, 0)


def test_few_are_not_swept() -> None:
    """A few stale ones are left where they lie, and gone when their time comes."""
    table = TimerBuckets[int](lambda _item, _bucket: False)
    for item in range(1000):
        table.add(item, 5)
        table.note_stale()
    assert table._size == 1000
    assert table.take_due(5) == []
    assert (table._size, table._stale) == (0, 0)


def test_clear() -> None:
    """A cleared table holds nothing, and takes items as before."""
    table = TimerBuckets[int](always)
    for item in range(10):
        table.add(item, 1.0 + item, 0)
    table.clear()
    assert (table.first(), table.take_due(100), table._size, table._stale) == (None, [], 0, 0)
    assert table.add(1, 2.0, 0) == 200
    assert table.take_due(2.0) == [1]


@in_memory
async def test_timers() -> None:
    """The earliest time of each callback wins, and cancelled ones are not called."""
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
    timers.set(first, clock() + 1)
    await asyncio.sleep(1)
    assert called[2:] == [("first", 21)]
