"""Items of a journal, run in sets of keys as an engine hands them out."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from types import TracebackType
from typing import Final, Self

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async._validation import checked_flag
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.item import run_item
from agentjobs_async.batch._run.tasks import GRACE_SECONDS, ItemTasks, check_session_and_journal, noted_on, open_run
from agentjobs_async.batch._store.rows import BatchResult
from agentjobs_async.batch.items import checked_keys
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Kept, given
from agentjobs_async.batch.states import State
from agentjobs_async.batch.stats import ActiveItem, BatchStats
from agentjobs_async.telemetry.observers import GuardedCallback

__all__ = ["BatchWorker"]

_LEAST_GRACE_SECONDS: Final = 0.5  # for answers that are there already
_TO_DO: Final = frozenset({State.PLANNED, State.ACTIVE})


class BatchWorker:
    """Run items of a journal to their ends, any number of sets at once, through one session.

    It serves an engine that hands out work at least once: a set that is run again, or twice at a time, in this process
    or another one, does no harm, since only the owner of a row's claim sends it. The journal's `FleetLimits` bound how
    many items are active and how many creates are sent. Use it as `async with`.

    Args:
        session: Sends the creates and the polls. It is not closed.
        journal: An open one, not read-only.
        max_sending: How many creates are under way at once: what the death of this process can leave unknown. "kept"
            takes what the journal keeps, else 10.
        timeout: Seconds that the create and the wait of an item may take together in one run of its set; `None` for no
            bound. "kept" takes what the journal keeps, else 1800.
        on_result: A plain function that is called with each result; the first exception that it raises is
            logged, and none has another effect.
        other_service: As in `run_batch`.

    Raises:
        InvalidInputError: An argument is invalid; the message says what is valid.
    """

    def __init__(
        self,
        session: AgentJobsSession,
        journal: Journal,
        *,
        max_sending: int | Kept = "kept",
        timeout: float | Kept | None = "kept",
        on_result: Callable[[BatchResult], object] | None = None,
        other_service: bool = False,
    ) -> None:
        check_session_and_journal(session, journal)
        self._other_service = checked_flag("other_service", other_service)
        self._settings = given(max_sending=max_sending, timeout=timeout)
        self._session = session
        self.journal = journal
        self._on_result = None if on_result is None else GuardedCallback("on_result", on_result)
        self._item_tasks: ItemTasks | None = None
        self._close_by = inf  # loop time

    async def __aenter__(self) -> Self:
        if self._item_tasks is not None and self._item_tasks.phase < Phase.LEFT:
            raise InvalidInputError("the worker is open already: make another one")
        self._item_tasks = await open_run(
            self._session, self.journal, self._settings, "worker", other_service=self._other_service
        )
        _ = self._item_tasks.start_helper(self._item_tasks.record_seen(), Phase.LEFT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with noted_on(error):
            await self.aclose()

    def start_closing(self) -> None:
        """Count the 10 s of `aclose` from now: for an engine that has something else to end first."""
        self._close_by = min(self._close_by, asyncio.get_running_loop().time() + GRACE_SECONDS)

    async def aclose(self) -> None:
        """Start no more items, wait up to 10 s for the answers of creates under way, and leave the rest to others.

        A database that does not answer gets 3 s more. The 10 s count from `start_closing` if that was called before.

        Raises:
            JournalError: The journal could not record jobs that were created; it names them, and so does the log.
        """
        if self._item_tasks is None:
            return
        self.start_closing()
        grace = self._close_by - asyncio.get_running_loop().time()
        await self._item_tasks.close(max(grace, _LEAST_GRACE_SECONDS))

    async def run(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Run the items of some hundred keys to their ends; return the keys of those that have not ended.

        Run these again later: their time ran out, another owner is sending them, or they can't be sent or read for the
        time being. Items of a project whose creates the server refuses with 401 or 403 are among them: they stay
        planned, the others continue, and after a minute one create tries again. Keys that the journal does not have are
        left out. Cancelling returns at once; creates under way continue until they are answered.

        Raises:
            JournalError: The journal can't be read or written.
            AuthError: 401 or 403, when no create of this worker has ever succeeded and nothing else could go: no item
                of another project is under way or planned in the journal. Nothing more is sent after this error or one
                of the next two.
            NotSentError: The server's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed or drained.
            InvalidInputError: The worker is not open, or one of the keys can be no key.
        """
        item_tasks, keys = self._open, checked_keys(keys)
        await self.journal._store.release_unanswered()
        rows = await self.journal._store.get_many(keys)
        to_do = [row for row in rows.values() if row.state in _TO_DO]
        if to_do and self.journal.is_shared:
            await self.journal._store.record_owner([row.key for row in to_do])
        begun = [item_tasks.begin(row, self._run) for row in to_do]
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
        return await self.journal._store.unended(keys)

    async def _session_ended(self) -> Exception:
        """Wait until the session is drained or closed, and return the error with which it ends what waits."""
        return await self._session._shutdown.begun()

    def stats(self) -> BatchStats:
        """Return a snapshot; all of it is 0 before the worker is open."""
        return BatchStats(0, 0, None, {}, stopped=False) if self._item_tasks is None else self._item_tasks.stats()

    def _gauges(self) -> BatchStats | None:
        """Return what gauges show, in whatever thread an exporter asks; `None` before it is entered."""
        return None if self._item_tasks is None else self._item_tasks.gauges()

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
        item_tasks, throttles = self._open, self._open.context.throttles
        if throttles.refusal is None or throttles.succeeded:
            return None
        store = self.journal._store
        planned = {project for project, _ in await store.planned_projects(await store.last_number())}
        others = planned | item_tasks.projects()
        # After the queries: another set may have raised it meanwhile.
        if item_tasks.phase is Phase.RUNNING and all(throttles.is_refused(project) for project in others):
            return throttles.refusal
        return None

    def _with_unrecorded(self, fault: BaseException) -> BaseException:
        """Return `fault`; if it is one of the journal, one that names all jobs which the journal does not have."""
        if not isinstance(fault, JournalError):
            return fault
        return self._open.context.unrecorded.unraised(fault) or fault

    async def _run(self, item: RunningItem) -> None:
        try:
            result = await run_item(item)
        except JournalError:
            raise
        except AgentJobsError:
            self._open.advance(Phase.NO_CREATES)  # every other item would meet the same error
            raise
        if result is None:
            return
        self._open.outcomes[result.outcome] += 1
        if self._on_result is not None:
            self._on_result(result)
