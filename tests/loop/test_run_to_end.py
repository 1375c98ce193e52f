import asyncio
from typing import Any

import pytest

from agentjobs_async._loop.run_to_end import run_to_end


async def test_result() -> None:
    """The result is that of the coroutine, and its task is kept no longer than it runs."""
    tasks: set[asyncio.Task[Any]] = set()
    assert await run_to_end(asyncio.sleep(0, "done"), tasks) == "done"
    assert tasks == set()


async def test_cancelled_call() -> None:
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
