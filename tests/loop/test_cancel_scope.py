"""Interrupting the current task, at a time of its loop or because somebody says so."""

import asyncio

import pytest

from agentjobs_async._loop.cancel_scope import CancelScope, ScopeGroup


@pytest.mark.looptime
async def test_deadline_cuts() -> None:
    """The block is left at the deadline, without an exception, and the scope tells."""
    clock = asyncio.get_running_loop().time
    began = clock()
    with CancelScope(began + 7) as scope:
        await asyncio.sleep(60)
    assert (scope.ended, scope.reason) == (True, None)
    assert clock() - began == pytest.approx(7)


@pytest.mark.looptime
@pytest.mark.parametrize("deadline", [None, 7.0])
async def test_block_that_ends_by_itself(deadline: float | None, caplog: pytest.LogCaptureFixture) -> None:
    """A block that ends in time is not cut, and neither is what comes after it."""
    clock = asyncio.get_running_loop().time
    with CancelScope(deadline and clock() + deadline) as scope:
        await asyncio.sleep(5)
    await asyncio.sleep(60)
    assert not scope.ended
    assert caplog.records == []


async def test_what_has_come_counts() -> None:
    """A deadline that is past already lets the loop turn before it cuts: what has come by then is read."""
    turns = 0
    with CancelScope(asyncio.get_running_loop().time() - 60) as scope:
        while turns < 4:
            await asyncio.sleep(0)
            turns += 1
    assert (turns, scope.ended) == (4, False)


async def test_interrupt() -> None:
    """The block is left when somebody interrupts it, the first reason stands, and only open scopes are in the group."""
    group, reason, left = set[CancelScope](), LookupError(), asyncio.Event()

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
    assert group == set()


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
    assert group == set()
