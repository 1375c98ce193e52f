"""The jobs that are followed: a coroutine for each waits for it, calls the callbacks, and records its end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from attrs import define, field

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, JobRef, JournalError, SessionClosedError
from agentjobs_async._loop.cancel_scope import wait_until_left
from agentjobs_async._polling.tracked import Watch
from agentjobs_async._polling.updates import Updates
from agentjobs_async.batch import JournalRow, Outcome, State
from agentjobs_async.batch._run_item import record_end, result_of
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch.items import context_of, context_text
from agentjobs_async.durable._callback import Callback
from agentjobs_async.durable.entry import DurableEntry, end_of_row, entry_of, ref_of_row
from agentjobs_async.telemetry.links import resumed_from

__all__ = ["Following"]

_UNREADABLE_SECONDS: Final = 60.0  # until a job that could not be read is waited for again: a key may be replaced
_READING_SECONDS: Final = 30.0  # for a job whose end is told after a restart: without it, the journal knows enough
_FIRST_RETRY_SECONDS: Final = 1.0  # after a callback that raised: most faults of a chat's server are over by then
_LONGEST_RETRY_SECONDS: Final = 300.0  # so that the end of a long outage is noticed within five minutes

T = TypeVar("T")

_logger: Final = logging.getLogger("agentjobs_async.durable")


@define(eq=False)
class Follow:
    """One row that is followed, by a task of its own. There may be many thousands: it keeps no prompt.

    Attributes:
        key: The key of the row.
        ref: Its job; `None` where the create gave none.
        state: The state of the row that is acted on; `None` while its end is being recorded.
        context: The context as JSON; `None` without one.
        earlier_polls: How often the job was polled by earlier waits and processes.
        task: What waits for the job and tells of its end.
        watch: The newest wait; `None` before the first one.
        left: Whether no more is to be called or recorded.
    """

    key: str
    ref: JobRef | None
    state: State | None
    context: str | None
    earlier_polls: int
    task: asyncio.Task[None] = field(init=False)
    watch: Watch | None = field(default=None, init=False)
    left: bool = field(default=False, init=False)

    @property
    def polls(self) -> int:
        """How often the job was polled, by earlier waits and this one."""
        return self.earlier_polls + (0 if self.watch is None else self.watch.polls)

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll last showed the job; `None` before, and once the wait is over."""
        return None if self.watch is None else self.watch.seen

    @property
    def job(self) -> AgentJob | None:
        """The job as it was seen last; `None` before, and once the wait is over."""
        return None if self.watch is None or self.watch.tracked is None else self.watch.tracked.job

    def entry(self, state: State, job: AgentJob | None, error: str | None = None) -> DurableEntry:
        """Return the entry of the row in a state."""
        return DurableEntry(self.key, state, self.ref, job, context_of(self.context) or {}, error)


