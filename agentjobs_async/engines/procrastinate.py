"""A batch on any number of machines, by Procrastinate: its queue hands out keys, the journal guards what is sent.

Needs the extra `procrastinate`, and a journal on PostgreSQL, whose database holds the queue as well.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from math import inf
from typing import Any, Final, LiteralString

import psycopg
from procrastinate import App, BaseRetryStrategy, PsycopgConnector, RetryDecision
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async.batch import BatchItem, BatchResult, BatchWorker, Journal, Refusals

__all__ = ["defer", "run_worker", "submit", "work_off"]

_TASK: Final = "agentjobs.run"
_QUEUE: Final = "agentjobs"
_PAGE: Final = 1_000
_TASKS_AT_ONCE: Final = 100
_MOST_DOUBLINGS: Final = 6
_CONNECTIONS: Final = 4
_OPENING: Final = 15.0
_PATIENCE: Final = 5.0
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
    remaining = iter(items)
    while page := list(islice(remaining, _PAGE)):
        bad = await journal.add(page)
        refused += bad
        names = {id(item) for item, _ in bad}
        await defer([item.key for item in page if id(item) not in names], journal=journal, chunk=chunk)
    return refused


async def defer(keys: Sequence[str], *, journal: Journal, chunk: int = 100) -> int:
    """Hand keys to the workers whose rows have not ended, such as those just resolved; gives how many these are.

    Raises:
        InvalidInputError: The journal is a file, or `chunk` is out of bounds.
        JournalError: The database can't be reached or written.
    """
    _check_count("chunk", chunk, _PAGE)
    open_keys = await journal.entries.unended(keys)
    tasks: list[Any] = [{"keys": list(open_keys[start : start + chunk])} for start in range(0, len(open_keys), chunk)]
    async with _opened(_app(journal)) as app:
        for start in range(0, len(tasks), _TASKS_AT_ONCE):
            with _faults():
                deferring = app.configure_task(_TASK, queue=_QUEUE, allow_unknown=True)
                await deferring.batch_defer_async(*tasks[start : start + _TASKS_AT_ONCE])
    return len(open_keys)


async def run_worker(
    session: AgentJobsSession,
    journal: Journal,
    *,
    chunks: int = 100,
    gate: int = 10,
    timeout: float | None = 1800.0,  # noqa: ASYNC109 - of each item, as in run_batch
    stalled_after: float = 30.0,
    polling: float = 2.0,
    stop: asyncio.Event | None = None,
    on_result: Callable[[BatchResult], object] | None = None,
) -> None:
    """Work off what was submitted, with any number of other workers on other machines, until `stop` is set.

    Then, or when cancelled, nothing more is begun, creates under way get up to 10 s for their answers, unfinished
    chunks are given back to the queue, and it ends within 30 s. What a worker leaves that dies is taken up by the
    others; at most `gate` of its creates become unknown.

    Args:
        session: Where to. It is not closed.
        journal: An open one on PostgreSQL, not read-only.
        chunks: How many tasks it works on at once, each of so many keys as were submitted together.
        gate: How many creates are under way at once: what the death of this worker can leave unsure.
        timeout: Seconds that each item's create and wait may take together, each time; `None` for ever.
        stalled_after: Seconds without a sign of life after which another worker's tasks are taken from it.
        polling: Seconds between looks for tasks that nobody told of.
        stop: Ends the work when set; `None` leaves that to a cancellation.
        on_result: A plain function that is called with each result.

    Raises:
        InvalidInputError: An argument makes no sense, or the journal is a file.
        JournalError: The database can't be reached when it begins; later it is waited for.
        AuthError: 401: the key is refused.
        NotSentError: The service's certificate is not trusted, or the proxy refuses.
        SessionClosedError: The session was closed.
    """
    async with BatchWorker(session, journal, gate=gate, timeout=timeout, on_result=on_result) as worker:
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
    _check_count("chunks", chunks)
    _check_seconds("stalled_after", stalled_after)
    _check_seconds("polling", polling)
    shift = _Shift(worker, stop or asyncio.Event())
    app = _app(worker.journal)

    app.task(name=_TASK, queue=_QUEUE, retry=_Again())(shift.run)
    async with _opened(app):
        sweeping = asyncio.create_task(_sweep(app, stalled_after))
        try:
            while not shift.stop.is_set():
                await _work(app, chunks, stalled_after, polling, shift.stop)
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])
    if shift.fault is not None:
        raise shift.fault


class _Shift:
    """One worker's time at work.

    Attributes:
        stop: Ends it.
        fault: What ended it and would befall every other item as well; `None` while nothing did.
    """

    def __init__(self, worker: BatchWorker, stop: asyncio.Event) -> None:
        self.stop = stop
        self.fault: AgentJobsError | None = None
        self._worker = worker

    async def run(self, keys: list[str]) -> None:
        """Work on one chunk; raises when it has to be run again."""
        try:
            left = await self._worker.run(keys)
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


class _Connector(PsycopgConnector):
    """Connections of which the queue's worker takes no harm when they break.

    What tells the queue of something, such as a task's end or a sign of life, may fail: the database is gone for a
    moment, or somebody else has taken the task up or ended it meanwhile. Whatever it was, the sweep makes up for it,
    and the next sign of life is given. Else the worker would give none any more after the first that failed.
    """

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        try:
            await super().execute_query_async(query, **arguments)
        except ConnectorException as error:
            _logger.info("the queue could not be told: %s", _words(error))


def _app(journal: Journal) -> App:
    settings: dict[str, Any] = {"kwargs": journal.connect_arguments(), "timeout": _PATIENCE}
    return App(connector=_Connector(min_size=1, max_size=_CONNECTIONS, **settings))


@asynccontextmanager
async def _opened(app: App) -> AsyncIterator[App]:
    """Connect, and make the queue where there is none."""
    try:
        with _faults():
            async with asyncio.timeout(_OPENING):
                await app.open_async()
            await _lay_out(app)
        yield app
    finally:
        with suppress(ConnectorException):
            await app.close_async()


async def _lay_out(app: App) -> None:
    if await app.check_connection_async():
        return
    await app.schema_manager.apply_schema_async()  # or somebody else was faster
    if not await app.check_connection_async():
        raise JournalError("there is no queue in the database, and none can be made", "read_only")


@contextmanager
def _faults() -> Iterator[None]:
    """A block whose errors of the queue come out as ours."""
    try:
        yield
    except (ConnectorException, TimeoutError, psycopg.Error) as error:
        fault = JournalError(f"the queue can't be reached, read or written ({_words(error)})", "io")
    else:
        return
    raise fault


def _words(error: BaseException) -> str:
    return str(error.__cause__ or error).partition("\n")[0]


async def _work(app: App, chunks: int, stalled_after: float, polling: float, stop: asyncio.Event) -> None:
    """Let the queue's worker work until it is to stop, or fails, as it does when the database is gone."""
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
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait([working, stopping])
    if not working.cancelled() and (fault := working.exception()) is not None:
        _logger.warning("the queue is gone, and is tried again: %s", _words(fault))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _REST)


async def _sweep(app: App, stalled_after: float) -> None:
    """Let the tasks of workers who give no sign of life be run again by somebody else."""
    while True:
        try:
            for job in await app.job_manager.get_stalled_jobs(task_name=_TASK, seconds_since_heartbeat=stalled_after):
                await app.job_manager.retry_job(job)
        except ConnectorException as error:
            _logger.info("no sweep this time: %s", _words(error))
        await asyncio.sleep(stalled_after / _BEATS)


def _check_count(name: str, value: object, most: float = inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        bound = "of at least 1" if most == inf else f"from 1 to {most}"
        raise InvalidInputError(f"{name} must be a whole number {bound}, not {value!r:.100}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise InvalidInputError(f"{name} must be a finite number of seconds above 0, not {value!r:.100}")
