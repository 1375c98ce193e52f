"""Durable jobs: submitted one by one under a key, created at most once, and followed to their ends across restarts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from agentjobs_async import AgentJob, AgentJobsSession, InvalidInputError, JournalError, SessionClosedError
from agentjobs_async._validation import checked_flag, checked_seconds
from agentjobs_async.batch import BatchItem, Journal, Where
from agentjobs_async.batch._item_tasks import GRACE_SECONDS
from agentjobs_async.batch.items import checked_item
from agentjobs_async.batch.journal import entries_of
from agentjobs_async.batch.runner import check_session_and_journal
from agentjobs_async.durable._callback import Callback
from agentjobs_async.durable._run import Run
from agentjobs_async.durable.entry import DurableEntry

__all__ = ["DurableJobs", "OnChange", "OnEnd"]

OnChange = Callable[[DurableEntry, AgentJob], Awaitable[object] | object]
"""What `on_change` is: a plain or an async function."""
OnEnd = Callable[[DurableEntry, AgentJob | Exception], Awaitable[object] | object]
"""What `on_end` is: a plain or an async function."""

_logger: Final = logging.getLogger("agentjobs_async.durable")


class DurableJobs:
    """Jobs that come one by one, each created at most once and followed to its end, whatever ends the process.

    Use it as `async with`: entering follows every job of the journal again that is under way, and sends what was
    planned. Leaving stops following; it cancels no job, and the next start continues. It waits up to 10 s for creates
    and callbacks under way, after a cancellation not at all. On PostgreSQL any number of processes may share one
    journal: one of them follows each job, and another takes over when it dies.

    Of the journal's `FleetLimits`, a file applies those of creates in flight, their rate, and polls per second;
    PostgreSQL applies `max_active` as well. A job that `Journal.retry` plans again is followed under the key of its new
    try, and each call that takes a key means the newest try.

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
    ) -> None:
        check_session_and_journal(session, journal)
        self._session = session
        self._journal = journal
        self._on_change = None if on_change is None else Callback("on_change", on_change)
        self._on_end = None if on_end is None else Callback("on_end", on_end)
        self._least_gap = checked_seconds("least_gap", least_gap, zero=True)
        self._run: Run | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Follow all jobs under way.

        Raises:
            InvalidInputError: The journal is not open, or followed by other durable jobs of this process; or the block
                was entered before.
            JournalError: The journal can't be read or written.
        """
        if self._run is not None or self._closed:
            raise InvalidInputError("durable jobs are entered once: make new ones")
        entries_of(self._journal).mask(self._session.mask)
        run = Run(self._session, self._journal, self._on_change, self._on_end, self._least_gap)
        await run.prepare()
        self._run = run
        try:
            await run.start()
        except BaseException:
            await self._leave(0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        fault = await self._leave(0.0 if cancelled else GRACE_SECONDS)
        if fault is not None and error is None:
            raise fault
        if fault is not None and error is not None:
            error.add_note(str(fault))

    async def aclose(self) -> None:
        """Stop following: wait up to 10 s for creates and callbacks under way. Idempotent; the next start continues.

        Raises:
            JournalError: The journal could not record jobs that were created; it names them, and so does the log.
        """
        if (fault := await self._leave(GRACE_SECONDS)) is not None:
            raise fault

    async def submit(
        self,
        key: str,
        prompt: str,
        *,
        project_id: str | None = None,
        context: dict[str, Any] | None = None,
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
            wait_for_create: `False` returns as soon as the job is planned, so that a message or webhook can be
                acknowledged: from then on a job is created and followed, whatever ends the process.

        Returns:
            The entry. Its `state` is `active` or the end of the job; `rejected` or `unknown`, which `on_end` is told
            as well; or `planned` where the server refuses the key at present (401, 403): it is sent later.

        Raises:
            InvalidInputError: An argument is invalid, or the key is that of another prompt or project.
            NotSentError: The server's certificate is not trusted, or the proxy refuses; the job is sent later.
            SessionClosedError: The session or this object is closed or draining. What is planned continues at the next
                start.
            JournalError: The journal can't be written.
        """
        item = checked_item(BatchItem(key, prompt, project_id, context))
        if project_id is None and self._session.project_id is None:
            raise InvalidInputError("project_id is missing: pass it to submit or to the session")
        return await self._open.submit(item, wait_for_create=checked_flag("wait_for_create", wait_for_create))

    async def get(self, key: str) -> DurableEntry | None:
        """Return the entry of a key; `None` if there is none."""
        return await self._open.get(key)

    async def active(self, where: Where | None = None) -> list[DurableEntry]:
        """Return the entries of all jobs that are followed and have not ended, in the order of their submission.

        On PostgreSQL these are the jobs of all processes; `job` is set for those that this one follows.

        Args:
            where: Conditions that they meet as well, such as `Where(text="chat-7/")`, which looks for a text in keys
                and prompts; `None` for all.
        """
        return await self._open.active(where)

    async def unfollow(self, key: str) -> bool:
        """Stop following a job, for good: no callback is called for it any more, and the job itself continues.

        Return whether it was followed. A callback may call this for its own job.
        """
        return await self._open.unfollow(key)

    @property
    def _open(self) -> Run:
        if self._closed:
            raise SessionClosedError("the durable jobs are closed; make new ones")
        if self._run is None:
            raise InvalidInputError("the durable jobs are not open: use them inside of async with DurableJobs(...)")
        return self._run

    async def _leave(self, grace: float) -> JournalError | None:
        run, self._run, self._closed = self._run, None, True
        return None if run is None else await run.close(grace)
