"""The watch: the future that stands for one wait through a tracker, and all that the scheduler knows of a wait."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from agentjobs_async._polling.reading import as_runtime_error
from agentjobs_async._polling.snapshots import snapshot
from agentjobs_async.errors import SessionClosedError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry.observers import GuardedCallback, call_in

if TYPE_CHECKING:  # the record of a job holds its watches, and so imports this module
    from agentjobs_async._polling.tracked import Tracked

__all__ = ["Leave", "Watch", "WatchWithUpdates"]

_STOPPED: Final = "a strategy or get_job raised StopIteration"

Leave = Callable[["Watch"], object]
"""Ends the wait of a watch that its owner has cancelled."""


class Watch(asyncio.Future[AgentJob]):
    """One wait for a job, with a deadline of its own: a future of the ended job.

    The scheduler keeps its notes on the wait in the attributes, and calls `on_job` and `on_end`. What differs between
    the ways to wait is what their watches do in these two.

    Attributes:
        tracked: The record of the job; `None` before the wait has begun and once it is over.
        started: Loop time of the wait's start.
        timeout: Seconds from `started` to the deadline; `None` waits for ever.
        polls_before: The number of polls of the job before this wait.
        polls_at_end: The number of polls of this wait once it is over.
        chunk: Where the watch lies among the deadlines; `None` for nowhere.
    """

    __slots__ = ("_leave", "chunk", "polls_at_end", "polls_before", "started", "timeout", "tracked")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float | None, leave: Leave) -> None:
        super().__init__(loop=loop)
        self._leave = leave
        self.tracked: Tracked | None = None
        self.started = loop.time()
        self.timeout = timeout
        self.polls_before = self.polls_at_end = 0
        self.chunk: Any = None

    @property
    def polls(self) -> int:
        """How often the job was polled in this wait so far."""
        return self.polls_at_end if self.tracked is None else self.tracked.polls - self.polls_before

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this wait last showed the job; `None` before, and once the wait is over."""
        tracked = self.tracked
        return None if tracked is None or tracked.shown <= self.polls_before else tracked.seen

    def on_job(self, job: AgentJob) -> None:
        """Do nothing with a job that has not ended: a plain watch is a future of the end only."""

    def on_end(self, result: AgentJob | BaseException) -> None:
        """End the future with a job or an error. Called once, after `tracked` was set to `None`."""
        if self.done():
            return
        if isinstance(result, AgentJob):
            self.set_result(result)
        elif isinstance(result, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(as_runtime_error(result, StopIteration, _STOPPED))
            if isinstance(result, SessionClosedError):
                self.exception()  # marks it as retrieved: the owner closed the session, and need not await the watch

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting, at once. The job continues remotely."""
        if self.done():
            return False
        self._leave(self)
        return super().cancel(msg)


class WatchWithUpdates(Watch):
    """A watch that also calls `update` with each change, in the context in which the watch was made."""

    __slots__ = ("_context", "_last", "_update")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout: float | None, leave: Leave, update: GuardedCallback
    ) -> None:
        super().__init__(loop, timeout, leave)
        self._update = update
        self._context = copy_context()
        self._last: AgentJob | None = None

    def on_job(self, job: AgentJob) -> None:
        """Call `update` when the job is new or has changed."""
        if self._last is None or self._last != job:
            self._last = snapshot(job)
            call_in(self._context, self._update, job)
