"""Tasks that go on, and tasks that have to end."""

import asyncio
from typing import Any

import pytest

from agentjobs_async._loop.tasks import run_to_end, until_done


async def test_result_of_a_task() -> None:
    """The result is that of the coroutine, and its task is kept no longer than it runs."""
    tasks: set[asyncio.Task[Any]] = set()
    assert await run_to_end(asyncio.sleep(0, "done"), tasks) == "done"
    assert tasks == set()


async def test_cancelled_call_of_a_task() -> None:
    """A cancelled call leaves at once, and the coroutine goes on to its end."""
    tasks: set[asyncio.Task[Any]] = set()
    go, gone = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        gone.set()

    call = asyncio.ensure_future(run_to_end(work(), tasks))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (task,) = tasks
    go.set()
    await task
    assert gone.is_set()


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
