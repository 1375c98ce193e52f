"""What the end of a session ends, and what it waits for."""

import asyncio

import pytest

from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.shutdown import Shutdown

pytestmark = pytest.mark.looptime


async def test_the_beginning() -> None:
    """Who waits for the end of a session gets its error, also where the end came first."""
    shutdown: Shutdown[str] = Shutdown()
    early = asyncio.ensure_future(shutdown.begun())
    await asyncio.sleep(0)
    shutdown.waits.interrupt(ValueError("closed"))
    assert [str(error) for error in (await early, await shutdown.begun())] == ["closed"] * 2


async def test_blocks_that_begin_too_late() -> None:
    """A block that begins once its group was interrupted is cut at its first await, before its deadline too."""
    shutdown: Shutdown[str] = Shutdown()
    shutdown.creates.interrupt(ValueError("closed"))
    began = asyncio.get_running_loop().time()
    with CancelScope(began + 60, shutdown.creates) as scope:
        await asyncio.Event().wait()
    assert str(scope.reason) == "closed"
    assert asyncio.get_running_loop().time() == began


async def test_recorded() -> None:
    """The wait ends with the last block, and names no job of blocks that were left well."""
    shutdown: Shutdown[str] = Shutdown()

    async def record() -> None:
        with shutdown.recording():
            shutdown.created("one")
            await asyncio.sleep(3)

    recording = asyncio.ensure_future(record())
    assert await shutdown.recorded(10) == ()
    assert recording.done()
    assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.01)
    shutdown.created("outside of any block")
    assert await shutdown.recorded(10) == ()


async def test_a_job_that_comes_after_its_block() -> None:
    """A job whose block was left before the answer counts as not recorded once the end has begun."""
    shutdown: Shutdown[str] = Shutdown()

    async def create(job: str) -> None:
        await asyncio.sleep(1)
        shutdown.created(job)

    with shutdown.recording():
        early = asyncio.create_task(create("early"))
    await early
    with shutdown.recording():
        late = asyncio.create_task(create("late"))
    shutdown.waits.interrupt(ValueError("closed"))
    await late
    assert await shutdown.recorded(10) == ("late",)


async def test_not_recorded() -> None:
    """Jobs of blocks that are not left in time, or that an error has left since the end began, are named."""
    shutdown: Shutdown[str] = Shutdown()

    async def record(job: str, seconds: float) -> None:
        with shutdown.recording():
            shutdown.created(job)
            await asyncio.sleep(seconds)
            raise ValueError

    tasks = [asyncio.ensure_future(record(*case)) for case in (("early", 1), ("failed", 3), ("late", 60))]
    await asyncio.sleep(2)
    shutdown.waits.interrupt(ValueError("closed"))
    assert await shutdown.recorded(10) == ("failed", "late")
    assert await asyncio.gather(*tasks, return_exceptions=True)


async def test_recorded_after_its_block() -> None:
    """A job that a task records is waited for although its block was cut off, and named only where the task fails."""
    shutdown: Shutdown[str] = Shutdown()

    async def record(*, well: bool) -> None:
        await asyncio.sleep(3)
        assert well

    async def create(job: str, *, well: bool) -> None:
        with shutdown.recording():
            shutdown.created(job)
            recording = asyncio.create_task(record(well=well))
            shutdown.recorded_by(recording, job)
            await asyncio.shield(recording)

    creates = [asyncio.create_task(create("well", well=True)), asyncio.create_task(create("failed", well=False))]
    await asyncio.sleep(1)
    shutdown.waits.interrupt(ValueError("closed"))
    for task in creates:
        task.cancel()
    assert await shutdown.recorded(10) == ("failed",)
    assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.01)
