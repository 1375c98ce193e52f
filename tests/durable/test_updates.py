"""Durable jobs followed by key: what a reader gets, in every process, and that it leaves nothing behind."""

import asyncio
import pickle
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError, SessionClosedError, WaitTimeoutError
from agentjobs_async.batch import BatchItem, Journal, Limits
from agentjobs_async.batch._database.connections import Stamp
from agentjobs_async.batch._store.store import Store
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.silence import NEVER
from tests.durable.listener import complete
from tests.held import HeldEmulator
from tests.until import until

ENDLESS = JobScript(duration=1e6)


@pytest.fixture
async def both(location: str, session: AgentJobsSession) -> AsyncIterator[tuple[DurableJobs, DurableJobs]]:
    """The durable jobs that follow, and those that are read: on PostgreSQL those of another process."""
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(Journal.open(location, owner_timeout=NEVER))
        jobs = await stack.enter_async_context(DurableJobs(session, journal))
        if "://" not in location:
            yield jobs, jobs
            return
        another = await stack.enter_async_context(Journal.open(location, owner_timeout=NEVER))
        yield jobs, await stack.enter_async_context(DurableJobs(session, another))


@asynccontextmanager
async def a_planned_one(journal: Journal) -> AsyncIterator[tuple[HeldEmulator, DurableJobs]]:
    """Have a planned job `k`, which is held back by a create that is not answered before its emulator is released."""
    await journal.set_limits(Limits(max_sending=1))
    async with HeldEmulator(script=ENDLESS, speed=20) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, journal) as jobs:
            await jobs.submit("first", "long", wait_for_create=False)
            await emulator.arrived.wait()
            await jobs.submit("k", "long", wait_for_create=False)
            yield emulator, jobs
            emulator.release.set()


async def active(changes: AsyncIterator[DurableEntry]) -> DurableEntry:
    """Read until the job is active, and return that entry."""
    async for entry in changes:
        if entry.state == "active":
            return entry
    raise AssertionError("the iteration has ended")


async def test_from_planned_to_the_end(journal: Journal) -> None:
    """A reader gets the planned entry, the active one with its job, and the completed one; then the iteration ends."""
    async with a_planned_one(journal) as (emulator, jobs), jobs.updates("k") as changes:
        first = await anext(changes)
        assert (first.state, first.ref, first.job) == ("planned", None, None)
        emulator.release.set()
        at_work = await active(changes)
        assert at_work == await jobs.get("k")
        await complete(emulator)
        last = await anext(changes)
        assert last == await jobs.get("k")
        assert (last.state, last.ref, last.is_terminal) == ("completed", at_work.ref, True)
        assert [entry async for entry in changes] == []


async def test_followed_elsewhere(emulator: Emulator, both: tuple[DurableJobs, DurableJobs]) -> None:
    """A reader gets the same in a process that does not follow the job, and causes no poll."""
    following, read = both
    await following.submit("k", "long")
    async with read.updates("k") as changes:
        assert (await anext(changes)).state == "active"
        await complete(emulator)
        assert [entry.state async for entry in changes] == ["completed"]
        assert await read.get("k") == await following.get("k")


async def test_unknown_is_not_the_end(emulator: Emulator, session: AgentJobsSession, journal: Journal) -> None:
    """The iteration continues after an unknown entry, and ends after the end of the job that settles it."""
    await emulator.inject("500 agent=yes on=create")
    async with DurableJobs(session, journal) as jobs:
        assert (await jobs.submit("k", "long")).state == "unknown"
        (job_id,) = emulator.jobs
        async with jobs.updates("k") as changes:
            unknown = await anext(changes)
            assert (unknown.state, unknown.is_terminal) == ("unknown", False)
            await journal.resolve("k", job_id=job_id)
            assert (await anext(changes)).state == "active"
            await complete(emulator)
            assert [entry.state async for entry in changes] == ["completed"]


