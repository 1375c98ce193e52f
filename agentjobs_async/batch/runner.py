"""The batch: many items on one session, whose fates a journal keeps."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType, TracebackType
from typing import Final, Self

from attrs import frozen

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async.batch._supply import Items, supply
from agentjobs_async.batch.course import LONGEST_WISH, Course, Means, named
from agentjobs_async.batch.courses import GRACE, ActiveItem, Courses
from agentjobs_async.batch.items import BatchItem, BatchResult, Outcome, checked_item
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Limits
from agentjobs_async.batch.pace import Pace, Rate
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
        paused_by: The 429, or what kept a create from being sent, for which all creates are held back right now.
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
    gate: int = 10,
) -> "Batch":
    """Give an async context manager over the results of many items, in the order in which they end.

    What became of each is in the journal before its result is given, so that running again on the same journal goes on
    where it stopped: planned items are sent, created ones waited for, and those that were being sent when the process
    ended become `unknown`. It gives the results that end in this run; items whose rows ended before are left out.

    An item that could not be sent, or was answered with 429, is tried again after a pause of all creates. A different
    prompt under the key of an earlier run is refused. Leaving the
    block ends nothing remotely: creates under way get up to 10 s for their answers, and the next run goes on.

    Args:
        session: Where to. It is not closed.
        items: Any iterable or async iterable, read one by one as there is room; empty to go on with the journal's rows.
        journal: An open one, not read-only.
        max_active: How many items are under way at once, and how many results may wait to be taken.
        create_rate: How many creates may go in any span of time, those of earlier runs included; `None` for any number.
        timeout: Seconds that each item's create and wait may take together, in this run; `None` for ever. What waits
            for the rate or for a pause does not count.
        max_failures: After so many failed, rejected or unknown results nothing more is begun; `None` for any number.
        limit: How many items may be begun that have no job yet; `None` for any number.
        gate: How many creates are under way at once: what one crash can leave unsure.

    Raises:
        InvalidInputError: An argument makes no sense.
    """
    source: object = items
    if isinstance(source, str | bytes) or not isinstance(source, Iterable | AsyncIterable):
        raise InvalidInputError(f"items must be an iterable or an async iterable, not {type(items).__name__}")
    _check(session, items, journal)
    return Batch(session, items, journal, Limits(max_active, create_rate, timeout, max_failures, limit, gate))


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

    The iteration raises what ends the whole run: a `JournalError`, an `AuthError` of 401, a `SessionClosedError`, and
    whatever the items' own iterator raises, that last of all.
    """

    def __init__(self, session: AgentJobsSession, items: Items, journal: Journal, limits: Limits) -> None:
        self._session = session
        self._items = items
        self._journal = journal
        self._limits = limits
        self._results: asyncio.Queue[BatchResult | BaseException | None] = asyncio.Queue(limits.max_active)
        self._places = asyncio.Semaphore(limits.max_active)
        self._outcomes: Counter[Outcome] = Counter()
        self._begun = 0
        self._faults: list[Exception] = []
        self._told = 0
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        if self._tasks or self._over:
            raise InvalidInputError("a batch runs once: call run_batch again")
        limits, entries = self._limits, self._journal.entries
        rate = limits.create_rate
        ages = await entries.sent_ages(rate.per, rate.count) if rate is not None else []
        entries.mask(self._session.mask)
        pace = Pace(rate, ages)
        pace.pause(min(await entries.paused_for(), LONGEST_WISH))
        gate = asyncio.Semaphore(limits.gate)
        self._courses = Courses(
            Means(self._session, entries, pace, gate, limits.timeout, asyncio.Event(), asyncio.Event())
        )
        beginning = asyncio.create_task(self._begin_all())
        self._tasks = [beginning, asyncio.create_task(self._end_results(beginning))]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._leave(0.0 if cancelled else GRACE)
        if kind is None:
            self._tell_lost()

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
        self._told = len(result.lost) if isinstance(result, JournalError) else 0
        raise result

    async def aclose(self) -> None:
        """Begin nothing more, wait up to 10 s for answers of creates under way, and leave the rest to another run.

        Raises:
            JournalError: The journal could not take jobs that were created, and the iteration has not told of them.
        """
        await self._leave(GRACE)
        self._tell_lost()

    async def _leave(self, grace: float) -> None:
        self._over = True
        self._drop_results()
        if self._tasks:
            await self._courses.drain(*self._tasks, grace=grace)
        self._drop_results()
        self._results.put_nowait(None)  # a reader in another task may be waiting

    def stats(self) -> BatchStats:
        """Give a snapshot.

        Raises:
            InvalidInputError: It does not run yet.
        """
        self._check_runs()
        states = self._courses.states()
        return BatchStats(
            waiting=states[State.PLANNED],
            active=states[State.SENDING] + states[State.CREATED],
            next_create=self._courses.next_create(),
            outcomes=MappingProxyType(dict(self._outcomes)),
            stopped=self._failed_enough,
            paused_by=self._courses.means.pace.paused_by,
        )

    def active(self) -> list[ActiveItem]:
        """Give the items under way, the oldest first.

        Raises:
            InvalidInputError: It does not run yet.
        """
        self._check_runs()
        return self._courses.active()

    def _check_runs(self) -> None:
        if not self._tasks:
            raise InvalidInputError("the batch does not run: use it as async with run_batch(...) as results")

    @property
    def _failed_enough(self) -> bool:
        most = self._limits.max_failures
        return most is not None and sum(self._outcomes[outcome] for outcome in _FAILURES) >= most

    async def _begin_all(self) -> None:
        """Begin items as there are places."""
        rows = supply(self._journal.entries, self._items, self._journal.take_interrupted(), self._room)
        async with aclosing(rows):
            await self._places.acquire()
            async for row in rows:
                if self._courses.means.halted.is_set():
                    break
                if isinstance(row, BatchResult):
                    await self._give(row)
                else:
                    _ = self._courses.begin(row, self._run)
                    self._begun += row.state is State.PLANNED
                    await self._places.acquire()
                # Before the next one is read: that may take for ever.
                if self._courses.means.halted.is_set() or self._begun == self._limits.limit:
                    break

    async def _end_results(self, beginning: asyncio.Task[None]) -> None:
        """End the results when all that was begun has ended and nothing more begins; the source's fault comes last."""
        await asyncio.wait([beginning])
        fault = self._fault_of(beginning)
        if isinstance(fault, JournalError):
            self._fail(fault)
        await self._courses.ended()
        await self._results.put(self._whole_fault() or fault)

    def _fault_of(self, beginning: asyncio.Task[None]) -> BaseException | None:
        if not beginning.cancelled():
            return beginning.exception()
        if self._courses.means.halted.is_set():
            return None
        return AgentJobsError("the items ended early: their iterator was cancelled")

    def _whole_fault(self) -> Exception | None:
        """Give the first fault of an item; jobs that the journal could not take are named by it, all of them."""
        lost = self._courses.means.lost
        faults = sorted(self._faults, key=lambda fault: not isinstance(fault, JournalError) if lost else False)
        first = faults[0] if faults else None
        if isinstance(first, JournalError) and lost:
            return JournalError(f"{first.message}; {named(lost)}", first.reason, tuple(lost.values()))
        return first

    def _tell_lost(self) -> None:
        if self._tasks and len(self._courses.means.lost) > self._told:
            fault = self._whole_fault()
            assert fault is not None  # noqa: S101 - what lost a job has failed
            raise fault

    def _room(self) -> int:
        return self._limits.max_active - len(self._courses)

    async def _run(self, course: Course) -> None:
        try:
            result = await course.run()
            if result is not None:
                await self._give(result)
        except Exception as error:  # noqa: BLE001 - it ends the run, and comes out of the iteration
            self._fail(error)
        finally:
            self._places.release()

    async def _give(self, result: BatchResult) -> None:
        self._outcomes[result.outcome] += 1
        if self._failed_enough:
            self._halt()
        await self._results.put(result)

    def _fail(self, error: Exception) -> None:
        """End the run with an error, which comes out when creates under way have had their answers."""
        self._faults.append(error)
        self._halt()
        self._courses.fail()

    def _halt(self) -> None:
        """Begin nothing more, and let go what waits for its create."""
        self._courses.halt()
        if self._tasks[0] is not asyncio.current_task():
            self._tasks[0].cancel()

    def _drop_results(self) -> None:
        """Make room, so that nobody waits for a reader who has left; the journal has them all."""
        while not self._results.empty():
            self._results.get_nowait()
