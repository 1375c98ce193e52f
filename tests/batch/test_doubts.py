"""Creates in doubt that others take over or answer, that their run must leave, and that stay in doubt."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from agentjobs_async import AgentJob, JobRef
from agentjobs_async.batch import BatchWorker, Journal, _failures, run_batch
from agentjobs_async.batch._database.schema import ITEMS
from tests.batch.stage import items, outcomes, run, set_clock, state_of
from tests.batch.store.owned import joined
from tests.keyed import Keyed, keyed


@pytest.fixture(autouse=True)
def _quick_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def service() -> AsyncIterator[Keyed]:
    async with keyed() as found:
        yield found


async def in_doubt(journal: Journal) -> None:
    """Wait until the create of the first item is in doubt, and not under way."""
    while await state_of(journal, "k0") != "unknown":  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0)


async def move_by_others(journal: Journal, **columns: object) -> None:
    """Change the row of the first item as another owner does for which its owner counts as dead."""
    await journal.store.write(update(ITEMS).where(ITEMS.c.key == "k0").values(**columns))


async def test_told_by_one(service: Keyed, file_journal: Journal) -> None:
    """Of a create in doubt that another run has given up meanwhile, that run alone gives the result."""
    service.script["p0"] = ["lost", (409, 0.5), 422]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=file_journal) as running:
            await service.posted(2)
            await in_doubt(file_journal)
            await move_by_others(file_journal, owner=None)
            others = await run(session, [], file_journal)
            own = [result async for result in running]
    assert outcomes(others) == {"k0": "unknown"}
    assert own == []


async def test_a_refusal_for_one_that_counted_as_dead(service: Keyed, file_journal: Journal) -> None:
    """A repetition that is refused after others took its owner for dead gives no result: whoever takes the row does."""
    service.script["p0"] = ["lost", "wait", 422]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=file_journal) as running:
            await service.posted(2)
            await move_by_others(file_journal, state="unknown", owner=None)
            service.let_go.set()
            results = [result async for result in running]
    assert outcomes(results) == {"k0": "completed"}


@pytest.mark.parametrize("is_over", [False, True])
async def test_polled_by_one(service: Keyed, file_journal: Journal, *, is_over: bool) -> None:
    """Where another owner got the job from another POST with the same key, it alone polls and tells of that."""
    service.script["p0"] = ["lost", "late"]
    async with service.session() as session, joined(file_journal) as other:
        async with run_batch(session, items(1), journal=file_journal) as running:
            await service.posted(2)
            key = service.keys_of("p0")[0]
            assert await other.records.created("k0", "", JobRef("docs", "p0-1"), None, key)
            if is_over:
                assert await other.records.ended("k0", AgentJob("p0-1", "docs", "completed"), 1)
            service.let_go.set()
            while running.stats().active:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
            if not is_over:
                assert await other.records.ended("k0", AgentJob("p0-1", "docs", "completed"), 1)
            assert [result async for result in running] == []
    assert service.reads == 0


async def test_a_worker_that_was_cancelled(service: Keyed, file_journal: Journal) -> None:
    """A worker that was told to leave a create in doubt repeats it when it is asked for its key again."""
    service.script["p0"] = ["lost", (409, 0.5)]
    await file_journal.add(items(1))
    async with service.session() as session, BatchWorker(session, file_journal) as worker:
        running = asyncio.ensure_future(worker.run(["k0"]))
        await service.posted(2)
        await in_doubt(file_journal)
        running.cancel()
        await asyncio.wait([running])
        assert await worker.run(["k0"]) == ()
    assert await state_of(file_journal, "k0") == "completed"


async def test_what_stays_in_doubt(service: Keyed, file_journal: Journal) -> None:
    """An item whose create stays in doubt keeps its slot from others no longer than its time."""
    service.script["p0"] = [500] * 100_000
    async with service.session() as session:
        results = await run(session, items(2), file_journal, max_active=1, unknown_for=0.01, timeout=0.5)
    assert outcomes(results) == {"k0": "unknown", "k1": "completed"}


async def test_a_clock_that_is_set_back(service: Keyed, file_journal: Journal) -> None:
    """A run repeats no create for longer than the service remembers its key, whatever is made of the wall clock."""
    service.script["p0"] = ["lost", *[409] * 100_000]
    set_clock(file_journal, time.time())
    async with service.session(seconds=0.5) as session:
        async with run_batch(session, items(1), journal=file_journal) as running:
            await service.posted(2)
            set_clock(file_journal, time.time() - 30)
            assert outcomes([result async for result in running]) == {"k0": "unknown"}
