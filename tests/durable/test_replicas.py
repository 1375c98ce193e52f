"""What one of several processes does to the jobs that another one follows, or has followed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import delete

from agentjobs_async import AgentJobsError, AgentJobsSession, JournalError, SessionClosedError
from agentjobs_async.batch import BatchItem, Journal, Limits
from agentjobs_async.batch._database.schema import OWNERS
from agentjobs_async.batch._store.heartbeat import Heartbeat
from agentjobs_async.batch.states import RELEASE
from agentjobs_async.durable import DurableJobs
from agentjobs_async.durable._submissions import Submissions
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.silence import NEVER, heartbeat_of
from tests.durable.listener import Listener, complete
from tests.held import HeldEmulator
from tests.until import until

pytestmark = pytest.mark.slow


@pytest.fixture
async def journals(laid_out: str) -> AsyncIterator[tuple[Journal, Journal]]:
    """One database, open twice."""
    async with Journal.open(laid_out, owner_timeout=NEVER) as one, Journal.open(laid_out, owner_timeout=NEVER) as other:
        yield one, other


@asynccontextmanager
async def counts_as_dead(journal: Journal) -> AsyncIterator[None]:
    """Let the owners of a process have been silent for too long within the block, as if it was stopped."""
    heartbeat = heartbeat_of(journal)

    async def fail() -> None:
        raise JournalError("stopped", "io")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeat, Heartbeat.beat.__name__, fail)
        _ = await heartbeat._database.write(delete(OWNERS).where(OWNERS.c.owner.in_(journal._opened.owners.own)))
        yield
        patch.setattr(Heartbeat, "is_sure", False)
        await Heartbeat.beat(heartbeat)


async def test_submitted_where_no_end_is_told(
    session: AgentJobsSession, journals: tuple[Journal, Journal], listener: Listener
) -> None:
    """Of a job that a process without `on_end` follows, one that has it is told at once."""
    async with DurableJobs(session, journals[0]) as one, DurableJobs(session, journals[1], on_end=listener.on_end):
        await one.submit("k", "Hello")
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_unfollowed_elsewhere(
    emulator: Emulator, session: AgentJobsSession, journals: tuple[Journal, Journal]
) -> None:
    """A job that another process than its own unfollows gets no callback any more."""
    listener = Listener()
    async with (
        DurableJobs(session, journals[0], on_end=listener.on_end) as one,
        DurableJobs(session, journals[1]) as other,
    ):
        await one.submit("k", "long")
        await one.submit("other", "long")
        assert await other.unfollow("k")
        await complete(emulator)
        await listener.ends(1)
        await until(lambda: not session.stats().jobs)
    assert listener.called == [("other", "completed")]


async def test_unfollowed_while_another_process_sends(journals: tuple[Journal, Journal]) -> None:
    """Unfollowing a job that another process is sending waits for the answer to its create, too."""
    script = JobScript(duration=1e6)
    async with HeldEmulator(script=script) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, journals[0]) as one, DurableJobs(session, journals[1]) as other:
            await one.submit("k", "Hello", wait_for_create=False)
            await emulator.arrived.wait()
            unfollowing = asyncio.create_task(other.unfollow("k"))
            await asyncio.wait([unfollowing], timeout=0.2)
            assert not unfollowing.done()
            emulator.release.set()
            assert await unfollowing
            assert await one.active() == []


async def test_abandoned_elsewhere(journals: tuple[Journal, Journal]) -> None:
    """A planned job that another process abandons is not sent, and every call that waits for its create says so."""
    listener = Listener()
    await journals[0].set_limits(Limits(max_sending=1))
    async with HeldEmulator(speed=20) as emulator, emulator.session(project_id="docs") as session:
        async with (
            DurableJobs(session, journals[0], on_end=listener.on_end) as one,
            DurableJobs(session, journals[1]) as other,
        ):
            first = asyncio.create_task(one.submit("first", "long"))
            await emulator.arrived.wait()
            calls = [asyncio.create_task(one.submit("k", "Hello"))]
            await until(lambda: other.get("k"))
            calls.append(asyncio.create_task(other.submit("k", "Hello")))
            await asyncio.wait(calls, timeout=0.1)
            await other.abandon("k")
            for call in calls:
                with pytest.raises(AgentJobsError, match="'k' was abandoned while planned"):
                    await call
            await listener.ends(1)
            emulator.release.set()
            await first
    assert ("k", "AgentJobsError") in listener.called
    assert emulator.agents_started == {"long": 1}


async def test_item_of_another_process(session: AgentJobsSession, journals: tuple[Journal, Journal]) -> None:
    """The planned item of a process that follows no durable jobs is sent by the one that it is submitted to."""
    listener, store = Listener(), journals[0].store
    await journals[0].add([BatchItem("k", "Hello", "docs")])
    claim = await store.claim("k", "a run")
    assert await store.move(RELEASE, "k", "a run", matching={"claim": claim}, new={"error": None})
    async with DurableJobs(session, journals[1], on_end=listener.on_end) as jobs, asyncio.timeout(60):
        await jobs.submit("k", "Hello")
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_owner_that_was_silent(
    emulator: Emulator, session: AgentJobsSession, journals: tuple[Journal, Journal]
) -> None:
    """An owner that counted as dead leaves its jobs, once it goes on, to the one that has taken them over."""
    first, second = Listener(), Listener()
    async with (
        emulator.session(project_id="docs") as others,
        DurableJobs(others, journals[0], on_end=first.on_end) as one,
        DurableJobs(session, journals[1], on_change=second.on_change, on_end=second.on_end),
    ):
        await one.submit("k", "long")
        assert others.stats().jobs == 1
        async with counts_as_dead(journals[0]):
            await second.change("active")
        await until(lambda: not others.stats().jobs)
        await journals[1].abandon("k")
        await second.ends(1)
    assert (first.called, second.called) == ([], [("k", "AgentJobsError")])
    assert emulator.agents_started == {"long": 1}


async def test_closed_while_another_process_sends(journals: tuple[Journal, Journal]) -> None:
    """A call that waits for the create of another process ends with the block, and leaves no task behind."""
    async with HeldEmulator() as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, journals[0]) as one, DurableJobs(session, journals[1]) as other:
            sending = asyncio.create_task(one.submit("k", "Hello"))
            await emulator.arrived.wait()
            before = asyncio.all_tasks()
            waiting = asyncio.create_task(other.submit("k", "Hello"))
            await until(lambda: _submitting(before))
            await other.aclose()
            assert not _submitting(before)
            with pytest.raises(SessionClosedError):
                await waiting
            emulator.release.set()
            assert (await sending).state == "active"


def _submitting(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Return the tasks of durable jobs that submit, other than those before."""
    return [task for task in asyncio.all_tasks() - before if Submissions._submit.__qualname__ in repr(task)]


