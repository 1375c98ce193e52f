"""A batch on any number of machines: Procrastinate's queue distributes keys, the journal decides what may be sent.

It needs the extra `procrastinate` and a journal on PostgreSQL; the queue is in the same database.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from agentjobs_async import AgentJobsError, AgentJobsSession, JournalError
from agentjobs_async._extras import extra_named
from agentjobs_async._validation import checked_count, checked_flag, checked_seconds

with extra_named("agentjobs_async.engines.procrastinate", "procrastinate"):
    from procrastinate import App, BaseRetryStrategy, JobContext, RetryDecision
    from procrastinate.exceptions import ConnectorException
    from procrastinate.jobs import Job

    from agentjobs_async.batch import BatchItem, BatchResult, BatchWorker, InvalidItems, Journal, Limits
    from agentjobs_async.batch._pages import pages_of
    from agentjobs_async.batch._planning import Planner
    from agentjobs_async.batch._store.measures import counts
    from agentjobs_async.batch._store.queries import Query
    from agentjobs_async.batch.items import checked_keys
    from agentjobs_async.batch.limits import Kept
    from agentjobs_async.batch.states import OPEN
    from agentjobs_async.engines._connector import QueueConnector, error_text, queue_errors
    from agentjobs_async.engines._ending import stop_at_the_end
    from agentjobs_async.engines._sweeping import QUEUE, TASK, Sweep, hand_out

__all__ = ["defer", "run_worker", "submit", "work_off"]

_PAGE: Final = 1_000  # items that are planned at once, and keys of a chunk at most
_MOST_DOUBLINGS: Final = 4  # a retry after at most 16 s: another worker's items are run again within 30 s
_OPENING_SECONDS: Final = 15.0  # to connect, and to make the queue
_LEAVING_SECONDS: Final = 5.0  # to give chunks back to a database that does not respond
_CUTTING_SECONDS: Final = 2.0  # for a task whose connections were broken; it ends at once unless the loop is busy
_BEATS: Final = 4  # heartbeats in `stalled_after` seconds
_RECONNECT_SECONDS: Final = 1.0  # before a worker that lost the queue starts again

_logger: Final = logging.getLogger("agentjobs_async.engines")


async def submit(
    items: Iterable[BatchItem], *, journal: Journal, project_id: str | None = None, chunk: int = 100
) -> InvalidItems:
    """Plan items, hand their keys to the workers, and return the invalid items with the reason of each.

    If it is interrupted, submit the same items again. Those that are planned already stay as they are; those that have
    not ended are handed out again, which does no harm.

    Args:
        items: Any number of items; they are read lazily.
        journal: An open journal on PostgreSQL that is not read-only.
        project_id: The project of items that name none; `None` refuses these.
        chunk: The number of keys in one task of the queue, from 1 to 1,000.

    Raises:
        InvalidInputError: The journal is a file, or `chunk` is out of bounds.
        JournalError: The database cannot be reached or written.
    """
    invalid: InvalidItems = []
    planner = Planner(journal.store, project_id)
    for page in pages_of(items, _PAGE):
        plan = await planner.plan(page)
        invalid += plan.invalid
        await defer([row.key for _, row in plan.planned], journal=journal, chunk=chunk)
    return invalid


async def defer(keys: Sequence[str], *, journal: Journal, chunk: int = 100) -> int:
    """Hand items of the journal that have not ended to the workers, and return their number.

    Use it for items that you have just resolved or planned again, so that the workers continue them at once.

    Args:
        keys: Keys of the journal; unknown ones are left out.
        journal: An open journal on PostgreSQL that is not read-only.
        chunk: The number of keys in one task of the queue, from 1 to 1,000.

    Raises:
        InvalidInputError: The journal is a file, `chunk` is out of bounds, or one of the keys can be no key.
        JournalError: The database cannot be reached or written.
    """
    checked_count("chunk", chunk, most=_PAGE)
    unended = await journal.store.select(Query(keys=checked_keys(keys), states=OPEN, size=None))
    open_keys = [row.key for row in unended]
    async with _opened(QueueConnector(journal._opened.connect_arguments())) as app:
        with queue_errors():
            await hand_out(app, open_keys, chunk)
    return len(open_keys)


async def run_worker(
    session: AgentJobsSession,
    journal: Journal,
    *,
    chunks: int = 100,
    limits: Limits | Kept = "kept",
    max_sending: int | Kept | None = "kept",
    timeout: float | Kept | None = "kept",  # noqa: ASYNC109 - of each item, as in run_batch
    stalled_after: float = 30.0,
    polling: float = 2.0,
    until_done: bool = False,
    stop: asyncio.Event | None = None,
    on_result: Callable[[BatchResult], object] | None = None,
    other_service: bool = False,
) -> None:
    """Run submitted items until `stop` is set, beside any number of workers on other machines.

    The logger `agentjobs_async.engines` has a line at INFO for each chunk that was run: how its items ended, and how
    many are left over, which are run again later.

    When `stop` is set or the call is cancelled, no more creates are started, creates under way get up to 10 s for their
    responses, and unfinished chunks go back to the queue. All of this takes at most 30 s.

    If a worker dies, the others take over its items. At most `max_sending` of its creates become unknown.

    Args:
        session: The session that creates and watches the jobs. It is not closed.
        journal: An open journal on PostgreSQL that is not read-only.
        chunks: The number of tasks of the queue that it works on at once; `submit` decides how many keys a task has.
        limits: The limits of this worker; "kept" takes those that the journal keeps.
        max_sending: As of `Limits`: as many items can be unknown if this worker dies.
        timeout: As of `Limits`, in each run of an item.
        stalled_after: Seconds without a heartbeat after which the tasks of another worker are taken over.
        polling: Seconds between two looks for new tasks, in case a notification of the database was missed. With
            `until_done`, also between two looks whether all items have ended.
        until_done: Whether it also returns once every item of the journal has ended, whichever worker ran it; at once
            if the journal has none. An unknown item counts as ended, unless a worker is going to repeat its create. The
            items of durable jobs count as well.
        stop: An event that stops the worker when you set it; the worker never sets it. `None` if only a cancellation
            stops it.
        on_result: As of `BatchWorker`.
        other_service: As in `run_batch`.

    Raises:
        InvalidInputError: An argument is out of bounds, or the journal is a file, or it belongs to another service.
        JournalError: The database cannot be reached at the start. Later the worker waits for it.
        AuthError: The service refuses the key with 401 or 403, and no item of another project is left to run.
        NotSentError: The certificate of the service is not trusted, or the proxy refuses.
        SessionClosedError: The session was closed or drained.
    """
    async with BatchWorker(
        session,
        journal,
        limits=limits,
        max_sending=max_sending,
        timeout=timeout,
        on_result=on_result,
        other_service=other_service,
    ) as worker:
        await work_off(
            worker, chunks=chunks, stalled_after=stalled_after, polling=polling, until_done=until_done, stop=stop
        )


async def work_off(
    worker: BatchWorker,
    *,
    chunks: int = 100,
    stalled_after: float = 30.0,
    polling: float = 2.0,
    until_done: bool = False,
    stop: asyncio.Event | None = None,
) -> None:
    """Run submitted items by an open worker, as `run_worker` does: for callers that read its `stats` meanwhile.

    Args:
        worker: An open one, whose journal is on PostgreSQL.
        chunks: As of `run_worker`.
        stalled_after: As of `run_worker`.
        polling: As of `run_worker`.
        until_done: As of `run_worker`.
        stop: As of `run_worker`.

    Raises:
        AgentJobsError: As by `run_worker`.
    """
    checked_count("chunks", chunks)
    checked_seconds("stalled_after", stalled_after)
    checked_seconds("polling", polling)
    checked_flag("until_done", until_done)
    connector = QueueConnector(worker.journal._opened.connect_arguments())
    async with _opened(connector) as app:
        sweep = Sweep(app, worker.journal, stalled_after)
        runner = _ChunkRunner(worker, sweep)
        app.task(name=TASK, queue=QUEUE, retry=_UntilEnded(), pass_context=True)(runner.run)
        sweeping = asyncio.create_task(sweep.run())
        ending = [asyncio.create_task(runner.fail_with_the_session())]
        if until_done:
            ending.append(asyncio.create_task(stop_at_the_end(worker.journal, runner.stop, polling)))
        if stop is not None:
            ending.append(asyncio.create_task(_stop_with(stop, runner.stop)))
        try:
            await asyncio.sleep(0)  # an event that is set already has stopped it by now: no chunk is fetched
            while not runner.stop.is_set():
                await _work(app, connector, runner, chunks, stalled_after, polling)
        finally:
            for task in ending:
                task.cancel()
            await _cancel(sweeping, connector)
    if runner.fault is not None:
        raise runner.fault


async def _stop_with(callers: asyncio.Event, own: asyncio.Event) -> None:
    """Set the worker's own event once the caller's is set, which may stop more than this worker."""
    await callers.wait()
    own.set()


class _ChunkRunner:
    """Runs the chunks that a worker is given, from its start to its stop.

    Attributes:
        stop: Stops the worker when it is set.
        fault: The error that stopped it, because every other item would meet it as well; `None` without one.
    """

    def __init__(self, worker: BatchWorker, sweep: Sweep) -> None:
        self.stop = asyncio.Event()
        self.fault: Exception | None = None
        self.worker = worker
        self._sweep = sweep

    async def run(self, context: JobContext, keys: list[str]) -> None:
        """Run the items of one chunk; any error makes the queue run the chunk again."""
        assert context.job.id is not None  # noqa: S101 - a fetched job has a number
        assert context.job.worker_id is not None  # noqa: S101 - and is assigned to this worker
        self._sweep.worker_ids.add(context.job.worker_id)
        self._sweep.running.add(context.job.id)
        try:
            await self._run(keys)
        finally:
            self._sweep.running.discard(context.job.id)

    async def fail_with_the_session(self) -> None:
        """Wait until the session is drained or closed, and stop then: no chunk may come that would find out."""
        self._fail(await self.worker._session_ended())

    def _fail(self, error: Exception) -> None:
        self.fault = self.fault or error
        self.stop.set()

    async def _run(self, keys: list[str]) -> None:
        try:
            left = await self.worker.run(keys)
        except JournalError:
            raise
        except AgentJobsError as error:
            self._fail(error)
            raise
        await self._log(keys, left)
        if left:
            raise _NotEndedError(f"{len(left)} of {len(keys)} items")

    async def _log(self, keys: Sequence[str], left: Sequence[str]) -> None:
        """Log how the items of a chunk have ended, by whichever owner, and how many are left over."""
        if not _logger.isEnabledFor(logging.INFO):
            return
        found = await counts(self.worker.journal.store, Query(keys=set(keys) - set(left)))
        ends = ", ".join(f"{number} {state}" for state, number in found.items() if number) or "none ended"
        _logger.info("a chunk of %d items: %s; %d left over", len(keys), ends, len(left))


class _NotEndedError(Exception):
    """Some items of a chunk have not ended."""


class _UntilEnded(BaseRetryStrategy):
    """Retries a chunk until all of its items have ended: at once if its worker stopped, else after 2 to 16 s."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision:
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_in={"seconds": 0})
        return RetryDecision(retry_in={"seconds": 2 ** min(job.attempts, _MOST_DOUBLINGS)})


