"""The jobs that are followed: a coroutine for each waits for it, calls the callbacks, and records its end."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from attrs import define, evolve, field

from agentjobs_async import AgentJob, AgentJobsSession, JobRef, JournalError, SessionClosedError
from agentjobs_async._loop.cancel_scope import CancelScope, wait_until_left
from agentjobs_async._loop.delays import doubling
from agentjobs_async._polling.tracked import Watch
from agentjobs_async._polling.updates import Updates
from agentjobs_async.batch import JournalRow, Outcome, State
from agentjobs_async.batch._failures import ends_the_run
from agentjobs_async.batch._run.item_run import record_end, result_of
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch._store.tries import refusal
from agentjobs_async.batch.states import ENDED
from agentjobs_async.durable._callback import Callback, Called
from agentjobs_async.durable.entry import DurableEntry, end_of_row, entry_of, ref_of_row
from agentjobs_async.errors import log_text
from agentjobs_async.telemetry.links import resumed_from

_AGAIN_SECONDS: Final = 60.0  # until a job that could not be read is waited for again: what keeps it may be mended
_READING_SECONDS: Final = 30.0  # for a job whose end is told after a restart: without it, the journal knows enough
_FIRST_RETRY_SECONDS: Final = 1.0  # after a callback that raised: most faults of a chat's server are over by then
_LONGEST_RETRY_SECONDS: Final = 300.0  # so that the end of a long outage is noticed within five minutes
_NO_ENDS: Final = (Outcome.ACTIVE, Outcome.TIMED_OUT)

T = TypeVar("T")

_logger: Final = logging.getLogger("agentjobs_async.durable")


@define(eq=False)
class Followed:
    """One row that is followed, by a task of its own. There may be many thousands: it keeps no prompt.

    Attributes:
        key: The key of the row.
        tries: Which of its tries this is.
        ref: Its job; `None` where the create gave none.
        state: Where the row is: active until an end is recorded or found.
        earlier_polls: How often the job was polled by earlier waits and processes.
        task: What waits for the job and tells of its end.
        watch: The newest wait; `None` before the first one.
        is_recorded: Whether the task is recording the end: the row may have it already.
        left: Whether the row is not followed any more by this task.
    """

    key: str
    tries: int
    ref: JobRef | None
    state: State
    earlier_polls: int
    task: asyncio.Task[None] = field(init=False)
    watch: Watch | None = field(default=None, init=False)
    is_recorded: bool = field(default=False, init=False)
    left: bool = field(default=False, init=False)

    @property
    def polls(self) -> int:
        """How often the job was polled, by earlier waits and this one."""
        return self.earlier_polls + (0 if self.watch is None else self.watch.polls)

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll last showed the job; `None` before, and once the wait is over."""
        return None if self.watch is None else self.watch.seen


