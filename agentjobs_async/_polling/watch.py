"""Faces of one wait that goes through a tracker: a future of its end, and its changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from types import TracebackType
from typing import Any, Self

from agentjobs_async._polling.scheduler import Scheduler
from agentjobs_async._polling.snapshots import snapshot
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.errors import InvalidInputError, SessionClosedError
from agentjobs_async.models import AgentJob, JobRef
from agentjobs_async.telemetry import GuardedCallback, call_in

__all__ = ["Updates", "Watch", "WatchWithUpdates"]


class Watch(asyncio.Future[AgentJob]):
    """The lightest wait: a future that leaves the tracker when it is cancelled."""

    __slots__ = ("_scheduler", "chunk", "polls_before", "started", "timeout", "tracked")

    def __init__(self, scheduler: Scheduler, timeout: float | None) -> None:
        super().__init__(loop=scheduler.loop)
        self._scheduler = scheduler
        self.tracked: Tracked | None = None
        self.started = scheduler.loop.time()
        self.timeout = timeout
        self.polls_before = 0
        self.chunk: Any = None

    def on_job(self, job: AgentJob) -> None:
        """Do nothing: only the end of the wait matters here."""

    def on_end(self, result: AgentJob | BaseException) -> None:
        """End the wait with a job or an error."""
        if self.done():
            return
        if isinstance(result, AgentJob):
            self.set_result(result)
        elif isinstance(result, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(result)
            if isinstance(result, SessionClosedError):
                self.exception()  # whoever closes knows: asyncio need not complain when nobody awaits it

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting, at once. The job goes on remotely."""
        if self.done():
            return False
        self._scheduler.detach(self, asyncio.CancelledError())
        return super().cancel(msg)


class WatchWithUpdates(Watch):
    """A future that also tells each change, in the context in which it was made."""

    __slots__ = ("_context", "_told", "_update")

    def __init__(self, scheduler: Scheduler, timeout: float | None, update: GuardedCallback) -> None:
        super().__init__(scheduler, timeout)
        self._update = update
        self._context = copy_context()
        self._told: AgentJob | None = None

    def on_job(self, job: AgentJob) -> None:
        """Call the caller's `on_update` when the job is new or has changed."""
        if self._told is None or self._told != job:
            self._told = snapshot(job)
            call_in(self._context, self._update, job)


class Updates(AsyncIterator[AgentJob]):
    """One job's state now and each change; an async context manager that is its own iterator.

    A slow reader gets the newest state, not a backlog. It ends after the terminal state; the wait's error comes out
    of the iteration.
    """

    def __init__(
        self,
        enter: Callable[[], Scheduler],
        job: AgentJob | JobRef,
        timeout: float | None,
    ) -> None:
        self._enter = enter
        self._scheduler: Scheduler | None = None
        self._job = job
        self._newest: AgentJob | None = None
        self._told: AgentJob | None = None
        self._end: BaseException | None = None
        self._changed = asyncio.Event()
        self.tracked: Tracked | None = None
        self.started = 0.0
        self.timeout = timeout
        self.polls_before = 0
        self.chunk: Any = None

    async def __aenter__(self) -> Self:
        if self._scheduler is not None:
            raise InvalidInputError("this updates was used already: call updates again")
        scheduler = self._scheduler = self._enter()
        self.started = scheduler.loop.time()
        scheduler.attach(self, self._job)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._scheduler is not None:
            self._scheduler.detach(self, asyncio.CancelledError())
        self._end = self._end or StopAsyncIteration()

    async def __anext__(self) -> AgentJob:
        if self._scheduler is None:
            raise InvalidInputError("iterate within the block: async with updates(...) as changes")
        while True:
            newest = self._newest
            if newest is not None and newest != self._told:
                self._told, self._newest = snapshot(newest), None
                return newest
            if self._end is not None:
                end, self._end = self._end, StopAsyncIteration()
                raise end
            self._changed.clear()
            await self._changed.wait()

    def on_job(self, job: AgentJob) -> None:
        """Keep the newest state for the reader."""
        self._newest = job
        self._changed.set()

    def on_end(self, result: AgentJob | BaseException) -> None:
        """End the wait with a job or an error."""
        self._end = StopAsyncIteration() if isinstance(result, AgentJob) else result
        self._changed.set()
