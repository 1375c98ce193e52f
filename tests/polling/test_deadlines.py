"""The deadlines of waits: when each is reported, and how many in one iteration of the loop."""

import asyncio
from types import SimpleNamespace
from typing import Any

from agentjobs_async import JobRef, JobTracker
from agentjobs_async._polling.deadlines import Deadlines
from agentjobs_async._polling.tracked import Tracked, Watch
from tests.polled import REF, Polled, every, in_memory, let_go, stand_still

pytestmark = in_memory


class Wait(Watch):
    """A watch that records when it was told of its last poll, and of its end."""

    def __init__(self, timeout: float | None) -> None:
        scheduler: Any = SimpleNamespace(loop=asyncio.get_running_loop())
        super().__init__(scheduler, timeout)
        self.begin(Tracked(REF, None, self.started), 0)
        self.told: list[tuple[str, float]] = []


class Told:
    """Deadlines that tell their waits, and note how many ended in each iteration of the loop."""

    def __init__(self) -> None:
        self.iterations: list[int] = []
        self._counting = False
        self.over: list[Wait] = []
        loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(loop, self)

    def on_near(self, waiter: Any, now: float) -> None:
        waiter.told.append(("near", round(now - waiter.started, 2)))

    def on_over(self, waiter: Any, now: float) -> None:
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._next_iteration)
            self.iterations.append(0)
        self.iterations[-1] += 1
        self.over.append(waiter)
        waiter.told.append(("over", round(now - waiter.started, 2)))

    def _next_iteration(self) -> None:
        self._counting = False

    def end(self, *waits: Wait) -> None:
        """End waits early."""
        for wait in waits:
            wait.end()
            self.deadlines.remove(wait)

    def add(self, *timeouts: float | None) -> list[Wait]:
        waits = [Wait(timeout) for timeout in timeouts]
        for wait in waits:
            self.deadlines.add(wait)
        return waits


async def test_each_wait_is_told_twice() -> None:
    """A wait is told that its last poll is due, and then that its time is up; one without a timeout never."""
    told = Told()
    waits = told.add(5, 100, None, 5)
    await asyncio.sleep(1000)
    assert [wait.told for wait in waits] == [
        [("near", 4.5), ("over", 5)],
        [("near", 99), ("over", 100)],
        [],
        [("near", 4.5), ("over", 5)],
    ]
    assert (told.deadlines._wheel._buckets, told.deadlines._wheel._heap) == ({}, [])


async def test_removed_waits() -> None:
    """A wait that ends early is told nothing, and is not kept, wherever among very many it lies."""
    told = Told()
    waits = told.add(*[5.0] * 200)
    told.end(*waits[::2], *waits[1:100:2])
    told.end(*waits[1:100:2])
    await asyncio.sleep(4.7)
    told.end(*waits[101:150:2])
    assert sum(map(len, told.deadlines._wheel._buckets.values())) <= 25
    await asyncio.sleep(10)
    assert told.over == waits[151::2]


async def test_wait_that_ends_between_its_time_and_its_iteration() -> None:
    """Where very many waits come due at once, one that ends before its own iteration is told nothing and not kept."""
    told = Told()
    waits = told.add(*[5.0] * 1000)
    while not waits[0].told:  # noqa: ASYNC110 - what it waits for is the iteration after the first of them
        await asyncio.sleep(0.01)
    told.end(waits[-1])
    await asyncio.sleep(0.3)
    assert [len(wait.told) for wait in waits] == [1] * 999 + [0]
    await asyncio.sleep(1)
    assert told.deadlines._wheel._buckets == {}


async def test_very_many_ended_early() -> None:
    """Deadlines of waits that have ended leave nothing behind, however many different ones there were."""
    told = Told()
    for number in range(10_000):
        told.end(*told.add(100.0 + number))
    assert told.deadlines._wheel._buckets == {}
    assert len(told.deadlines._wheel._heap) <= 1024 + 1
    (wait,) = told.add(1.0)
    await asyncio.sleep(5)
    assert wait.told[-1] == ("over", 1)


async def test_closing_amid_the_ends() -> None:
    """Once they are closed, deadlines tell nothing more, in the middle of very many, too."""
    told = Told()
    told.add(*[5.0] * 10_000)
    await asyncio.sleep(5)
    ended = len(told.over)
    assert 0 < ended < 10_000
    told.deadlines.close()
    await asyncio.sleep(10)
    assert len(told.over) == ended


async def test_an_answer_in_hand() -> None:
    """An answer that came while the loop stood still counts, though it is handed on only after the deadline."""

    async def state(_ref: JobRef) -> str:
        await asyncio.sleep(0.5)
        await let_go(3)
        return "completed"

    async with JobTracker(Polled(state), policy=every(100)) as tracker:
        wait = tracker.watch(REF, timeout=10)
        asyncio.get_running_loop().call_later(0.2, stand_still, 30)
        assert (await wait).succeeded