@define(eq=False)
class Following:
    """Waits for jobs, records their ends, and calls the callbacks. All of it runs in the context in which it was made.

    The task of a row may be cancelled at any time. A callback that is under way has a task of its own, which only
    `close` cancels.

    Attributes:
        on_change: Called with each new state but the end, one call of a job at a time.
        on_end: Called with the end, again until it has returned; `None` leaves that to other processes.
        least_gap: Seconds from one call of `on_change` for a job to the next.
    """

    session: AgentJobsSession
    records: Records
    rows: DurableRows
    on_change: Callback | None
    on_end: Callback | None
    least_gap: float
    _context: Any = field(factory=copy_context, init=False)
    _followed: dict[str, Followed] = field(factory=dict, init=False)
    _calls: dict[str, asyncio.Task[Called]] = field(factory=dict, init=False)
    """The callbacks under way, by the keys of their rows."""
    _closing: bool = field(default=False, init=False)

    def counts(self) -> Counter[State]:
        """Return how many rows are followed in each state. It may be asked in any thread."""
        return Counter(followed.state for followed in list(self._followed.values()))

    def under_way(self) -> list[Followed]:
        """Return the rows that are followed now."""
        return list(self._followed.values())

    def follow(self, row: JournalRow) -> None:
        """Follow the job of an active row, or tell of the end of one that has ended, unless that is being done."""
        ref, known = ref_of_row(row), self._followed.get(row.key)
        is_of_this_try = known is not None and known.tries == row.tries
        if known is not None and is_of_this_try and (known.is_recorded or (known.state, known.ref) == (row.state, ref)):
            return
        if row.state is State.ACTIVE and ref is not None:
            self.start(row, ref, row.traceparent)
        elif row.state in ENDED and self.on_end is not None:
            followed = self._followed_of(row, ref, row.state)
            self._start(followed, self._tell_row(followed, row))

    def start(self, row: JournalRow, target: AgentJob | JobRef, traceparent: str | None) -> None:
        """Follow the job of a row, created by the span `traceparent`, in place of what was followed under its key."""
        followed = self._followed_of(row, target.ref if isinstance(target, AgentJob) else target, State.ACTIVE)
        self._start(followed, self._run(followed, target, traceparent))

    def tell(self, row: JournalRow, state: State, error: Exception) -> None:
        """Call `on_end` for a create that gave no job."""
        followed = self._followed_of(row, None, state)
        self._start(followed, self._tell(followed, entry_of(row), error))

    def tell_earlier(self, row: JournalRow) -> None:
        """Call `on_end` with untold ends of a planned row's earlier tries, in place of what was done for it before."""
        self.leave(row.key)
        if row.tries > 1 and self.on_end is not None:
            followed = self._followed_of(row, None, row.state)
            self._start(followed, self._tell_earlier(followed))

    def show_held(self, row: JournalRow, reason: Exception) -> bool:
        """Call `on_change` with why the create of a planned row is held back; return false while it can't be called."""
        if self.on_change is not None:
            if row.key in self._followed:  # the ends of its earlier tries are being told
                return False
            followed = self._followed_of(row, None, row.state)
            self._start(followed, self._show_held(followed, self.on_change, reason))
        return True

    def notify(self, key: str) -> bool:
        """Poll the job of a row soon; return whether a job is followed under its key.

        Raises:
            SessionClosedError: The session is closed or draining.
        """
        followed = self._followed.get(key)
        if followed is None or followed.ref is None or followed.state is not State.ACTIVE:
            return False
        self.session.notify(followed.ref)  # a wait that is about to begin polls it at once by itself
        return True

    def leave(self, key: str) -> None:
        """Stop following a row. A callback under way continues, and is the last one."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.left = True
            followed.task.cancel()

    def stop(self) -> None:
        """End all waits; callbacks under way continue, and none is called again."""
        self._closing = True
        for followed in self._followed.values():
            followed.task.cancel()

    async def close(self, grace: float) -> None:
        """Wait `grace` seconds for the callbacks under way, then cancel them: the next start tells of these ends.

        A callback that swallows its cancellation is left behind.
        """
        self.stop()
        current = asyncio.current_task()  # a callback may close the durable jobs
        calls = [call for call in self._calls.values() if call is not current]
        tasks = [*calls, *(followed.task for followed in self._followed.values())]
        try:
            if calls and grace > 0:
                await asyncio.wait(calls, timeout=grace)
        finally:
            for call in calls:
                call.cancel()
            await wait_until_left(lambda: not all(task.done() for task in tasks))

    def _followed_of(self, row: JournalRow, ref: JobRef | None, state: State) -> Followed:
        return Followed(row.key, row.tries, ref, state, row.polls)

    def _start(self, followed: Followed, work: Coroutine[Any, Any, None]) -> None:
        """Start the task of a row, in place of the one before; once closed, the next start of a process does it."""
        if self._closing:
            work.close()
            return
        self.leave(followed.key)
        self._followed[followed.key] = followed
        # Never an eager task: it would run before it is known, and callbacks before their caller is done.
        followed.task = asyncio.Task(work, context=self._context.copy())
        followed.task.add_done_callback(lambda _: self._end(followed))

    def _end(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            del self._followed[followed.key]

    async def _run(self, followed: Followed, target: AgentJob | JobRef, traceparent: str | None) -> None:
        """Wait for the end of a job, record it, and tell of it."""
        resumed_from.set(traceparent)
        while True:
            ended = await result_of(self._wait(followed, target))
            if isinstance(ended, SessionClosedError):
                return  # the next start follows it
            if isinstance(ended, AgentJob) or not ends_the_run(ended):
                job_id = None if followed.ref is None else followed.ref.job_id
                record = partial(record_end, self.records, followed.key, job_id, ended, followed.polls)
                # A sweep may find the end in the row before this task knows that it is there.
                followed.is_recorded = True
                recorded, outcome = await _retried(record)
                row, followed.is_recorded = recorded.row, False
                if outcome not in _NO_ENDS:
                    break
                if row.job_id != job_id:  # it may have been noticed while the end was recorded
                    await _retried(partial(self.rows.look_again, followed.key))
                    return
            why = log_text(ended)
            _logger.warning("%r can't be read, and is tried again in %.0f s: %s", followed.key, _AGAIN_SECONDS, why)
            with CancelScope(None, self.session._shutdown.waits):
                await asyncio.sleep(_AGAIN_SECONDS)
        state, has_error = (ended.status, False) if isinstance(ended, AgentJob) else (State.FAILED, True)
        if row.tries != followed.tries or row.state not in ENDED:
            return  # a person, or another process, has moved it on: the next sweep notices that
        followed.state = row.state
        if row.state == state and (row.error is not None) is has_error:
            await self._tell(followed, entry_of(row), ended)
        else:  # a person, or an earlier task whose write went on, has ended it otherwise
            await self._tell_row(followed, row)

    async def _wait(self, followed: Followed, target: AgentJob | JobRef) -> AgentJob:
        """Return a job once it has ended, and call `on_change` with its states until then."""
        followed.earlier_polls = followed.polls
        async with Updates(self.session, target, None) as updates:
            followed.watch = updates.watch
            async for job in updates:
                if self.on_change is not None and not job.is_terminal:
                    await self._call(followed, partial(self._show, self.on_change, job))
                    await updates.wait_for_end(self.least_gap)
        return job

    async def _show_held(self, followed: Followed, on_change: Callback, reason: Exception) -> None:
        """Call `on_change` once with why a create is held back, unless it may be sent by now."""

        async def show(row: JournalRow) -> Called:
            if row.state is not State.PLANNED:
                return Called(is_done=True)
            return await on_change(entry_of(row), reason)

        await self._call(followed, show)

    async def _show(self, on_change: Callback, job: AgentJob, row: JournalRow) -> Called:
        """Call `on_change` with a job; not where its row has moved on since, whose end is told then."""
        if row.state is not State.ACTIVE or row.job_id != job.id:
            return Called(is_done=True)
        return await on_change(evolve(entry_of(row), job=job), job)

    async def _tell_row(self, followed: Followed, row: JournalRow) -> None:
        """Call `on_end` with an end as the journal has it, or a job as the service has it, if that answers in time."""
        ended = end_of_row(row, await _retried(partial(refusal, self.records.store, row)))
        if isinstance(ended, AgentJob):
            resumed_from.set(row.traceparent)
            # A wait, since its polls keep to the budget: very many ends may be told at once.
            read = await result_of(self.session.wait_for_job(ended.ref, timeout=_READING_SECONDS))
            if isinstance(read, AgentJob) and read.status == row.state:  # else it was archived since
                ended = read
        await self._tell(followed, entry_of(row), ended)

    async def _tell(self, followed: Followed, entry: DurableEntry, ended: AgentJob | Exception) -> None:
        """Call `on_end` until it has returned, first with the ends of earlier tries."""
        if self.on_end is not None:
            await self._tell_earlier(followed)
            await self._tell_until_done(followed, entry, ended)

    async def _tell_earlier(self, followed: Followed) -> None:
        """Call `on_end` with the ends of the row's earlier tries, in their order, until each call has returned."""
        if followed.tries == 1:
            return
        await self._last_call(followed.key)  # it may be of one of these ends
        for row in await _retried(partial(self.rows.untold, followed.key)):
            ended = end_of_row(row, await _retried(partial(refusal, self.records.store, row)))
            await self._tell_until_done(followed, entry_of(row), ended)

    async def _tell_until_done(self, followed: Followed, entry: DurableEntry, ended: AgentJob | Exception) -> None:
        """Call `on_end` with an end of the row that is followed, until it has returned: `entry` is its try."""
        if self.on_end is not None:
            job = ended if isinstance(ended, AgentJob) else None
            entry = evolve(entry, job=job, error=entry.error if job else entry.error or str(ended))
            delays = doubling(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
            while True:
                called = await self._call(followed, partial(self._tell_once, self.on_end, followed, entry, ended))
                if called.is_done:
                    return
                await asyncio.sleep(next(delays) if called.again_in is None else called.again_in)

    async def _tell_once(
        self, on_end: Callback, followed: Followed, entry: DurableEntry, ended: AgentJob | Exception, row: JournalRow
    ) -> Called:
        """Call `on_end`, and record that it is done: after a crash in between, it is called once more."""
        called = await on_end(evolve(entry, context=row.context or {}), ended)
        if called.is_done:
            await _retried(partial(self._record_told, followed, entry))
        return called

    async def _record_told(self, followed: Followed, told: DurableEntry) -> None:
        """Record that `on_end` is done: it has returned, or the end is undeliverable."""
        # Once it was left, its try may have another end by now, of the same state.
        is_end_of_row = not followed.left
        try:
            await self.rows.record_told(told.key, told.tries, told.state, is_end_of_row=is_end_of_row)
        except JournalError:
            if not self._closing:  # else the next start tells it once more
                raise

    async def _call(self, followed: Followed, call: Callable[[JournalRow], Coroutine[Any, Any, Called]]) -> Called:
        """Return how the call of a callback ended; it continues where its row is left, and does not begin then."""
        await self._last_call(followed.key)  # of an older end: it must not overtake this one
        # Again until the journal can be read: who has unfollowed the row may be sure that no callback begins.
        row = await _retried(partial(self.rows.followed, followed.key))
        if row is None:
            await _retried(partial(self.rows.leave_to_poll, [followed.key]))
            self.leave(followed.key)
            await asyncio.sleep(0)  # in which this task is cancelled
            return Called(is_done=False)

        async def called() -> Called:
            # The row may have been left between the start of this task and its first step.
            return Called(is_done=False) if followed.left else await call(row)

        # Never an eager task, as above.
        task = self._calls[followed.key] = asyncio.Task(called(), context=self._context.copy())
        task.add_done_callback(lambda _: self._calls.pop(followed.key))  # the first: before any that waits goes on
        await asyncio.wait([task])
        return task.result()

    async def _last_call(self, key: str) -> None:
        """Wait for the callback of a row that is under way."""
        while (earlier := self._calls.get(key)) is not None:
            await asyncio.wait([earlier])


async def _retried(work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns, after longer and longer pauses while the journal can't be used."""
    delays = doubling(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
    while True:
        try:
            return await work()
        except JournalError as error:
            _logger.warning("the end of a durable job is recorded or told later: %s", error)
        await asyncio.sleep(next(delays))