@asynccontextmanager
async def _opened(connector: QueueConnector) -> AsyncIterator[App]:
    """Connect, and make the queue if the database has none."""
    app = App(connector=connector)
    try:
        with queue_errors():
            async with asyncio.timeout(_OPENING_SECONDS):
                await app.open_async()
                await _make_queue(app)
        yield app
    finally:
        connector.leave()
        with suppress(ConnectorException):
            await app.close_async()


async def _make_queue(app: App) -> None:
    if await app.check_connection_async():
        return
    await app.schema_manager.apply_schema_async()  # another process may have been faster: the check decides
    if not await app.check_connection_async():
        raise JournalError("the database has no queue, and none can be made", "read_only")


async def _work(
    app: App, connector: QueueConnector, runner: _ChunkRunner, chunks: int, stalled_after: float, polling: float
) -> None:
    """Run Procrastinate's worker until `stop` is set, or until it fails, as it does when the database is gone."""
    working = asyncio.create_task(
        app.run_worker_async(
            queues=[QUEUE],
            concurrency=chunks,
            install_signal_handlers=False,
            shutdown_graceful_timeout=0.0,
            delete_jobs="successful",
            fetch_job_polling_interval=polling,
            update_heartbeat_interval=stalled_after / _BEATS,
            stalled_worker_timeout=stalled_after,
        )
    )
    stopping = asyncio.create_task(runner.stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            runner.worker.start_closing()
            await _cancel(working, connector)
    if working.done() and not working.cancelled() and (fault := working.exception()) is not None:
        _logger.warning("the queue was lost; the worker reconnects: %s", error_text(fault))
    if not runner.stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(runner.stop.wait(), _RECONNECT_SECONDS)


async def _cancel(task: asyncio.Task[None], connector: QueueConnector) -> None:
    """Cancel a task that uses the queue, and wait for it; its connections are broken if it has not ended after 5 s."""
    # An error with which it ends is the database's, and no news: asyncio would log it as one that nobody has seen.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
    try:
        await asyncio.wait([task], timeout=_LEAVING_SECONDS)
    finally:
        if not task.done():
            connector.leave()
            await asyncio.wait([task], timeout=_CUTTING_SECONDS)
