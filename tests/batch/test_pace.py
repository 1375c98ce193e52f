import asyncio
from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch.pace import Pace, Rate

pytestmark = pytest.mark.looptime


async def times(pace: Pace, count: int) -> list[float]:
    """Let so many creates go, each answered at once, and give when they went."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    gone = []
    for _ in range(count):
        await pace.take()
        gone.append(round(loop.time() - started, 3))
        pace.spent()
    return gone


async def test_sliding_window() -> None:
    """No span of time sees more creates than the rate allows."""
    assert await times(Pace(Rate(3, per=10)), 7) == [0, 0, 0, 10, 10, 10, 20]


async def test_earlier_creates_count() -> None:
    """Creates of earlier runs count by their ages, too old ones not."""
    assert await times(Pace(Rate(3, per=10), [1, 4, 12]), 3) == [0, 6, 9]


async def test_more_earlier_creates_than_the_rate() -> None:
    """More creates in the past than a lowered rate allows hold the next back until enough are forgotten."""
    assert await times(Pace(Rate(2, per=10), [1, 2, 3, 4]), 2) == [8, 9]


async def test_no_rate() -> None:
    """Without a rate only a pause holds anything back."""
    pace = Pace(None)
    assert await times(pace, 100) == [0] * 100
    pace.pause(5)
    assert pace.next_at == asyncio.get_running_loop().time() + 5
    assert await times(pace, 2) == [5, 5]


async def test_a_create_counts_from_its_answer() -> None:
    """One under way takes a place, and its span begins with its answer; one never sent gives its place back."""
    pace = Pace(Rate(1, per=10))
    await pace.take()
    waiting = asyncio.ensure_future(times(pace, 1))
    await asyncio.sleep(3)
    assert pace.next_at is None
    pace.spent()
    assert await waiting == [13]
    pace = Pace(Rate(1, per=10))
    await pace.take()
    waiting = asyncio.ensure_future(times(pace, 1))
    await asyncio.sleep(3)
    pace.unspent()
    assert await waiting == [3]


async def test_a_longer_pause_stands() -> None:
    """A pause does not shorten one that is longer, and one that comes while somebody waits holds that one, too."""
    pace = Pace(None)
    pace.pause(100)
    pace.pause(5)
    waiting = asyncio.ensure_future(times(pace, 1))
    await asyncio.sleep(50)
    pace.pause(80)
    assert await waiting == [130]


async def test_cancelled_waits_take_no_place() -> None:
    """Who stops waiting takes nothing, and lets the next one through."""
    pace = Pace(Rate(1, per=10))
    await pace.take()
    first, second = asyncio.ensure_future(pace.take()), asyncio.ensure_future(pace.take())
    await asyncio.sleep(1)
    first.cancel()
    pace.unspent()
    await second
    assert first.cancelled()


@pytest.mark.parametrize(
    ("count", "per"), [(0, 1), (True, 1), (1.5, 1), (1, 0), (1, float("inf")), (1, float("nan")), (1, True)]
)
async def test_senseless_rates(count: Any, per: Any) -> None:
    """A rate that makes no sense is refused."""
    with pytest.raises(InvalidInputError, match="must be"):
        Rate(count, per=per)
