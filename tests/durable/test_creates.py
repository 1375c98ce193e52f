"""How the creates of durable jobs are sent, and what becomes of them."""

import asyncio

import pytest
from attrs import evolve

from agentjobs_async import AgentJobsSession, CreateOutcomeUnknownError, JournalError, SessionClosedError
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._run.kinds import DURABLE
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows, User
from agentjobs_async.durable import DurableJobs
from agentjobs_async.durable import _creates as creates
from agentjobs_async.testing import Emulator, JobScript
from tests.durable.listener import Listener, complete
from tests.held import HeldEmulator
from tests.until import until


async def test_cancelled_caller(file_journal: Journal, listener: Listener) -> None:
    """A caller that is cancelled leaves; the create goes on, and its job is followed."""
    script = JobScript(duration=0.1)
    async with HeldEmulator(script=script) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
            caller = asyncio.ensure_future(jobs.submit("k", "Hello"))
            await emulator.arrived.wait()
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            emulator.release.set()
            await listener.ends(1)
            assert (await jobs.submit("k", "Hello")).state == "completed"
        assert emulator.agents_started == {"Hello": 1}
    assert listener.called == [("k", "completed")]


async def test_answer_while_leaving(file_journal: Journal) -> None:
    """Leaving waits for the answer of a create under way, and its caller gets it."""
    async with Emulator(script=JobScript(duration=1e6), latency=0.2) as emulator:
        async with emulator.session(project_id="docs") as session:
            async with DurableJobs(session, file_journal) as jobs:
                caller = asyncio.ensure_future(jobs.submit("k", "Hello"))
                await until(lambda: emulator.requests)
            assert (await caller).state == "active"
            assert [row.state for row in await file_journal.rows()] == ["active"]


async def test_closing_that_is_cancelled_in_each_iteration(session: AgentJobsSession, file_journal: Journal) -> None:
    """As a scope of anyio's does it: calls under way end all the same, and the open journal can be followed again."""
    jobs = DurableJobs(session, file_journal)
    await jobs.__aenter__()
    submitting = asyncio.create_task(jobs.submit("k", "long"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(jobs.aclose())
    while not closing.done():
        await asyncio.sleep(0)
        closing.cancel()
    with pytest.raises(SessionClosedError):
        await submitting
    async with DurableJobs(session, file_journal) as again:
        assert (await again.submit("k", "long")).state == "active"


async def test_row_that_was_read_before_its_create(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that finds its row before the create is answered, and goes on after that, returns the job."""
    calls: list[str] = []
    work = DurableRows.submit

    async def submit(rows: DurableRows, item: BatchItem, user: User | None) -> object:
        calls.append(item.key)
        is_second = len(calls) == 2
        found = await work(rows, item, user)
        if is_second:
            emulator.release.set()
            await asyncio.wait([first])
        return found

    monkeypatch.setattr(DurableRows, "submit", submit)
    async with HeldEmulator(script=JobScript(duration=1e6)) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, file_journal) as jobs:
            first, second = (asyncio.ensure_future(jobs.submit("k", "Hello")) for _ in range(2))
            assert (await second).ref == (await first).ref is not None
            assert (await second).state == "active"


async def test_rejected(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """A create that the service rejects is an entry, told once, and not sent again under its key."""
    await emulator.inject("422 forever", prompt="Hello")
    listener = Listener()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        entry = await jobs.submit("k", "Hello")
        await listener.ends(1)
        again = await jobs.submit("k", "Hello")
        assert (entry.state, again.state) == ("rejected", "rejected")
        assert "422" in (again.error or "")
        assert [row.key for row in await file_journal.rows("rejected")] == ["k"]
    assert listener.called == [("k", "RejectedError")]
    assert len([request for request in emulator.requests if request.method == "POST"]) == 1


async def test_refused_key(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the service refuses the key, a job stays planned; it is sent again by itself after a time."""
    monkeypatch.setattr(creates, "_HELD_SECONDS", 0.05)
    monkeypatch.setattr("agentjobs_async.durable.jobs.DURABLE", evolve(DURABLE, refused_for=0.01))
    await emulator.inject("401", prompt="Hello")
    listener = Listener()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        entry = await jobs.submit("k", "Hello")
        assert entry.state == "planned"
        assert entry.error is not None
        assert entry.error.startswith("HTTP 401")
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_closed_session(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Draining the session ends the waits, tells of no end, and leaves every job to the next start.

    A job that is submitted to it then is refused, and sent at the next start.
    """
    listener = Listener()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("followed", "long")
        await session.drain()
        with pytest.raises(SessionClosedError):
            await jobs.submit("late", "Hello")
    followed, late = await file_journal.rows()
    assert (followed.state, followed.error, late.state) == ("active", None, "planned")
    assert listener.called == []
    await complete(emulator)
    async with emulator.session(project_id="docs") as another:
        async with DurableJobs(another, file_journal, on_end=listener.on_end):
            await listener.ends(2)
    assert sorted(listener.called) == [("followed", "completed"), ("late", "completed")]
    assert emulator.agents_started == {"long": 1, "Hello": 1}


@pytest.mark.parametrize(
    ("move", "fault", "end"),
    [("created", "ok", "completed"), ("unknown", "reset", "CreateOutcomeUnknownError")],
)
async def test_journal_that_was_full(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
    move: str,
    fault: str,
    end: str,
) -> None:
    """What the journal could not take of a create is recorded once it has room: no job is left without an end."""
    calls: list[str] = []
    work = getattr(Records, move)

    async def full_at_first(records: Records, key: str, *arguments: object, **named: object) -> object:
        calls.append(key)
        if len(calls) == 1:
            raise JournalError("no space left", "full")
        return await work(records, key, *arguments, **named)

    monkeypatch.setattr(Records, move, full_at_first)
    monkeypatch.setattr(creates, "_HELD_SECONDS", 0.05)
    await emulator.inject(f"{fault} on=create")
    listener = Listener()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        with pytest.raises(JournalError, match="no space left"):
            await jobs.submit("k", "Hello")
        await listener.ends(1)
    assert listener.called == [("k", end)]
    assert max(emulator.agents_started.values(), default=0) <= 1


async def test_unknown_after_a_restart(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """The end of an unknown create is told in the same words by a later start, its advice once."""
    told: list[str] = []
    await emulator.inject("reset on=create")
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "Hello")
    async with DurableJobs(session, file_journal, on_end=lambda _, error: told.append(str(error))):
        await until(lambda: bool(told))
    (row,) = await file_journal.rows()
    known = CreateOutcomeUnknownError(row.error or "", project_id="docs", sent_at=row.sent_at)
    assert told == [str(known)]
    assert told[0].count("an agent may have been started") == 1
