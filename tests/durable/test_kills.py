"""Real kills of a real process, at the moments that matter: nothing is lost, and no agent is started twice."""

import asyncio
import signal
from pathlib import Path

import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator
from tests.batch.silence import NEVER, server_is_up
from tests.cli.stage import Child
from tests.durable.listener import Listener, complete
from tests.postgresql import execute
from tests.until import until

pytestmark = pytest.mark.slow

CHILD = """
import asyncio, os, signal, sys
from agentjobs_async import PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing._session import EmulatorSession

base_url, key, location, moment, prompt, owner_timeout = sys.argv[1:]

def killed_before(owner, name):
    work = getattr(owner, name)

    async def kill(*arguments, **settings):
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, kill)

match moment:
    case "claim" | "created" | "ended":
        killed_before(Records, moment)
    case "record_told":
        killed_before(DurableRows, moment)

async def end(entry, ended):
    if moment in ("on_end", "withdrawn"):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    policy = PollPolicy(wait=lambda _: 0.05)
    async with EmulatorSession(base_url, key, project_id="docs", policy=policy) as session:
        async with Journal.open(location, owner_timeout=float(owner_timeout)) as journal:
            async with DurableJobs(session, journal, on_end=end) as jobs:
                await jobs.submit("k", prompt, context={"chat": 1}, wait_for_create=moment != "withdrawn")
                if moment == "withdrawn":
                    await jobs.abandon("k")
                print("submitted", flush=True)
                await asyncio.sleep(600)

asyncio.run(main())
"""


def started(emulator: Emulator, location: Path | str, moment: str, prompt: str = "Hello") -> Child:
    arguments = [emulator.base_url, emulator.api_key, str(location), moment, prompt, str(NEVER)]
    return Child(*arguments, command=("-W", "error", "-c", CHILD))


async def killed(emulator: Emulator, location: Path, moment: str) -> None:
    """Run a child that kills itself at a moment."""
    with started(emulator, location, moment) as child:
        assert await asyncio.to_thread(child.ended) == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["claim", "ended", "on_end", "record_told"])
async def test_kill(emulator: Emulator, session: AgentJobsSession, path: Path, moment: str, listener: Listener) -> None:
    """Killed between plan and claim, before the end is recorded, or in `on_end`: the next start tells of the end."""
    await killed(emulator, path, moment)
    async with Journal.open(path) as journal:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            await listener.ends(1)
            entry = await jobs.submit("k", "Hello")
        assert listener.called == [("k", "completed")]
        assert listener.entries[0].context == {"chat": 1}
        assert (entry.state, entry.context) == ("completed", {"chat": 1})
        assert emulator.agents_started == {"Hello": 1}


async def test_kill_of_who_withdrew(
    emulator: Emulator, session: AgentJobsSession, path: Path, listener: Listener
) -> None:
    """Killed as a withdrawn job is told, it is never sent: the next start tells of it again, and `retry` sends it."""
    await emulator.inject("429 retry-after=900 on=create")
    async with Journal.open(path) as journal, DurableJobs(session, journal) as jobs:
        await jobs.submit("first", "Hello", wait_for_create=False)
        await until(lambda: jobs.stats().held)
    await killed(emulator, path, "withdrawn")
    async with Journal.open(path) as journal, DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await listener.ends(1)
        assert listener.called == [("k", "AgentJobsError")]
        assert listener.entries[0].sent_at is None
        await jobs.retry("k")
        entry = await jobs.get("k")
        assert entry is not None
        assert (entry.state, entry.context) == ("planned", {"chat": 1})
    assert emulator.agents_started == {}


async def test_kill_between_create_and_save(emulator: Emulator, session: AgentJobsSession, path: Path) -> None:
    """Killed before the answer to its create is saved: the row is unknown, told and listed, and never created again."""
    await killed(emulator, path, "created")
    listener = Listener()
    async with Journal.open(path) as journal:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            await listener.ends(1)
            entry = await jobs.submit("k", "Hello")
            assert (entry.state, entry.ref, entry.context) == ("unknown", None, {"chat": 1})
            assert [row.key for row in await journal.unknown()] == ["k"]
            (job_id,) = emulator.jobs
            await journal.resolve("k", job_id=job_id)
            await listener.ends(2)
        assert listener.called == [("k", "CreateOutcomeUnknownError"), ("k", "completed")]
        assert emulator.agents_started == {"Hello": 1}


async def test_replica_that_dies(emulator: Emulator, session: AgentJobsSession, laid_out: str) -> None:
    """Of two processes on one database one follows a job; when it is killed, another one takes over."""
    listener = Listener()
    with started(emulator, laid_out, "never", "long") as child:
        await asyncio.to_thread(child.until, "submitted")
        async with Journal.open(laid_out, owner_timeout=NEVER) as journal:
            async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
                entry = await jobs.submit("k", "long")
                assert entry.job is not None
                assert (entry.state, entry.job.status) == ("active", "active")  # the other one follows it
                assert session.stats().jobs == 0
    await complete(emulator)
    with server_is_up():
        async with Journal.open(laid_out, owner_timeout=NEVER) as journal:
            async with DurableJobs(session, journal, on_end=listener.on_end):
                (mine,) = journal._opened.owners.own
                execute(laid_out, f"UPDATE agentjobs_owners SET seen_at = 0 WHERE owner <> '{mine}'")  # noqa: S608 - our own name
                await listener.ends(1)
    assert listener.called == [("k", "completed")]
    assert emulator.agents_started == {"long": 1}


async def test_replica_that_leaves(emulator: Emulator, session: AgentJobsSession, laid_out: str) -> None:
    """A process that leaves hands its jobs to another one, though its journal stays open."""
    first, second = Listener(), Listener()
    async with Journal.open(laid_out, owner_timeout=NEVER) as one, Journal.open(laid_out, owner_timeout=NEVER) as other:
        async with DurableJobs(session, other, on_end=second.on_end) as staying:
            async with DurableJobs(session, one, on_end=first.on_end) as leaving:
                entries = [await leaving.submit("k", "long"), await staying.submit("k", "long")]
                assert entries[0] == entries[1]
            await complete(emulator)
            await second.ends(1)
    assert (first.called, second.called) == ([], [("k", "completed")])
    assert emulator.agents_started == {"long": 1}


async def test_many_replicas(emulator: Emulator, session: AgentJobsSession, laid_out: str, listener: Listener) -> None:
    """However many processes get the same messages, each job has one agent and one end is told."""
    journals = [Journal.open(laid_out, owner_timeout=NEVER) for _ in range(3)]
    try:
        opened = [await journal.__aenter__() for journal in journals]
        jobs = [await DurableJobs(session, journal, on_end=listener.on_end).__aenter__() for journal in opened]
        calls = (each.submit(f"k{number}", f"p{number}") for number in range(20) for each in jobs)
        entries = await asyncio.gather(*calls)
        await listener.ends(20)
        for each in jobs:
            await each.aclose()
    finally:
        for journal in journals:
            await journal.aclose()
    assert len({entry.ref for entry in entries}) == 20
    assert sorted(listener.called) == sorted((f"k{number}", "completed") for number in range(20))
    assert set(emulator.agents_started.values()) == {1}
