"""Durable jobs: submitted one by one under a key, created at most once, and followed to their ends across restarts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Final, Self

from attrs import evolve

from agentjobs_async import AgentJob, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async._validation import checked_count, checked_flag, checked_seconds, checked_timeout
from agentjobs_async.batch import BatchItem, Journal, Rows, State, Where
from agentjobs_async.batch._run.context import Phase
from agentjobs_async.batch._run.kinds import DURABLE
from agentjobs_async.batch._run.late_jobs import LateJobs
from agentjobs_async.batch._run.tasks import GRACE_SECONDS, check_session_and_journal, noted_on, open_run
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch.items import checked_item, checked_key
from agentjobs_async.batch.limits import Kept, Limits, checked_limits
from agentjobs_async.durable._callback import Callback
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._following import Following
from agentjobs_async.durable._held import HeldJobs
from agentjobs_async.durable._listening import Listening
from agentjobs_async.durable._noticing import Noticing
from agentjobs_async.durable._notifying import Notifying
from agentjobs_async.durable._submissions import Submissions, look_delays
from agentjobs_async.durable._updates import EntryReader, EntryUpdates, closed_error
from agentjobs_async.durable._waiting import end_or_doubt
from agentjobs_async.durable.entry import DurableEntry, entry_of
from agentjobs_async.durable.stats import DurableStats
from agentjobs_async.durable.users import checked_user, user_id_of
from agentjobs_async.telemetry.metrics import ItemGauges

__all__ = ["DurableJobs", "OnChange", "OnEnd"]

OnChange = Callable[[DurableEntry, AgentJob | Exception], Awaitable[object] | object]
"""What `on_change` of `DurableJobs` is: a plain or an async function of an entry, and of a job or an error."""
OnEnd = Callable[[DurableEntry, AgentJob | Exception], Awaitable[object] | object]
"""What `on_end` of `DurableJobs` is: a plain or an async function of an entry, and of the ended job or an error."""

_MOST_OF_USER: Final = 1000  # few enough that the loop stands still for some milliseconds only


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
            and when it has changed; and as `on_change(entry, error)` for a planned job that is held back, once in each
            try for each type of reason: the key is refused, a 429, an outage, a rate, or the limits of all owners. The
            end is left to `on_end`, which begins once `on_change` has returned.
        on_end: Called as `on_end(entry, job_or_error)` once the end is in the journal: with the `AgentJob`; or with the
            error where the create was refused, its outcome is unknown, or the job is gone or was abandoned. It is
            called at least once: again, after 1 s doubling to 300 s and after a restart, until it has returned. It may
            raise `RetryLater`, to name the time of the next call, and `Undeliverable`, so that there is none. A job
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
        self._is_open = self._closed = False
        self._updates = EntryUpdates(session, journal)

    async def __aenter__(self) -> Self:
        """Follow all jobs under way.

        Raises:
            InvalidInputError: The journal is not open, or belongs to another service; or the block was entered before.
            JournalError: The journal can't be read or written.
        """
        if self._is_open or self._closed:
            raise InvalidInputError("durable jobs are entered once: make new ones")
        self._item_tasks = await open_run(
            self._session,
            self._journal,
            DURABLE,
            limits=self._limits,
            own={"timeout": None},
            other_service=self._other_service,
        )
        # No await before `sweep_once`: from here on `_leave` undoes all of it, and needs what `_assemble` makes.
        self._assemble()
        self._is_open = True  # last: an exporter's thread may ask at any moment
        try:
            # A crash within it leaves rows that this owner follows. In a file the next owner frees all rows of others;
            # on a server any owner does, once the heartbeats have stopped for long enough.
            await self._noticing.sweep_once()
        except BaseException:  # `__aexit__` is called only for a block that was entered
            with suppress(JournalError):  # the ids that it names are in the log
                await self._leave(0.0)
            raise
        self._start_helpers()
        return self

    def _assemble(self) -> None:
        """Make what works on the rows, from the rows themselves up: each part knows those before it."""
        records = self._item_tasks.context.records
        self._store = self._journal.store
        self._rows = DurableRows(self._store, records.owner, tells=self._on_end is not None)
        self._following = Following(self._session, records, self._rows, self._on_change, self._on_end, self._least_gap)
        self._creates = Creates(self._item_tasks, self._following)
        self._noticing = Noticing(self._opened, self._store, self._rows, self._creates, self._following)
        self._held = HeldJobs(self._item_tasks, self._creates, self._rows, self._following)
        self._notifying = Notifying(self._rows, self._following, self._noticing)
        self._submissions = Submissions(
            self._session, self._store, self._rows, self._creates, self._held, self._noticing
        )

    def _start_helpers(self) -> None:
        """Start what goes on by itself until the block is left."""
        start = self._item_tasks.start_helper
        _ = start(self._item_tasks.record_seen(self._following.under_way), Phase.LEFT)
        _ = start(self._noticing.sweep(), Phase.NO_CREATES)
        _ = start(self._held.look_on(), Phase.NO_CREATES)
        if self._store.notifies:
            listening = Listening(self._opened, self._rows, self._noticing)
            _ = start(listening.run(), Phase.NO_CREATES)
        _ = start(LateJobs(self._item_tasks.context, None).poll(), Phase.ANSWERS_ONLY)

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
        user: str | None = None,
        most_open: int | None = None,
        wait_for_create: bool = True,
    ) -> DurableEntry:
        """Create a job and follow it, or return the job that this key has already, in this process or another one.

        Returns once the create was answered or refused; while the server can't be reached or asks to wait, that may
        take long. A cancelled call returns at once: once planned, the job is created and followed all the same.

        Args:
            key: Your own name for the job, such as a message's id: 1 to 512 characters, no control characters. What a
                user has chosen becomes a key by `user_key`.
            prompt: What the agent is to do.
            project_id: The project; `None` for the session's.
            context: A JSON object of your own, up to 16 KiB, which every callback gets; the first one of a key is kept.
            extra: More fields of the create's JSON object, as of `BatchItem`.
            user: Whose job it is, for `most_open` and `of_user`: the same text as of `user_key`; `None` for nobody's.
            most_open: How many jobs of this user may be planned, being sent or active at once, this one included, in
                all processes: at least 1; `None` for any number. A key that is known is never refused by it.
            wait_for_create: `False` returns as soon as the job is planned, so that a message or webhook can be
                acknowledged: from then on a job is created and followed, whatever ends the process.

        Returns:
            The entry. Its `state` is `active` or the end of the job; `rejected` or `unknown`, which `on_end` is told
            as well; or `planned` where the server refuses the key at present (401, 403), or where another process
            follows the job and its create is held back: it is sent later. `error` says why a planned job is held back,
            where that is known by now.

        Raises:
            InvalidInputError: An argument is invalid, or the key is that of another prompt, project, extra or user (its
                reason is `key_taken`).
            UserLimitError: The user has as many jobs under way as `most_open` allows; nothing was planned.
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
        whose = checked_user(user, most_open)
        self._check_open()
        self._store.check_text("prompt", prompt)
        wait_for_create = checked_flag("wait_for_create", wait_for_create)
        return await self._submissions.submit(item, whose, wait_for_create=wait_for_create)

    async def get(self, key: str) -> DurableEntry | None:
        """Return the entry of a key; `None` if there is none.

        Raises:
            InvalidInputError: It can be no key: not a string of 1 to 512 characters, without control characters.
        """
        self._check_open()
        row = await self._journal.get(key)
        return None if row is None else entry_of(row)

    async def of_user(self, user: str, *, last: int = 10) -> list[DurableEntry]:
        """Return the entries of a user's last jobs, in the order of their submission, whatever their states.

        Args:
            user: The user, as given to `submit`.
            last: How many at the most: 1 to 1000.

        Raises:
            InvalidInputError: An argument is invalid.
            JournalError: The journal can't be read.
        """
        user_id = user_id_of(user)
        checked_count("last", last, most=_MOST_OF_USER)
        self._check_open()
        return [entry_of(row) for row in await self._rows.last_of(user_id, last)]

    async def wait(
        self,
        key: str,
        *,
        timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature, as of all waits
    ) -> DurableEntry:
        """Wait for the create of a job, then for its end, and return its entry, in this process or any other one.

        An entry that is `unknown` is returned as well, unless its create is going to be sent again with its key: it
        stays so until a person settles it. Cancelling this ends nothing else.

        Args:
            key: The key of a row in the journal.
            timeout: Seconds, above 0; `None` waits for ever.

        Raises:
            InvalidInputError: An argument is invalid; or there is no job of this key (its reason is `no_such_key`).
            WaitTimeoutError: The timeout passed, as in `updates`. The job continues.
            SessionClosedError: The session or this object was closed, or the session is draining.
            JournalError: The journal can't be read.
        """
        async with self.updates(key, timeout=timeout) as changes:
            try:
                return await end_or_doubt(changes, self._creates)
            except (InvalidInputError, JournalError):
                self._check_open()  # the journal may have been closed as well, while it was asked about a doubt
                raise

    async def active(self, where: Where | None = None) -> list[DurableEntry]:
        """Return the entries of all jobs that are followed and have not ended, in the order of their submission.

        On PostgreSQL these are the jobs of all processes.

        Args:
            where: Conditions that they meet as well, such as `Where(prefix="chat-7/")`, for those whose keys begin
                with this text; `None` for all.
        """
        self._check_open()
        return [entry_of(row) async for row in Rows(partial(self._rows.active, where=where))]

    def updates(
        self, key: str, *, timeout: float | None = 1800.0
    ) -> AbstractAsyncContextManager[AsyncIterator[DurableEntry]]:
        """Return an async context manager over the entry of a key now, and then each change, from planned to the end.

        The entries are those of the journal, so they are the same in every process, for the items of batches as well. A
        change is another state, try, job, pull request or error; it is seen within a second. A slow reader gets the
        newest entry, no backlog. `anext` may be cancelled: no change is lost. Leaving the block ends nothing else: the
        job continues, and is followed as before.

        The iteration ends after an entry that is terminal: `completed`, `failed`, `archived`, `rejected` or
        `abandoned`. An `unknown` one is yielded, and the iteration continues: a person may settle it, or its create is
        sent again with its key. An end after a retry is yielded to a reader that begins later, or that has not read the
        end before it yet; a reader that has read that end gets no more.

        Args:
            key: The key of a row in the journal.
            timeout: Seconds from entering the block, above 0; `None` waits for ever.

        Raises:
            InvalidInputError: An argument is invalid; or, from entering the block, there is no job of this key.
            WaitTimeoutError: From the iteration: the timeout passed. Its `ref` is `None` where the job has no id at
                present. `last_error` is a `JournalError` where the journal can't be read, which ends nothing before.
            SessionClosedError: From entering the block or the iteration: the session or this object was closed, or the
                session is draining.
            JournalError: From entering the block: the journal can't be read.
        """
        if not self._closed:  # else entering the block raises it, as all errors but those of arguments
            self._check_open()
        return EntryReader(self._updates, checked_key(key), checked_timeout(timeout))

    async def unfollow(self, key: str) -> bool:
        """Stop following a job, for good: no callback is called for it any more, and the job itself continues.

        Return whether it was followed. While its create is being sent, this waits for the answer. An unknown job that
        is planned again is followed again. A callback may call this for its own job. The job stays `active` in the
        journal, since nobody polls it, and no longer counts for `most_open` of `submit`: where users are to wait for
        its end, follow it, and note in its context that nobody is to be told.

        Raises:
            InvalidInputError: The job is planned: `abandon` withdraws it. Or it can be no key, as for `get`.
            JournalError: The journal can't be read or written.
        """
        self._check_open()
        checked_key(key)
        delays = look_delays()
        while not (unfollowed := await self._unfollowed(key)):
            state = await self._rows.followed_state(key)
            if state is None:
                break
            if state is State.PLANNED:
                advice = "withdraw it by abandon, or unfollow it once it is sent"
                raise InvalidInputError(f"{key!r:.200} is planned: {advice}", reason="wrong_state")
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
        await self._journal.abandon(checked_key(key))
        with suppress(JournalError):  # it is abandoned: the next sweep tells of it
            await self._noticing.notice(key)

    async def retry(self, key: str) -> None:
        """Plan a job once more that failed, was archived, rejected or abandoned, as `Journal.retry` does.

        It keeps its key. What it was is kept as an earlier try, whose end `on_end` is still told first.

        Raises:
            InvalidInputError: There is no such job, or it has not ended in one of these ways; or it can be no key.
            JournalError: The journal can't be read or written.
        """
        self._check_open()
        await self._journal.retry(checked_key(key))
        with suppress(JournalError):  # it is planned: the next sweep sends it
            await self._noticing.notice(key)

    async def set_context(self, key: str, context: dict[str, Any] | None) -> None:
        """Replace the context of a job, as `Journal.set_context` does: each later call of a callback gets the new one.

        Args:
            key: The key.
            context: As of `submit`; `None` for none.

        Raises:
            InvalidInputError: There is no such job, `context` is no JSON object of up to 16 KiB, or `key` can be no
                key.
            JournalError: The journal can't be written.
        """
        self._check_open()
        await self._journal.set_context(key, context)

    def stats(self) -> DurableStats:
        """Return a snapshot of the jobs that this process follows; all of it is 0 while the block is not entered."""
        if not self._is_open:
            return DurableStats({}, 0)
        creates, held = self._item_tasks.stats(None), self._held.now()
        counts = self._following.counts()
        counts[State.PLANNED] = 0  # those that are followed are among the creates
        counts.update(item.state for item in self._item_tasks.under_way())
        counts[State.UNKNOWN] = self._noticing.unknown
        paused_by = creates.paused_by or self._held.unsent_by()
        return DurableStats(dict(+counts), len(held), paused_by, creates.next_create)

    def notify(self, key: str) -> asyncio.Future[bool]:
        """Poll the job of a key once, soon, in whichever process follows it: for a webhook that reports a change.

        It begins at once, and need not be awaited. However often it is called, no poll comes before the time for which
        the service has asked. On PostgreSQL another process is told by a notification; where a pooler keeps that back,
        its next sweep finds it, 2 s later at most. A file has one process.

        Returns:
            A future of whether a job is followed under the key, here or in another process. It raises a `JournalError`
            where the journal can't be written, which is logged as well, once until that succeeds again; and a
            `SessionClosedError` where the durable jobs are closed meanwhile.

        Raises:
            InvalidInputError: It can be no key, as for `get`; or the block was not entered.
            SessionClosedError: The session or this object is closed or draining, or belongs to another event loop.
        """
        self._check_open()
        return self._notifying.notify(checked_key(key))

    def _gauges(self) -> ItemGauges | None:
        """Return what gauges show, in whatever thread an exporter asks; `None` while the block is not entered."""
        creates = self._item_tasks.gauges(None) if self._is_open else None
        if creates is None:
            return None
        active = creates.states["active"] + self._following.counts()[State.ACTIVE]
        states = {**creates.states, "active": active}
        return evolve(creates, unknown=self._noticing.unknown, states=states)

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()
        if not self._is_open:
            raise InvalidInputError("the durable jobs are not open: use them inside of async with DurableJobs(...)")

    async def _leave(self, grace: float) -> None:
        """Stop following, and wait `grace` seconds for creates and callbacks under way.

        Raises:
            JournalError: The journal does not have jobs that were created.
        """
        was_open, self._is_open, self._closed = self._is_open, False, True
        self._updates.stop()
        if not was_open:
            return
        until = asyncio.get_running_loop().time() + grace
        self._following.stop()  # first: no job that is created meanwhile is waited for
        try:
            try:
                await self._item_tasks.close(grace)
            finally:
                try:
                    await self._notifying.cancel()
                finally:
                    await self._submissions.cancel()
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
            try:
                await self._updates.close()
            finally:
                await self._item_tasks.leave_journal()
