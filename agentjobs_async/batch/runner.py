"""The batch: many items on one session, with a journal of what became of each."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from attrs import field, frozen

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async._validation import MAX_COUNT, checked_count, checked_flag
from agentjobs_async.batch._progress import ToCome
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.item_run import run_item
from agentjobs_async.batch._run.kinds import BATCH
from agentjobs_async.batch._run.late_jobs import LateJobs
from agentjobs_async.batch._run.source import Items
from agentjobs_async.batch._run.supply import Supply
from agentjobs_async.batch._run.tasks import GRACE_SECONDS, ItemTasks, check_session_and_journal, noted_on, open_run
from agentjobs_async.batch._store.rows import BatchResult
from agentjobs_async.batch.items import BatchItem, Outcome, checked_item
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Kept, Limits, Rate, checked_limits, given
from agentjobs_async.batch.states import State
from agentjobs_async.batch.stats import ActiveItem, BatchStats
from agentjobs_async.telemetry.metrics import ItemGauges

__all__ = ["Batch", "run_batch"]

_FAILURES: Final = frozenset({Outcome.FAILED, Outcome.REJECTED, Outcome.UNKNOWN})


def run_batch(
    session: AgentJobsSession,
    items: Items,
    *,
    journal: Journal,
    limits: Limits | Kept = "kept",
    max_active: int | Kept | None = "kept",
    max_sending: int | Kept | None = "kept",
    create_rate: Rate | Kept | None = "kept",
    unknown_for: float | Kept | None = "kept",
    timeout: float | Kept | None = "kept",
    max_failures: int | None = None,
    limit: int | None = None,
    other_service: bool = False,
) -> "Batch":
    """Return an async context manager over the results of many items, in the order in which they end.

    How each item ended is in the journal before its result is returned. So a later run on the same journal continues
    where this one stopped. It sends planned items and waits for active ones. Items that were being sent when the
    process ended become `unknown`. Items that ended in an earlier run give no result.

    A run gives at most one result of an item. If you resolve the item after its `unknown` result, the next run
    continues with it. If you try an item again while a run goes on, a run that begins later sends it.

    What holds back the creates of one project does not affect the others:

    - Its rate, or a 429.
    - A 401 or 403: the items stay planned, and the run ends with the `AuthError` when nothing else is left.
    - An outage, which is three unknown creates in a row without a definite answer between them. Then one create at a
      time is sent, after 1 s, doubling to 60 s, or as the server asks, until one is answered definitely.

    A create that could not be sent at all pauses the creates of all projects, and is tried again.

    Leaving the block cancels no remote job. Creates under way get up to 10 s for their answers.

    The limits are those of the journal, or `limits` if given; each single limit that is given replaces one of them. A
    run changes none of the limits in the journal. On PostgreSQL those hold as well, for all processes together.

    On a shared journal a run takes only items that are free. It waits for those that other runs and workers have under
    way, gives the results of its own only, and takes over the items of an owner that is dead.

    A run learns by itself: if the journal holds the durations of at least 20 jobs of a project, the session's waits
    learn when to poll, as `wait_learned` does, during this run and after it. A session whose policy has a wait strategy
    of its own is left as it is.

    Args:
        session: Sends the creates and the polls. It is not closed.
        items: Any iterable or async iterable; empty to continue with the journal's rows. It is read one by one as there
            is room, and up to 1,000 items ahead where projects are held back. An item whose key an earlier run had with
            another prompt, project or extra is refused.
        journal: An open one, not read-only.
        limits: The limits of this run; "kept" takes those that the journal keeps.
        max_active: As of `Limits`. As many results may wait to be read, and in each project as many items for their
            creates.
        max_sending: As of `Limits`.
        create_rate: As of `Limits`; the creates of earlier runs count.
        unknown_for: As of `Limits`; it holds for items of earlier runs, too. If you settle one in the journal, the next
            run has its slot. Since unknown items take at most half of another project's slots, up to `max_active` plus
            half of it (rounded up) agents may be at work until these slots are free again.
        timeout: As of `Limits`. Time spent waiting for the rate or a pause does not count.
        max_failures: Start no more items once this many have failed, been rejected or become unknown; `None` for no
            bound.
        limit: How many items without a job may begin; `None` for no bound.
        other_service: Whether the journal belongs to the session's service from now on, although an earlier run used
            another one. If false, such a session is refused, since a service knows only the jobs that it created.

    Raises:
        InvalidInputError: An argument is invalid; the message says what is valid.
    """
    source: object = items
    if isinstance(source, str | bytes) or not isinstance(source, Iterable | AsyncIterable):
        raise InvalidInputError(f"items must be an iterable or an async iterable, not {type(items).__name__}")
    check_session_and_journal(session, journal)
    for item in source if isinstance(source, Sequence) else ():  # the others are read lazily
        if not isinstance(item, BatchItem):
            checked_item(item)
    limits = checked_limits(limits)
    own = given(
        max_active=max_active,
        max_sending=max_sending,
        create_rate=create_rate,
        unknown_for=unknown_for,
        timeout=timeout,
    )
    for name, count in (("max_failures", max_failures), ("limit", limit)):
        if count is not None:
            checked_count(name, count, most=MAX_COUNT)
    checked_flag("other_service", other_service)
    how = RunSettings(limits, own, max_failures, limit, other_service=other_service)
    return Batch(session, items, journal, how)


@frozen
class RunSettings:
    """What `run_batch` is given, checked.

    Attributes:
        limits: As given.
        own: The single limits that are given besides.
        max_failures: As given.
        limit: As given.
        other_service: As given.
    """

    limits: Limits | Kept
    own: Mapping[str, Any]
    max_failures: int | None
    limit: int | None
    other_service: bool = field(kw_only=True)


class Batch(AsyncIterator[BatchResult]):
    """The results of a run as they come; an async context manager that is its own iterator.

    The iteration raises what ends the whole run: a `JournalError`; a `SessionClosedError`; a `NotSentError` if the
    server's certificate is not trusted or the proxy refuses; an `AuthError` when only projects are left whose creates
    the server refuses; and, last of all, what the iterator of the items raises.
    """

    def __init__(self, session: AgentJobsSession, items: Items, journal: Journal, how: RunSettings) -> None:
        self._session = session
        self._items = items
        self._journal = journal
        self._how = how
        self._results: asyncio.Queue[BatchResult | BaseException | None] = asyncio.Queue()
        self._item_tasks: ItemTasks | None = None
        self._source: Supply | None = None
        self._over = False

    async def __aenter__(self) -> Self:
        if self._item_tasks is not None or self._over:
            raise InvalidInputError("a batch runs once: call run_batch again")
        # A block that could not be entered may be entered again: nothing is set before the only await.
        how = self._how
        item_tasks = await open_run(
            self._session,
            self._journal,
            BATCH,
            limits=how.limits,
            own=how.own,
            other_service=how.other_service,
        )
        # No await from here on: a cancellation would leave a run that nobody closes, since `__aexit__` is called only
        # for a block that was entered. The helpers begin with the loop's next iteration, when all of it is there.
        self._item_tasks = item_tasks
        self._results = asyncio.Queue(item_tasks.context.limits.max_active or 0)
        self._caller_context = copy_context()
        late_jobs = LateJobs(item_tasks.context, item_tasks.context.limits.timeout)
        self._source = supply = Supply(item_tasks, late_jobs, self._items, how.limit)
        supplying = item_tasks.start_helper(self._supply(item_tasks, supply), Phase.NO_CREATES)
        _ = item_tasks.start_helper(supply.sweep_on(), Phase.NO_CREATES)
        _ = item_tasks.start_helper(item_tasks.record_seen(), Phase.LEFT)
        _ = item_tasks.start_helper(item_tasks.read_durations(), Phase.NO_CREATES)
        _ = item_tasks.start_helper(late_jobs.poll(), Phase.ANSWERS_ONLY)
        _ = item_tasks.start_helper(self._end_results(item_tasks, supply, supplying), Phase.LEFT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        with noted_on(error):
            await self._leave(0.0 if cancelled else GRACE_SECONDS)

    async def __anext__(self) -> BatchResult:
        if self._over:
            raise StopAsyncIteration
        item_tasks = self._running
        result = await self._results.get()
        if isinstance(result, BatchResult):
            return result
        self._over = True
        self._results.put_nowait(None)  # another reader may be waiting
        if result is None:
            raise StopAsyncIteration
        if isinstance(result, JournalError):
            item_tasks.context.unrecorded.note_raised(result)
        try:
            raise result
        finally:
            del result  # the error's traceback holds this frame, which must not hold the error

    async def aclose(self) -> None:
        """Start no more items, and wait up to 10 s for the answers to creates under way; a later run does the rest.

        Raises:
            JournalError: The journal could not record jobs that were created, and the iteration has not raised it.
        """
        await self._leave(GRACE_SECONDS)

    async def _leave(self, grace: float) -> None:
        self._over = True
        # Results are dropped, since the journal has them all: first so that no item waits for a reader that has left,
        # at the end to make room for the `None` that ends the iteration of a reader in another task.
        self._drop_results()
        try:
            if self._item_tasks is not None:
                try:
                    await self._item_tasks.close(grace)
                finally:
                    await self._item_tasks.leave_journal()
        finally:
            self._drop_results()
            self._results.put_nowait(None)

    def stats(self) -> BatchStats:
        """Return how far the run is at this moment.

        Raises:
            InvalidInputError: The batch does not run yet.
        """
        item_tasks = self._running
        return item_tasks.stats(self._to_come(), stopped=self._failed_enough)

    def _gauges(self) -> ItemGauges | None:
        """Return what gauges show, in whatever thread an exporter asks; `None` before the run."""
        return None if self._item_tasks is None else self._item_tasks.gauges(self._to_come())

    def _to_come(self) -> ToCome | None:
        return None if self._source is None else self._source.to_come()

    def active(self) -> list[ActiveItem]:
        """Return the items under way, the oldest first.

        Raises:
            InvalidInputError: The batch does not run yet.
        """
        return self._running.active()

    @property
    def _running(self) -> ItemTasks:
        if self._item_tasks is None:
            raise InvalidInputError("the batch does not run: use it as async with run_batch(...) as results")
        return self._item_tasks

    @property
    def _failed_enough(self) -> bool:
        most = self._how.max_failures
        return most is not None and sum(self._running.outcomes[outcome] for outcome in _FAILURES) >= most

    async def _supply(self, item_tasks: ItemTasks, supply: Supply) -> None:
        """Begin what may begin, until nothing is left or the limit is reached."""
        try:
            while (found := await supply.next()) is not None:
                if isinstance(found, BatchResult):
                    supply.note(found)
                    await self._deliver(found)
                else:
                    run = partial(self._run, supply)
                    _ = item_tasks.begin(found.row, run, self._caller_context, item=found.item)
        finally:
            await supply.aclose()

    async def _end_results(self, item_tasks: ItemTasks, supply: Supply, supplying: asyncio.Task[None]) -> None:
        """End the results when all items have ended and no more begin; the error of the source comes last."""
        await asyncio.wait([supplying])
        fault: BaseException | None = supply.fault
        if not supplying.cancelled() and supplying.exception() is not None:
            fault = supplying.exception()
        if isinstance(fault, asyncio.CancelledError):
            fault = AgentJobsError("the items ended early: their iterator was cancelled")
        if isinstance(fault, JournalError):
            item_tasks.fail(fault)
        await item_tasks.ended()
        item_tasks.advance(Phase.NO_CREATES)
        await self._results.put(item_tasks.first_fault() or item_tasks.context.gates.refusal or fault)

    async def _run(self, supply: Supply, item: RunningItem) -> None:
        try:
            result = await run_item(item)
            if result is None:
                supply.leave(item.row)
            else:
                supply.note(result)
                await self._deliver(result)
        except asyncio.CancelledError:
            if item.state is State.PLANNED:
                supply.leave(item.row)
            raise
        except Exception as error:  # noqa: BLE001 - it ends the run, and comes out of the iteration
            self._running.meet(error)

    async def _deliver(self, result: BatchResult) -> None:
        self._running.count(result)
        if self._failed_enough:
            self._running.advance(Phase.NO_CREATES)
        await self._results.put(result)

    def _drop_results(self) -> None:
        while not self._results.empty():
            self._results.get_nowait()
