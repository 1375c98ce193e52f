"""Durable jobs: submitted one by one under a key, created at most once, and followed to their ends across restarts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any, Final, Self

from attrs import evolve

from agentjobs_async import AgentJob, AgentJobsSession, InvalidInputError, JournalError, SessionClosedError
from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.tasks import until_done
from agentjobs_async._validation import checked_flag, checked_seconds
from agentjobs_async.batch import BatchItem, Journal, JournalRow, Rows, State, Where
from agentjobs_async.batch._run.context import Phase
from agentjobs_async.batch._run.kinds import DURABLE
from agentjobs_async.batch._run.late_jobs import LateJobs
from agentjobs_async.batch._run.tasks import GRACE_SECONDS, check_session_and_journal, noted_on, open_run
from agentjobs_async.batch._store.durable_rows import DurableRows, Noticed
from agentjobs_async.batch._store.owning import doubt_dead, free_dead, has_owner, settle_claims
from agentjobs_async.batch._store.store import NOBODY
from agentjobs_async.batch.items import checked_item, checked_key
from agentjobs_async.batch.limits import Kept, Limits, checked_limits
from agentjobs_async.durable._callback import Callback
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._following import Following
from agentjobs_async.durable.entry import DurableEntry, abandoned_error

__all__ = ["DurableJobs", "OnChange", "OnEnd"]

OnChange = Callable[[DurableEntry, AgentJob], Awaitable[object] | object]
"""What `on_change` of `DurableJobs` is: a plain or an async function of an entry and a job."""
OnEnd = Callable[[DurableEntry, AgentJob | Exception], Awaitable[object] | object]
"""What `on_end` of `DurableJobs` is: a plain or an async function of an entry, and of the ended job or an error."""

_SWEEP_SECONDS: Final = 2.0  # until what was resolved, retried or abandoned is noticed
_SWEEPS: Final = 4  # at least, in the time after which another owner counts as dead
_PAGE_KEYS: Final = 500  # in one statement
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.05, 1.0  # at a row whose create another process is sending

_logger: Final = logging.getLogger("agentjobs_async.durable")


class DurableJobs:
    """Jobs that come one by one, each created at most once and followed to its end, whatever ends the process.

    Use it as `async with`: entering follows every job of the journal again that is under way, and sends what was
    planned. Leaving stops following; it cancels no job, and the next start continues. It waits up to 10 s for creates
    and callbacks under way, after a cancellation not at all. On PostgreSQL any number of processes may share one
    journal: one of them follows each job, and another takes over when it dies.

    Of the `Limits`, a file applies `max_sending`, `create_rate` and `polls_per_second`; PostgreSQL applies `max_active`
    as well. A job that `Journal.retry` plans again is followed under its key.

    The callbacks may be plain or async functions. They run in the context in which the block was entered, and those of
    different jobs run at the same time. The first error of each type that one of them raises is logged; it disturbs
    nothing else.

    Args:
        session: Sends the creates and the polls. It is not closed.
        journal: An open one, not read-only, best one of its own.
        on_change: Called as `on_change(entry, job)` with the newest state of a job while it is at work: at first sight,
            and when it has changed. The end is left to `on_end`, which begins once `on_change` has returned.
        on_end: Called as `on_end(entry, job_or_error)` once the end is in the journal: with the `AgentJob`; or with the
            error where the create was refused, its outcome is unknown, or the job is gone or was abandoned. It is
            called at least once: again, after 1 s doubling to 300 s and after a restart, until it has returned. A job
            whose outcome was unknown has a second end once `Journal.resolve` has settled it. `None` leaves each end to
            a process that has an `on_end`, at the same time or later.
        least_gap: Seconds from 0 on between two calls of `on_change` for one job.
        limits: The limits of these jobs; "kept" takes those that the journal keeps. `timeout` is not among them: a job
            is followed to its end.
        other_service: As in `run_batch`.

    Raises:
        InvalidInputError: An argument is invalid; the message says what is valid.
    """

    def __init__(
        self,
        session: AgentJobsSession,
        journal: Journal,
        *,
        on_change: OnChange | None = None,
        on_end: OnEnd | None = None,
        least_gap: float = 1.0,
        limits: Limits | Kept = "kept",
        other_service: bool = False,
    ) -> None:
        check_session_and_journal(session, journal)
        self._session = session
        self._journal = journal
        self._opened = journal._opened
        self._on_change = None if on_change is None else Callback("on_change", on_change)
        self._on_end = None if on_end is None else Callback("on_end", on_end)
        self._least_gap = checked_seconds("least_gap", least_gap, zero=True)
        self._limits = checked_limits(limits)
        self._other_service = checked_flag("other_service", other_service)
        self._submitting: set[asyncio.Future[Any]] = set()
        self._is_open = self._closed = self._has_missed = False

    async def __aenter__(self) -> Self:
        """Follow all jobs under way.

        Raises:
            InvalidInputError: The journal is not open, or belongs to another service; or the block was entered before.
            JournalError: The journal can't be read or written.
        """
        if self._is_open or self._closed:
            raise InvalidInputError("durable jobs are entered once: make new ones")
        self._store = self._journal.store
        self._item_tasks = item_tasks = await open_run(
            self._session,
            self._journal,
            DURABLE,
            limits=self._limits,
            own={"timeout": None},
            other_service=self._other_service,
        )
        # No await before `_sweep_once`: from here on `_leave` undoes all of it, and needs these attributes.
        self._is_open = True
        records = item_tasks.context.records
        self._rows = DurableRows(self._store, records.owner, tells=self._on_end is not None)
        self._following = Following(self._session, records, self._rows, self._on_change, self._on_end, self._least_gap)
        self._creates = Creates(item_tasks, self._following)
        try:
            # A crash within it leaves rows that this owner follows. In a file the next owner frees all rows of others;
            # on a server any owner does, once the heartbeats have stopped for long enough.
            await self._sweep_once()
        except BaseException:  # `__aexit__` is called only for a block that was entered
            with suppress(JournalError):  # the ids that it names are in the log
                await self._leave(0.0)
            raise
        recording = item_tasks.record_seen(self._following.under_way)
        _ = item_tasks.start_helper(recording, Phase.LEFT)
        _ = item_tasks.start_helper(self._sweep(), Phase.NO_CREATES)
        _ = item_tasks.start_helper(LateJobs(item_tasks.context, None).poll(), Phase.ANSWERS_ONLY)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with noted_on(error):
            await self._leave(0.0 if isinstance(error, asyncio.CancelledError) else GRACE_SECONDS)

    async def aclose(self) -> None:
        """Stop following: wait up to 10 s for creates and callbacks under way. Idempotent; the next start continues.

        Raises:
            JournalError: The journal could not record jobs that were created; it names them, and so does the log.
        """
        await self._leave(GRACE_SECONDS)

    async def submit(
        self,
        key: str,
        prompt: str,
        *,
        project_id: str | None = None,
        context: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
        wait_for_create: bool = True,
    ) -> DurableEntry:
        """Create a job and follow it, or return the job that this key has already, in this process or another one.

        Returns once the create was answered or refused; while the server can't be reached or asks to wait, that may
        take long. Cancelling this call leaves at once: once planned, the job is created and followed all the same.

        Args:
            key: Your own name for the job, such as a message's id: 1 to 512 characters, no control characters.
            prompt: What the agent is to do.
            project_id: The project; `None` for the session's.
            context: A JSON object of your own, up to 16 KiB, which every callback gets; the first one of a key is kept.
            extra: More fields of the create's JSON object, as of `BatchItem`.
            wait_for_create: `False` returns as soon as the job is planned, so that a message or webhook can be
                acknowledged: from then on a job is created and followed, whatever ends the process.

        Returns:
            The entry. Its `state` is `active` or the end of the job; `rejected` or `unknown`, which `on_end` is told
            as well; or `planned` where the server refuses the key at present (401, 403): it is sent later.

        Raises:
            InvalidInputError: An argument is invalid, or the key is that of another prompt, project or extra.
            NotSentError: The server's certificate is not trusted, or the proxy refuses; the job is sent later.
            SessionClosedError: The session or this object is closed or draining. What is planned continues at the next
                start.
            JournalError: The journal can't be written.
            AgentJobsError: The job was abandoned before its create was answered.
        """
        project_id = self._session.project_id if project_id is None else project_id
        item = checked_item(BatchItem(key, prompt, project_id, context, extra))
        if project_id is None:
            raise InvalidInputError("project_id is missing: pass it to submit or to the session")
        if extra is not None:  # once planned, what can't be sent would be tried for ever
            self._session._checked_extra(extra)
        self._check_open()
        self._store.check_text("prompt", prompt)
        wait_for_create = checked_flag("wait_for_create", wait_for_create)
        # In a task of its own: a cancellation between the plan and the create would leave a row that nothing sends.
        task = asyncio.get_running_loop().create_task(self._submit(item, wait_for_create=wait_for_create))
        self._submitting.add(task)
        task.add_done_callback(self._submitted)
        await asyncio.wait([task])
        if task.cancelled():
            raise SessionClosedError("the durable jobs were closed; what is planned continues at the next start")
        entry = task.result()  # that of all who wait for the same create
        return evolve(entry, context=deepcopy(entry.context), extra=deepcopy(entry.extra))

    async def get(self, key: str) -> DurableEntry | None:
        """Return the entry of a key; `None` if there is none.

        Raises:
            InvalidInputError: It can be no key: not a string of 1 to 512 characters, without control characters.
        """
        self._check_open()
        row = await self._row(checked_key(key))
        return None if row is None else self._following.entry(row)

    async def active(self, where: Where | None = None) -> list[DurableEntry]:
        """Return the entries of all jobs that are followed and have not ended, in the order of their submission.

        On PostgreSQL these are the jobs of all processes; `job` is set for those that this one follows.

        Args:
            where: Conditions that they meet as well, such as `Where(text="chat-7/")`, which looks for a text in keys
                and prompts; `None` for all.
        """
        self._check_open()
        return [self._following.entry(row) async for row in Rows(partial(self._rows.active, where=where))]

    async def unfollow(self, key: str) -> bool:
        """Stop following a job, for good: no callback is called for it any more, and the job itself continues.

        Return whether it was followed. While its create is being sent, this waits for the answer. An unknown job that
        is planned again is followed again. A callback may call this for its own job.

        Raises:
            InvalidInputError: The job is planned: `abandon` withdraws it. Or it can be no key, as for `get`.
            JournalError: The journal can't be read or written.
        """
        self._check_open()
        checked_key(key)
        delays = _looks()
        while not (unfollowed := await self._unfollowed(key)) and (state := await self._rows.followed_state(key)):
            if state is State.PLANNED:
                advice = "withdraw it by abandon, or unfollow it once it is sent"
                raise InvalidInputError(f"{key!r:.200} is planned: {advice}")
            if state is State.UNKNOWN:
                self._creates.cease(key)
            await self._answered(key, next(delays))
            self._check_open()
        self._following.leave(key)
        return unfollowed

    async def _unfollowed(self, key: str) -> bool:
        """Unfollow a job, and return whether that was done; not while its create is under way, which hands it over."""
        return self._creates.answer_to(key) is None and await self._rows.unfollow(key)

    async def _answered(self, key: str, seconds: float) -> None:
        """Wait so many seconds, or until a create of this process is answered."""
        answer = self._creates.answer_to(key)
        if answer is None or answer.done():
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait([answer], timeout=seconds)

    async def abandon(self, key: str) -> None:
        """Withdraw a planned job, or give up an active or unknown one, as `Journal.abandon` does.

        A planned job is never sent then, and a `submit` that waits for its create raises an `AgentJobsError`; an agent
        that is at work continues. `on_end` is told an `AgentJobsError`. `Journal.retry` with the key plans the job
        again.

        Raises:
            InvalidInputError: There is no such job, it is being sent or has ended; or it can be no key, as for `get`.
            JournalError: The journal can't be read or written.
        """
        self._check_open()
        await self._journal.abandon(key)
        with suppress(JournalError):  # it is abandoned: the next sweep tells of it
            await self._notice(key)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError("the durable jobs are closed; make new ones")
        if not self._is_open:
            raise InvalidInputError("the durable jobs are not open: use them inside of async with DurableJobs(...)")

    async def _submit(self, item: BatchItem, *, wait_for_create: bool) -> DurableEntry:
        """Plan an item, and return its entry, at once or as soon as its create is answered or held back."""
        submitted = await self._rows.submit(item)
        if submitted is None:
            raise InvalidInputError(
                f"{item.key!r:.200} is the key of another prompt, project or extra in the journal: use another one"
            )
        row = submitted.row
        if submitted.is_followed and row.state is State.PLANNED:
            # No await before it: whatever moves the row from here on is noticed after this, and ends this create.
            self._continue_with(Noticed(row, is_own=False))
        else:
            await self._notice(item.key)
        if not wait_for_create:
            return self._following.entry(row)
        answer = self._creates.answer_to(item.key)
        if answer is not None and (entry := await asyncio.shield(answer)) is not None:
            return entry
        row = await self._answered_elsewhere(row)
        # The create may have ended since the row was read; and it may be retried.
        newest = await self._row(item.key)
        return self._following.entry(newest or row)

    async def _row(self, key: str) -> JournalRow | None:
        return (await self._store.rows_of([key])).get(key)

    def _submitted(self, task: asyncio.Task[DurableEntry]) -> None:
        self._submitting.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here: the call that asked may have been cancelled

    async def _answered_elsewhere(self, row: JournalRow) -> JournalRow:
        """Return a row once the process that follows it has had the answer to its create, or is held back."""
        delays = _looks()
        while await self._is_to_be_answered(row):
            with CancelScope(None, self._session._shutdown.waits) as scope:
                await asyncio.sleep(next(delays))
            if scope.reason is not None:
                raise scope.reason
            row = (await self._store.rows_of([row.key]))[row.key]
            if row.state is State.ABANDONED:
                raise abandoned_error(row)
        return row

    async def _is_to_be_answered(self, row: JournalRow) -> bool:
        """Return whether another process sends the create of a row, or is going to repeat it."""
        if row.state is State.UNKNOWN:
            return await has_owner(self._store, row.key)
        return row.state is State.SENDING or (row.state is State.PLANNED and row.error is None)

    def _continue_with(self, noticed: Noticed, *, repeats: bool = False) -> None:
        """Continue with a row that this process follows, where it is: in place of what was done for it before.

        `repeats` says that its create is in doubt, and may be sent again with its key.
        """
        row = noticed.row
        self._creates.withdraw(row)
        if self._creates.answer_to(row.key) is not None and row.state is not State.ABANDONED:
            return  # it goes on by itself, and tells of an end
        if row.state is State.PLANNED or repeats:
            self._following.tell_earlier(row)
            self._creates.begin(row)
        elif row.state is not State.ACTIVE or noticed.is_own:  # else another owner polls it, until it leaves it
            self._following.follow(row)

    async def _notice(self, key: str | None = None) -> None:
        """Continue with the rows that nobody follows, and with own ones that another owner has moved or left."""
        after = 0
        try:
            while found := await self._rows.notice(after, key=key):
                unknown = [noticed for noticed in found if noticed.row.state is State.UNKNOWN]
                # No await before it. Unknown ones may wait: whoever moves them meanwhile has them noticed once more.
                for noticed in found:
                    if noticed.row.state is not State.UNKNOWN:
                        self._continue_with(noticed)
                numbers = await self._creates.repeatable([noticed.row for noticed in unknown])
                for noticed in unknown:
                    self._continue_with(noticed, repeats=noticed.number in numbers)
                after = found[-1].number
        except JournalError:
            self._has_missed = True  # they may count as noticed by now: only the answer was lost
            raise

    async def _sweep_once(self) -> None:
        """Free what dead owners have, and continue with what needs it; without an `on_end`, leave ends to others.

        A claim that was cancelled before its answer came leaves a row that is `sending`, and that nothing sends.
        """
        await free_dead(self._store)
        # Moved by nobody: so the rows are to be noticed, as those that others have moved.
        await settle_claims(self._store, NOBODY)
        await doubt_dead(self._store, NOBODY, followed=True)
        if self._has_missed:
            await self._rows.look_again()
            self._has_missed = False
        await self._notice()
        await self._send_unattended()
        if self._on_end is None:
            for row in await self._rows.leave_to_tell():
                self._creates.withdraw(row)
                self._following.leave(row.key)

    async def _send_unattended(self) -> None:
        """Send what is planned and has no create under way: one may have been ending as its row was planned again."""
        keys = [key for key in await self._rows.planned() if self._creates.answer_to(key) is None]
        for start in range(0, len(keys), _PAGE_KEYS):
            for row in (await self._store.rows_of(keys[start : start + _PAGE_KEYS])).values():
                if row.state is State.PLANNED:
                    self._continue_with(Noticed(row, is_own=False))

    async def _sweep(self) -> None:
        """Look, until cancelled, for rows that owners left, and for what others have moved."""
        seconds = min(_SWEEP_SECONDS, self._opened.owner_timeout / _SWEEPS)
        life = self._life()
        while True:
            await asyncio.sleep(seconds)
            try:
                if life != (now := self._life()):
                    await self._leave_no_longer_followed()
                    life = now
                await self._sweep_once()
            except JournalError as error:
                _logger.info("the journal can't be searched, and is later: %s", error)

    async def _leave_no_longer_followed(self) -> None:
        """Leave what other processes follow: for them this one counts as dead, since its heartbeats had stopped."""
        keys = iter([followed.key for followed in self._following.under_way()])
        while page := list(islice(keys, _PAGE_KEYS)):
            left = await self._rows.no_longer_followed(page)
            for key in left:
                self._following.leave(key)
            await self._rows.leave_to_poll(list(left))

    def _life(self) -> int:
        """Return what changes when this owner may have counted as dead."""
        return 0 if self._opened.heartbeat is None else self._opened.heartbeat.life

    async def _leave(self, grace: float) -> None:
        """Stop following, and wait `grace` seconds for creates and callbacks under way.

        Raises:
            JournalError: The journal does not have jobs that were created.
        """
        was_open, self._is_open, self._closed = self._is_open, False, True
        if not was_open:
            return
        until = asyncio.get_running_loop().time() + grace
        self._following.stop()  # first: no job that is created meanwhile is waited for
        try:
            try:
                await self._item_tasks.close(grace)
            finally:
                for task in self._submitting:
                    task.cancel()
                await until_done(set(self._submitting))
        except asyncio.CancelledError:
            until = 0.0  # a callback under way is called again at the next start
            raise
        finally:  # also where the wait before was cancelled: a scope of anyio's cancels at each iteration of the loop
            await self._end_following(until)

    async def _end_following(self, until: float) -> None:
        """Wait until the loop time `until` for callbacks under way; then the journal's rows are free for others."""
        try:
            await self._following.close(max(until - asyncio.get_running_loop().time(), 0.0))
        finally:
            await self._item_tasks.leave_journal()


def _looks() -> Iterator[float]:
    """Yield the seconds from one look at a row to the next."""
    delay = _FIRST_LOOK_SECONDS
    while True:
        yield delay
        delay = min(2 * delay, _LONGEST_LOOK_SECONDS)
