"""The changes of one job, as an async iterator over a watch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Self

from agentjobs_async._polling.reading import as_runtime_error
from agentjobs_async._polling.scheduler import Scheduler, SchedulerParent
from agentjobs_async._polling.tracked import Watch
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob, JobRef


class _UpdatesWatch(Watch):
    """The watch of an `Updates`, which gets every state and the end."""

    __slots__ = ("_updates",)

    def __init__(self, updates: "Updates", scheduler: Scheduler, timeout: float | None) -> None:
        super().__init__(scheduler, timeout)
        self._updates = updates

    def on_job(self, job: AgentJob, compact: AgentJob) -> None:
        """Pass the job on."""
        self._updates.on_job(job, compact)

    def on_end(self, result: AgentJob | BaseException) -> None:
        """Pass the result on."""
        self._updates.on_end(result)


class Updates(AsyncIterator[AgentJob]):
    """One job's state now and each change; an async context manager that is its own iterator.

    A slow reader gets the newest state, no backlog. The iteration ends after the terminal state; an error of the wait
    comes out of it once.

    Attributes:
        watch: The wait; `None` before the block was entered.
    """

    __slots__ = ("_changed", "_end", "_job", "_last", "_newest", "_parent", "_timeout", "watch")

    def __init__(self, parent: SchedulerParent, job: AgentJob | JobRef, timeout: float | None) -> None:
        self._parent = parent
        self._job = job
        self._timeout = timeout
        self.watch: Watch | None = None
        self._newest: tuple[AgentJob, AgentJob] | None = None
        self._last: AgentJob | None = None
        self._end: BaseException | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self.watch is not None:
            raise InvalidInputError("this updates was used already: call updates again")
        scheduler = self._parent._scheduler()  # noqa: SLF001 - private to users
        self.watch = _UpdatesWatch(self, scheduler, self._timeout)
        scheduler.attach(self.watch, self._job)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        if self.watch is not None:
            self.watch.cancel()
        self._end = self._end or StopAsyncIteration()
        self._changed.set()  # a reader in another task may be waiting

    async def __anext__(self) -> AgentJob:
        if self.watch is None:
            raise InvalidInputError("iterate within the block: async with updates(...) as changes")
        while True:
            if self._newest is not None and self._newest[0] != self._last:
                (newest, self._last), self._newest = self._newest, None
                return newest
            if self._end is not None:
                end, self._end = self._end, StopAsyncIteration()
                try:
                    raise end
                finally:
                    del end  # the error's traceback holds this frame, which must not hold the error
            self._changed.clear()
            await self._changed.wait()

    async def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the wait, `seconds` at most: for a reader that wants no change so soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._end is None:
                    self._changed.clear()
                    await self._changed.wait()

    def on_job(self, job: AgentJob, compact: AgentJob) -> None:
        """Store the newest state for the reader."""
        self._newest = job, compact
        if job != self._last:
            self._changed.set()

    def on_end(self, result: AgentJob | BaseException) -> None:
        """Store the end of the wait for the reader: it comes after the newest state."""
        if isinstance(result, AgentJob):
            self._end = StopAsyncIteration()
        else:
            self._end = as_runtime_error(result, StopAsyncIteration, "get_job raised StopAsyncIteration")
        self._changed.set()
