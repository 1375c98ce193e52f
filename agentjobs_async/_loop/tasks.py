"""Tasks that go on, and tasks that have to end, whatever becomes of the call that waits for them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_end(
    work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]], on_left: Callable[[T, asyncio.CancelledError], None]
) -> T:
    """Return what `work` returns. It runs in a task of its own, in a copy of the caller's context.

    Cancelling this call leaves at once, and the task continues: `on_left` is called with its result, once that is
    there, and with the cancellation that has kept it from the caller. Until the task ends it is in `tasks`, since the
    loop alone would not keep it alive. `work` must return its errors: no caller may be left to whom they could be
    raised.
    """
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cut:
        if task.done():  # in the iteration of the loop in which this call was cancelled
            _tell(on_left, cut, task)
        else:
            task.add_done_callback(partial(_tell, on_left, cut))
        raise


def _tell(
    on_left: Callable[[T, asyncio.CancelledError], None], cut: asyncio.CancelledError, task: asyncio.Task[T]
) -> None:
    if not task.cancelled():  # as all tasks are at the end of `asyncio.run`: `work` has met that
        on_left(task.result(), cut)


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled; if it is not, a `CancelledError` is some function's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def until_done(tasks: set[asyncio.Future[Any]], on_cancel: Callable[[], None] = lambda: None) -> None:
    """Wait until all tasks are done, however often this is cancelled; each time, `on_cancel` is called.

    Raises:
        CancelledError: It was cancelled meanwhile.
    """
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in tasks if not task.done()}:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:  # a scope of anyio's cancels at each iteration of the loop
            cancelled = error
            on_cancel()
    if cancelled is not None:
        raise cancelled
