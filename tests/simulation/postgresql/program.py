"""What a process does over the public face, and what it reports of that: a line of JSON for each event."""

import asyncio
import json
import logging
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    HttpTimeouts,
    InvalidInputError,
    JobFailedError,
    JournalError,
    PollPolicy,
    SessionClosedError,
)
from agentjobs_async.batch import BatchItem, BatchResult, BatchWorker, Journal, run_batch
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.telemetry import Event, JobPolled, PollFailed
from agentjobs_async.testing._session import EmulatorSession
from agentjobs_async.web import drain_on_signal
from tests.simulation.postgresql.plan import KEY, Program, extra_of, project_of

LIFE_SECONDS: Final = 300
"""After which a process ends by itself: whoever has started it may have been killed."""
_POLL_SECONDS: Final = 0.1
_STALL_SECONDS: Final = 0.3


@frozen
class Start:
    """What a process is given.

    Attributes:
        program: What it does.
        number: Which start of its program it is, from 1.
        is_calm: Whether the troubles are over.
        base_url: Of the service.
        location: The database.
        owner_timeout: As of the journal.
        reports: The file of reports.
    """

    program: Program
    number: int
    is_calm: bool
    base_url: str
    location: str
    owner_timeout: float
    reports: Path

    @property
    def sender(self) -> str:
        """The name of the process, which its requests bear."""
        return f"{self.program.name}.{self.number}"


def ended_job_of(result: BatchResult) -> str | None:
    """Return the id of the job whose end a result tells; `None` where it tells none."""
    has_ended = result.error is None or isinstance(result.error, JobFailedError)
    return result.job.id if has_ended and result.job is not None else None


def run(start: Start) -> None:
    """Do what the program does, until SIGTERM."""
    os.setpgrp()  # what interrupts the search is for the search alone, which ends its processes
    signal.alarm(LIFE_SECONDS)
    process = _Process(start)
    process.say("begins", process=os.getpid(), program=start.program.kind)
    try:
        asyncio.run(process.main())
    except BaseException as error:
        process.say("fails", error=type(error).__name__, text="".join(traceback.format_exception(error))[-3_000:])
        raise
    process.say("ends")


class _Warnings(logging.Handler):
    """Reports what the package warns of."""

    def __init__(self, process: "_Process") -> None:
        super().__init__(logging.WARNING)
        self._process = process

    def emit(self, record: logging.LogRecord) -> None:
        self._process.say("warned", text=record.getMessage())


