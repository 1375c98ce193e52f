"""What the journal is told of jobs that are at work."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tenacity import wait_fixed

from agentjobs_async import AgentJob, JobRef, JobTracker, JournalError, PollPolicy
from agentjobs_async.batch import BatchWorker, Journal, JournalRow
from agentjobs_async.batch._store.entries import Entries, Seen
from tests.batch.stage import FakeSession, items, run

pytestmark = pytest.mark.looptime

JOB_SECONDS = 150.0
POLL_SECONDS = 7.0


class PolledSession(FakeSession):
    """Creates jobs in memory, and polls them through a tracker, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.polls = 0
        self.created: dict[str, float] = {}
        self.tracker = JobTracker(self._read, policy=PollPolicy(wait=wait_fixed(POLL_SECONDS)))

    async def _read(self, ref: JobRef) -> AgentJob:
        self.polls += 1
        now = asyncio.get_running_loop().time()
        ended = now - self.created.setdefault(ref.job_id, now) >= JOB_SECONDS
        return AgentJob(ref.job_id, ref.project_id, "completed" if ended else "active")

    def watch(self, job: AgentJob | JobRef | str, *, timeout: float | None) -> asyncio.Future[AgentJob]:
        assert isinstance(job, AgentJob | JobRef)
        return self.tracker.watch(job, timeout=timeout)


@pytest.fixture
async def session() -> AsyncIterator[PolledSession]:
    session = PolledSession()
    async with session.tracker:
        yield session


@pytest.fixture
async def virtual_journal(path: Path) -> AsyncIterator[Journal]:
    """A journal whose clock is the loop's."""
    async with Journal.open(path, clock=asyncio.get_running_loop().time) as journal:
        yield journal


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each write of them recorded as seen."""
    written: list[int] = []
    real = Entries.record_seen

    async def record_seen(self: Entries, seen: list[Seen]) -> None:
        written.append(len(seen))
        await real(self, seen)

    monkeypatch.setattr(Entries, "record_seen", record_seen)
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
        assert (row.state, row.ended_at) == ("created", None)
        assert 10 <= age(row) <= 10 + POLL_SECONDS + 1
        assert 0 < row.polls <= session.polls / 3
    await running
    assert writes == [3, 3]
    rows = await virtual_journal.rows()
    assert [row.seen_at for row in rows] == [row.ended_at for row in rows]
    assert sum(row.polls for row in rows) == session.polls


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

    async def fail(self: Entries, seen: list[Seen]) -> None:
        raise JournalError(f"no room for {self.owner} and {len(seen)}", "full")

    monkeypatch.setattr(Entries, "record_seen", fail)
    (result,) = await run(session, items(1), virtual_journal)
    assert str(result.outcome) == "completed"


async def test_jobs_that_have_not_answered(session: PolledSession, virtual_journal: Journal, writes: list[int]) -> None:
    """A job whose polls fail has the time at which it was seen last, and nothing is written for it."""

    async def broken(ref: JobRef) -> AgentJob:
        session.polls += 1
        raise ConnectionError(ref.job_id)

    session.tracker = JobTracker(broken, policy=PollPolicy(wait=wait_fixed(POLL_SECONDS)))
    async with session.tracker:
        (result,) = await run(session, items(1), virtual_journal, timeout=100)
    assert str(result.outcome) == "timed_out"
    assert writes == []
    (row,) = await virtual_journal.rows()
    assert (row.seen_at, row.polls) == (row.created_at, session.polls)