async def test_end_after_a_retry(emulator: Emulator, session: AgentJobsSession, journal: Journal) -> None:
    """An end after a retry is read by those that begin later, or have not read the end before it; by no others."""
    emulator.script(JobScript(duration=0.2, outcome="failed"), prompt="Hello")
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "Hello")
        async with jobs.updates("k") as early, jobs.updates("k") as slow:
            assert [entry.state async for entry in early][-1] == "failed"
            emulator.script(ENDLESS, prompt="Hello")
            await journal.retry("k")
            async with jobs.updates("k") as late:
                assert (await active(late)).tries == 2
                await complete(emulator, "Hello")
                assert [(entry.state, entry.tries) async for entry in late] == [("completed", 2)]
            assert [entry async for entry in early] == []
            await until(lambda: _newest(slow).state == "completed")
            assert [(entry.state, entry.tries) async for entry in slow] == [("completed", 2)]


def _newest(changes: Any) -> DurableEntry:
    """Return what a reader would get next."""
    entry = changes._newest
    assert isinstance(entry, DurableEntry)
    return entry


async def test_withdrawn(journal: Journal) -> None:
    """The iteration of a planned job that is abandoned ends with that; nothing is sent."""
    async with a_planned_one(journal) as (emulator, jobs), jobs.updates("k") as changes:
        assert (await anext(changes)).state == "planned"
        await jobs.abandon("k")
        assert [entry.state async for entry in changes] == ["abandoned"]
        emulator.release.set()
    assert emulator.agents_started == {"long": 1}


async def test_readers_of_one_key(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Each reader of a key gets every change, in entries of its own; the one that leaves ends nothing."""
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long", context={"names": []}, extra={"tags": []})
        async with jobs.updates("k") as one, jobs.updates("k") as other:
            assert [(await anext(reader)).state for reader in (one, other)] == ["active"] * 2
            async with jobs.updates("k") as third:
                await anext(third)
            await complete(emulator)
            ends: list[DurableEntry] = []
            for reader in (one, other):
                ends += [entry async for entry in reader]
                ends[-1].context["names"].append("a")
                ends[-1].extra["tags"].append("a")
        assert [end.state for end in ends] == ["completed"] * 2
        assert [(end.context, end.extra) for end in ends] == [({"names": ["a"]}, {"tags": ["a"]})] * 2


async def test_item_of_a_batch(session: AgentJobsSession, file_journal: Journal) -> None:
    """The item of a batch can be read as well."""
    await file_journal.add([BatchItem("k", "Hello", "docs")])
    async with DurableJobs(session, file_journal) as jobs, jobs.updates("k") as changes:
        assert (await anext(changes)).state == "planned"
        await file_journal.abandon("k")
        assert [entry.state async for entry in changes] == ["abandoned"]


async def test_what_is_refused(session: AgentJobsSession, file_journal: Journal) -> None:
    """Wrong arguments are refused by the call, an unknown key on entering, and so is a second use."""
    jobs = DurableJobs(session, file_journal)
    with pytest.raises(InvalidInputError, match="not open"):
        jobs.updates("k")
    async with jobs:
        with pytest.raises(InvalidInputError, match="key"):
            jobs.updates("")
        with pytest.raises(InvalidInputError, match="timeout"):
            jobs.updates("k", timeout=0)
        updates = jobs.updates("k")
        with pytest.raises(InvalidInputError, match="'k' is the key of no job in the journal"):
            async with updates:
                pass
        with pytest.raises(InvalidInputError, match="call updates again"):
            async with updates:
                pass
        await file_journal.add([BatchItem("k", "Hello", "docs")])
        with pytest.raises(InvalidInputError, match="within the block"):
            await anext(jobs.updates("k"))  # type: ignore[call-overload]  # the wrong use is the test
        assert not jobs._updates._watched


async def test_leaving(emulator: Emulator, session: AgentJobsSession, journal: Journal) -> None:
    """A reader whose task is cancelled leaves at once, and nothing looks any more; the job is followed as before."""
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "long")
        entries: list[DurableEntry] = []

        async def read() -> None:
            async with jobs.updates("k") as changes:
                async for entry in changes:
                    entries.append(entry)

        readers = [asyncio.create_task(read()) for _ in range(2)]
        await until(lambda: len(entries) == 2)
        readers[0].cancel()
        await asyncio.wait([readers[0]])
        assert (readers[0].cancelled(), len(jobs._updates._watched)) == (True, 1)
        readers[1].cancel()
        await asyncio.wait([readers[1]])
        await until(lambda: not jobs._updates._watched)
        assert session.stats().jobs == 1
        async with jobs.updates("k") as changes:
            assert (await anext(changes)).state == "active"
            await complete(emulator)
            assert [entry.state async for entry in changes] == ["completed"]
        await until(lambda: not jobs._updates._watched)


async def test_cancelled_anext_loses_nothing(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal
) -> None:
    """A change that comes after `anext` was cancelled is read by the next one."""
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")
        async with jobs.updates("k") as changes:
            await anext(changes)
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await complete(emulator)
            assert [entry.state async for entry in changes] == ["completed"]


async def test_closing(session: AgentJobsSession, journal: Journal) -> None:
    """Closing the durable jobs ends the iteration with a `SessionClosedError`, once; later readers enter none."""
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "long")
        async with jobs.updates("k") as changes:
            await anext(changes)
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await jobs.aclose()
            with pytest.raises(SessionClosedError, match="the durable jobs are closed"):
                await waiting
            assert [entry async for entry in changes] == []
        with pytest.raises(SessionClosedError):
            async with jobs.updates("k"):
                pass
        assert not jobs._updates._watched


async def test_timeout(file_journal: Journal) -> None:
    """After its timeout a reader gets a `WaitTimeoutError`, which names the key and the state, once."""
    async with a_planned_one(file_journal) as (_, jobs):
        async with jobs.updates("k", timeout=0.05) as changes:
            assert (await anext(changes)).state == "planned"
            with pytest.raises(WaitTimeoutError) as raised:
                await anext(changes)
            assert [entry async for entry in changes] == []
        error = raised.value
        assert (error.last_job, error.last_error) == (None, None)
        assert re.fullmatch(
            r"'k' did not end within [0-9.]+ s \(last seen planned\); it continues: .* by its key", str(error)
        )
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own bytes


async def test_journal_that_can_not_be_read(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers ride out a journal that can't be read; a timeout meanwhile says why. A new reader gets the error."""
    stamp, failed = Store.stamp, asyncio.Event()

    async def fail(_store: Store, *_: object) -> Any:
        failed.set()
        raise JournalError("the disk is gone", "io")

    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "long")
        async with jobs.updates("k") as patient, jobs.updates("k", timeout=0.3) as other:
            await anext(patient)
            await anext(other)
            with monkeypatch.context() as patch:
                patch.setattr(Store, "stamp", fail)
                await failed.wait()
                with pytest.raises(WaitTimeoutError, match="the disk is gone") as raised:
                    await anext(other)
                assert isinstance(raised.value.last_error, JournalError)
                patch.setattr(Store, "rows_of", fail)
                with pytest.raises(JournalError):
                    async with jobs.updates("k"):
                        pass
            assert Store.stamp is stamp
            await complete(emulator)
            assert [entry.state async for entry in patient] == ["completed"]


