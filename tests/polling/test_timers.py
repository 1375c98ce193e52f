"""Many things and the times at which they are due."""

from collections import Counter
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._polling.timers import RESOLUTION_SECONDS, TimerBuckets

TIMES: Final = st.floats(0, 100) | st.integers(0, 1000).map(lambda tenths: tenths / 10)


def whoever(_thing: object, _bucket: int) -> bool:
    return True


@given(st.lists(TIMES), TIMES)
def test_due(times: list[float], now: float) -> None:
    """Things come due in the order of their times, never early, and by one resolution late at the most."""
    table = TimerBuckets[float](whoever)
    buckets = {time: table.add(time, time) for time in times}
    due = table.take_due(now)
    left = table.take_due(1000)
    assert Counter(due + left) == Counter(times)
    assert all(time <= now + 1e-6 for time in due)
    assert all(time > now - RESOLUTION_SECONDS - 1e-6 for time in left)
    assert due + left == sorted(due + left, key=lambda time: buckets[time])
    assert table.first() is None


def test_first() -> None:
    """The first bucket is that of the earliest thing, whatever came before it."""
    table = TimerBuckets[str](whoever)
    assert table.first() is None
    buckets = [table.add("x", when) for when in (5, 0.031, 7)]
    assert buckets == [500, 4, 700]
    assert table.first() == 4
    assert table.take_due(0.039) == []
    assert table.take_due(0.04) == ["x"]
    assert table.first() == 500


def test_same_bucket_in_order() -> None:
    """Things of the same time come due in the order in which they were added."""
    table = TimerBuckets[int](whoever)
    for number in range(20):
        table.add(number, 1.0)
    assert table.take_due(1.0) == list(range(20))


def test_spread() -> None:
    """What finds its bucket full goes into the next that has room, and who does not care joins the full one."""
    table = TimerBuckets[int](whoever)
    assert [table.add(number, 1.0, 3) for number in range(8)] == [100, 100, 100, 101, 101, 101, 102, 102]
    assert table.add(8, 1.01, 3) == 102
    assert table.add(9, 1.01, 3) == 103
    assert table.add(10, 1.0) == 100
    assert table.add(11, 1.0, 4) == 102
    assert table.take_due(1.0) == [0, 1, 2, 10]


def test_steps() -> None:
    """With a step, only each so many-th bucket is used, also where one was full."""
    table = TimerBuckets[int](whoever)
    assert [table.add(number, 1.01, 2, 7) for number in range(5)] == [105, 105, 112, 112, 119]
    assert table.add(5, 1.05, 2, 7) == 119


def test_spread_forgets() -> None:
    """Where there was no room once is looked at anew when its bucket was emptied."""
    table = TimerBuckets[int](whoever)
    assert [table.add(number, 1.0, 1) for number in range(3)] == [100, 101, 102]
    table.take_due(1.02)
    assert [table.add(number, 1.0, 1) for number in range(2)] == [100, 101]


def test_only_where_it_is_current() -> None:
    """A thing that was moved, forwards or back, is called due once, and a dead one never."""
    lies: dict[str, int] = {}
    table = TimerBuckets[str](lambda thing, bucket: lies.get(thing) == bucket)
    for thing, when in [("moved on", 1), ("moved on", 3), ("moved up", 3), ("moved up", 1), ("dead", 1), ("dull", 2)]:
        lies[thing] = table.add(thing, when)
    del lies["dead"]
    assert [table.take_due(now) for now in (1, 2, 3, 9)] == [["moved up"], ["dull"], ["moved on"], []]


def test_sweep() -> None:
    """Once the stale outnumber the living they are swept out, and what lives comes due as before."""
    dead: set[int] = set()
    table = TimerBuckets[int](lambda thing, _bucket: thing not in dead)
    for thing in range(10_000):
        table.add(thing, 1000 + thing % 100, 60)
    held = []
    for thing in range(9_900):
        dead.add(thing)
        table.note_stale()
        held.append(sum(map(len, table._buckets.values())))
    assert max(held) == held[4_000] == 10_000
    assert held[-1] < 2 * 1_024 + 100
    assert table.take_due(2000) == sorted(range(9_900, 10_000), key=lambda thing: thing % 100)
    assert (table._buckets, table._heap, table._full, table._size, table._stale) == ({}, [], {}, 0, 0)


def test_few_are_not_swept() -> None:
    """A few stale ones are left where they lie, and gone when their time comes."""
    table = TimerBuckets[int](lambda _thing, _bucket: False)
    for thing in range(1000):
        table.add(thing, 5)
        table.note_stale()
    assert table._size == 1000
    assert table.take_due(5) == []
    assert (table._size, table._stale) == (0, 0)
