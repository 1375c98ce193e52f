"""Items of a journal, run in sets of keys as an engine hands them out."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from types import TracebackType
from typing import Final, Self

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async._validation import checked_flag
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.item_run import run_item
from agentjobs_async.batch._run.kinds import WORKER
from agentjobs_async.batch._run.late_jobs import LateJobs
from agentjobs_async.batch._run.repeats import rows_to_repeat
from agentjobs_async.batch._run.tasks import GRACE_SECONDS, ItemTasks, check_session_and_journal, noted_on, open_run
from agentjobs_async.batch._store.measures import planned_projects
from agentjobs_async.batch._store.owning import doubt_dead, free_dead, settle_claims, take
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import BatchResult
from agentjobs_async.batch.items import checked_keys
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Kept, Limits, checked_limits, given
from agentjobs_async.batch.states import OPEN, State
from agentjobs_async.batch.stats import ActiveItem, BatchStats
from agentjobs_async.telemetry.metrics import ItemGauges
from agentjobs_async.telemetry.observers import GuardedCallback

__all__ = ["BatchWorker"]

_LEAST_GRACE_SECONDS: Final = 0.5  # for answers that are there already


class BatchWorker:
    """Run items of a journal to their ends, any number of sets at once, through one session.

    It is for an engine that hands out sets of keys, each at least once. A set may be run again, or twice at the same
    time, in this process or another one: each item is still sent once, by the owner of its claim. The journal's
    `Limits` bound how many items are active and how many creates are sent. Use it as `async with`.

    Args:
        session: Sends the creates and the polls. It is not closed.
        journal: An open one, not read-only.
        limits: The limits of this worker; "kept" takes those that the journal keeps.
        max_sending: As of `Limits`: as many items can be unknown if this process dies.
        timeout: As of `Limits`, for one run of a set.
        on_result: A plain function that is called with each result. Exceptions that it raises have no effect; the first
            one is logged.
        other_service: As in `run_batch`.

    Raises:
        InvalidInputError: An argument is invalid; the message says what is valid.
    """

    def __init__(
        self,
        session: AgentJobsSession,
        journal: Journal,
        *,
        limits: Limits | Kept = "kept",
        max_sending: int | Kept | None = "kept",
        timeout: float | Kept | None = "kept",
        on_result: Callable[[BatchResult], object] | None = None,
        other_service: bool = False,
    ) -> None:
        check_session_and_journal(session, journal)
        self._other_service = checked_flag("other_service", other_service)
        self._limits, self._own = checked_limits(limits), given(max_sending=max_sending, timeout=timeout)
        self._session = session
        self.journal = journal
        self._on_result = None if on_result is None else GuardedCallback("on_result", on_result)
        self._item_tasks: ItemTasks | None = None
        self._close_by = inf  # loop time

    async def __aenter__(self) -> Self:
        if self._item_tasks is not None and self._item_tasks.phase < Phase.LEFT:
            raise InvalidInputError("the worker is open already: make another one")
        self._item_tasks = item_tasks = await open_run(
            self._session,
            self.journal,
            WORKER,
            limits=self._limits,
            own=self._own,
            other_service=self._other_service,
        )
        _ = item_tasks.start_helper(item_tasks.record_seen(), Phase.LEFT)
        _ = item_tasks.start_helper(item_tasks.read_durations(), Phase.NO_CREATES)
        _ = item_tasks.start_helper(LateJobs(item_tasks.context, None).poll(), Phase.ANSWERS_ONLY)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with noted_on(error):
            await self.aclose()

    def start_closing(self) -> None:
        """Start the 10 s of `aclose` now: for an engine that has something else to end first."""
        self._close_by = min(self._close_by, asyncio.get_running_loop().time() + GRACE_SECONDS)

    async def aclose(self) -> None:
        """Start no more items, and wait up to 10 s for the answers to creates under way; other workers do the rest.

        A database that does not answer gets 3 s more. The 10 s count from `start_closing` if that was called before.

        Raises:
            JournalError: The journal could not record jobs that were created; it names them, and so does the log.
        """
        if self._item_tasks is None:
            return
        self.start_closing()
        grace = self._close_by - asyncio.get_running_loop().time()
        try:
            await self._item_tasks.close(max(grace, _LEAST_GRACE_SECONDS))
        finally:
            await self._item_tasks.leave_journal()

    async def run(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Run the items of some hundred keys to their ends; return the keys of those that have not ended.

        Run these again later: their time ran out, another owner is sending them, or they can't be sent or read at
        present. Among them are items whose creates the server refuses with 401 or 403: they stay planned, other
        projects continue, and after a minute one create tries again. Keys that the journal does not have are left out.
        Cancelling returns at once; creates under way continue until they are answered.

        Raises:
            JournalError: The journal can't be read or written.
            AuthError: 401 or 403, if no create of this worker has ever succeeded, and no item of another project is
                under way or planned in the journal. After this error or one of the next two, this worker sends nothing
                more.
            NotSentError: The server's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed or drained.
            InvalidInputError: The worker is not open, or one of the keys can be no key.
        """
        item_tasks, keys = self._open, checked_keys(keys)
        store = self.journal.store
        owner = item_tasks.context.owner.name
        await settle_claims(store, owner)
        await free_dead(store)
        await doubt_dead(store, owner, followed=False)
        planned = await store.select(Query(keys=keys, states={State.PLANNED}, has_follower=False, size=None))
        to_repeat = await rows_to_repeat(item_tasks.context, Query(keys=keys, has_follower=False))
        taken = await take(store, Query(keys=keys, has_follower=False, size=None), owner)
        # No await from here on: of two sets with one key, one begins its item.
        under_way = {item.row.number for item in item_tasks.under_way()}
        left = [row for row in (*taken, *to_repeat) if row.number not in under_way]
        begun = [item_tasks.begin(row, self._run) for row in (*left, *planned)]
        try:
            if begun:
                await asyncio.wait(begun)
        except asyncio.CancelledError:
            item_tasks.advance(Phase.LEFT, begun)
            raise
        for task in begun:
            if not task.cancelled() and (fault := task.exception()) is not None:
                raise self._with_unrecorded(fault)
        if item_tasks.faults:  # the session has ended
            raise item_tasks.faults[0]
        if (refusal := await self._refusal_of_all()) is not None:
            item_tasks.advance(Phase.NO_CREATES)
            raise refusal
        unended = await store.select(Query(keys=keys, states=OPEN, size=None))
        elsewhere = Query(keys=keys, states={State.UNKNOWN}, owned_by_others_than=owner, size=None)
        unended += await store.select(elsewhere)  # another owner is going to repeat them
        unended += await rows_to_repeat(item_tasks.context, Query(keys=keys, has_follower=False))
        return tuple(row.key for row in unended)

    async def _session_ended(self) -> Exception:
        """Wait until the session is drained or closed, and return the error with which it ends what waits."""
        return await self._session._shutdown.begun()

    def stats(self) -> BatchStats:
        """Return how things stand at this moment; all numbers are 0 before the worker is open.

        A worker knows only the items that it was handed so far. So `planned`, `total`, `ends_in` and `decided_by` are
        `None`; `Journal.counts` counts all items.
        """
        return BatchStats(0, 0, None, {}, stopped=False) if self._item_tasks is None else self._item_tasks.stats(None)

    def _gauges(self) -> ItemGauges | None:
        """Return what gauges show, in whatever thread an exporter asks; `None` before it is entered."""
        return None if self._item_tasks is None else self._item_tasks.gauges(None)

    def active(self) -> list[ActiveItem]:
        """Return the items under way, the oldest first; none before the worker is open."""
        return [] if self._item_tasks is None else self._item_tasks.active()

    @property
    def _open(self) -> ItemTasks:
        if self._item_tasks is None:
            raise InvalidInputError("the worker is not open: use it inside of async with BatchWorker(...)")
        return self._item_tasks

    async def _refusal_of_all(self) -> Exception | None:
        """Return why the server refuses the key where nothing else could go, once; `None` otherwise."""
        item_tasks, gates = self._open, self._open.context.gates
        if gates.refusal is None or gates.succeeded:
            return None
        planned = {project for project, *_ in await planned_projects(self.journal.store, Query())}
        others = planned | item_tasks.projects()
        # After the queries: another set may have raised it meanwhile.
        if item_tasks.phase is Phase.RUNNING and all(gates.is_refused(project) for project in others):
            return gates.refusal
        return None

    def _with_unrecorded(self, fault: BaseException) -> BaseException:
        """Return `fault`; if it is one of the journal, one that names all jobs which the journal does not have."""
        if not isinstance(fault, JournalError):
            return fault
        return self._open.context.unrecorded.unraised(fault) or fault

    async def _run(self, item: RunningItem) -> None:
        try:
            result = await run_item(item)
        except Exception as error:
            self._open.meet(error)
            raise
        if result is None:
            return
        self._open.count(result)
        if self._on_result is not None:
            self._on_result(result)
