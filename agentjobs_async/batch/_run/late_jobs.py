"""The jobs of earlier tries whose creates were answered late: they are polled to their ends, and told of by nobody."""

import asyncio
import logging
from functools import partial
from typing import Final

from agentjobs_async import AgentJob, JobRef, JournalError, NotFoundError, SessionClosedError
from agentjobs_async.batch._run.context import RunContext
from agentjobs_async.batch._run.item_run import result_of
from agentjobs_async.batch._store.late import end_late, take_late
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.states import State

_LOOK_SECONDS: Final = 60.0  # for those that other owners have left

_logger: Final = logging.getLogger("agentjobs_async.batch")


class LateJobs:
    """Polls the jobs of earlier tries that nobody else polls, and records how they end.

    Args:
        context: That of the run.
        timeout: Seconds for which the run waits for each of them; `None` for any number.
    """

    def __init__(self, context: RunContext, timeout: float | None) -> None:
        self._context = context
        self._timeout = timeout
        self._polling: set[asyncio.Task[None]] = set()
        self._had: set[str] = set()
        self._has_looked = False

    @property
    def is_idle(self) -> bool:
        """Whether the run waits for no such job."""
        return self._has_looked and not self._polling and not self._context.has_late_job.is_set()

    async def poll(self) -> None:
        """Look for such jobs, at once and whenever there may be one, and poll them, until cancelled."""
        try:
            while True:
                self._context.has_late_job.clear()
                try:
                    await self._begin()
                except JournalError as error:
                    _logger.info("late jobs can't be looked for, and are later: %s", error)
                self._has_looked = True
                self._context.changed.set()
                await self._until_due()
        finally:
            for task in self._polling:
                task.cancel()

    async def _begin(self) -> None:
        for row, ref in await take_late(self._context.records.store, self._context.owner.name, self._had):
            self._had.add(ref.job_id)
            task = asyncio.create_task(self._poll(row, ref))
            self._polling.add(task)
            task.add_done_callback(self._end)

    async def _until_due(self) -> None:
        timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._context.has_late_job.set)
        try:
            await self._context.has_late_job.wait()
        finally:
            timer.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._polling.discard(task)
        self._context.changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("the end of a late job is recorded by a later run: %s", error)

    async def _poll(self, row: JournalRow, ref: JobRef) -> None:
        ended = await result_of(self._context.session.watch(ref, timeout=self._timeout))
        records = self._context.records
        record = partial(end_late, records.store, row, ref)
        match ended:
            case AgentJob():
                await record(State(ended.status), pr_link=records.link(ended))
            case NotFoundError():
                await record(State.FAILED, error=records.text(ended))
            case SessionClosedError():
                pass  # the run ends, and leaves it to others
            case _:
                await record(State.ACTIVE, error=records.text(ended))
