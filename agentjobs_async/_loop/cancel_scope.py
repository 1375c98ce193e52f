"""Blocks of a task that end early: at a loop time, or when another task interrupts them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from copy import copy
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

_GRACE_ITERATIONS: Final = 5  # of the loop: enough for a response that is already in the socket to reach the task
_ITERATIONS_TO_LEAVE: Final = 10  # of the loop: a task that swallows its cancellation is no longer waited for


T = TypeVar("T")


class CancelScope:
    """A block that is left early at the loop time `deadline`, or when `interrupt` is called; `ended` is true then.

    At the deadline, the loop does a few more iterations before the block is cut: a response that arrived while the
    loop was blocked is read first, and counts. While the block runs, the scope is in `group`, by which all can be
    interrupted.

    Timers have an empty context: the loop keeps a cancelled one, with its context, until its time has come.

    A scope cancels the task and undoes the cancellation, as `asyncio.timeout` does. That is not used because it
    costs each read two more coroutines, has no grace, and can't be interrupted for another reason.
    """

    __slots__ = ("_cancelling", "_group", "_handle", "_loop", "_task", "deadline", "ended", "reason")

    _loop: asyncio.AbstractEventLoop
    _task: "asyncio.Task[object]"

    def __init__(self, deadline: float | None = None, group: "ScopeGroup | None" = None) -> None:
        self.deadline = deadline
        self.ended = False
        """Whether the block was cut."""
        self.reason: Exception | None = None
        """The argument of `interrupt`; `None` when the deadline cut the block."""
        self._group = group
        self._handle: asyncio.Handle | None = None

    def interrupt(self, reason: Exception | None = None) -> None:
        """Cut the block at the next iteration of the loop, for `reason`; further calls change nothing."""
        if not self.ended and self.reason is None:
            self.reason = reason
            self._set(self._loop.call_soon(self._cancel, context=Context()))

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a scope is a block of a task")
        self._task = task
        self._loop = task.get_loop()
        self._cancelling = task.cancelling()
        if self.deadline is not None:
            self._handle = self._loop.call_at(self.deadline, self._cut, _GRACE_ITERATIONS, context=Context())
        if self._group is not None:  # last: a group that was interrupted interrupts this scope at once
            self._group.add(self)
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
        # Swallow our own cancellation only: if others cancelled the task as well, CancelledError propagates.
        return self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    def _cut(self, iterations: int) -> None:
        if iterations:
            self._set(self._loop.call_soon(self._cut, iterations - 1, context=Context()))
        else:
            self._cancel()

    def _cancel(self) -> None:
        self.ended = True
        self._task.cancel()

    def _set(self, handle: asyncio.Handle) -> None:
        """Replace the one handle: a block that is being interrupted is not cut again at its deadline."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = handle


class Group(Generic[T]):
    """Blocks under way; `wait_until_empty` returns when the last one was left."""

    __slots__ = ("_blocks", "_emptied")

    def __init__(self) -> None:
        self._blocks: set[T] = set()
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[T]:
        return iter(self._blocks)

    def __contains__(self, block: object) -> bool:
        return block in self._blocks

    def add(self, block: T, /) -> None:
        """Add a block that is entered."""
        self._blocks.add(block)

    def discard(self, block: T, /) -> None:
        """Remove a block that was left."""
        self._blocks.discard(block)
        if not self._blocks:
            self._emptied.set()

    async def wait_until_empty(self, seconds: float | None = None) -> None:
        """Wait until no block is under way, those included whose tasks were started in this iteration of the loop.

        Args:
            seconds: How long at most; `None` for any time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.sleep(0)  # by the next iteration, such a task has entered its block
                while self._blocks:
                    self._emptied.clear()
                    await self._emptied.wait()


class ScopeGroup(Group[CancelScope]):
    """The scopes of blocks under way, which can be interrupted together."""

    __slots__ = ("_reason",)

    def __init__(self) -> None:
        super().__init__()
        self._reason: Exception | None = None

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._reason is not None

    def add(self, scope: CancelScope, /) -> None:
        """Add a scope; it is interrupted at once if the group was: its block was begun a moment too late."""
        super().add(scope)
        if self._reason is not None:
            scope.interrupt(copy(self._reason))

    def interrupt(self, reason: Exception) -> None:
        """Cut the blocks under way, and from now on those that begin, each for a copy of `reason`."""
        self._reason = reason
        for scope in tuple(self._blocks):
            scope.interrupt(copy(reason))


async def wait_until_left(busy: Callable[[], object]) -> None:
    """Wait until `busy` returns false, for a few iterations at most: a callable may swallow its cancellation."""
    for _ in range(_ITERATIONS_TO_LEAVE):
        if not busy():
            break
        await asyncio.sleep(0)
