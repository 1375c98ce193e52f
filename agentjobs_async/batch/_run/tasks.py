"""The items under way in one run, each in a task of its own, and how the run ends."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from types import MappingProxyType
from typing import Any, Final, Protocol

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async._loop.tasks import until_done
from agentjobs_async._validation import MAX_COUNT
from agentjobs_async.batch._estimates import Durations, recent_durations
from agentjobs_async.batch._failures import fault_of
from agentjobs_async.batch._learning import begin_learning
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._progress import Progress, ToCome
from agentjobs_async.batch._run.context import Phase, RunContext, RunningItem
from agentjobs_async.batch._run.create_gates import gates_of
from agentjobs_async.batch._run.kinds import Kind
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._run.slots import Slots
from agentjobs_async.batch._service import settle_service
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.owning import free_dead, free_own, lost_by, settle_claims
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch._store.seen import Seen, record_seen
from agentjobs_async.batch._store.store import NOBODY
from agentjobs_async.batch.items import BatchItem, Outcome
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Kept, Limits, in_force, own_polls
from agentjobs_async.batch.states import State
from agentjobs_async.batch.stats import ActiveItem, BatchStats
from agentjobs_async.errors import log_text
from agentjobs_async.telemetry.metrics import ItemGauges

_SEEN_SECONDS: Final = 60.0  # a write for each poll would cost more than the poll
_MOST_SEEN: Final = 200  # rows of one transaction: more would keep their locks for long
_LOST_SECONDS: Final = 1.0  # until rows that others have taken meanwhile are left
GRACE_SECONDS: Final = 10.0  # for the answers of creates under way: most come within a second
_SETTLING_SECONDS: Final = 3.0  # for the journal to record the outcomes, when it answers slowly or not at all
_CANCELLED_SECONDS: Final = 0.5  # the same after a cancellation, which is to leave at once

_logger: Final = logging.getLogger("agentjobs_async.batch")


class Polled(Protocol):
    """A row whose job is polled."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def polls(self) -> int:
        """How often the job was polled, by earlier runs and this one."""

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this run last showed the job; `None` before."""


def check_session_and_journal(session: object, journal: object) -> None:
    """Raise an `InvalidInputError` unless these are a session and a journal that is not read-only."""
    if not all(callable(getattr(session, name, None)) for name in ("create_job", "watch")):
        raise InvalidInputError(f"session must be an AgentJobsSession, not {type(session).__name__}")
    if not isinstance(journal, Journal):
        raise InvalidInputError(
            f"journal must be an open Journal, as of async with Journal.open(path), not {type(journal).__name__}"
        )
    if journal.read_only:
        raise InvalidInputError("journal is open read-only: open it without read_only=True")


@contextmanager
def noted_on(error: BaseException | None) -> Iterator[None]:
    """Add an error of the journal to `error`, with which a block of the caller is being left; raise it without one."""
    try:
        yield
    except JournalError as fault:
        if error is None:
            raise
        error.add_note(str(fault))


async def open_run(
    session: AgentJobsSession,
    journal: Journal,
    kind: Kind,
    *,
    limits: Limits | Kept = "kept",
    own: Mapping[str, Any] = MappingProxyType({}),
    other_service: bool = False,
) -> "ItemTasks":
    """Return the tasks of a run that knows the creates, the pauses and the unknown items of earlier runs.

    What an earlier run on the same open journal has claimed without an answer, and so not sent, is planned again. The
    session polls no more often than the journal permits, until the tasks are closed.

    Args:
        session: Sends the creates and the polls.
        journal: An open one.
        kind: What works on the journal.
        limits: The limits of the run; "kept" takes those of the journal.
        own: Single limits that it is given besides.
        other_service: As `other_service` of `run_batch`.

    Raises:
        InvalidInputError: The journal is not open, or belongs to another service.
        JournalError: The journal can't be read or written.
    """
    # Nothing begins before the last line: whatever ends this call on its way, there is no run to be closed.
    opened, store = journal._opened, journal.store
    # First: the journal of another service is refused before anything in it has changed.
    if (warning := await settle_service(session, opened, store, other_service=other_service)) is not None:
        _logger.warning("%s", warning)
    kept = (await store.meta()).limits
    polls_per_second = own_polls(limits)
    holds_for_all = journal.is_shared and limits == "kept"
    limits = kind.limits(in_force(kept, limits, own), holds_for_all=holds_for_all)
    if kind.learns:
        await begin_learning(session, store)
    # Before creates and unknown items are counted: what was never sent uses up no rate, and keeps no slot. Who had such
    # claims is known to this process alone: after a crash before this line, the next owner makes their rows unknown.
    opened.note_lost(await settle_claims(store, NOBODY))
    await free_dead(store)
    gates = await gates_of(store, limits.create_rate, refused_for=kind.refused_for)
    changed = asyncio.Event()
    slots, sending = Slots(limits.max_active, changed), asyncio.Semaphore(limits.max_sending or MAX_COUNT)
    if limits.max_active is not None and limits.unknown_for != 0:
        for project, age in await measures.unknown_ages(store, limits.unknown_for, limits.max_active):
            slots.keep(project, None if limits.unknown_for is None else limits.unknown_for - age)
    # The last await, which undoes itself when it is cut off. From here on `ItemTasks.close` has to be called.
    owner = await opened.join(session, polls_per_second)
    records = Records(store, owner.name, session.mask)
    context = RunContext(session, opened, owner, records, limits, gates, slots, sending, changed)
    item_tasks = ItemTasks(context, kind)
    _ = item_tasks.start_helper(item_tasks.fail_with_the_session(), Phase.ANSWERS_ONLY)
    _ = item_tasks.start_helper(item_tasks.leave_lost(), Phase.ANSWERS_ONLY)
    return item_tasks


class ItemTasks:
    """The items of a run by their tasks; nothing else ends the run.

    A run ends by phases (`Phase`), which it goes through in one direction: `advance` cancels what a phase cancels,
    and `close` goes through the last two of them. What became of creates that are cut off is unknown, and recorded so.

    Attributes:
        context: What all items have in common.
        phase: How far the run has ended.
        faults: What ends the run, in the order in which it came.
        outcomes: How many results had each outcome.
    """

    def __init__(self, context: RunContext, kind: Kind) -> None:
        self.context = context
        self._kind = kind
        self.phase = Phase.RUNNING
        self.faults: list[Exception] = []
        self.outcomes: Counter[Outcome] = Counter()
        self._durations = Durations()
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[None], RunningItem] = {}
        self._helpers: dict[asyncio.Task[None], Phase] = {}
        self._journal_answers = True

    def __len__(self) -> int:
        return len(self._running)

    def begin(
        self,
        row: JournalRow,
        work: Callable[[RunningItem], Coroutine[Any, Any, None]],
        caller_context: Context | None = None,
        *,
        item: BatchItem | None = None,
    ) -> asyncio.Task[None]:
        """Start an item that is planned, active or to be repeated, in a copy of `caller_context` or this context.

        Its result names `item`; `None` stands for the row's own.
        """
        running = RunningItem.of(row, self.context, item or row.item)
        running.phase = self.phase
        task = asyncio.create_task(work(running), context=None if caller_context is None else caller_context.copy())
        self._running[task] = running
        task.add_done_callback(self._on_end)
        return task

    def start_helper(self, work: Coroutine[Any, Any, None], cancelled_from: Phase) -> asyncio.Task[None]:
        """Start a task of the run that is no item, and that the phase `cancelled_from` cancels."""
        task = asyncio.create_task(work)
        self._helpers[task] = cancelled_from
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        # A callback, since a task that is cancelled before it has begun runs no `finally`.
        item = self._running.pop(task)
        item.end()
        self.context.changed.set()
        # Where no outcome was recorded, the row is still `sending`, and may have been sent: the next `settle_claims`
        # makes it unknown, or the next owner where a crash comes first.
        self._leave_claim(item)
        if not task.cancelled():
            task.exception()  # of many that fail, the caller gets one; asyncio must not log the others as not retrieved

    def _leave_claim(self, item: RunningItem) -> None:
        if item.claim is not None and item.state is State.SENDING:
            self.context.records.store.claims.leave(item.claim, item.row.key)

    def tasks_of(self, key: str) -> list[asyncio.Task[None]]:
        """Return the tasks of the items under way that have this key: at most one, unless sets of keys overlap."""
        return [task for task, item in self._running.items() if item.key == key]

    def active(self) -> list[ActiveItem]:
        """Return the items under way, the oldest first."""
        now = asyncio.get_running_loop().time()
        return [
            ActiveItem(item.row.key, item.state, now - item.since, item.ref, item.row.prompt, item.row)
            for item in self.under_way()
        ]

    def stats(self, to_come: ToCome | None, *, stopped: bool = False) -> BatchStats:
        """Return a snapshot of a run that has not begun `to_come`; `None` where a queue hands out its items."""
        may_send = self.phase < Phase.NO_CREATES
        return self._progress(to_come).stats(self._durations, stopped=stopped, may_send=may_send)

    def gauges(self, to_come: ToCome | None) -> ItemGauges | None:
        """Return what gauges show; `None` once the loop is closed. It may be asked in any thread."""
        return None if self._loop.is_closed() else self._progress(to_come).gauges()

    def _progress(self, to_come: ToCome | None) -> Progress:
        return Progress(self.context, self.under_way(), self.outcomes, to_come)

    def count(self, result: BatchResult) -> None:
        """Count a result that the run gives."""
        self.outcomes[result.outcome] += 1
        if result.row is not None:
            self._durations.add(result.row)

    async def read_durations(self) -> None:
        """Read how long the last jobs took: from that follows when the run ends."""
        with suppress(JournalError):  # the run itself reports it
            self._durations.replace(await recent_durations(self.context.records.store))

    def projects(self) -> set[str]:
        """Return the projects of the items under way."""
        return {item.slot.project for item in self.under_way()}

    async def ended(self) -> None:
        """Wait until all items that have begun so far have ended."""
        if self._running:
            await asyncio.wait(list(self._running))

    async def record_seen(self, under_way: Callable[[], Iterable[Polled]] | None = None) -> None:
        """Record each minute, until cancelled, which jobs were seen since: of items, or of what `under_way` gives."""
        recorded = self._loop.time()
        while True:
            await asyncio.sleep(_SEEN_SECONDS)
            since, recorded = recorded, self._loop.time()
            seen = [
                Seen(item.key, recorded - item.seen, item.polls)
                for item in (under_way or self.under_way)()
                if item.seen is not None and item.seen > since
            ]
            # A journal that can't be written ends the run by the next write that matters.
            with suppress(JournalError):
                for page in pages_of(seen, _MOST_SEEN):
                    await record_seen(self.context.records.store, page)

    def fail(self, error: Exception) -> None:
        """End the run with an error, once creates under way have had their answers."""
        self.faults.append(error)
        self.advance(Phase.ANSWERS_ONLY)

    def meet(self, error: Exception) -> None:
        """End the run as far as its kind does after an error that came out of the work on one item."""
        phase = self._kind.after.get(fault_of(error), Phase.RUNNING)
        if phase >= Phase.ANSWERS_ONLY:
            self.fail(error)
        else:
            self.advance(phase)

    async def leave_lost(self) -> None:
        """Cancel, until cancelled, the waits for jobs that other owners may poll, since they took this one for dead.

        An end that was seen already is recorded, and told where no other owner has done so.
        """
        heartbeat = self.context.opened.heartbeat
        if heartbeat is None:
            return
        life = heartbeat.life
        while True:
            await asyncio.sleep(min(heartbeat.gap, _LOST_SECONDS))
            with suppress(JournalError):  # it looks again
                if life != (now := heartbeat.life):
                    await self._leave_lost()
                    life = now

    async def _leave_lost(self) -> None:
        records = self.context.records
        numbers = [item.row.number for item in self._running.values() if item.is_waiting]
        for page in pages_of(numbers):
            lost = await lost_by(records.store, records.owner, page)
            for task, item in list(self._running.items()):
                if item.row.number in lost and item.is_waiting:
                    task.cancel()

    async def fail_with_the_session(self) -> None:
        """Wait until the session is drained or closed, and end the run then, whatever its items wait for."""
        self.fail(await self.context.session._shutdown.begun())

    def advance(self, phase: Phase, tasks: Iterable[asyncio.Task[None]] | None = None) -> None:
        """Advance the items of `tasks`, or all and the run itself, to a phase; an earlier one changes nothing.

        The calling task is never cancelled by this: a helper may find that the run is over.
        """
        if tasks is None:
            self.phase = max(self.phase, phase)
            current = asyncio.current_task()
            for helper, cancelled_from in self._helpers.items():
                if cancelled_from <= phase and helper is not current:
                    helper.cancel()
        for task in list(self._running) if tasks is None else tasks:
            if (item := self._running.get(task)) is not None:
                item.phase = max(item.phase, phase)
                if item.cancelled_from <= phase:
                    task.cancel()

    async def close(self, grace: float) -> None:
        """End the run: wait for `grace` seconds for the answers of creates under way, then cut what is left.

        The journal gets 3 s more to record the outcomes, or half a second where `grace` is 0.

        Raises:
            JournalError: The journal does not have some jobs, which it names, and no caller has got all of them yet.
        """
        self.context.slots.close()
        self.advance(Phase.LEFT)
        sending = [task for task, item in self._running.items() if item.state is State.SENDING]
        try:
            if sending:
                await asyncio.wait(sending, timeout=grace)
        except asyncio.CancelledError:
            grace = 0.0
            raise
        finally:
            try:
                await self._cut(grace)
            finally:
                await self.context.unrecorded.close()
        if (fault := self.context.unrecorded.unraised(self._journal_fault())) is not None:
            raise fault

    def first_fault(self) -> Exception | None:
        """Return what ended the run; where the journal does not have some jobs, an error of it that names them."""
        fault = self._journal_fault()
        if fault is not None and self.context.unrecorded:
            return self.context.unrecorded.error(fault)
        return self.faults[0] if self.faults else None

    def _journal_fault(self) -> JournalError | None:
        return next((fault for fault in self.faults if isinstance(fault, JournalError)), None)

    async def _cut(self, grace: float) -> None:
        """Cancel what is left, and record that the creates which this cuts off are unknown.

        A claim that is cut off had no answer: nothing was sent under it, and its row may be another owner's. A source
        that swallows its cancellation is left behind.
        """
        sending = [item for item in self._running.values() if item.state is State.SENDING]  # before it is cancelled
        left = [*self._running, *self._helpers]
        self.advance(Phase.CUT)
        try:
            if left:
                await asyncio.wait(left, timeout=grace or _CANCELLED_SECONDS)
        except asyncio.CancelledError:
            grace = 0.0
            raise
        finally:
            await self._record_cut(sending, _SETTLING_SECONDS if grace else _CANCELLED_SECONDS)

    async def _record_cut(self, sending: list[RunningItem], seconds: float) -> None:
        """Record what became of creates that are cut off, within so many seconds; half a second once cancelled."""
        recording = asyncio.create_task(self._settle_cut(sending))
        try:
            await asyncio.wait([recording], timeout=seconds)
        except asyncio.CancelledError:  # the outcomes are recorded all the same, where the journal answers
            await until_done({asyncio.create_task(asyncio.wait([recording], timeout=_CANCELLED_SECONDS))})
            raise
        finally:
            self._journal_answers = recording.done()
            recording.cancel()  # the next `settle_claims` makes a row unknown that stays `sending`
            await until_done({recording})

    async def leave_journal(self) -> None:
        """Leave what this run polls to other owners; where that can't be written, they take it once it counts as dead.

        It is cancelled with the task that closes the run, and ends within two seconds.
        """
        has_left = False
        try:
            # A journal that did not answer in time just now is not waited for once more.
            async with asyncio.timeout(_CANCELLED_SECONDS if self._journal_answers else 0.0):
                await free_own(self.context.records.store, self.context.owner.name)
                has_left = True
        except (JournalError, TimeoutError) as error:
            _logger.info("what this run polled is left to others as soon as it counts as dead: %s", log_text(error))
        finally:
            await self.context.opened.leave(self.context.owner, has_left=has_left)

    async def _settle_cut(self, sending: list[RunningItem]) -> None:
        """Leave the claims of creates that are cut off, and record what became of them."""
        store = self.context.records.store
        for item in sending:
            if item.claim is not None:
                store.claims.leave(item.claim, item.row.key)
        # At once as well as after `flush`, which may have to wait for a claim that waits for another owner's.
        await asyncio.gather(self._settle(), store.flush(), return_exceptions=True)
        await self._settle()

    async def _settle(self) -> None:
        doubtful = await settle_claims(self.context.records.store, self.context.owner.name)
        self.context.opened.note_lost(doubtful)

    def under_way(self) -> list[RunningItem]:
        """Return the items that have begun and not ended."""
        return [item for item in tuple(self._running.values()) if not item.over]
