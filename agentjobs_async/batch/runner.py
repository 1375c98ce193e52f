"""The batch: many items on one session, whose fates a journal keeps."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType, TracebackType
from typing import Final, Self

from attrs import frozen

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async.batch._feed import Feed
from agentjobs_async.batch._item_run import ItemRun, RunContext
from agentjobs_async.batch._item_tasks import GRACE, ActiveItem, ItemTasks
from agentjobs_async.batch._slots import Slots
from agentjobs_async.batch._source import Items
from agentjobs_async.batch._throttles import LONGEST_RETRY_AFTER_SECONDS, CreateThrottles
from agentjobs_async.batch.items import BatchItem, BatchResult, Outcome, checked_item
from agentjobs_async.batch.journal import Journal, entries_of
from agentjobs_async.batch.limits import Limits, Rate
from agentjobs_async.batch.states import State

__all__ = ["Batch", "BatchStats", "run_batch"]

_FAILURES: Final = frozenset({Outcome.FAILED, Outcome.REJECTED, Outcome.UNKNOWN})


@frozen
class BatchStats:
    """A run at one moment.

    Attributes:
        waiting: How many items wait for their create.
        active: How many jobs are waited for or just created.
        next_create: Seconds until the next create may go; `None` when that depends on one that is under way.
        outcomes: How many items ended in each way in this run.
        stopped: Whether nothing more is begun because `max_failures` was reached.
        paused_by: Why creates that wait are held back right now: a 429, what kept a create from being sent, or what
            left creates unknown; `None` when nothing but a rate does so.
    """

    waiting: int
    active: int
    next_create: float | None
    outcomes: Mapping[Outcome, int]
    stopped: bool
    paused_by: Exception | None = None


def run_batch(
    session: AgentJobsSession,
    items: Items,
    *,
    journal: Journal,
    max_active: int = 20,
    create_rate: Rate | None = None,
    timeout: float | None = 1800.0,
    max_failures: int | None = None,
    limit: int | None = None,
    max_sending: int = 10,
    unknown_for: float = 600.0,
) -> "Batch":
    """Return an async context manager over the results of many items, in the order in which they end.

    What became of each is in the journal before its result is given, so that running again on the same journal goes on
    where it stopped: planned items are sent, created ones waited for, and those that were being sent when the process
    ended become `unknown`. It gives the results that end in this run; items whose rows ended before are left out.

    What holds the creates of one project back leaves the others alone: its rate, a 429, a 401 or 403 (its items stay
    planned, and the run ends with the `AuthError` when nothing else is left), and an outage. That is three unknown
    creates in a row without a definite answer between them: then one at a time goes, after 1 s doubling to 60 s or as
    the server asks, until one is answered definitely. What could not be sent at all is tried again after a pause of all
    creates. A different prompt under the key of an earlier run is refused. Leaving the block ends nothing remotely:
    creates under way get up to 10 s for their answers, and the next run goes on.

    Args:
        session: Where to. It is not closed.
        items: Any iterable or async iterable, read one by one as there is room, and up to 1,000 ahead where projects
            are held back; empty to go on with the journal's rows.
        journal: An open one, not read-only.
        max_active: How many items are under way at once, and how many results may wait to be taken. Each project may
            have as many that wait for their creates.
        create_rate: How many creates may go in any span of time, of each project or of all, those of earlier runs
            included; `None` for any number.
        timeout: Seconds that each item's create and wait may take together, in this run; `None` for ever. What waits
            for the rate or for a pause does not count.
        max_failures: After so many failed, rejected or unknown results nothing more is begun; `None` for any number.
        limit: How many items may be begun that have no job yet; `None` for any number.
        max_sending: How many creates are under way at once: what one crash can leave unknown.
        unknown_for: Seconds for which an unknown item keeps its slot of `max_active`, since its agent may be at work,
            also in runs that follow; 0 for not at all. Settling it in the journal frees its slot for the next run. For
            its own project such a slot counts whole. For any other project all of them together count as half of
            `max_active` at most, rounded down, so that others go on during an outage of one project: until its slots
            are free again, up to `max_active` plus half of it, rounded up, may have an agent.

    Raises:
        InvalidInputError: An argument makes no sense.
    """
    source: object = items
    if isinstance(source, str | bytes) or not isinstance(source, Iterable | AsyncIterable):
        raise InvalidInputError(f"items must be an iterable or an async iterable, not {type(items).__name__}")
    _check(session, items, journal)
    return Batch(
        session, items, journal, Limits(max_active, create_rate, timeout, max_failures, limit, max_sending, unknown_for)
    )


def _check(session: object, items: object, journal: object) -> None:
    if not all(callable(getattr(session, name, None)) for name in ("create_job", "watch")):
        raise InvalidInputError(f"session must be an AgentJobsSession, not {type(session).__name__}")
    if not isinstance(journal, Journal):
        raise InvalidInputError(
            f"journal must be an open Journal, as of async with Journal.open(path), not {type(journal).__name__}"
        )
    if journal.read_only:
        raise InvalidInputError("journal is open read-only: open it without read_only=True")
    for item in items if isinstance(items, Sequence) else ():
        if not isinstance(item, BatchItem):
            checked_item(item)


class Batch(AsyncIterator[BatchResult]):
    """The results of a run as they come; an async context manager that is its own iterator.

    The iteration raises what ends the whole run: a `JournalError`, a `SessionClosedError`, then an `AuthError` when
    nothing else is left than projects whose creates are refused, and what the items' own iterator raises, last of all.
    """

    def __init__(self, session: AgentJobsSession, items: Items, journal: Journal, limits: Limits) -> None:
        self._session = session
        self._items = items
        self._journal = journal
        self._limits = limits
        self._results: asyncio.Queue[BatchResult | BaseException | None] = asyncio.Queue(limits.max_active)
        self._outcomes: Counter[Outcome] = Counter()
        self._faults: list[Exception] = []
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        if self._tasks or self._over:
            raise InvalidInputError("a batch runs once: call run_batch again")
        entries_of(self._journal).mask(self._session.mask)
        slots = Slots(self._limits.max_active, self._on_change)
        for project, age in await self._unknown_ages():
            slots.keep(project or self._session.project_id, self._limits.unknown_for - age)
        self._item_tasks = ItemTasks(
            RunContext(
                self._session,
                entries_of(self._journal),
                await self._throttles(),
                slots,
                asyncio.Semaphore(self._limits.max_sending),
                self._limits.timeout,
                self._limits.unknown_for,
                asyncio.Event(),
                asyncio.Event(),
            )
        )
        self._feed = Feed(self._item_tasks, self._items, self._limits.limit, self._run, self._give)
        reading = asyncio.create_task(self._feed.read(self._journal.take_interrupted()))
        self._tasks = [reading, asyncio.create_task(self._end_results(reading))]
        return self

    def _on_change(self) -> None:
        self._feed.on_change()

    async def _unknown_ages(self) -> list[tuple[str | None, float]]:
        seconds, most = self._limits.unknown_for, self._limits.max_active
        return await entries_of(self._journal).unknown_ages(seconds, most) if seconds > 0 else []

    async def _throttles(self) -> CreateThrottles:
        rate, entries = self._limits.create_rate, entries_of(self._journal)
        throttles = CreateThrottles(rate, refused_for=inf)
        if rate is not None:
            throttles.seed(rate, await entries.sent_ages(rate.per, rate.count))
        for project, seconds in (await entries.paused_for()).items():
            throttles.of(project).pause(min(seconds, LONGEST_RETRY_AFTER_SECONDS))
        return throttles

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._leave(0.0 if cancelled else GRACE)
        fault = self._unrecorded_fault()
        if fault is None or fault is error:
            return
        if error is None:
            raise fault
        error.add_note(str(fault))

    async def __anext__(self) -> BatchResult:
        if self._over:
            raise StopAsyncIteration
        self._check_runs()
        result = await self._results.get()
        if isinstance(result, BatchResult):
            return result
        self._over = True
        self._results.put_nowait(None)  # another reader may be waiting
        if result is None:
            raise StopAsyncIteration
        if isinstance(result, JournalError):
            self._item_tasks.context.unrecorded.mark_raised(result)
        raise result

    async def aclose(self) -> None:
        """Begin nothing more, wait up to 10 s for answers of creates under way, and leave the rest to another run.

        Raises:
            JournalError: The journal could not take jobs that were created, and the iteration has not told of them.
        """
        await self._leave(GRACE)
        if (fault := self._unrecorded_fault()) is not None:
            raise fault

    async def _leave(self, grace: float) -> None:
        self._over = True
        self._drop_results()
        if self._tasks:
            self._item_tasks.context.slots.close()
            await self._item_tasks.drain(*self._tasks, grace=grace)
        self._drop_results()
        self._results.put_nowait(None)  # a reader in another task may be waiting

    def stats(self) -> BatchStats:
        """Return a snapshot.

        Raises:
            InvalidInputError: It does not run yet.
        """
        self._check_runs()
        states = self._item_tasks.states()
        return BatchStats(
            waiting=states[State.PLANNED],
            active=states[State.SENDING] + states[State.CREATED],
            next_create=self._item_tasks.next_create(),
            outcomes=MappingProxyType(dict(self._outcomes)),
            stopped=self._failed_enough,
            paused_by=self._item_tasks.paused_by(),
        )

    def active(self) -> list[ActiveItem]:
        """Return the items under way, the oldest first.

        Raises:
            InvalidInputError: It does not run yet.
        """
        self._check_runs()
        return self._item_tasks.active()

    def _check_runs(self) -> None:
        if not self._tasks:
            raise InvalidInputError("the batch does not run: use it as async with run_batch(...) as results")

    @property
    def _failed_enough(self) -> bool:
        most = self._limits.max_failures
        return most is not None and sum(self._outcomes[outcome] for outcome in _FAILURES) >= most

    async def _end_results(self, reading: asyncio.Task[None]) -> None:
        """End the results when all that was begun has ended and nothing more begins; the source's fault comes last."""
        await self._feed.ended(reading)
        if not reading.done():
            self._halt()  # nothing is left but what the service refuses
            await asyncio.wait([reading])
        fault = self._fault_of(reading)
        if isinstance(fault, JournalError):
            self._fail(fault)
        await self._item_tasks.ended()
        await self._results.put(self._whole_fault() or self._item_tasks.context.throttles.refusal or fault)

    def _fault_of(self, beginning: asyncio.Task[None]) -> BaseException | None:
        if not beginning.cancelled():
            return beginning.exception()
        if self._item_tasks.context.halted.is_set():
            return None
        return AgentJobsError("the items ended early: their iterator was cancelled")

    def _whole_fault(self) -> Exception | None:
        """Return the first fault of an item; a fault of the journal names all jobs that it does not have."""
        unrecorded = self._item_tasks.context.unrecorded
        journal_first = sorted(self._faults, key=lambda fault: not isinstance(fault, JournalError))
        faults = journal_first if unrecorded else self._faults
        first = faults[0] if faults else None
        return unrecorded.error(first) if unrecorded and isinstance(first, JournalError) else first

    def _unrecorded_fault(self) -> JournalError | None:
        """Return the error that names the jobs which the journal does not have, unless a caller has got it already."""
        if not self._tasks or self._item_tasks.context.unrecorded.all_raised:
            return None
        fault = next((fault for fault in self._faults if isinstance(fault, JournalError)), None)
        return self._item_tasks.context.unrecorded.raised(fault)

    async def _run(self, item: ItemRun) -> None:
        try:
            result = await item.run()
            if result is not None:
                await self._give(result)
        except Exception as error:  # noqa: BLE001 - it ends the run, and comes out of the iteration
            self._fail(error)
        finally:
            item.leave_slot()

    async def _give(self, result: BatchResult) -> None:
        self._outcomes[result.outcome] += 1
        if self._failed_enough:
            self._halt()
        await self._results.put(result)

    def _fail(self, error: Exception) -> None:
        """End the run with an error, which comes out when creates under way have had their answers."""
        self._faults.append(error)
        self._halt()
        self._item_tasks.fail()

    def _halt(self) -> None:
        """Begin nothing more, and let go what waits for its create."""
        self._item_tasks.halt()
        if self._tasks[0] is not asyncio.current_task():
            self._tasks[0].cancel()

    def _drop_results(self) -> None:
        """Make room, so that nobody waits for a reader who has left; the journal has them all."""
        while not self._results.empty():
            self._results.get_nowait()
