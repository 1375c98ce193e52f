"""Failure never makes us faster: requests in an outage against those of health, for few waits and for many."""

import asyncio
from collections import Counter
from typing import Final

import pytest

from agentjobs_async import HttpTimeouts, PollBudget, PollPolicy
from agentjobs_async.testing import Emulator, JobLife
from tests.contract.ways import Waiting, gets

pytestmark = pytest.mark.looptime

CALM, SPAN, AFTER = 60.0, 150.0, 60.0
OUTAGES: Final = (
    "429",
    "500",
    "503 retry-after=1",
    "503 retry-after=30",
    "reset",
    "close",
    "close:body",
    "hang",
    "body:html",
    "gzip:cut",
    "404",
)


async def _asked(waiting: Waiting, count: int, fault: str) -> list[float]:
    """Let so many waits begin one after the other, through calm, an outage and calm again; give when they asked."""
    policy = PollPolicy(max_bad_answers=10**6, not_found_grace=10**6)
    settings = {"policy": policy, "budget": PollBudget(in_flight=10), "timeouts": HttpTimeouts(request=5)}
    async with (
        Emulator(lives=JobLife(duration=float("inf"))) as emulator,
        waiting(emulator, **settings) as (session, wait),
    ):
        refs = [(await session.create_job(str(number))).ref for number in range(count)]
        began = asyncio.get_running_loop().time()
        waits = []
        for ref in refs:
            waits.append(asyncio.ensure_future(wait(ref, timeout=None)))
            await asyncio.sleep(15 / count)
        await asyncio.sleep(CALM - 15)
        for ref in refs:
            await emulator.inject(f"{fault} forever on=get", job_id=ref.job_id)
        await asyncio.sleep(SPAN)
        emulator._plans._running.clear()
        await asyncio.sleep(AFTER)
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return [request.at - began for request in gets(emulator)]


def _within(asked: list[float], start: float, end: float) -> list[float]:
    return [at for at in asked if start <= at < end]


def _peak(asked: list[float]) -> int:
    """Give the most requests of any second."""
    return max(Counter(map(int, asked)).values())


@pytest.mark.parametrize("count", [1, 60])
async def test_outages(count: int, waiting: Waiting) -> None:
    """No outage makes more requests than health does, over the same time; nor does its end, in any second."""
    healthy = await _asked(waiting, count, "ok")
    allowed = 1.1 * len(_within(healthy, CALM, CALM + SPAN)) + 1
    for fault in OUTAGES:
        asked = await _asked(waiting, count, fault)
        print(count, fault, len(_within(asked, CALM, CALM+SPAN)), allowed, _peak(_within(asked, CALM + SPAN, CALM + SPAN + AFTER)), _peak(_within(healthy, CALM + SPAN, CALM + SPAN + AFTER)), len(_within(asked, CALM + SPAN, CALM + SPAN + AFTER)), len(_within(healthy, CALM + SPAN, CALM + SPAN + AFTER)))
