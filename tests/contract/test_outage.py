"""Failure never makes us faster: requests in an outage against those of health, for few waits and for many."""

import asyncio
import random
from collections import Counter
from typing import Final

import pytest
from tenacity import wait_exponential, wait_random

from agentjobs_async import HttpTimeouts, PollBudget, PollPolicy
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.testing.faults.plans import Plans
from tests.contract.ways import SESSION, WAYS, Waiting, gets

pytestmark = pytest.mark.looptime

CALM, SPAN, AFTER = 30.0, 100.0, 40.0
OUTAGES: Final = ("429", "500", "503 retry-after=1", "503 retry-after=30", "reset", "close:body", "hang", "body:html")
POLICY: Final = PollPolicy(max_bad_answers=10**6, answer_grace=1e6)
SLOWER: Final = PollPolicy(wait=wait_exponential(exp_base=1.1, max=15) + wait_random(0, 1))


async def _asked(
    waiting: Waiting, count: int, fault: str, *, places: int = 100, policy: PollPolicy = POLICY
) -> list[float]:
    """Let so many waits begin one after the other, through calm, an outage and calm again; give when they asked."""
    random.seed(7)  # the policy's jitter
    budget, timeouts = PollBudget(in_flight=places), HttpTimeouts(request=5)
    async with (
        Emulator(script=JobScript(duration=float("inf"))) as emulator,
        waiting(emulator, policy=policy, budget=budget, timeouts=timeouts) as (session, wait),
    ):
        refs = [(await session.create_job(str(number))).ref for number in range(count)]
        began = asyncio.get_running_loop().time()
        waits = []
        for ref in refs:
            waits.append(asyncio.ensure_future(wait(ref, timeout=None)))
            await asyncio.sleep(15 / count)
        await asyncio.sleep(CALM - 15)
        await emulator.inject(f"{fault} forever on=get")
        await asyncio.sleep(SPAN)
        emulator._plans = Plans()
        await asyncio.sleep(AFTER)
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return [request.at - began for request in gets(emulator)]


def _within(asked: list[float], start: float, end: float) -> list[float]:
    return [at for at in asked if start <= at < end]


def _busiest(asked: list[float], start: float = 0.0) -> int:
    """Return the most requests of any second."""
    return max(Counter(map(int, _within(asked, start, CALM + SPAN + AFTER))).values())


@pytest.mark.parametrize(("way", "count"), [("free", 1), ("tracker", 1), ("session", 12)])
async def test_outages(way: str, count: int) -> None:
    """No outage makes more requests than health does over the same time, and no second after it stands out."""
    waiting = WAYS[way]
    healthy = await _asked(waiting, count, "ok")
    allowed = 1.1 * len(_within(healthy, CALM, CALM + SPAN)) + 1
    outages = {fault: await _asked(waiting, count, fault) for fault in OUTAGES}
    rates = {fault: len(_within(asked, CALM, CALM + SPAN)) for fault, asked in outages.items()}
    assert {fault: rate for fault, rate in rates.items() if not 0 < rate <= allowed} == {}
    peaks = {fault: _busiest(asked, CALM + SPAN) for fault, asked in outages.items()}
    assert {fault: peak for fault, peak in peaks.items() if not 0 < peak <= 1.5 * _busiest(healthy, CALM) + 2} == {}


async def test_more_waits_than_places() -> None:
    """When more polls hang than there are places, those that wait for one are not all let go in one second."""
    healthy = await _asked(SESSION, 30, "ok", places=5, policy=SLOWER)
    asked = await _asked(SESSION, 30, "hang", places=5, policy=SLOWER)
    assert len(_within(asked, CALM, CALM + SPAN)) <= 1.1 * len(_within(healthy, CALM, CALM + SPAN))
    assert _busiest(asked, CALM + SPAN) <= 1.5 * _busiest(healthy, CALM) + 1
