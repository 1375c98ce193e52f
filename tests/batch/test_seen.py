"""What the journal is told of jobs that are at work."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tenacity import wait_fixed

from agentjobs_async import AgentJob, JobRef, JobTracker, JournalError, PollPolicy
from agentjobs_async.batch import BatchWorker, Journal, JournalRow
from agentjobs_async.batch._run import tasks
from agentjobs_async.batch._store.seen import Seen, record_seen
from agentjobs_async.batch._store.store import Store
from tests.batch.stage import PolledSession, items, run

pytestmark = pytest.mark.looptime

POLL_SECONDS = 7.0


@pytest.fixture
async def session() -> AsyncIterator[PolledSession]:
    session = PolledSession(150.0, PollPolicy(wait=wait_fixed(POLL_SECONDS)))
    async with session.tracker:
        yield session


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each write of them recorded as seen."""
    written: list[int] = []

    async def recorded(store: Store, seen: list[Seen]) -> None:
        written.append(len(seen))
        await record_seen(store, seen)

    monkeypatch.setattr(tasks, "record_seen", recorded)
    return written


def age(row: JournalRow) -> float:
    """How many seconds ago a job was seen, by the loop's clock."""
    assert row.seen_at is not None
    return asyncio.get_running_loop().time() - row.seen_at.timestamp()


async def test_a_run(session: PolledSession, virtual_journal: Journal, writes: list[int]) -> None:
    """Once a minute, all active rows together have the time of their last poll, and the number of polls so far."""
    running = asyncio.create_task(run(session, items(3), virtual_journal))
    await asyncio.sleep(130)
    rows = await virtual_journal.rows()
    assert writes == [3, 3]
    for row in rows:
        assert (row.state, row.ended_at) == ("active", None)
        assert 10 <= age(row) <= 10 + POLL_SECONDS + 1
        assert 0 < row.polls <= len(session.polled) / 3
    await running
    assert writes == [3, 3]
    rows = await virtual_journal.rows()
    assert [row.seen_at for row in rows] == [row.ended_at for row in rows]
    assert sum(row.polls for row in rows) == len(session.polled)


async def test_a_worker(session: PolledSession, virtual_journal: Journal, writes: list[int]) -> None:
    """A worker records it, too, and stops when it is closed."""
    await virtual_journal.add(items(2))
    async with BatchWorker(session.session, virtual_journal) as worker:
        assert await worker.run(["k0", "k1"]) == ()
    assert writes == [2, 2]
    await asyncio.sleep(1000)
    assert writes == [2, 2]


async def test_a_journal_that_fails(
    session: PolledSession, virtual_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on when the journal can't take it for a moment: nothing depends on it."""

    async def fail(store: Store, seen: list[Seen]) -> None:
        raise JournalError(f"no room for {store} and {len(seen)}", "full")

    monkeypatch.setattr(tasks, "record_seen", fail)
    (result,) = await run(session, items(1), virtual_journal)
    assert str(result.outcome) == "completed"


async def test_jobs_that_have_not_answered(session: PolledSession, virtual_journal: Journal, writes: list[int]) -> None:
    """A job whose polls fail has the time at which it was seen last, and nothing is written for it."""

    async def broken(ref: JobRef) -> AgentJob:
        session.polled.append(0.0)
        raise ConnectionError(ref.job_id)

    session.tracker = JobTracker(broken, policy=PollPolicy(wait=wait_fixed(POLL_SECONDS)))
    async with session.tracker:
        (result,) = await run(session, items(1), virtual_journal, timeout=100)
    assert str(result.outcome) == "timed_out"
    assert writes == []
    (row,) = await virtual_journal.rows()
    assert (row.seen_at, row.polls) == (row.created_at, len(session.polled))
