"""The batch: many items on one session, with a journal of what became of each."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async._validation import checked_flag
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.feed import Feed, Items
from agentjobs_async.batch._run.item import run_item
from agentjobs_async.batch._run.tasks import GRACE_SECONDS, ItemTasks, check_session_and_journal, noted_on, open_run
from agentjobs_async.batch._store.rows import BatchResult
from agentjobs_async.batch.items import BatchItem, Outcome, checked_item
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Kept, Rate, given
from agentjobs_async.batch.stats import ActiveItem, BatchStats

__all__ = ["Batch", "run_batch"]

_FAILURES: Final = frozenset({Outcome.FAILED, Outcome.REJECTED, Outcome.UNKNOWN})


def run_batch(
    session: AgentJobsSession,
    items: Items,
    *,
    journal: Journal,
    max_active: int | Kept = "kept",
    create_rate: Rate | Kept | None = "kept",
    timeout: float | Kept | None = "kept",
    max_failures: int | None = None,
    limit: int | None = None,
    max_sending: int | Kept = "kept",
    unknown_for: float | Kept = "kept",
    other_service: bool = False,
) -> "Batch":
    """Return an async context manager over the results of many items, in the order in which they end.

    How each item ended is in the journal before its result is returned. So a later run on the same journal continues
    where this one stopped: planned items are sent, active ones are waited for, and items that were being sent when the
    process ended become `unknown`. Items whose rows ended in an earlier run give no result. A run gives one result of
    an item: when you resolve it after its `unknown` result, the next run continues with it.

    Whatever holds back the creates of one project does not affect the others: its rate, a 429, a 401 or 403, and an
    outage. After a 401 or 403 the items of the project stay planned, and the run ends with the `AuthError` when nothing
    else is left. Three unknown creates in a row without a definite answer between them are an outage: then one create
    at a time is sent, after 1 s doubling to 60 s or as the server asks, until one is answered definitely. A create that
    could not be sent at all pauses all creates, and is tried again. A different prompt under the key of an earlier run
    is refused. Leaving the block cancels no remote job: creates under way get up to 10 s for their answers, and the
    next run continues.

    A limit that is left out, or is "kept", is that of the journal, if `Journal.set_limits` or `agentjobs run` has
    set it there; otherwise it has the default named below. A run changes none of the limits in the journal.

    A run learns by itself: if the journal holds the durations of at least 20 jobs of a project, the session's waits
    learn when to poll, as `wait_learned` does, during this run and after it. A session whose policy has a wait strategy
    of its own is left as it is.

    Args:
        session: Sends the creates and the polls. It is not closed.
        items: Any iterable or async iterable, read one by one as there is room, and up to 1,000 ahead where projects
            are held back; empty to continue with the journal's rows.
        journal: An open one, not read-only.
        max_active: How many items are under way at once, and how many results may wait to be taken; 20. Each project
            may have as many that wait for their creates.
        create_rate: How many creates may be sent in any span of time, of each project or of all, including those of
            earlier runs; `None`, the default, for any number.
        timeout: Seconds that each item's create and wait may take together, in this run; 1800, and `None` for ever.
            Time spent waiting for the rate or a pause does not count.
        max_failures: Start no more items once this many have failed, been rejected or become unknown; `None` for no
            bound.
        limit: How many items without a job may begin; `None` for no bound.
        max_sending: How many creates are under way at once: what one crash can leave unknown; 10.
        unknown_for: Seconds for which an unknown item keeps its slot of `max_active`, since its agent may be at work,
            also in later runs; 600, and 0 for not at all. Settling it in the journal frees its slot for the next run.
            Its own project loses the whole slot. All such slots together take at most half of `max_active` (rounded
            down) from any other project, so that others continue during the outage of one. Until the slots are free
            again, up to `max_active` plus half of it (rounded up) agents may be at work.
        other_service: Whether the journal is to belong to the session's service from now on, where an earlier run used
            another one. Otherwise that is refused: jobs are known to the service alone that created them.

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
    settings = given(
        max_active=max_active,
        create_rate=create_rate,
        timeout=timeout,
        max_failures=max_failures,
        limit=limit,
        max_sending=max_sending,
        unknown_for=unknown_for,
    )
    checked_flag("other_service", other_service)
    return Batch(session, items, journal, settings, other_service=other_service)


