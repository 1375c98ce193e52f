"""A batch on any number of machines, by Procrastinate: its queue hands out keys, the journal guards what is sent.

Needs the extra `procrastinate`, and a journal on PostgreSQL, whose database holds the queue as well.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Any, Final

from agentjobs_async import AgentJobsError, AgentJobsSession, JournalError
from agentjobs_async._extras import extra_named
from agentjobs_async._validation import checked_count, checked_seconds
from agentjobs_async.batch import BatchItem, BatchResult, BatchWorker, Journal, Refusals
from agentjobs_async.batch._planning import Planner
from agentjobs_async.batch.journal import entries_of

with extra_named("agentjobs_async.engines.procrastinate"):
    from procrastinate import App, BaseRetryStrategy, JobContext, RetryDecision
    from procrastinate.exceptions import ConnectorException
    from procrastinate.jobs import Job

    from agentjobs_async.engines._connector import QueueConnector, error_text, queue_errors
    from agentjobs_async.engines._sweeping import Sweep

__all__ = ["defer", "run_worker", "submit", "work_off"]

_TASK: Final = "agentjobs.run"
_QUEUE: Final = "agentjobs"
_PAGE: Final = 1_000
_TASKS_AT_ONCE: Final = 100
_MOST_DOUBLINGS: Final = 4  # 16 s: what another worker leaves is taken up within 30 s
_OPENING: Final = 15.0
_LEAVING_SECONDS: Final = 5.0  # to give chunks back to a database that does not answer
_CUTTING_SECONDS: Final = 2.0  # what is cut ends at once; this much when the loop is busy
_BEATS: Final = 4
_REST: Final = 1.0

_logger: Final = logging.getLogger("agentjobs_async.engines")


async def submit(items: Iterable[BatchItem], *, journal: Journal, chunk: int = 100) -> Refusals:
    """Plan items and hand their keys to the workers; gives the items that are refused, each with the reason.

    Submitting the same again is how to go on after a submission that was cut off: what has not ended is handed out
    again, which does no harm, and what is there already stays as it is.

    Args:
        items: Read lazily.
        journal: An open one on PostgreSQL, not read-only.
        chunk: How many keys one task of the queue carries, from 1 to 1,000.

    Raises:
        InvalidInputError: The journal is a file, or `chunk` is out of bounds.
        JournalError: The database can't be reached or written.
    """
    refused: Refusals = []
    planner = Planner(entries_of(journal))
    remaining = iter(items)
    while page := list(islice(remaining, _PAGE)):
        plan = await planner.plan(page)
        refused += plan.refused
        await defer([row.key for row in plan.rows], journal=journal, chunk=chunk)
    return refused


async def defer(keys: Sequence[str], *, journal: Journal, chunk: int = 100) -> int:
    """Hand keys to the workers whose rows have not ended, such as those just resolved; gives how many these are.

    Raises:
        InvalidInputError: The journal is a file, or `chunk` is out of bounds.
        JournalError: The database can't be reached or written.
    """
    checked_count("chunk", chunk, most=_PAGE)
    open_keys = await entries_of(journal).unended(keys)
    tasks: list[Any] = [{"keys": list(open_keys[start : start + chunk])} for start in range(0, len(open_keys), chunk)]
    async with _opened(QueueConnector(journal.connect_arguments())) as app:
        for start in range(0, len(tasks), _TASKS_AT_ONCE):
            with queue_errors():
                deferring = app.configure_task(_TASK, queue=_QUEUE, allow_unknown=True)
                await deferring.batch_defer_async(*tasks[start : start + _TASKS_AT_ONCE])
    return len(open_keys)


async def run_worker(
    session: AgentJobsSession,
    journal: Journal,
    *,
    chunks: int = 100,
    max_sending: int = 10,
    timeout: float | None = 1800.0,  # noqa: ASYNC109 - of each item, as in run_batch
    stalled_after: float = 30.0,
    polling: float = 2.0,
    stop: asyncio.Event | None = None,
    on_result: Callable[[BatchResult], object] | None = None,
) -> None:
    """Work off what was submitted, with any number of other workers on other machines, until `stop` is set.

    Then, or when cancelled, nothing more is begun, creates under way get up to 10 s for their answers, unfinished
    chunks are given back to the queue, and it ends within 30 s. What a worker leaves that dies is taken up by the
    others; at most `max_sending` of its creates become unknown.

    Args:
        session: Where to. It is not closed.
        journal: An open one on PostgreSQL, not read-only.
        chunks: How many tasks it works on at once, each of so many keys as were submitted together.
        max_sending: How many creates are under way at once: what the death of this worker can leave unknown.
        timeout: Seconds that each item's create and wait may take together, each time; `None` for ever.
        stalled_after: Seconds without a sign of life after which another worker's tasks are taken from it.
        polling: Seconds between looks for tasks that nobody told of.
        stop: Ends the work when set; `None` leaves that to a cancellation.
        on_result: A plain function that is called with each result.

    Raises:
        InvalidInputError: An argument makes no sense, or the journal is a file.
        JournalError: The database can't be reached when it begins; later it is waited for.
        AuthError: 401 or 403: the service refuses the key, and no other project has anything to do.
        NotSentError: The service's certificate is not trusted, or the proxy refuses.
        SessionClosedError: The session was closed.
    """
    async with BatchWorker(session, journal, max_sending=max_sending, timeout=timeout, on_result=on_result) as worker:
        await work_off(worker, chunks=chunks, stalled_after=stalled_after, polling=polling, stop=stop)


async def work_off(
    worker: BatchWorker,
    *,
    chunks: int = 100,
    stalled_after: float = 30.0,
    polling: float = 2.0,
    stop: asyncio.Event | None = None,
) -> None:
    """Hand to an open worker what was submitted; as `run_worker`, for those who want to watch the worker meanwhile."""
    checked_count("chunks", chunks)
    checked_seconds("stalled_after", stalled_after)
    checked_seconds("polling", polling)
    connector = QueueConnector(worker.journal.connect_arguments())
    async with _opened(connector) as app:
        sweep = Sweep(app, _TASK, _QUEUE, worker.journal, stalled_after)
        shift = _WorkerRun(worker, stop or asyncio.Event(), sweep)
        app.task(name=_TASK, queue=_QUEUE, retry=_Again(), pass_context=True)(shift.run)
        sweeping = asyncio.create_task(sweep.run())
        try:
            while not shift.stop.is_set():
                await _work(app, connector, shift, chunks, stalled_after, polling)
        finally:
            await _ended(sweeping, connector)
    if shift.fault is not None:
        raise shift.fault


class _WorkerRun:
    """One worker's time at work.

    Attributes:
        stop: Ends it.
        fault: What ended it and would befall every other item as well; `None` while nothing did.
    """

    def __init__(self, worker: BatchWorker, stop: asyncio.Event, sweep: Sweep) -> None:
        self.stop = stop
        self.fault: AgentJobsError | None = None
        self.worker = worker
        self._sweep = sweep

    async def run(self, context: JobContext, keys: list[str]) -> None:
        """Work on one chunk; raises when it has to be run again."""
        assert context.job.id is not None  # noqa: S101 - what was fetched has a number
        assert context.job.worker_id is not None  # noqa: S101 - it is this worker's
        self._sweep.worker_ids.add(context.job.worker_id)
        self._sweep.running.add(context.job.id)
        try:
            await self._run(keys)
        finally:
            self._sweep.running.discard(context.job.id)

    async def _run(self, keys: list[str]) -> None:
        try:
            left = await self.worker.run(keys)
        except JournalError:
            raise
        except AgentJobsError as error:
            self.fault = self.fault or error
            self.stop.set()
            raise
        if left:
            raise _NotEndedError(f"{len(left)} of {len(keys)} items")


class _NotEndedError(Exception):
    """Some items of a chunk have not ended."""


class _Again(BaseRetryStrategy):
    """Runs a chunk again until all of its items have ended: at once when its worker stops, else after a while."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision:
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_in={"seconds": 0})
        return RetryDecision(retry_in={"seconds": 2 ** min(job.attempts, _MOST_DOUBLINGS)})