async def test_rows_are_read_after_changes_only(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is written, the rows are not read; what is written then is seen."""
    looks: list[str] = []
    stamp, rows_of = Store.stamp, Store.rows_of

    async def looked(store: Store) -> Any:
        looks.append("stamp")
        return await stamp(store)

    async def read(store: Store, keys: Any) -> Any:
        looks.append("rows")
        return await rows_of(store, keys)

    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")
        monkeypatch.setattr(Store, "stamp", looked)
        monkeypatch.setattr(Store, "rows_of", read)
        async with jobs.updates("k") as changes:
            await anext(changes)
            await until(lambda: looks[-5:] == ["stamp"] * 5)
            await complete(emulator)
            assert [entry.state async for entry in changes] == ["completed"]


async def test_changes_in_one_moment(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written in the moment of a look is seen, though the file shows no other time and size after it."""

    async def same(_store: Store) -> Stamp:
        return Stamp("same", is_settled=False)

    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")
        monkeypatch.setattr(Store, "stamp", same)
        async with jobs.updates("k") as changes:
            await anext(changes)
            await complete(emulator)
            assert [entry.state async for entry in changes] == ["completed"]


async def test_journal_that_was_closed_first(session: AgentJobsSession, file_journal: Journal) -> None:
    """Where the journal is closed before the durable jobs, which is a mistake, a reader without a timeout ends too."""
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")
        async with jobs.updates("k", timeout=None) as changes:
            await anext(changes)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(file_journal._opened, "store", None)
                with pytest.raises(InvalidInputError, match="the journal is not open"):
                    await anext(changes)