@define(eq=False)
class Following:
    """Waits for jobs, records their ends, and calls the callbacks. All of it runs in the context in which it was made.

    Attributes:
        on_change: Called with each new state but the end, one call of a job at a time.
        on_end: Called with the end, again until it has returned; `None` leaves that to other processes.
        least_gap: Seconds from one call of `on_change` for a job to the next.
    """

    session: AgentJobsSession
    entries: Entries
    rows: DurableRows
    on_change: Callback | None
    on_end: Callback | None
    least_gap: float
    _context: Any = field(factory=copy_context, init=False)
    _follows: dict[str, Follow] = field(factory=dict, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _calls: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    """The tasks in which a callback is under way, by the keys of their rows."""
    _closing: bool = field(default=False, init=False)

    def waits_for(self, key: str, ref: JobRef) -> bool:
        """Return whether a job is followed under a key, and has not ended as far as is recorded."""
        follow = self._follows.get(key)
        return follow is not None and follow.state in (None, State.ACTIVE) and follow.ref == ref

    def under_way(self) -> Iterable[Follow]:
        """Return the rows that are followed now."""
        return list(self._follows.values())

    def entry(self, row: JournalRow) -> DurableEntry:
        """Return the entry of a row, with the job as it was seen last."""
        follow = self._follows.get(row.key)
        return entry_of(row, self.session.project_id, None if follow is None else follow.job)

    def start(self, row: JournalRow, target: AgentJob | JobRef, *, late: bool = False) -> None:
        """Follow the job of a row from now on, in place of what was followed under its key; do nothing once closed.

        `late`: its create took so long that another owner may have taken the row over as unknown.
        """
        ref = target.ref if isinstance(target, AgentJob) else target
        follow = self._follow_of(row, ref, State.ACTIVE)
        self._start(follow, self._follow(follow, target, row.traceparent, late=late))

    def tell_row(self, row: JournalRow) -> None:
        """Call `on_end` for a row that has ended, unless that is being done; its wait, if there is one, is over."""
        known = self._follows.get(row.key)
        if known is None or known.state not in (None, row.state):
            follow = self._follow_of(row, ref_of_row(row, self.session.project_id), row.state)
            self._start(follow, self._tell_row(follow, row))

    def tell(self, row: JournalRow, state: State, error: Exception) -> None:
        """Call `on_end` for a create that gave no job."""
        follow = self._follow_of(row, None, state)
        self._start(follow, self._tell(follow, state, error, str(error)))

    def leave(self, key: str) -> None:
        """Stop following a row. A callback under way continues, and is the last one."""
        follow = self._follows.pop(key, None)
        if follow is not None:
            follow.left = True
            self._interrupt(follow)

    def stop(self) -> None:
        """End all waits; callbacks under way continue, and none is called again."""
        self._closing = True
        for follow in self._follows.values():
            self._interrupt(follow)

    async def close(self, grace: float) -> None:
        """Wait `grace` seconds for the callbacks under way, then cancel them: the next start tells of these ends.

        A callback that swallows its cancellation is left behind.
        """
        self.stop()
        current = asyncio.current_task()  # a callback may close the durable jobs
        tasks = {task for task in self._tasks if task is not current}
        try:
            if tasks and grace > 0:
                await asyncio.wait(tasks, timeout=grace)
        finally:
            for follow in self._follows.values():
                follow.left = follow.task in tasks
            for task in tasks:
                task.cancel()
            await wait_until_left(lambda: not all(task.done() for task in tasks))

    async def _follow(self, follow: Follow, target: AgentJob | JobRef, traceparent: str | None, *, late: bool) -> None:
        """Wait for the end of a job, record it, and tell of it."""
        resumed_from.set(traceparent)
        if late:
            await self._with_journal(follow, partial(self.entries.follow, [follow.key]))
        while True:
            ended = await result_of(self._wait(follow, target))
            if isinstance(ended, SessionClosedError):
                return  # the next start follows it
            follow.state = None
            state = await self._with_journal(follow, partial(self._record, follow, ended))
            if state is not None:
                break
            follow.state = State.ACTIVE
            _logger.warning(
                "%r can't be read, and is tried again in %.0f s: %s", follow.key, _UNREADABLE_SECONDS, ended
            )
            await asyncio.sleep(_UNREADABLE_SECONDS)
        is_as_seen = state == (ended.status if isinstance(ended, AgentJob) else State.FAILED)
        if not is_as_seen:  # a person has settled it since: that is told, now and after a restart
            rows = await self._with_journal(follow, partial(self.entries.get_many, [follow.key]))
            await self._tell_row(follow, rows[follow.key])
            return
        error = None if isinstance(ended, AgentJob) else str(ended)
        await self._tell(follow, state, ended, error)

    async def _wait(self, follow: Follow, target: AgentJob | JobRef) -> AgentJob:
        """Return a job once it has ended, and call `on_change` with its states until then."""
        follow.earlier_polls = follow.polls
        async with Updates(self.session, target, None) as updates:
            follow.watch = updates.watch
            async for job in updates:
                if self.on_change is not None and not job.is_terminal:
                    async with self._calling(follow):
                        await self.on_change(follow.entry(State.ACTIVE, job), job)
                    await updates.wait_for_end(self.least_gap)
        return job

    async def _record(self, follow: Follow, ended: AgentJob | Exception) -> State | None:
        """Record the end of a wait, and return the state of the row; `None` where the job has not ended."""
        assert follow.ref is not None  # noqa: S101 - it was waited for
        try:
            outcome = await record_end(self.entries, follow.key, follow.ref.job_id, ended, follow.polls)
        except JournalError:
            raise
        except AgentJobsError:
            return None  # the certificate or the proxy: it may be mended meanwhile
        return None if outcome in (Outcome.UNFINISHED, Outcome.TIMED_OUT) else State(outcome.value)

    async def _tell_row(self, follow: Follow, row: JournalRow) -> None:
        """Call `on_end` with an end as the journal has it, or a job as the service has it, if that answers in time."""
        refusal = await self._with_journal(follow, partial(self.entries.refusal, row.key))
        ended: AgentJob | Exception = end_of_row(row, follow.ref, refusal)
        if isinstance(ended, AgentJob) and follow.ref is not None:
            resumed_from.set(row.traceparent)
            # A wait, since its polls keep to the budget: very many ends may be told at once.
            read = await result_of(self.session.wait_for_job(follow.ref, timeout=_READING_SECONDS))
            if isinstance(read, AgentJob) and read.status == row.state:  # else it was archived since
                ended = read
        await self._tell(follow, row.state, ended, row.error)

    async def _tell(self, follow: Follow, state: State, ended: AgentJob | Exception, error: str | None) -> None:
        """Call `on_end` until it has returned, and record that: after a crash in between, it is called once more."""
        follow.state = state
        if self.on_end is None:
            return
        entry = follow.entry(state, ended if isinstance(ended, AgentJob) else None, error)
        for delay in _delays():
            async with self._calling(follow):
                if await self.on_end(entry, ended):
                    if not follow.left:  # else the row may have another end by now that is of the same state
                        await self._with_journal(follow, partial(self.rows.mark_told, follow.key, state))
                    return
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def _calling(self, follow: Follow) -> AsyncIterator[None]:
        """Wait until no other callback is under way for the key; in the block, leaving does not cancel the task."""
        while (earlier := self._calls.get(follow.key)) is not None:  # of an older end: it must not overtake this one
            await asyncio.wait([earlier])
        with suppress(JournalError):  # an end that is told twice is better than one that is not
            follow.left = bool(await self.rows.no_longer_followed([follow.key]))
        await self._check_followed(follow)
        self._calls[follow.key] = follow.task
        try:
            yield
        finally:
            del self._calls[follow.key]
        await self._check_followed(follow)

    async def _check_followed(self, follow: Follow) -> None:
        """End this task if its row is not followed any more."""
        if follow.left or self._closing:
            follow.task.cancel()
            await asyncio.sleep(0)

    async def _with_journal(self, follow: Follow, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns, after longer and longer pauses while the journal can't be used."""
        delays = _delays()
        while True:
            try:
                return await work()
            except JournalError as error:
                _logger.warning("the end of a durable job is recorded or told later: %s", error)
            await self._check_followed(follow)  # the next start finds it out
            await asyncio.sleep(next(delays))

    def _follow_of(self, row: JournalRow, ref: JobRef | None, state: State) -> Follow:
        return Follow(row.key, ref, state, context_text(row.context), row.polls)

    def _start(self, follow: Follow, work: Coroutine[Any, Any, None]) -> None:
        """Start the task of a row, in place of the one before."""
        if self._closing:
            work.close()  # the next start does it
            return
        self.leave(follow.key)
        self._follows[follow.key] = follow
        # Never an eager task: it would run before it is known, and callbacks before their caller is done.
        task = follow.task = asyncio.Task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._end(follow))

    def _interrupt(self, follow: Follow) -> None:
        """End the wait of a row, and its task; where a callback is under way, this ends once that has returned."""
        if self._calls.get(follow.key) is not follow.task:
            follow.task.cancel()
        elif follow.watch is not None:
            follow.watch.cancel()

    def _end(self, follow: Follow) -> None:
        self._tasks.discard(follow.task)
        if self._follows.get(follow.key) is follow:
            del self._follows[follow.key]


def _delays() -> Iterator[float]:
    delay = _FIRST_RETRY_SECONDS
    while True:
        yield delay
        delay = min(2 * delay, _LONGEST_RETRY_SECONDS)
