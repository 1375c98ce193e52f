"""Coroutines that continue when the call that awaits them is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_end(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> T:
    """Return what `work` returns. It runs in a task of its own, in a copy of the caller's context.

    Cancelling this call leaves at once, and the task continues. Until it ends it is in `tasks`, since the loop alone
    would not keep it alive. `work` must return its errors: no caller may be left to whom they could be raised.
    """
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return await asyncio.shield(task)
