import asyncio
import tracemalloc
from typing import Any

import pytest

from agentjobs_async import InvalidInputError, ServerError
from agentjobs_async.batch._run.create_gate import CreateGate, Reason
from agentjobs_async.batch._store.claims import NoRoomError
from agentjobs_async.batch.limits import Rate

pytestmark = pytest.mark.looptime

WHY = ValueError("why")


async def times(gate: CreateGate, count: int) -> list[float]:
    """Allow `count` creates, each answered at once, and return when they went."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    gone = []
    for _ in range(count):
        await gate.take()
        gone.append(round(loop.time() - started, 3))
        gate.spend()
    return gone


async def test_sliding_window() -> None:
    """No span of time sees more creates than the rate allows."""
    assert await times(CreateGate(Rate(3, per=10)), 7) == [0, 0, 0, 10, 10, 10, 20]
    assert await times(CreateGate(Rate(1, per=2.5)), 4) == [0, 2.5, 5, 7.5]


async def test_earlier_creates_count() -> None:
    """Creates of earlier runs count by their ages, too old ones not."""
    assert await times(CreateGate(Rate(3, per=10), [1, 4, 12]), 3) == [0, 6, 9]


async def test_more_earlier_creates_than_the_rate() -> None:
    """More creates in the past than a lowered rate allows hold the next back until enough are forgotten."""
    assert await times(CreateGate(Rate(2, per=10), [1, 2, 3, 4]), 2) == [8, 9]


async def test_a_create_counts_from_its_answer() -> None:
    """A create under way counts, and its span begins with its answer; one that was never sent does not count."""
    gate = CreateGate(Rate(1, per=10))
    await gate.take()
    waiting = asyncio.ensure_future(times(gate, 1))
    await asyncio.sleep(3)
    assert gate.next_at is None
    gate.spend()
    assert await waiting == [13]
    gate = CreateGate(Rate(1, per=10))
    await gate.take()
    waiting = asyncio.ensure_future(times(gate, 1))
    await asyncio.sleep(3)
    gate.refund()
    assert await waiting == [3]


async def test_a_longer_pause_stands() -> None:
    """A pause does not shorten a longer one; one that begins while a create waits holds back that create."""
    gate = CreateGate(None)
    gate.hold(Reason.LIMITED, 100, WHY)
    gate.hold(Reason.LIMITED, 5, WHY)
    waiting = asyncio.ensure_future(times(gate, 1))
    await asyncio.sleep(50)
    gate.hold(Reason.LIMITED, 80, WHY)
    assert await waiting == [130]


async def test_refusals_without_a_wish() -> None:
    """They pause creates for 1 s, doubling to 60 s until a job is created; a wish counts, from 1 s to an hour."""
    gate, refused, loop = CreateGate(None), ServerError(503), asyncio.get_running_loop()
    pauses = []
    for wish in (None, 0.0, 90.0, 0.2, 86_400.0, None, *[None] * 5):
        gate.limit(loop.time(), wish, refused)
        pauses.append(gate.limited_for)
        await asyncio.sleep(gate.limited_for)
    assert pauses == pytest.approx([1, 2, 90, 1, 3600, 4, 8, 16, 32, 60, 60])
    gate.accept()
    gate.limit(loop.time(), None, refused)
    assert gate.limited_for == pytest.approx(1)


async def test_cancelled_waits_take_nothing() -> None:
    """A wait that is cancelled takes nothing, and the next one goes on."""
    gate = CreateGate(Rate(1, per=10))
    await gate.take()
    first, second = asyncio.ensure_future(gate.take()), asyncio.ensure_future(gate.take())
    await asyncio.sleep(1)
    first.cancel()
    gate.refund()
    await second
    assert first.cancelled()


SENSELESS: list[tuple[Any, Any]] = [
    *((count, 1) for count in (0, True, 1.5, 10**20, 10**10_000, "1", None, float("nan"))),
    *((1, per) for per in (0, float("inf"), float("nan"), True, 1e-300, 1e300, 10**400, "1", None)),
]


def test_senseless_rates() -> None:
    """A rate that makes no sense, or is absurdly large, is refused."""
    for count, per in SENSELESS:
        with pytest.raises(InvalidInputError, match="must be"):
            Rate(count, per=per)


async def test_the_scope_of_a_rate() -> None:
    """A rate counts each project for itself, unless it is said to count all of them together."""
    assert Rate(100, per=3600).scope == "project"
    assert Rate(100, per=3600, scope="all").scope == "all"
    assert Rate(100, 3600, scope="all") == Rate(100, per=3600, scope="all")
    scopes: list[Any] = ["both", ["all"], {}]
    for scope in scopes:
        with pytest.raises(InvalidInputError, match="scope"):
            Rate(100, per=3600, scope=scope)


async def test_without_a_rate_nothing_is_kept() -> None:
    """A gate without a rate keeps nothing of the creates that it let go, however many these are."""
    gate = CreateGate(None)
    await times(gate, 10)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20_000):
            await gate.take()
            gate.spend()
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


async def test_late_answers_of_an_outage() -> None:
    """Creates that were under way when an outage was noticed don't lengthen the delay before the next one."""
    gate, loop = CreateGate(None), asyncio.get_running_loop()
    taken = [await gate.take() for _ in range(10)]
    for number, recalls in enumerate(taken):
        gate.spend()
        assert recalls == 0
        assert gate.count_unknown(recalls, ValueError(), 0.0) is (number == 2)
    assert gate.next_at == loop.time() + 1
    assert await gate.take() == gate.recalls
    assert gate.next_at is None  # one at a time


async def test_the_end_of_an_outage() -> None:
    """A definite answer lets all creates go at once, but none before the time that the server asked for."""
    gate = CreateGate(None)
    for _ in range(3):
        gate.count_unknown(0, ValueError(), 0.0)
    gate.count_definite()
    assert await times(gate, 3) == [0, 0, 0]
    for _ in range(3):
        gate.count_unknown(gate.recalls, ValueError(), 40.0)
    gate.count_definite()
    assert gate.limited_for == 40
    assert await times(gate, 3) == [40, 40, 40]


async def test_a_refusal() -> None:
    """While creates are refused none waits; then one at a time goes; a success ends it early."""
    gate, why = CreateGate(None), ValueError()
    gate.hold(Reason.LIMITED, 5, WHY)
    waiting = asyncio.ensure_future(gate.take())
    await asyncio.sleep(1)
    gate.hold(Reason.REFUSED, 60, why)
    assert await waiting is None
    assert (await gate.take(), gate.refused_by) == (None, why)
    await asyncio.sleep(60)
    assert await gate.take() == gate.recalls
    assert gate.next_at is None
    gate.hold(Reason.REFUSED, 60, why)
    gate.accept()
    gate.count_definite()
    gate.spend()
    assert await times(gate, 2) == [0, 0]


async def test_a_full_journal() -> None:
    """Where all owners leave no room, a create asks again soon; until then the gate says when it may go, and why."""
    gate, loop = CreateGate(None), asyncio.get_running_loop()
    full = NoRoomError("create_rate")
    gate.hold(Reason.FULL, 5, full, expected=900)
    assert (gate.next_at, gate.paused_by) == (loop.time() + 900, full)
    assert await times(gate, 1) == [5]
    assert (gate.next_at, gate.paused_by) == (loop.time(), None)
