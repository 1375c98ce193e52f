"""Sleeping until a loop time."""

import asyncio

import pytest

from agentjobs_async._loop.sleep import sleep_until
from tests.polled import in_memory


@in_memory
@pytest.mark.parametrize("seconds", [7, 0.25, 0, -60])
async def test_wakes_at_its_time(seconds: float) -> None:
    """A sleeper wakes at its time; where that has passed, within a few turns of the loop."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await sleep_until(loop, began + seconds)
    assert loop.time() - began == pytest.approx(max(seconds, 0), abs=1e-3)


@in_memory
@pytest.mark.parametrize("cancelled_after", [1, 7])
async def test_cancelled(cancelled_after: float, caplog: pytest.LogCaptureFixture) -> None:
    """A cancelled sleeper leaves at once, before its time and in the turn of the loop in which its time comes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    task = asyncio.ensure_future(sleep_until(loop, began + 7))
    loop.call_at(began + cancelled_after, task.cancel)  # set before the sleeper's own timer, it comes first
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.time() - began == pytest.approx(cancelled_after)
    await asyncio.sleep(60)
    assert caplog.records == []