class Batch(AsyncIterator[BatchResult]):
    """The results of a run as they come; an async context manager that is its own iterator.

    The iteration raises what ends the whole run: a `JournalError` or a `SessionClosedError`; an `AuthError` when only
    projects are left whose creates the server refuses; and, last of all, what the iterator of the items raises.
    """

    def __init__(
        self,
        session: AgentJobsSession,
        items: Items,
        journal: Journal,
        settings: Mapping[str, Any],
        *,
        other_service: bool = False,
    ) -> None:
        self._session = session
        self._items = items
        self._journal = journal
        self._settings = settings
        self._other_service = other_service
        self._results: asyncio.Queue[BatchResult | BaseException | None] = asyncio.Queue()
        self._item_tasks: ItemTasks | None = None
        self._over = False

    async def __aenter__(self) -> Self:
        if self._item_tasks is not None or self._over:
            raise InvalidInputError("a batch runs once: call run_batch again")
        # A block that could not be entered may be entered again: nothing is set before the only await.
        item_tasks = await open_run(
            self._session, self._journal, self._settings, "batch", other_service=self._other_service
        )
        # No await from here on: a cancellation would leave a run that nobody closes, since `__aexit__` is called only
        # for a block that was entered. The helpers begin with the loop's next iteration, when all of it is there.
        self._item_tasks, limits = item_tasks, item_tasks.context.limits
        self._results = asyncio.Queue(limits.max_active)
        self._feed = Feed(item_tasks, self._items, limits.limit, self._run, self._deliver)
        feeding = item_tasks.start_helper(self._feed.read(), Phase.NO_CREATES)
        _ = item_tasks.start_helper(item_tasks.record_seen(), Phase.LEFT)
        _ = item_tasks.start_helper(self._end_results(item_tasks, feeding), Phase.LEFT)
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
        """Start no more items, wait up to 10 s for the answers of creates under way, and leave the rest to another run.

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
                await self._item_tasks.close(grace)
        finally:
            self._drop_results()
            self._results.put_nowait(None)

    def stats(self) -> BatchStats:
        """Return a snapshot.

        Raises:
            InvalidInputError: The batch does not run yet.
        """
        return self._running.stats(stopped=self._failed_enough)

    def _gauges(self) -> BatchStats | None:
        """Return what gauges show, in whatever thread an exporter asks; `None` before the run."""
        return None if self._item_tasks is None else self._item_tasks.gauges()

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
        most = self._running.context.limits.max_failures
        return most is not None and sum(self._running.outcomes[outcome] for outcome in _FAILURES) >= most

    async def _end_results(self, item_tasks: ItemTasks, feeding: asyncio.Task[None]) -> None:
        """End the results when all items have ended and no more begin; the error of the source comes last."""
        await self._feed.ended(feeding)
        if not feeding.done():
            item_tasks.advance(Phase.NO_CREATES)  # only what the server refuses is left
            await asyncio.wait([feeding])
        fault: BaseException | None = None
        if not feeding.cancelled():
            fault = feeding.exception()
        elif item_tasks.phase is Phase.RUNNING:
            fault = AgentJobsError("the items ended early: their iterator was cancelled")
        if isinstance(fault, JournalError):
            item_tasks.fail(fault)
        await item_tasks.ended()
        await self._results.put(item_tasks.first_fault() or item_tasks.context.throttles.refusal or fault)

    async def _run(self, item: RunningItem) -> None:
        try:
            result = await run_item(item)
            if result is not None:
                await self._deliver(result)
        except Exception as error:  # noqa: BLE001 - it ends the run, and comes out of the iteration
            self._running.fail(error)

    async def _deliver(self, result: BatchResult) -> None:
        self._running.outcomes[result.outcome] += 1
        if self._failed_enough:
            self._running.advance(Phase.NO_CREATES)
        await self._results.put(result)

    def _drop_results(self) -> None:
        while not self._results.empty():
            self._results.get_nowait()
