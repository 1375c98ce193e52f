"""Coroutines in an empty context."""

import asyncio
from contextvars import ContextVar, copy_context

import pytest

from agentjobs_async._http.run_apart import RunApart

NAME: ContextVar[str] = ContextVar("NAME")


@pytest.mark.looptime
async def test_run_apart() -> None:
    """A coroutine runs in an empty context, in the task that awaits it; values, faults and cancellations pass."""
    NAME.set("mine")
    seen = list[object]()

    async def works(fault: Exception | None) -> str:
        seen.append(len(copy_context()))
        NAME.set("theirs")
        try:
            await asyncio.sleep(0)
            seen.append((NAME.get(), asyncio.current_task() is task))
            if fault is not None:
                raise fault
            await asyncio.Event().wait()
        finally:
            seen.append("left")
        return "never"

    for fault, raised in ((ZeroDivisionError(), ZeroDivisionError), (None, TimeoutError)):
        task = asyncio.current_task()
        with pytest.raises(raised):
            async with asyncio.timeout(0.01):
                await RunApart(works(fault))
        assert (seen, NAME.get()) == ([0, ("theirs", True), "left"], "mine")
        seen.clear()


async def test_run_apart_given_up() -> None:
    """A coroutine that is given up in the middle is closed."""
    left = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            left.set()

    steps = RunApart(works()).__await__()
    next(steps)
    steps.close()
    assert left.is_set()
