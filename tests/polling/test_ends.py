"""The ends of very many waits of one job: some in each turn of the loop, each exactly once."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    JobRef,
    JobTracker,
    NotFoundError,
    SessionClosedError,
    WaitEnded,
    WaitStarted,
    WaitTimeoutError,
)
from agentjobs_async._polling.slices import WAITS_PER_TURN
from tests.polled import REF, Polled, clock, ended, every, in_memory, missing, refs, stand_still

pytestmark = in_memory

MANY = 5 * WAITS_PER_TURN
MOST = WAITS_PER_TURN + 64


class Turns:
    """Counts how many waits end in each turn of the loop.

    Attributes:
        first: Set in the turn after that of the first end.
    """

    def __init__(self, waits: list[asyncio.Future[AgentJob]]) -> None:
        self.first = asyncio.Event()
        self._ends: list[int] = []
        self._counting = False
        for wait in waits:
            wait.add_done_callback(self._count)

    def _count(self, _wait: object) -> None:
        if not self._counting:
            self._counting = True
            self._ends.append(0)
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._ends[-1] += 1
        self.first.set()

    def _next_turn(self) -> None:
        self._counting = False

    @property
    def most(self) -> int:
        return max(self._ends)


@pytest.mark.parametrize("count", [1, MANY])
async def test_one_deadline(count: int) -> None:
    """Very many waits with one deadline end within 0.25 s after it, a bounded number of them in each turn."""
    async with JobTracker(Polled(), policy=every(60)) as tracker:
        waits = [tracker.watch(JobRef("docs", f"job_{number % count}"), timeout=20) for number in range(MANY)]
        began, turns = clock(), Turns(waits)
        assert {type(error) for error in await ended(*waits)} == {WaitTimeoutError}
        assert 20 <= clock() - began <= 20.25
        assert turns.most <= MOST
        assert tracker.stats().jobs == 0


async def test_job_that_ends() -> None:
    """The waiters of a job that ends are ended some at a time; who leaves meanwhile has left, and the others get it."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=every(10), hooks=[events.append]) as tracker:
        waits = [tracker.watch(REF, timeout=11 if number % 2 else 100) for number in range(MANY)]
        turns = Turns(waits)
        await turns.first.wait()
        assert not waits[-1].done()
        assert tracker.stats().jobs == 0
        waits[-1].cancel()
        stand_still(5)  # beyond the deadline of half of them: the answer in hand counts
        results = await ended(*waits)
        assert turns.most <= MOST
        assert {type(result) for result in results[:-1]} == {AgentJob}
        assert isinstance(results[-1], asyncio.CancelledError)
        assert get_job.at() == [0, 10]
        again = tracker.watch(REF)
        assert (await again).succeeded
        assert len(get_job.at()) == 3
    told = Counter(type(event) for event in events)
    assert told[WaitStarted] == told[WaitEnded] == MANY + 1
    cancelled = [event for event in events if isinstance(event, WaitEnded) and event.error is not None]
    assert [type(event.error) for event in cancelled] == [asyncio.CancelledError]


async def test_missing_job() -> None:
    """When a 404 has outlived the grace of many waits, these end, some at a time, each with an error of its own."""
    async with JobTracker(Polled(missing), policy=every(2, not_found_grace=5)) as tracker:
        waits = [tracker.watch(REF) for _ in range(MANY)]
        turns = Turns(waits)
        errors = await ended(*waits)
        assert turns.most <= MOST
        assert {type(error) for error in errors} == {NotFoundError}
        assert len(set(map(id, errors))) == MANY
        assert tracker.stats().jobs == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_closing(cancelled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Closing ends very many waits some at a time, and polls nothing more; cancelled, it ends the rest at once."""
    get_job = Polled("active", latency=1)
    tracker = JobTracker(get_job, policy=every(3))
    waits = [tracker.watch(ref) for ref in refs(MANY)]
    await asyncio.sleep(10.5)
    asked = len(get_job.asked)
    turns = Turns(waits)
    closing = asyncio.ensure_future(tracker.aclose())
    await turns.first.wait()
    assert not waits[-1].done()
    if cancelled:
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert all(wait.done() for wait in waits)
    await asyncio.wait([closing])
    assert {type(error) for error in await ended(*waits)} == {SessionClosedError}
    assert cancelled or turns.most <= MOST
    await asyncio.sleep(10)
    assert len(get_job.asked) == asked
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_leaving_a_group(cancelled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Leaving a block of `as_completed` lets very many waits go some at a time; cancelled, the rest at once."""
    get_job = Polled("active")
    async with JobTracker(get_job, policy=every(1000)) as tracker:
        jobs: list[int] = []

        async def group() -> None:
            async with tracker.as_completed(refs(MANY)):
                await asyncio.sleep(5)
                leaving.set()

        leaving = asyncio.Event()
        task = asyncio.ensure_future(group())
        await leaving.wait()
        while not task.done():
            jobs.append(tracker.stats().jobs)
            if cancelled and jobs[-1] < MANY:
                task.cancel()
            await asyncio.sleep(0)
        jobs.append(tracker.stats().jobs)
        assert jobs[-1] == 0
        assert task.cancelled() is cancelled
        steps = [before - after for before, after in pairwise(jobs)]
        assert cancelled or max(steps) <= MOST
