"""The jobs that are followed: their waits, and what the callbacks are told of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

from attrs import define, field

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, JobRef, JournalError, SessionClosedError
from agentjobs_async.batch import JournalRow, Outcome, State
from agentjobs_async.batch._run_item import record_end
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch.items import context_of, context_text
from agentjobs_async.durable._callback import Callback
from agentjobs_async.durable._follow import Follow
from agentjobs_async.durable.entry import DurableEntry, end_of_row, entry_of, ref_of_row
from agentjobs_async.telemetry.links import resumed_from

__all__ = ["Following"]

_UNREADABLE_SECONDS: Final = 60.0  # until a job that could not be read is waited for again: a key may be replaced
_FIRST_RETRY_SECONDS: Final = 1.0  # after a callback that raised: most faults of a chat's server are over by then
_LONGEST_RETRY_SECONDS: Final = 300.0  # so that the end of a long outage is noticed within five minutes

_logger: Final = logging.getLogger("agentjobs_async.durable")


@define(eq=False)
class Following:
    """Waits for jobs, records their ends, and calls the callbacks. All of it runs in the context in which it was made.

    Attributes:
        on_change: Called with each new state but the end, one call of a job at a time.
        on_end: Called with the end, again until it has returned.
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
    _ending: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)

    def knows(self, key: str, ref: JobRef | None) -> bool:
        """Return whether the job of a key is followed, or its end is being told; it may have been another job."""
        follow = self._follows.get(key)
        return key in self._ending or (follow is not None and ref in (follow.ref, None))

    def under_way(self) -> Iterable[Follow]:
        """Return the jobs that are followed now."""
        return list(self._follows.values())

    def entry(self, row: JournalRow) -> DurableEntry:
        """Return the entry of a row, with the job as it was seen last."""
        follow = self._follows.get(row.key)
        return entry_of(row, self.session.project_id, None if follow is None else follow.job)

    def start(self, row: JournalRow, target: AgentJob | JobRef) -> None:
        """Follow the job of a row from now on; do nothing once closed."""
        self._discard(row.key)
        ref = target.ref if isinstance(target, AgentJob) else target
        self._watch(target, row.key, ref, context_text(row.context), row.polls, row.traceparent)

    def start_late(self, row: JournalRow, job: AgentJob) -> None:
        """Follow a job whose create took so long that another owner may have taken its row over as unknown."""
        if not self._closing.is_set():
            _ = self._start(self._regain(row, job))

    def tell_row(self, row: JournalRow) -> None:
        """Call `on_end` for a row that has ended, unless that is being done; its wait, if there is one, is over."""
        if row.key not in self._ending:
            self._discard(row.key)
            self._end_in_task(row.key, self._tell_row(row))

    def tell(self, row: JournalRow, state: State, error: Exception) -> None:
        """Call `on_end` for a create that gave no job."""
        entry = DurableEntry(row.key, state, None, None, row.context or {}, str(error))
        self._end_in_task(row.key, self._tell(entry, error))

    def leave(self, key: str) -> None:
        """Stop following a job, and calling `on_end` for it. The task of a callback that calls this continues."""
        self._discard(key)
        ending = self._ending.pop(key, None)
        if ending is not None and ending is not asyncio.current_task():
            ending.cancel()

    def stop(self) -> None:
        """End all waits; callbacks under way continue, and none is called again."""
        self._closing.set()
        for follow in self._follows.values():
            follow.cancel()

    async def close(self, grace: float) -> None:
        """Wait `grace` seconds for the callbacks under way, then cancel them: the next start tells of these ends."""
        self.stop()
        current = asyncio.current_task()  # a callback may close the durable jobs
        left = {task for task in self._tasks if task is not current}
        try:
            if left and grace > 0:
                await asyncio.wait(left, timeout=grace)
        finally:
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    def changed(self, follow: Follow, job: AgentJob) -> None:
        """Call `on_change` with the newest state, in a task that does so until it has told the newest one."""
        if self.on_change is None or follow.showing is not None or job.is_terminal:
            return
        if follow.shown == job:
            follow.shown = follow.job  # the newest one is kept anyway
        elif not self._closing.is_set():
            showing = self._start(self._show_changes(follow, job, self.on_change))
            follow.showing = None if showing.done() else showing  # an eager task may be done by now

    def ended(self, follow: Follow, result: AgentJob | BaseException) -> None:
        """Record and tell how a wait ended; one that a `get_job` has ended by no `Exception` begins again later."""
        ended = result if isinstance(result, AgentJob | Exception) else AgentJobsError(f"get_job raised {result!r}")
        self._end_in_task(follow.key, self._end(follow, ended))

    def _watch(
        self,
        target: AgentJob | JobRef,
        key: str,
        ref: JobRef,
        context: str | None,
        polls: int,
        traceparent: str | None = None,
    ) -> None:
        if self._closing.is_set():
            return

        def watch() -> None:
            resumed_from.set(traceparent)
            scheduler = self.session._scheduler_for(target)  # noqa: SLF001 - private to users
            # Kept before the wait begins, which may end at once.
            follow = self._follows[key] = Follow(scheduler.loop, scheduler.leave, self, key, ref, context, polls)
            scheduler.attach(follow, target)

        with suppress(SessionClosedError):  # the next start follows it
            self._context.copy().run(watch)

    def _discard(self, key: str) -> None:
        follow = self._follows.pop(key, None)
        if follow is not None:
            follow.cancel()
            if follow.showing is not None and follow.showing is not asyncio.current_task():
                follow.showing.cancel()

    async def _show_changes(self, follow: Follow, job: AgentJob, on_change: Callback) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while follow.shown != job:
                if not await self._pause(follow.shown_at + self.least_gap - clock()) or follow.tracked is None:
                    return  # left, or ended
                if await self._is_no_longer_followed(follow.key):
                    self.leave(follow.key)
                    return
                follow.shown_at, follow.calling = clock(), True
                follow.shown = job = follow.job or job
                await on_change(follow.entry(job), job)
                follow.calling = False
                job = follow.job or job
        finally:
            follow.showing = None

    async def _end(self, follow: Follow, ended: AgentJob | Exception) -> None:
        outcome = await self._recorded(follow, ended)
        if outcome in (Outcome.UNFINISHED, Outcome.TIMED_OUT):
            _logger.warning(
                "%r can't be read, and is tried again in %.0f s: %s", follow.key, _UNREADABLE_SECONDS, ended
            )
            if await self._pause(_UNREADABLE_SECONDS) and self._follows.get(follow.key) is follow:
                self._watch(follow.ref, follow.key, follow.ref, follow.context, follow.polls)
        elif outcome is not None:
            await self._end_showing(follow)
            self._follows.pop(follow.key, None)
            job, error = (ended, None) if isinstance(ended, AgentJob) else (None, str(ended))
            state = State(outcome.value)
            await self._tell(
                DurableEntry(follow.key, state, follow.ref, job, context_of(follow.context) or {}, error), ended
            )

    async def _recorded(self, follow: Follow, ended: AgentJob | Exception) -> Outcome | None:
        """Record the end of a wait, and return what it means; `None` when the next start has to find it out."""
        if isinstance(ended, SessionClosedError):
            return None
        outcome = Outcome.UNFINISHED

        async def record() -> bool:
            nonlocal outcome
            try:
                outcome = await record_end(self.entries, follow.key, follow.ref.job_id, ended, follow.polls)
            except JournalError:
                raise
            except AgentJobsError:
                return True  # the certificate or the proxy: it may be mended meanwhile
            return True

        return outcome if await self._until_done(record) else None

    async def _end_showing(self, follow: Follow) -> None:
        """Wait until `on_change` is not under way: it must not show an older state after the end."""
        if follow.showing is not None:
            if not follow.calling:
                follow.showing.cancel()
            await asyncio.wait([follow.showing])

    async def _tell_row(self, row: JournalRow) -> None:
        ref = ref_of_row(row, self.session.project_id)
        ended: AgentJob | Exception = end_of_row(row, ref)
        if isinstance(ended, AgentJob) and ref is not None:
            with suppress(Exception):  # a get_job's own, too: without the service, the journal knows enough
                read = await self.session.get_job(ref)
                ended = read if read.is_terminal else ended
        entry = entry_of(row, self.session.project_id, ended if isinstance(ended, AgentJob) else None)
        await self._tell(entry, ended)

    async def _tell(self, entry: DurableEntry, ended: AgentJob | Exception) -> None:
        """Call `on_end` until it has returned, and record that: after a crash in between, it is called once more."""
        on_end = self.on_end

        async def tell() -> bool:
            return on_end is None or await self._is_no_longer_followed(entry.key) or await on_end(entry, ended)

        async def mark() -> bool:
            await self.rows.mark_told(entry.key, entry.state)  # does nothing for a row that is no longer followed
            return True

        if await self._until_done(tell):
            await self._until_done(mark)

    async def _is_no_longer_followed(self, key: str) -> bool:
        """Return whether another process follows a job by now, or has unfollowed it: then no callback is called."""
        with suppress(JournalError):  # an end that is told twice is better than one that is not
            return key in await self.rows.no_longer_followed([key])
        return False

    async def _regain(self, row: JournalRow, job: AgentJob) -> None:
        async def follow() -> bool:
            await self.entries.follow([row.key])
            return True

        if await self._until_done(follow):
            self.start(row, job)

    async def _until_done(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Repeat `work`, after longer and longer pauses, until it returns true; return false if closed before."""
        delay = _FIRST_RETRY_SECONDS
        while True:
            try:
                if await work():
                    return True
            except JournalError as error:
                _logger.warning("the end of a durable job is recorded later: %s", error)
            if not await self._pause(delay):
                return False
            delay = min(2 * delay, _LONGEST_RETRY_SECONDS)

    async def _pause(self, seconds: float) -> bool:
        """Wait; return false if closed meanwhile."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
        return not self._closing.is_set()

    def _end_in_task(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        ending = self._ending.get(key)
        if self._closing.is_set() or (ending is not None and not ending.done()):
            work.close()  # the next start does it; or it is being done
            return
        task = self._ending[key] = self._start(work)
        task.add_done_callback(lambda done: self._ending.pop(key) if self._ending.get(key) is done else None)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
