import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentjobs_async import AgentJob, InvalidInputError, JobRef
from agentjobs_async.batch import FleetLimits, Journal, Rate, State
from agentjobs_async.batch.entries import NoRoom
from tests.batch.stage import FakeSession, items, outcomes, run, unsure
from tests.postgresql import execute


@asynccontextmanager
async def owners(database: str, count: int, **limits: Any) -> AsyncIterator[list[Journal]]:
    """Open a journal of forty items so many times, with limits."""
    journals = [Journal.open(database) for _ in range(count)]
    for journal in journals:
        await journal.__aenter__()
    await journals[0].add(items(40))
    await journals[0].set_limits(FleetLimits(**limits))
    yield journals
    for journal in journals:
        await journal.aclose()


async def claim_all(journals: list[Journal]) -> list[str]:
    """Claim every item through every owner at once, and give the keys that were claimed."""
    keys = [f"k{number}" for number in range(40)]
    claims = await asyncio.gather(*(journal.entries.claim(key) for key in keys for journal in journals))
    pairs = zip((key for key in keys for _ in journals), claims, strict=True)
    return [key for key, claim in pairs if isinstance(claim, str)]


async def test_most_active(database: str) -> None:
    """No more items are active than all owners together may have; the end of one makes room for one."""
    async with owners(database, 3, max_active=7) as journals:
        first = await claim_all(journals)
        assert len(first) == len(set(first)) == 7
        assert await journals[1].entries.claim("k39") == NoRoom(0.5)
        entries = journals[2].entries
        await entries.created(first[0], JobRef("docs", "job_1"))
        assert isinstance(await journals[1].entries.claim("k39"), NoRoom)
        await entries.ended(first[0], AgentJob("job_1", "docs", "completed"))
        assert len(await claim_all(journals)) == 1


async def test_rate(database: str) -> None:
    """No more creates go in a window than all owners together may send, and who is held back is told for how long."""
    async with owners(database, 3, create_rate=Rate(5, per=1000)) as journals:
        first = await claim_all(journals)
        assert len(first) == 5
        for number, key in enumerate(first):
            await journals[0].entries.created(key, JobRef("docs", f"job_{number}"))
        held = await journals[1].entries.claim("k39")
        assert isinstance(held, NoRoom)
        assert 990 < held.wait <= 1000
        execute(database, "UPDATE agentjobs_entries SET sent_at = sent_at - 1001 WHERE job_id = 'job_0'")
        assert len(await claim_all(journals)) == 1


async def test_creates_under_way_count(database: str) -> None:
    """A create under way is within the window, however long ago it was claimed."""
    async with owners(database, 1, create_rate=Rate(1, per=10)) as journals:
        assert len(await claim_all(journals)) == 1
        execute(database, "UPDATE agentjobs_entries SET sent_at = 0 WHERE state = 'sending'")
        assert await journals[0].entries.claim("k39") == NoRoom(0.5)


async def test_the_unsure_count(database: str) -> None:
    """What is unknown counts as active, as long as the limits say."""
    async with owners(database, 1, max_active=1, unsure_for=60.0) as journals:
        (key,) = await claim_all(journals)
        await journals[0].entries.lost(key, ValueError("broke"))
        assert await claim_all(journals) == []
        execute(database, "UPDATE agentjobs_entries SET updated_at = updated_at - 61 WHERE state = 'unknown'")
        assert len(await claim_all(journals)) == 1
        await journals[0].set_limits(FleetLimits(max_active=2, unsure_for=None))
        assert await claim_all(journals) == []


async def test_without_limits(database: str) -> None:
    """Without limits every item goes; limits are read as they were set."""
    rate = Rate(3, per=2.5)
    async with owners(database, 2, max_active=4, create_rate=rate, unsure_for=None) as journals:
        assert await journals[1].limits() == FleetLimits(4, rate, None)
        await journals[1].set_limits(FleetLimits())
        assert await journals[0].limits() == FleetLimits()
        assert len(await claim_all(journals)) == 40


async def test_a_batch_within_the_limits(database: str) -> None:
    """A run that is held back by the limits goes on as soon as there is room."""
    async with owners(database, 1, max_active=2) as journals:
        session = FakeSession(duration=0.05)
        session.answers = {"p3": [unsure()]}
        await journals[0].set_limits(FleetLimits(max_active=2, unsure_for=0.1))
        results = await run(session, (), journals[0], max_active=5, limit=6)
        assert sorted(outcomes(results).values()) == [*["completed"] * 5, "unknown"]
        assert session.most_under_way <= 2
        assert (await journals[0].counts())[State.PLANNED] == 34


async def test_a_file_has_none(file_journal: Journal) -> None:
    """The limits of many are none of a file's, which has one owner."""
    assert await file_journal.limits() == FleetLimits()
    with pytest.raises(InvalidInputError, match="one owner"):
        await file_journal.set_limits(FleetLimits(max_active=1))
    with pytest.raises(InvalidInputError, match="the journal is a file"):
        file_journal.connect_arguments()


@pytest.mark.parametrize(
    "limits", [{"max_active": 0}, {"create_rate": 100}, {"unsure_for": 0}, {"unsure_for": float("inf")}]
)
def test_wrong_limits(limits: dict[str, Any]) -> None:
    """Limits that make no sense are refused."""
    with pytest.raises(InvalidInputError, match=next(iter(limits))):
        FleetLimits(**limits)
