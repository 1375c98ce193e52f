"""What the end of a session ends, and what it waits for: the one register of all that is under way on it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, Generic, TypeVar

from agentjobs_async._loop.cancel_scope import CancelScope, Group, ScopeGroup

T = TypeVar("T")
"""What names a job."""


class Recording(Generic[T]):
    """A block under way in which jobs are created and recorded."""

    def __init__(self) -> None:
        self._created: list[T] = []

    def add(self, job: T) -> None:
        """Add a job that nothing but this block is about to record."""
        self._created.append(job)

    def discard(self, job: T) -> None:
        """Remove a job that something else is about to record."""
        if job in self._created:
            self._created.remove(job)

    def __iter__(self) -> Iterator[T]:
        return iter(self._created)


_RECORDING: Final[ContextVar[Recording[object] | None]] = ContextVar("_RECORDING", default=None)
"""The innermost block of the current task."""


class Shutdown(Generic[T]):
    """All that is under way on a session or tracker, by what its end does to it.

    Attributes:
        waits: Blocks that wait for something other than the answer to a create. They are interrupted first.
        creates: Creates under way. They are interrupted once the grace is over.
    """

    def __init__(self) -> None:
        self.waits = ScopeGroup()
        self.creates = ScopeGroup()
        self._recordings: Group[Recording[T]] = Group()
        self._lost: list[T] = []

    async def begun(self) -> Exception:
        """Wait until the session is drained or closed, and return the error with which waits end."""
        with CancelScope(None, self.waits) as scope:
            await asyncio.get_running_loop().create_future()
        assert scope.reason is not None  # noqa: S101 - this scope has no deadline
        return scope.reason

    @contextmanager
    def recording(self) -> Iterator[Recording[T]]:
        """Return a block that records the jobs which it creates: a draining waits for its end.

        If an error ends it during the draining, a cancellation included, its jobs count as not recorded.
        """
        recording: Recording[T] = Recording()
        token = _RECORDING.set(recording)  # type: ignore[arg-type]  # a context variable can't be generic
        self._recordings.add(recording)
        try:
            yield recording
        except BaseException:
            if self.waits.interrupted:  # else whoever gets the error may still record them
                self._lost += recording
            raise
        finally:
            self._recordings.discard(recording)
            _RECORDING.reset(token)

    def created(self, job: T) -> None:
        """Add a job to the block in which it was created, if there is one."""
        recording: Recording[T] | None = _RECORDING.get()  # type: ignore[assignment]  # as above
        if recording is not None:
            recording.add(job)
            if recording not in self._recordings and self.waits.interrupted:
                self._lost.append(job)  # the block was left before its create was answered

    def recorded_by(self, task: asyncio.Task[None], job: T) -> None:
        """Wait for a task that records a job, in place of the block in which the job was created.

        A cancellation may cut off the block while the task continues.
        """
        block: Recording[T] | None = _RECORDING.get()  # type: ignore[assignment]  # as above
        if block is not None:
            block.discard(job)
        recording: Recording[T] = Recording()
        recording.add(job)
        self._recordings.add(recording)
        task.add_done_callback(partial(self._recorded_by, recording))

    def _recorded_by(self, recording: Recording[T], task: asyncio.Task[None]) -> None:
        self._recordings.discard(recording)
        if self.waits.interrupted and (task.cancelled() or task.exception() is not None):
            self._lost += recording

    async def recorded(self, seconds: float) -> tuple[T, ...]:
        """Wait until all blocks have been left, for `seconds` at most; return the jobs that are not recorded."""
        await self._recordings.wait_until_empty(seconds)
        return tuple(self._lost) + tuple(job for recording in self._recordings for job in recording)
