"""What one of several processes does to the jobs that another one follows, or has followed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from agentjobs_async import AgentJobsSession, JournalError
from agentjobs_async.batch import Journal
from agentjobs_async.batch._store.heartbeat import Heartbeat
from agentjobs_async.batch.journal import opened_of
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.durable.listener import Listener

pytestmark = pytest.mark.slow


@pytest.fixture
async def journals(database: str) -> AsyncIterator[tuple[Journal, Journal]]:
    """One database, open twice."""
    async with Journal.open(database, owner_timeout=1.0) as one, Journal.open(database, owner_timeout=1.0) as other:
        yield one, other


@contextmanager
def silent(journal: Journal) -> Iterator[None]:
    """Let the owner of a journal give no sign of life within the block, as one that is stopped."""
    heartbeat = opened_of(journal).heartbeat
    assert heartbeat is not None

    async def fail() -> None:
        raise JournalError("stopped", "io")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeat, Heartbeat._beat.__name__, fail)
        yield


async def test_unfollowed_elsewhere(
    emulator: Emulator, session: AgentJobsSession, journals: tuple[Journal, Journal]
) -> None:
    """A job that another process than its own unfollows gets no callback any more."""
    listener = Listener()
    emulator.script(JobScript(duration=20), prompt="soon")
    emulator.script(JobScript(duration=60), prompt="later")
    async with (
        DurableJobs(session, journals[0], on_end=listener.on_end) as one,
        DurableJobs(session, journals[1]) as other,
    ):
        await one.submit("k", "soon")
        await one.submit("other", "later")
        assert await other.unfollow("k")
        await listener.ends(1)
    assert listener.called == [("other", "completed")]


async def test_owner_that_was_silent(
    emulator: Emulator, session: AgentJobsSession, journals: tuple[Journal, Journal]
) -> None:
    """An owner that was taken for dead leaves its jobs, once it goes on, to the one that has taken them over."""
    first, second = Listener(), Listener()
    async with (
        emulator.session(project_id="docs") as others,
        DurableJobs(others, journals[0], on_end=first.on_end) as one,
        DurableJobs(session, journals[1], on_change=second.on_change, on_end=second.on_end),
    ):
        await one.submit("k", "long")
        assert others.stats().jobs == 1
        with silent(journals[0]):
            await second.change("active")
        async with asyncio.timeout(10):
            while others.stats().jobs:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.05)
        await journals[1].abandon("k")
        await second.ends(1)
    assert (first.called, second.called) == ([], [("k", "AgentJobsError")])
    assert emulator.agents_started == {"long": 1}


async def test_create_that_was_taken_for_unknown(
    emulator: Emulator, session: AgentJobsSession, journals: tuple[Journal, Journal]
) -> None:
    """A create that is answered after its owner was taken for dead: unknown is told first, then the end of its job."""
    first, second = Listener(), Listener()
    await emulator.inject("hang for=6 agent=yes on=create", prompt="Hello")
    async with (
        DurableJobs(session, journals[0], on_end=first.on_end) as one,
        DurableJobs(session, journals[1], on_end=second.on_end),
    ):
        submitting = asyncio.create_task(one.submit("k", "Hello"))
        while not emulator.agents_started:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)
        with silent(journals[0]):
            await second.ends(1)
        assert (await submitting).state == "created"
        await first.ends(1)
    assert (first.called, second.called) == ([("k", "completed")], [("k", "CreateOutcomeUnknownError")])
    assert emulator.agents_started == {"Hello": 1}