class _Process:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._program = start.program
        self._file = os.open(start.reports, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._stop = asyncio.Event()
        self._has_ended = False
        self._told = Counter[str]()
        logging.getLogger("agentjobs_async").addHandler(_Warnings(self))

    def say(self, what: str, *, at: float | None = None, **about: Any) -> None:
        """Report an event; one line of a file that is open to append is written whole."""
        line = json.dumps([time.monotonic() if at is None else at, self._start.sender, what, about])
        os.write(self._file, f"{line}\n".encode())

    async def main(self) -> None:
        """Run the program until it is asked to end."""
        watching = asyncio.create_task(self._report_stalls())
        session = EmulatorSession(
            self._start.base_url,
            KEY,
            project_id=self._program.project,
            policy=PollPolicy(wait=lambda _: _POLL_SECONDS, not_found_grace=2.0),
            timeouts=HttpTimeouts(connect=5.0, request=1.0),
            user_agent=self._start.sender,
            hooks=[self._on_event],
        )
        async with session:
            if self._program.drains:
                async with drain_on_signal(session, grace=self._program.grace):
                    await self._until_closed(session)
            else:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
                await self._until_closed(session)
        watching.cancel()

    async def _until_closed(self, session: EmulatorSession) -> None:
        """Run until the program has ended, or its session; where the database fails it, once more."""
        with suppress(SessionClosedError):
            while not self._is_over:
                try:
                    async with Journal.open(self._start.location, owner_timeout=self._start.owner_timeout) as journal:
                        while not self._is_over:
                            await self._work(session, journal)
                            await asyncio.sleep(0.2)  # in which nothing may be sent any more
                except JournalError as error:
                    self.say("fails", error=type(error).__name__, text=str(error))
                    await asyncio.sleep(0.2)

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or self._has_ended

    async def _work(self, session: EmulatorSession, journal: Journal) -> None:
        match self._program.kind:
            case "batch":
                await self._batch(session, journal)
                # Another process may go on; one that tells of ends gets the rows that this one has once it has left.
                rows = [row for row in await journal.rows() if row.state.is_open]
                if self._start.is_calm and not self._stop.is_set():
                    self.say("finished", open=[row.key for row in rows if row.key in self._program.keys])
                self._has_ended = self._start.is_calm and not rows
            case "worker":
                await self._worker(session, journal)
            case "durable":
                await self._durable(session, journal)

    @asynccontextmanager
    async def _noted(self) -> AsyncIterator[None]:
        """Report when a run begins, and when it was left."""
        self.say("enters")
        try:
            yield
        finally:
            self.say("leaves")

    @asynccontextmanager
    async def _noted_leaving(self) -> AsyncIterator[None]:
        """Report when a run begins to be left."""
        try:
            yield
        finally:
            self.say("leaving")

    async def _batch(self, session: EmulatorSession, journal: Journal) -> None:
        program = self._program
        items = [BatchItem(key, key, project_of(key), extra=extra_of(key)) for key in program.keys]
        limits: Any = {"max_active": program.max_active, "max_sending": program.max_sending, "timeout": 60.0}
        run = run_batch(session, items, journal=journal, **limits)
        async with self._noted(), run as results, self._noted_leaving():
            async with _beside(self._on_stop(results.aclose())):
                async for result in results:
                    if result.row is not None:  # not of a key that has another project
                        job_id = ended_job_of(result)
                        self.say("result", key=result.row.key, outcome=result.outcome, job=job_id)

    async def _on_stop(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._stop.wait()
        except asyncio.CancelledError:
            work.close()
            raise
        await work

    async def _worker(self, session: EmulatorSession, journal: Journal) -> None:
        items = [BatchItem(key, key, project_of(key), extra=extra_of(key)) for key in self._program.keys]
        await journal.add(items, project_id=self._program.project)
        worker = BatchWorker(session, journal, on_result=self._on_result)
        async with self._noted(), worker, self._noted_leaving():
            async with _beside(self._run_items(worker, journal)) as working:
                async with _beside(self._stop.wait()) as stopping:
                    await asyncio.wait({working, stopping}, return_when="FIRST_COMPLETED")
                if working.done():
                    await working

    async def _run_items(self, worker: BatchWorker, journal: Journal) -> None:
        while True:
            rows = [row async for row in journal.rows() if row.state.is_open and row.key.startswith("b")]
            _ = await worker.run([row.key for row in rows])
            await asyncio.sleep(0.2)

    def _on_result(self, result: Any) -> None:
        job_id = ended_job_of(result)
        self.say("result", key=result.row.key, outcome=result.outcome, job=job_id)

    async def _durable(self, session: EmulatorSession, journal: Journal) -> None:
        on_end = self._on_end if self._program.tells or self._start.is_calm else None
        async with self._noted(), DurableJobs(session, journal, on_end=on_end) as jobs, self._noted_leaving():
            tasks = [asyncio.create_task(self._submit(jobs, key)) for key in self._program.keys]
            tasks += [asyncio.create_task(self._unfollow(jobs, *each)) for each in self._program.unfollows]
            ends = [asyncio.create_task(self._stop.wait()), asyncio.create_task(_closed(session))]
            await asyncio.wait(ends, return_when="FIRST_COMPLETED")
            for task in (*tasks, *ends):
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                raise error

    async def _submit(self, jobs: DurableJobs, key: str) -> None:
        try:
            entry = await jobs.submit(key, key, project_id=project_of(key), extra=extra_of(key))
            self.say("submitted", key=key, state=entry.state)
        except InvalidInputError:
            self.say("refused", key=key)
        except SessionClosedError:
            pass
        except AgentJobsError as error:
            self.say("submit failed", key=key, error=str(error))

    async def _unfollow(self, jobs: DurableJobs, seconds: float, key: str) -> None:
        if self._start.is_calm:
            return
        await asyncio.sleep(seconds)
        with suppress(InvalidInputError, SessionClosedError):
            self.say("unfollowed", key=key, was_followed=await jobs.unfollow(key))

    async def _on_end(self, entry: DurableEntry, ended: AgentJob | Exception) -> None:
        is_job = isinstance(ended, AgentJob)
        end = str(ended.status) if isinstance(ended, AgentJob) else type(ended).__name__
        self._told[entry.key] += 1
        raises = self._program.raises and self._told[entry.key] == 1 and int(entry.key[1:]) % 3 == 1
        job_id = ended.id if isinstance(ended, AgentJob) else None
        self.say("told", key=entry.key, state=entry.state, end=end, is_job=is_job, job=job_id, raises=raises)
        await asyncio.sleep(0.01)
        if raises:
            raise RuntimeError("the chat can't be reached")

    def _on_event(self, event: Event) -> None:
        if isinstance(event, JobPolled | PollFailed):
            job_id = event.job.id if isinstance(event, JobPolled) else event.ref.job_id
            self.say("polled", at=time.monotonic() - event.elapsed, job=job_id)

    async def _report_stalls(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_POLL_SECONDS)
            if (late := time.monotonic() - before - _POLL_SECONDS) > _STALL_SECONDS:
                self.say("stalled", at=before, seconds=late + _POLL_SECONDS)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, Any]) -> AsyncIterator["asyncio.Task[Any]"]:
    """Run work in a task within the block, and cancel it at its end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _closed(session: EmulatorSession) -> Exception:
    """Wait until a session is drained or closed."""
    return await session._shutdown.begun()
