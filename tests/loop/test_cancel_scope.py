"""Interrupting the current task, at a time of its loop or because somebody says so."""

import asyncio
import gc
import weakref
from contextlib import closing

import looptime
import pytest

from agentjobs_async._loop.cancel_scope import CancelScope, ScopeGroup
from tests.polled import in_memory


@in_memory
async def test_deadline_cuts() -> None:
    """The block is left at the deadline, without an exception, and the scope tells."""
    clock = asyncio.get_running_loop().time
    began = clock()
    with CancelScope(began + 7) as scope:
        await asyncio.sleep(60)
    assert (scope.ended, scope.reason) == (True, None)
    assert clock() - began == pytest.approx(7)


@in_memory
async def test_deadlines_of_many_blocks() -> None:
    """Each of many blocks is left at its own deadline, whichever others were left before."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def work(seconds: float) -> float:
        with CancelScope(began + seconds):
            await asyncio.sleep(60 if seconds != 7.5 else 1)
        return clock() - began

    deadlines = [7.25, 0.125, 7.75, 7.5, 7.25, 8.0]
    assert await asyncio.gather(*map(work, deadlines)) == pytest.approx([7.25, 0.125, 7.75, 1, 7.25, 8.0])


@in_memory
async def test_deadline_of_an_interrupted_block() -> None:
    """A block that takes its time to leave when interrupted is not cut again at its deadline."""
    loop = asyncio.get_running_loop()
    scope = CancelScope(loop.time() + 7)
    loop.call_later(1, scope.interrupt)
    left_at = 0.0
    with scope:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(30)
            left_at = loop.time()
    assert scope.ended
    assert left_at == pytest.approx(scope.deadline + 24 if scope.deadline is not None else 0)


async def test_left_block_is_forgotten() -> None:
    """A block that was left in time does not keep its task in memory until its deadline."""
    loop = asyncio.get_running_loop()

    async def work() -> None:
        with CancelScope(loop.time() + 600):
            await asyncio.sleep(0)

    task = asyncio.ensure_future(work())
    left = weakref.ref(task)
    await task
    del task
    await asyncio.sleep(0)  # the loop drops what it called last
    gc.collect()
    assert left() is None


def test_abandoned_loop_is_collected() -> None:
    """A loop that was closed while a block was under way is not kept in memory by the block's deadline."""
    loop = asyncio.new_event_loop()

    async def work() -> None:
        with CancelScope(asyncio.get_running_loop().time() + 600):
            await asyncio.Event().wait()

    task = loop.create_task(work())
    loop.set_exception_handler(lambda _loop, _context: None)  # else it logs that the task was pending
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    abandoned = weakref.ref(loop)
    del loop, task
    gc.collect()
    assert abandoned() is None


@in_memory
@pytest.mark.parametrize("deadline", [None, 7.0])
async def test_block_that_ends_by_itself(deadline: float | None, caplog: pytest.LogCaptureFixture) -> None:
    """A block that ends in time is not cut, and neither is what comes after it."""
    clock = asyncio.get_running_loop().time
    with CancelScope(deadline and clock() + deadline) as scope:
        await asyncio.sleep(5)
    await asyncio.sleep(60)
    assert not scope.ended
    assert caplog.records == []


def test_clock_below_zero() -> None:
    """A block ends at its deadline whatever the loop's clock shows."""

    async def work() -> float:
        with CancelScope(-4.3):
            await asyncio.sleep(60)
        return asyncio.get_running_loop().time()

    with closing(looptime.new_event_loop(start=-5.5)) as loop:
        assert loop.run_until_complete(work()) == pytest.approx(-4.3)


async def test_what_has_come_counts() -> None:
    """A deadline that is past already lets the loop go on before it cuts: what has come by then is read."""
    iterations = 0
    with CancelScope(asyncio.get_running_loop().time() - 60) as scope:
        while iterations < 4:
            await asyncio.sleep(0)
            iterations += 1
    assert (iterations, scope.ended) == (4, False)


async def test_interrupt() -> None:
    """The block is left when somebody interrupts it, the first reason stands, and only open scopes are in the group."""
    group, reason, left = ScopeGroup(), LookupError(), asyncio.Event()

    async def interrupt() -> None:
        (scope,) = group
        scope.interrupt(reason)
        await left.wait()
        scope.interrupt(KeyError())

    async with asyncio.TaskGroup() as tasks:
        scope = CancelScope(None, group)
        with scope:
            tasks.create_task(interrupt())
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
    assert scope.ended
    assert scope.reason is reason
    assert len(group) == 0


@pytest.mark.parametrize("error", [LookupError(), TimeoutError(), asyncio.CancelledError()])
async def test_exceptions_of_the_block_pass(error: BaseException) -> None:
    """What the block itself raises comes out as it is, a timeout and a cancellation too."""
    with pytest.raises(type(error)) as caught:
        with CancelScope(asyncio.get_running_loop().time() + 60):
            raise error
    assert caught.value is error


async def test_cancellation_passes() -> None:
    """A cancellation of the task goes through the scope, even while the scope is being cut."""

    async def work(scope: CancelScope) -> None:
        with scope:
            await asyncio.Event().wait()

    scope = CancelScope()
    task = asyncio.ensure_future(work(scope))
    await asyncio.sleep(0)
    scope.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_group_that_empties() -> None:
    """All who wait for a group go on when its last block was left, and at once when none is under way."""
    group = ScopeGroup()
    await group.wait_until_empty()
    outer = CancelScope(group=group)
    with outer:
        waiters = [asyncio.ensure_future(group.wait_until_empty()) for _ in range(2)]
        with CancelScope(group=group):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(waiter.done() for waiter in waiters)
    await asyncio.gather(*waiters)
    assert len(group) == 0