@pytest.mark.parametrize("fault", ["", "429 on=create retry-after=1"])
async def test_create_of_an_owner_that_leaves(journals: tuple[Journal, Journal], fault: str) -> None:
    """What is answered late to an owner that leaves is continued by the one that had taken it over as unknown."""
    listener = Listener()
    async with HeldEmulator(speed=20) as emulator, emulator.session(project_id="docs") as session:
        if fault:
            await emulator.inject(fault, prompt="Hello")
        async with (
            DurableJobs(session, journals[1], on_end=listener.on_end),
            DurableJobs(session, journals[0]) as one,
        ):
            submitting = asyncio.create_task(one.submit("k", "Hello"))
            await emulator.arrived.wait()
            async with counts_as_dead(journals[0]):
                await listener.ends(1)
            leaving = asyncio.create_task(one.aclose())
            emulator.release.set()
            await leaving
            await asyncio.wait([submitting])
            await listener.ends(2)
    assert listener.called == [("k", "CreateOutcomeUnknownError"), ("k", "completed")]
    assert emulator.agents_started == {"Hello": 1}


async def test_create_that_counted_as_unknown(journals: tuple[Journal, Journal]) -> None:
    """A create that is answered after its owner counted as dead: unknown is told first, then the end of its job."""
    first, second = Listener(), Listener()
    async with (
        HeldEmulator(speed=20) as emulator,
        emulator.session(project_id="docs") as session,
        DurableJobs(session, journals[0], on_end=first.on_end) as one,
        DurableJobs(session, journals[1], on_end=second.on_end),
    ):
        submitting = asyncio.create_task(one.submit("k", "Hello"))
        await emulator.arrived.wait()
        async with counts_as_dead(journals[0]):
            await second.ends(1)
        emulator.release.set()
        assert (await submitting).state == "active"
        await complete(emulator, "Hello")
        await second.ends(2)
    assert (first.called, second.called) == ([], [("k", "CreateOutcomeUnknownError"), ("k", "completed")])
    assert emulator.agents_started == {"Hello": 1}
