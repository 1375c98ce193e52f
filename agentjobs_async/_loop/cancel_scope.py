"""Blocks of a task that end early: at a loop time, or when another task interrupts them."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from math import floor
from types import TracebackType
from typing import Final, Self
from weakref import WeakValueDictionary

__all__ = ["CancelScope", "ScopeGroup", "wait_until_left"]

_GRACE_TURNS: Final = 5  # of the loop: enough for a response that is already in the socket to reach the task
_TURNS_TO_LEAVE: Final = 10  # of the loop, after which a task that swallows its cancellation is no longer waited for


class CancelScope:
    """A block that is left early at the loop time `deadline`, or when `interrupt` is called; `ended` is true then.

    At the deadline, the loop runs a few more turns before the block is cut: a response that arrived while the loop was
    blocked is read first, and counts. While the block runs, the scope is in `group`, whose owner can interrupt all.

    Timers have an empty context: the loop keeps a cancelled one, with its context, until its time has come.

    A scope cancels the task and takes the cancellation back, as `asyncio.timeout` does. That is not used because it
    costs each read two more coroutines, has no grace turns, and can't be interrupted for another reason.
    """

    __slots__ = ("_cancelling", "_group", "_handle", "_loop", "_task", "_timers", "deadline", "ended", "reason")

    _loop: asyncio.AbstractEventLoop
    _timers: "_DeadlineTimers"
    _task: "asyncio.Task[object]"

    def __init__(self, deadline: float | None = None, group: "set[CancelScope] | None" = None) -> None:
        self.deadline = deadline
        self.ended = False
        """Whether the block was cut."""
        self.reason: Exception | None = None
        """The argument of `interrupt`; `None` when the deadline cut the block."""
        self._group = group
        self._handle: asyncio.Handle | None = None

    def interrupt(self, reason: Exception | None = None) -> None:
        """Cut the block at the next turn of the loop, for `reason`; further calls change nothing."""
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
        if self._group is not None:
            self._group.add(self)
        if self.deadline is not None:
            self._timers = _timers_of(self._loop)
            self._timers.add(self, self.deadline)
        return self

    def set_timer(self, deadline: float) -> None:
        """Set the timer that cuts the block at `deadline`; none if the block is being interrupted."""
        if self._handle is None:
            self._handle = self._loop.call_at(deadline, self._cut, _GRACE_TURNS, context=Context())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._group is not None:
            self._group.discard(self)
        if self.deadline is not None:
            self._timers.remove(self, self.deadline)
        if self._handle is not None:
            self._handle.cancel()
        if not self.ended:
            return False
        # Swallow our own cancellation only: if others cancelled the task as well, CancelledError propagates.
        return self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    def _cut(self, turns: int) -> None:
        if turns:
            self._set(self._loop.call_soon(self._cut, turns - 1, context=Context()))
        else:
            self._cancel()

    def _cancel(self) -> None:
        self.ended = True
        self._task.cancel()

    def _set(self, handle: asyncio.Handle) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = handle


class _Second(dict[CancelScope, None]):
    """The scopes whose deadlines lie in one second, in the order in which they were entered."""

    __slots__ = ("timer",)

    timer: asyncio.TimerHandle


class _DeadlineTimers:
    """The deadlines of all scopes of one loop. Only those of the present second have a timer each.

    Nearly all scopes are left long before their deadlines. A timer for each makes the heap of the loop larger, through
    which every sleep sorts its own timer: it costs a wait as much as half of a poll (`benchmarks/bench_waits.py`).
    """

    __slots__ = ("__weakref__", "_loop", "_seconds")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._seconds: dict[int, _Second] = {}

    def add(self, scope: CancelScope, deadline: float) -> None:
        """Call `scope.set_timer` once the second of `deadline` begins; at once if it has begun."""
        number = floor(deadline)
        second = self._seconds.get(number)
        if second is None:
            if number <= self._loop.time():
                scope.set_timer(deadline)
                return
            second = self._seconds[number] = _Second()
            second.timer = self._loop.call_at(number, self._begin, number, context=Context())
        second[scope] = None

    def _begin(self, number: int) -> None:
        for scope in self._seconds.pop(number):
            if scope.deadline is not None:
                scope.set_timer(scope.deadline)

    def remove(self, scope: CancelScope, deadline: float) -> None:
        """Forget a scope that was left."""
        second = self._seconds.get(floor(deadline))
        if second is not None:
            second.pop(scope, None)
            if not second:
                second.timer.cancel()
                del self._seconds[floor(deadline)]


_TIMERS: Final[WeakValueDictionary[int, _DeadlineTimers]] = WeakValueDictionary()
"""By the id of the loop, which is not used again as long as a scope of that loop exists. It keeps no loop alive."""


def _timers_of(loop: asyncio.AbstractEventLoop) -> _DeadlineTimers:
    timers = _TIMERS.get(id(loop))
    if timers is None:
        timers = _TIMERS[id(loop)] = _DeadlineTimers(loop)
    return timers


class ScopeGroup(set[CancelScope]):
    """The scopes of blocks under way; `wait_until_empty` returns when the last one was left."""

    __slots__ = ("_emptied",)

    def __init__(self) -> None:
        super().__init__()
        self._emptied = asyncio.Event()

    def discard(self, scope: object, /) -> None:
        """Remove the scope of a block that was left."""
        super().discard(scope)
        if not self:
            self._emptied.set()

    async def wait_until_empty(self) -> None:
        """Wait until no block is under way, those included whose tasks were started in this turn of the loop."""
        await asyncio.sleep(0)  # by the next turn, such a task has entered its block
        while self:
            self._emptied.clear()
            await self._emptied.wait()


async def wait_until_left(busy: Callable[[], object]) -> None:
    """Wait until `busy` returns false, for a few turns at most: a user's callable may swallow its cancellation."""
    for _ in range(_TURNS_TO_LEAVE):
        if not busy():
            break
        await asyncio.sleep(0)