@asynccontextmanager
async def _opened(connector: QueueConnector) -> AsyncIterator[App]:
    """Connect, and make the queue where there is none."""
    app = App(connector=connector)
    try:
        with queue_errors():
            async with asyncio.timeout(_OPENING):
                await app.open_async()
                await _lay_out(app)
        yield app
    finally:
        connector.leave()
        with suppress(ConnectorException):
            await app.close_async()


async def _lay_out(app: App) -> None:
    if await app.check_connection_async():
        return
    await app.schema_manager.apply_schema_async()  # or somebody else was faster
    if not await app.check_connection_async():
        raise JournalError("there is no queue in the database, and none can be made", "read_only")


async def _work(
    app: App, connector: QueueConnector, shift: _WorkerRun, chunks: int, stalled_after: float, polling: float
) -> None:
    """Run the queue's worker until it is to stop, or until it fails, as it does when the database is gone."""
    working = asyncio.create_task(
        app.run_worker_async(
            queues=[_QUEUE],
            concurrency=chunks,
            install_signal_handlers=False,
            shutdown_graceful_timeout=0.0,
            delete_jobs="successful",
            fetch_job_polling_interval=polling,
            update_heartbeat_interval=stalled_after / _BEATS,
            stalled_worker_timeout=stalled_after,
        )
    )
    stopping = asyncio.create_task(shift.stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            shift.worker.start_closing()
            await _ended(working, connector)
    if working.done() and not working.cancelled() and (fault := working.exception()) is not None:
        _logger.warning("the queue is gone, and is tried again: %s", error_text(fault))
    if not shift.stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(shift.stop.wait(), _REST)


async def _ended(task: asyncio.Task[None], connector: QueueConnector) -> None:
    """Cancel a task that uses the queue, and wait for it; a database that does not answer is waited for 5 s."""
    task.cancel()
    try:
        await asyncio.wait([task], timeout=_LEAVING_SECONDS)
    finally:
        if not task.done():
            connector.leave()
            await asyncio.wait([task], timeout=_CUTTING_SECONDS)
