"""Waiting for tasks that have to end, whatever becomes of the call that waits."""

import asyncio
from collections.abc import Callable
from typing import Any


async def until_done(tasks: set[asyncio.Future[Any]], on_cancel: Callable[[], None] = lambda: None) -> None:
    """Wait until all tasks are done, however often this is cancelled; each time, `on_cancel` is called.

    Raises:
        CancelledError: It was cancelled meanwhile.
    """
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in tasks if not task.done()}:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:  # a scope of anyio's cancels at each turn of the loop
            cancelled = error
            on_cancel()
    if cancelled is not None:
        raise cancelled
