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
    """

    __slots__ = ("_group", "_handle", "_loop", "_timeout", "deadline", "reason")

    def __init__(self, deadline: float | None = None, group: "set[Scope] | None" = None) -> None:
        self.deadline = deadline
        self.reason: Exception | None = None
        """What `interrupt` was called with; `None` when the deadline cut the block."""
        self._group = group
        self._handle: asyncio.Handle | None = None
        self._timeout = asyncio.timeout(None)

    @property
    def ended(self) -> bool:
        """Whether the block was cut."""
        return self._timeout.expired()

    def interrupt(self, reason: Exception | None = None) -> None:
        """Cut the block at the next turn of the loop."""
        if not self.ended:
            self.reason = reason
            self._timeout.reschedule(self._loop.time())

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._timeout.__aenter__()
        if self._group is not None:
            self._group.add(self)
        if self.deadline is not None:
            self._handle = self._loop.call_at(self.deadline, self._cut)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._group is not None:
            self._group.discard(self)
        if self._handle is not None:
            self._handle.cancel()
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            return True
        return False

    def _cut(self, turns: int = _TURNS) -> None:
        if turns:
            self._handle = self._loop.call_soon(self._cut, turns - 1)
        else:
            self.interrupt()


async def let_leave(busy: Callable[[], object]) -> None:
    """Let the loop turn until nobody is `busy` leaving, but not for long: a callable may swallow its cancellation."""
    for _ in range(_TURNS_TO_LEAVE):
        if not busy():
            break
        await asyncio.sleep(0)
