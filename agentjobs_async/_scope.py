"""Interrupting what the current task does: at a time of its loop, or because somebody says so."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

__all__ = ["Scope", "let_leave"]

_TURNS: Final = 5
_TURNS_TO_LEAVE: Final = 10


class Scope:
    """A block that is left early at the loop time `deadline`, or when `interrupt` is called; `ended` tells.

    A deadline lets the loop turn a few times before it cuts: an answer that came while the loop stood still is read
    first, and counts. While the block runs, the scope is in `group`, for who wants to interrupt them all.

    It cancels the task and takes the cancellation back, as `asyncio.timeout` does. That one would cost each read two
    coroutines more.
    """

    __slots__ = ("_cancelling", "_group", "_handle", "_loop", "_task", "deadline", "ended", "reason")

    _loop: asyncio.AbstractEventLoop
    _task: "asyncio.Task[object]"

    def __init__(self, deadline: float | None = None, group: "set[Scope] | None" = None) -> None:
        self.deadline = deadline
        self.ended = False
        """Whether the block was cut."""
        self.reason: Exception | None = None
        """What `interrupt` was called with; `None` when the deadline cut the block."""
        self._group = group
        self._handle: asyncio.Handle | None = None

    def interrupt(self, reason: Exception | None = None) -> None:
        """Cut the block at the next turn of the loop; the first reason stands."""
        if not self.ended and self.reason is None:
            self.reason = reason
            self._set(self._loop.call_soon(self._cancel))

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a scope is a block of a task")
        self._task = task
        self._loop = task.get_loop()
        self._cancelling = task.cancelling()
        if self._group is not None:
            self._group.add(self)
        if self.deadline is not None:
            self._handle = self._loop.call_at(self.deadline, self._cut, _TURNS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._group is not None:
            self._group.discard(self)
        if self._handle is not None:
            self._handle.cancel()
        if not self.ended:
            return False
        # Somebody else's cancellation, beside ours, goes on.
        return self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    def _cut(self, turns: int) -> None:
        if turns:
            self._set(self._loop.call_soon(self._cut, turns - 1))
        else:
            self._cancel()

    def _cancel(self) -> None:
        self.ended = True
        self._task.cancel()

    def _set(self, handle: asyncio.Handle) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = handle


async def let_leave(busy: Callable[[], object]) -> None:
    """Let the loop turn until nobody is `busy` leaving, but not for long: a callable may swallow its cancellation."""
    for _ in range(_TURNS_TO_LEAVE):
        if not busy():
            break
        await asyncio.sleep(0)
