"""Draining a session or tracker: nothing new, waits end at once, creates under way have their answer."""

import asyncio
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    JobRef,
    JobTracker,
    SessionClosedError,
)
from agentjobs_async.testing import Emulator
from agentjobs_async.web import http_answer
from tests.contract.ways import ENDLESS, REF
from tests.polled import every

pytestmark = pytest.mark.looptime


async def now() -> float:
    await asyncio.sleep(0)
    return asyncio.get_running_loop().time()


async def under_way(session: AgentJobsSession, job: AgentJob, prompt: str = "Late") -> list[asyncio.Task[Any]]:
    """Start a wait, a stream of updates, a read and a create; return them once all are under way."""

    async def updates() -> None:
        async with session.updates(job.ref) as changes:
            async for _ in changes:
                pass

    calls = [session.wait_for_job(job.ref), updates(), session.get_job(job), session.create_job(prompt)]
    tasks: list[asyncio.Task[Any]] = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0.5)
    return tasks


async def test_creates_finish_within_grace() -> None:
    """Waits and reads end at once, saying how to go on; a create under way has its answer; then all is closed."""
    async with Emulator(script=ENDLESS, latency=2.0) as emulator, emulator.session(project_id="docs") as session:
        job = await session.create_job("First")
        *waits, create = await under_way(session, job)
        began = await now()
        draining = asyncio.ensure_future(session.drain())
        for error in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(error, SessionClosedError)
            assert f"job {job.ref.to_token()}: " in str(error)
            assert "wait for it again by its token" in str(error)
            assert http_answer(error).status == 503
            assert "by its token" in http_answer(error).body["message"]
        assert await now() - began < 0.1
        assert not create.done()
        with pytest.raises(SessionClosedError, match="shutting down") as refused:
            await session.create_job("No more")
        assert refused.value.outcome is CreateOutcome.NOT_SENT
        with pytest.raises(SessionClosedError, match="shutting down"):
            await session.wait_for_job(job)
        assert (await create).status == "active"
        await draining
        assert await now() - began < 2
        with pytest.raises(SessionClosedError, match="is closed"):
            await session.create_job("No more")
        assert emulator.agents_started == {"First": 1, "Late": 1}


@pytest.mark.parametrize("grace", [0, 0.25])
async def test_creates_beyond_grace_are_unknown(grace: float) -> None:
    """A create whose answer comes too late ends as by aclose: as unknown."""
    async with Emulator(script=ENDLESS, latency=2.0) as emulator, emulator.session(project_id="docs") as session:
        *waits, create = await under_way(session, await session.create_job("First"))
        began = await now()
        await session.drain(grace=grace)
        assert await now() - began < grace + 0.1
        with pytest.raises(CreateOutcomeUnknownError):
            await create
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in ends] == [SessionClosedError] * 3


async def test_run_job_names_its_job() -> None:
    """A run whose create ends within the grace raises an error that names the job, so that it is not lost."""
    async with Emulator(script=ENDLESS, latency=2.0) as emulator, emulator.session(project_id="docs") as session:
        run = asyncio.ensure_future(session.run_job("Late"))
        await asyncio.sleep(0.5)
        await session.drain()
        with pytest.raises(SessionClosedError, match=r"job docs~\.") as ended:
            await run
        assert isinstance(ended.value.ref, JobRef)


async def test_drained_twice() -> None:
    """Two tasks may drain, and again afterwards; the shorter grace counts."""
    async with Emulator(script=ENDLESS, latency=2.0) as emulator, emulator.session(project_id="docs") as session:
        *waits, create = await under_way(session, await session.create_job("First"))
        began = await now()
        await asyncio.gather(session.drain(), session.drain(0.5), session.drain())
        await session.drain()
        assert await now() - began < 0.6
        assert isinstance(create.exception(), CreateOutcomeUnknownError)
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in ends] == [SessionClosedError] * 3


async def test_closed_while_draining() -> None:
    """`aclose` meanwhile closes at once, and ends the draining."""
    async with Emulator(script=ENDLESS, latency=2.0) as emulator, emulator.session(project_id="docs") as session:
        *waits, create = await under_way(session, await session.create_job("First"))
        draining = asyncio.ensure_future(session.drain())
        began = await now()
        await session.aclose()
        await draining
        assert await now() - began < 0.1
        with pytest.raises(CreateOutcomeUnknownError):
            await create
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in ends] == [SessionClosedError] * 3


async def test_cancelled_while_draining() -> None:
    """A cancelled draining leaves at once, begins nothing new, lets a create under way go on, and can be repeated."""
    async with Emulator(script=ENDLESS, latency=2.0) as emulator, emulator.session(project_id="docs") as session:
        *waits, create = await under_way(session, await session.create_job("First"))
        draining = asyncio.ensure_future(session.drain())
        began = await now()
        draining.cancel()
        await asyncio.wait([draining])
        assert draining.cancelled()
        assert await now() - began < 0.1
        with pytest.raises(SessionClosedError, match="shutting down"):
            await session.create_job("No more")
        await session.drain()
        assert (await create).status == "active"
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in ends] == [SessionClosedError] * 3


async def test_unused_and_closed() -> None:
    """Draining closes a session that was never used, and does nothing to a closed one."""
    async with Emulator() as emulator:
        session = emulator.session(project_id="docs")
        await session.drain()
        with pytest.raises(SessionClosedError):
            await session.create_job("No more")
        await session.drain()
        async with emulator.session() as other:
            with pytest.raises(InvalidInputError, match="grace"):
                await other.drain(-1)
            await other.aclose()
            await other.drain()


async def test_tracker() -> None:
    """A tracker drains at once: it has waits only."""

    async def get_job(ref: JobRef) -> AgentJob:
        await asyncio.sleep(0)
        return AgentJob(ref.job_id, ref.project_id, "active")

    tracker = JobTracker(get_job, policy=every(1))
    waits = [tracker.watch(REF) for _ in range(3)]
    await asyncio.sleep(0.5)
    began = await now()
    await tracker.drain()
    assert await now() - began < 0.1
    errors = await asyncio.gather(*waits, return_exceptions=True)
    assert [isinstance(error, AgentJobsError) and error.ref == REF for error in errors] == [True] * 3
    with pytest.raises(SessionClosedError, match=r"job docs~\.job_1: the tracker is closed"):
        await tracker.watch(REF)
