"""Tasks that go on, and tasks that have to end."""

import asyncio
from typing import Any

import pytest

from agentjobs_async._loop.tasks import run_to_end, until_done


async def test_result_of_a_task() -> None:
    """The result is that of the coroutine, and its task is kept no longer than it runs."""
    tasks: set[asyncio.Task[Any]] = set()
    left: list[object] = []
    assert await run_to_end(asyncio.sleep(0, "done"), tasks, lambda *told: left.append(told)) == "done"
    assert left == []
    assert tasks == set()


async def test_cancelled_call_of_a_task() -> None:
    """A cancelled call leaves at once, and the coroutine goes on to its end, which is told."""
    left: list[object] = []
    tasks: set[asyncio.Task[Any]] = set()
    go, gone = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        await go.wait()
        gone.set()
        return "done"

    call = asyncio.ensure_future(run_to_end(work(), tasks, lambda *told: left.append(told)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    assert left == []
    (task,) = tasks
    go.set()
    await task
    assert gone.is_set()
    await asyncio.sleep(0)
    assert left == [("done", caught.value)]


async def test_cancelled_in_the_iteration_of_the_result() -> None:
    """A call that is cancelled when the coroutine has ended tells its result before it raises."""
    left: list[object] = []
    call: asyncio.Task[str]

    async def work() -> str:
        call.cancel()
        return "done"

    call = asyncio.ensure_future(run_to_end(work(), set(), lambda *told: left.append(told)))
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    await asyncio.sleep(0)
    assert left == [("done", caught.value)]


async def test_cancelled_with_its_call() -> None:
    """Where the coroutine is cancelled, too, there is no result to be told."""
    tasks: set[asyncio.Task[Any]] = set()
    call = asyncio.ensure_future(run_to_end(asyncio.sleep(100), tasks, lambda *told: pytest.fail(str(told))))
    await asyncio.sleep(0)
    for task in (*tasks, call):
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert tasks == set()


async def test_cancelled_again_and_again() -> None:
    """A call that is cancelled returns once all tasks are done, and is cancelled then."""
    release = asyncio.Event()
    tasks: set[asyncio.Future[None]] = {asyncio.ensure_future(_wait_for(release)) for _ in range(2)}
    cancellations: list[int] = []
    waiting = asyncio.ensure_future(until_done(tasks, lambda: cancellations.append(1)))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(cancellations) == 3
    assert all(task.done() and not task.cancelled() for task in tasks)


async def _wait_for(release: asyncio.Event) -> None:
    await release.wait()


async def test_nothing_to_wait_for() -> None:
    """Without tasks, and with those that are done, it returns at once."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    waiting = [asyncio.ensure_future(until_done(tasks)) for tasks in (set[asyncio.Future[None]](), {done})]
    await asyncio.sleep(0)
    assert all(call.done() for call in waiting)
    await asyncio.gather(*waiting)
