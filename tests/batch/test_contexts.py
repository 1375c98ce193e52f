"""Context variables in batches: an item's events are told in the context of whoever runs it."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from agentjobs_async import Event, JobChanged, JobCreated, JobPolled, PollFailed, WaitEnded, WaitStarted
from agentjobs_async.batch import BatchItem, BatchWorker, Journal, run_batch
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items

pytestmark = pytest.mark.looptime

CALLER: ContextVar[Any] = ContextVar("CALLER")
SOON = JobScript(duration=0.01)


class Told:
    """A hook that notes in whose context each event came."""

    def __init__(self) -> None:
        self.callers: dict[type, list[Any]] = {}

    def __call__(self, event: Event) -> None:
        self.callers.setdefault(type(event), []).append(CALLER.get(None))

    def of_jobs(self) -> set[Any]:
        return {caller for kind in (JobPolled, JobChanged, PollFailed) for caller in self.callers.get(kind, [])}


async def test_items_of_a_run(file_journal: Journal) -> None:
    """An item's events come in the context that entered the run, whatever the source of the items sets meanwhile."""
    told = Told()

    def source() -> Iterator[BatchItem]:
        for item in items(5):
            CALLER.set(item.key)
            yield item

    async with Emulator(script=SOON) as emulator, emulator.session(project_id="docs", hooks=[told]) as session:

        async def run() -> None:
            CALLER.set("caller")
            async with run_batch(session, source(), journal=file_journal) as results:
                CALLER.set("later")
                async for _ in results:
                    pass

        await asyncio.create_task(run())
    for kind in (JobCreated, WaitStarted, WaitEnded):
        assert told.callers[kind] == ["caller"] * 5
    assert told.of_jobs() == {None}


async def test_chunks_of_a_worker(file_journal: Journal) -> None:
    """The events of a worker's chunk come in the context that called `run` with it."""
    told = Told()
    await file_journal.add(items(6))
    async with (
        Emulator(script=SOON) as emulator,
        emulator.session(project_id="docs", hooks=[told]) as session,
        BatchWorker(session, file_journal) as worker,
    ):

        async def chunk(name: str, first: int) -> None:
            CALLER.set(name)
            assert await worker.run([f"k{number}" for number in range(first, first + 3)]) == ()

        await asyncio.gather(chunk("first", 0), chunk("second", 3))
    for kind in (JobCreated, WaitStarted, WaitEnded):
        assert sorted(told.callers[kind]) == ["first"] * 3 + ["second"] * 3
    assert told.of_jobs() == {None}


class Held:
    """What only the context of a chunk holds."""


def forget_cancelled_timers() -> None:
    """Drop what the loop keeps until its time has come: cancelled timers, with the contexts of those who set them."""
    loop: Any = asyncio.get_running_loop()
    loop._scheduled = [timer for timer in sorted(loop._scheduled) if not timer.cancelled()]


async def test_chunks_are_let_go(file_journal: Journal) -> None:
    """What the first chunk's context holds is gone with it, while the worker and the journal stay open."""
    async with (
        Emulator(script=SOON) as emulator,
        emulator.session(project_id="docs") as session,
        BatchWorker(session, file_journal) as worker,
    ):

        async def chunk(first: int) -> "weakref.ref[Held]":
            held = Held()
            CALLER.set(held)
            await file_journal.add(items(2, first))
            assert await worker.run([f"k{first}", f"k{first + 1}"]) == ()
            return weakref.ref(held)

        first = await asyncio.create_task(chunk(0))
        await asyncio.create_task(chunk(2))
        await asyncio.sleep(0)
        forget_cancelled_timers()
        gc.collect()
        assert first() is None
