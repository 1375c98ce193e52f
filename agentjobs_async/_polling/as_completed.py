"""Many waits through a tracker: their results, in the order in which the jobs end."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sized
from typing import Final, Self

from attrs import frozen

from agentjobs_async._loop.cancel_scope import CancelScope, wait_until_left
from agentjobs_async._loop.slices import run_in_slices
from agentjobs_async._polling.reading import ref_of
from agentjobs_async._polling.scheduler import Scheduler, SchedulerParent
from agentjobs_async._polling.tracked import Watch
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob, JobRef

AHEAD: Final = 1_000
"""How many jobs of a source without a known length are read ahead of the results that were read."""

_MOST_ENDED: Final = 64  # ended members that may stay in the list beside as many as are running: sweeping is rare


@frozen
class WaitResult:
    """How one wait of many ended: with a job, or with an error.

    Attributes:
        ref: The job that was waited for.
        job: The ended job; `None` if the wait ended with an error.
        error: What `wait_for_job` would have raised; `None` if the wait ended with a job.
    """

    ref: JobRef
    job: AgentJob | None = None
    error: BaseException | None = None

    def result(self) -> AgentJob:
        """Return the job.

        Raises:
            BaseException: `error`, if the wait ended with one.
            LookupError: The result was made by hand, with neither a job nor an error.
        """
        try:
            if self.job is None:
                raise self.error or LookupError("a WaitResult with neither a job nor an error")
            return self.job
        finally:
            del self  # the error's traceback holds this frame, which must not hold the error


class _Member(Watch):
    """One wait of an `AsCompleted`, which gets its result."""

    __slots__ = ("_group", "_ref")

    def __init__(self, group: "AsCompleted", scheduler: Scheduler, ref: JobRef, timeout: float | None) -> None:
        super().__init__(scheduler, timeout)
        self._group = group
        self._ref = ref

    def on_end(self, result: AgentJob | BaseException) -> None:
        """Pass the result on to the group."""
        if isinstance(result, AgentJob):
            self._group.add_result(WaitResult(self._ref, result))
        else:
            self._group.add_result(WaitResult(self._ref, None, result))


class AsCompleted(AsyncIterator[WaitResult]):
    """Results in the order in which the jobs end; an async context manager that is its own iterator.

    Leaving the block in any way stops its polling. A source of known length is read at once, any other at most `AHEAD`
    jobs ahead of the results that were read.
    """

    def __init__(
        self, parent: SchedulerParent, jobs: Iterable[object] | AsyncIterable[object], timeout: float | None
    ) -> None:
        self._scheduler, self._target = parent._scheduler, parent._target  # noqa: SLF001 - private to users
        self._waits = parent._shutdown.waits
        self._timeout = timeout
        self._source = jobs
        self._iterator: Iterator[object] | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._ahead: float = AHEAD
        self._members: list[_Member] = []  # a list, lazily swept, takes a tenth of the memory of a set
        self._running = 0  # members whose wait continues
        self._finished: deque[WaitResult | BaseException] = deque()  # an error is the source's own
        self._exhausted = False
        self._fault: Exception | None = None
        self._entered = False
        self._changed = asyncio.Event()
        if isinstance(jobs, str | bytes):
            raise InvalidInputError("jobs must be an iterable of jobs, not one id: put it into a list")
        if isinstance(jobs, Iterable):
            self._iterator = iter(jobs)
            if isinstance(jobs, Sized):
                self._ahead = float("inf")
                self._iterator = iter([self._target(job) for job in jobs])
        elif not isinstance(jobs, AsyncIterable):
            raise InvalidInputError(f"jobs must be an iterable or an async iterable, not {type(jobs).__name__}")

    async def __aenter__(self) -> Self:
        if self._entered:
            raise InvalidInputError("this as_completed was used already: call as_completed again")
        loop = self._scheduler().loop
        self._entered = True
        if self._iterator is None:
            self._feeder = loop.create_task(self._feed())
        self._fill()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._exhausted = True
        if self._feeder is not None:
            self._feeder.cancel()  # before the members are cancelled: it adds new ones
        try:
            await run_in_slices(member.cancel() for member in tuple(self._members))
        finally:
            self._running = 0  # cancelled members have no result, for which a reader in another task might wait
            self._changed.set()
        self._members.clear()
        if self._feeder is not None:
            feeder = self._feeder
            await wait_until_left(lambda: not feeder.done())
            if feeder.done() and inspect.isasyncgen(self._source):
                await self._source.aclose()

    async def __anext__(self) -> WaitResult:
        if not self._entered:
            raise InvalidInputError("iterate within the block: async with as_completed(...) as finished")
        while not self._finished:
            self._fill()
            if not self._finished:
                if self._exhausted and not self._running:
                    raise self._pop_fault() or StopAsyncIteration
                await self._wait_for_change()
        result = self._finished.popleft()
        self._changed.set()  # there is room in front of the source
        try:
            if isinstance(result, BaseException):
                raise result
            return result
        finally:
            del result  # the error's traceback holds this frame, which must not hold the error

    async def _wait_for_change(self) -> None:
        """Wait for a result, or for what the source gives, which the end of the session ends."""
        self._changed.clear()
        if self._exhausted:  # what is left are waits, which end by themselves when the session does
            await self._changed.wait()
            return
        with CancelScope(None, self._waits) as scope:
            await self._changed.wait()
        if scope.ended and not self._exhausted:
            self._exhausted, self._fault = True, scope.reason

    def _pop_fault(self) -> Exception | None:
        """Return the error of the session's end to one reader, after all results."""
        fault, self._fault = self._fault, None
        return fault

    def add_result(self, result: WaitResult) -> None:
        """Record a member's result."""
        self._running -= 1
        if len(self._members) > 2 * self._running + _MOST_ENDED:
            self._members = [member for member in self._members if member.tracked is not None]
        self._finished.append(result)
        self._changed.set()

    def _has_room(self) -> bool:
        return self._running + len(self._finished) < self._ahead

    def _fill(self) -> None:
        """Read as many jobs from a source that is not async as there is room for."""
        while not self._exhausted and self._iterator is not None and self._has_room():
            try:
                self._add(next(self._iterator))
            except StopIteration:
                self._exhausted = True
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - the source's own error comes out of the iteration
                self._exhausted = True
                self._finished.append(error)

    async def _feed(self) -> None:
        """Read jobs from the async source while there is room."""
        try:
            async for job in self._source:  # type: ignore[union-attr]  # without an iterator it is an async one
                if self._exhausted:
                    break  # the block was left, and the source has swallowed the cancellation
                self._add(job)
                while not self._has_room():
                    self._changed.clear()
                    await self._changed.wait()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - as in `_fill`
            if not self._exhausted:  # else the block is being left, which has cancelled this task
                self._finished.append(error)
        finally:
            self._exhausted = True
            self._changed.set()

    def _add(self, job: object) -> None:
        target = self._target(job)
        scheduler = self._scheduler()
        member = _Member(self, scheduler, ref_of(target), self._timeout)
        self._running += 1  # before `attach`, which ends the wait at once for a job that has ended
        scheduler.attach(member, target)
        if member.tracked is not None:
            self._members.append(member)
