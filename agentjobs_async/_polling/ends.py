"""Ending very many waits at once: one turn of the loop ends a bounded number of them."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from copy import copy

from agentjobs_async._polling.slices import Slice
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async._polling.watch import Watch
from agentjobs_async.errors import AgentJobsError
from agentjobs_async.models import AgentJob

__all__ = ["Ends", "Result"]

Result = AgentJob | BaseException
"""How a wait ends."""


class Ends:
    """Ends all waiters of a job that is no longer polled, some of them in each turn of the loop.

    Args:
        end: Ends one wait with its own result.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[Watch, Result], None]) -> None:
        self._loop = loop
        self._end = end
        self._left: deque[tuple[Tracked, Iterator[tuple[Watch, Result]]]] = deque()

    def add(self, tracked: Tracked, result: Result) -> None:
        """End all waiters of `tracked` with `result`: the first ones within this call."""
        if tracked.is_shared or self._left:
            self._end_in_turns(tracked, result)
        elif tracked.waiters is not None:  # one needs no turns; none is left if a hook has ended the wait
            self._end(tracked.waiters, result)

    def _end_in_turns(self, tracked: Tracked, result: Result) -> None:
        self._left.append((tracked, zip(tracked.snapshot(), _one_for_each(result), strict=False)))
        if len(self._left) == 1:  # else the turns are under way, or this call comes from within one
            self._go_on()

    def _go_on(self) -> None:
        turn = Slice(self._loop)
        try:
            while self._left and turn.has_room():
                self._end_some(turn)
        finally:  # even if a callback raised: the other waits end nevertheless
            if self._left:
                self._loop.call_soon(self._go_on, context=Context())

    def _end_some(self, turn: Slice | None) -> None:
        """End waiters of the first job, as many as `turn` has room for; all of them where it is `None`."""
        tracked, waiters = self._left[0]
        for waiter, result in waiters:
            if waiter.tracked is tracked:  # else it has left meanwhile
                self._end(waiter, result)
            if turn is not None:
                turn.take()
                if not turn.has_room():
                    return
        self._left.popleft()

    def end_all(self) -> None:
        """End all waiters that are left, within this call."""
        while self._left:
            self._end_some(None)


def _one_for_each(result: Result) -> Iterator[Result]:
    """Yield `result` for each waiter: an error of this package as copies, since raising one adds a traceback to it."""
    yield result
    while True:
        yield copy(result) if isinstance(result, AgentJobsError) else result
