"""What a run begins next: jobs that nobody polls, unknown creates, planned rows, new items, each project for itself."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from math import inf
from typing import Final

from attrs import evolve

from agentjobs_async.batch._planning import Planner
from agentjobs_async.batch._progress import ToCome
from agentjobs_async.batch._run.context import Phase
from agentjobs_async.batch._run.free_rows import FreeJobs, RowsToRepeat
from agentjobs_async.batch._run.late_jobs import LateJobs
from agentjobs_async.batch._run.planned_rows import Backlog, PlannedRows, Ready
from agentjobs_async.batch._run.reader import Reader
from agentjobs_async.batch._run.repeats import unknown_error
from agentjobs_async.batch._run.source import Items
from agentjobs_async.batch._run.tasks import ItemTasks
from agentjobs_async.batch._store.measures import last_number, last_try
from agentjobs_async.batch._store.owning import doubt_dead, free_dead, settle_claims
from agentjobs_async.batch._store.queries import PAGE_ROWS, Query
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State

_MOST_AHEAD: Final = 1_000  # items that are read while those before them are held back
_WAITING_SECONDS: Final = 1.0  # between two looks at what other runs of a file have under way
_OTHERS: Final = 20  # rows of one look: the first one says it nearly always
_AT_WORK: Final = (State.SENDING, State.ACTIVE, State.UNKNOWN)
"""Where a row may have an owner."""
_MOVABLE: Final = (State.PLANNED, State.ACTIVE, State.UNKNOWN)
"""Where a row is of which a run has told, and which may begin once more."""


class Supply:
    """Gives a run the next row that may begin, or the next result of an item that does not begin.

    Where the creates of one project are held back, items of others are looked for among the planned rows, and up to
    1,000 items ahead in the source. Rows that other owners have are left to them: the run waits for them, and takes
    what they leave.

    Args:
        item_tasks: The items under way.
        late_jobs: Jobs of earlier tries, for which the run waits as well.
        items: New items and those of earlier runs alike.
        limit: How many items without a job may begin; `None` for any number.
    """

    def __init__(self, item_tasks: ItemTasks, late_jobs: LateJobs, items: Items, limit: int | None) -> None:
        self._item_tasks = item_tasks
        self._late_jobs = late_jobs
        self._context = item_tasks.context
        self._store = item_tasks.context.records.store
        self._left = inf if limit is None else limit  # how many items without a job may begin
        self._last_try: int | None = None  # of the earlier tries that were kept before the run began
        self._last = 0  # the highest number of a row of earlier runs
        self._until = 0  # the same, or that of the newest row of the source: what is this run's business
        self._results: deque[BatchResult] = deque()
        self._unknown: deque[JournalRow] = deque()  # since their sender ended
        self._is_all = False  # whether what earlier runs have left is known
        self._unsent: Counter[str] = Counter()  # items that began, and stay planned without a result, by project
        self._told: Counter[str] = Counter()  # those that stay planned, with a result
        # Rows of which this run has told while they could still move: it gives one result of an item, and leaves to
        # another run what a person settles or plans again meanwhile, and what takes longer than its time. And those
        # that were refused: they stay planned, whatever the service says later.
        self._passed_over: set[int] = set()
        self._jobs = FreeJobs(item_tasks, self._passed_over)
        self._to_repeat = RowsToRepeat(item_tasks, self._passed_over)
        self._planned = PlannedRows(self._store, self._passed_over)
        self._backlog = Backlog()
        planner = Planner(self._store, self._context.session.project_id)
        self._reader = Reader(items, planner, self._context.changed)
        self._is_sweep_due = False
        self._has_looked = False  # for what others have left, since something was found last
        self._is_waiting = False  # for what others have

    @property
    def fault(self) -> BaseException | None:
        """The source's own error; `None` without one."""
        return self._reader.fault

    async def next(self) -> Ready | BatchResult | None:
        """Wait for the next row that may begin, or the next result; return `None` once there will be none.

        That is when the limit is reached or the run ends; and when nothing is under way, and nothing is left but what
        the service refuses.

        Raises:
            JournalError: The journal can't be read or written.
        """
        if self._last_try is None:
            await self._begin()
        while not self._is_enough():
            self._context.changed.clear()
            if (found := await self._found()) is not None:
                self._has_looked = self._is_waiting = False
                return found
            if await self._is_dry():
                return None
            await self._context.changed.wait()
        return None

    def note(self, result: BatchResult) -> None:
        """Note a result that the run gives: of a row that can still move, no other run result follows."""
        if result.row is not None and result.row.state in _MOVABLE:
            self._passed_over.add(result.row.number)
            self._told[result.row.project_id] += result.row.state is State.PLANNED

    def leave(self, row: JournalRow) -> None:
        """Leave a row without a result to another run, if it is not sent since the service refused the key."""
        self._unsent[row.project_id] += row.state is State.PLANNED
        if row.state in (State.PLANNED, State.UNKNOWN) and self._context.gates.refusal is not None:
            self._passed_over.add(row.number)

    def to_come(self) -> ToCome:
        """Return what the run has not begun, as far as it knows without asking the journal; in any thread."""
        planned = self._planned.left() + Counter(self._backlog.counts()) + self._unsent.copy()
        repeated = min(len(self._to_repeat), self._left)  # they come before the planned ones, and count as those do
        others = len(self._jobs) + int(repeated) + len(self._unknown) + len(self._results)
        return ToCome(planned, others, self._left - repeated, is_all=self._is_all and self._reader.is_done)

    async def aclose(self) -> None:
        """Stop reading. A source that swallows its cancellation is left behind after 10 s."""
        await self._reader.aclose()

    async def sweep_on(self) -> None:
        """Cause `next` to look for what others have left, again and again, until cancelled.

        In a file the others are in this process, and none dies: there it looks while it waits for them.
        """
        heartbeat = self._context.opened.heartbeat
        while True:
            await asyncio.sleep(_WAITING_SECONDS if heartbeat is None else heartbeat.gap)
            if heartbeat is not None or self._is_waiting:
                self._is_sweep_due = True
                self._context.changed.set()

    async def _begin(self) -> None:
        self._last_try, self._last = await last_try(self._store), await last_number(self._store)
        self._until = self._last
        self._unknown += self._context.opened.take_lost()  # this run has told of nothing yet
        await self._planned.open(self._query(), {})

    def _known(self) -> Counter[str]:
        """Return how many planned rows the run has at hand, under way or passed over, by project."""
        waiting = [item.slot.project for item in self._item_tasks.under_way() if item.state is State.PLANNED]
        return Counter(waiting) + Counter(self._backlog.counts()) + self._unsent + self._told

    def _query(self) -> Query:
        """Return which rows are this run's business.

        Not those that durable jobs follow at present, nor an item that is planned once more since the run began: that
        is the next run's, whoever has sent it meanwhile.
        """
        return Query(until=self._until, has_follower=False, no_try_after=self._last_try)

    async def _tell_of(self, rows: Sequence[JournalRow]) -> None:
        """Add rows that are unknown since their sender ended; those that were planned once more are the next run's."""
        for at in range(0, len(rows), PAGE_ROWS):
            page = rows[at : at + PAGE_ROWS]
            query = Query(numbers=[row.number for row in page], no_try_after=self._last_try, size=None)
            own = {row.number for row in await self._store.select(query)}
            self._unknown += [row for row in page if row.number in own]
            self._context.opened.note_lost([row for row in page if row.number not in own])

    async def _found(self) -> Ready | BatchResult | None:
        if self._is_sweep_due:
            await (self._look() if self._is_waiting else self._sweep())
        self._take_page()
        if self._results:
            return self._results.popleft()
        if (unknown := await self._of_unknown()) is not None:
            return unknown
        # Before anything is sent: their agents are at work.
        job = await self._jobs.next(self._query(), self._context.slots.room_for_jobs)
        self._is_all = True
        if job is not None:
            return Ready(job, job.item)
        return None if self._jobs else await self._to_send()

    async def _of_unknown(self) -> BatchResult | None:
        """Return the next result of a row that is unknown since its sender ended.

        It is read again as its turn comes: where a person has settled it meanwhile, or its create may be repeated, it
        begins instead.
        """
        while self._unknown:
            key = self._unknown.popleft().key
            row = (await self._store.rows_of([key]))[key]
            if row.state is State.UNKNOWN and not await self._to_repeat.accept(row):
                return BatchResult(row.item, Outcome.UNKNOWN, None, unknown_error(row), row=row)
            if row.state is State.PLANNED:
                self._backlog.add(Ready(row, row.item))
            self._jobs.look_again()
        return None

    async def _to_send(self) -> Ready | None:
        """Return the next row whose create may begin: unknown ones, those that were read, then planned ones.

        Meanwhile it reads on.
        """
        if (row := await self._to_repeat.next(self._query(), self._may_begin)) is not None:
            self._left -= 1
            return Ready(row, row.item)
        if (ready := self._backlog.next(self._may_begin)) is None:
            row = await self._planned.next(self._may_begin)
            ready = None if row is None else Ready(row, row.item)
        if ready is not None:
            self._left -= 1
        elif self._reader.may_start and self._has_room_to_read():
            self._reader.start(self._room(), self._last)
        return ready

    def _take_page(self) -> None:
        """Add what was read to what may begin, once that is done.

        Raises:
            JournalError: It could not be planned.
        """
        if (page := self._reader.take()) is not None:
            self._until = max(self._until, page.last)
            self._results += page.results
            for ready in page.new:
                self._backlog.add(ready)

    def _has_room_to_read(self) -> bool:
        """Return whether one more item could begin if it is of a project that has room."""
        if self._room() <= 0 or any(map(self._may_begin, self._planned.projects())):
            return False
        return len(self._backlog) < _MOST_AHEAD

    def _room(self) -> int:
        """Return how many items there is room for at once, besides those that take a slot as soon as one is given back.

        Those of a project whose slots unknown items keep are none of them: another project may use what is unclaimed.
        """
        slots, gates = self._context.slots, self._context.gates
        ready = (count for project, count in slots.waiting() if slots.free(project) > 0 and gates.may_go(project))
        return slots.unclaimed - sum(ready)

    def _may_begin(self, project: str) -> bool:
        may_go = not self._context.gates.is_refused(project)
        return may_go and not self._is_enough() and self._context.slots.has_room(project)

    def _is_enough(self) -> bool:
        return self._item_tasks.phase >= Phase.NO_CREATES or self._left <= 0

    async def _is_dry(self) -> bool:
        """Return whether nothing is under way, and nothing can come but what the service refuses.

        What others have is waited for: before this run ends, it looks for what they have left.
        """
        if len(self._item_tasks) or not self._late_jobs.is_idle:
            return False
        if not self._only_refused() or not self._is_source_over():
            return False
        if not self._has_looked:
            self._has_looked = True
            await self._look()
            self._context.changed.set()
            return False
        self._is_waiting = await self._has_others()
        return not self._is_waiting

    async def _look(self) -> None:
        """Look for all that others have left: jobs, and planned rows."""
        await self._sweep()
        self._to_repeat.look_again()
        await self._planned.open(self._query(), self._known(), self._backlog.numbers())

    async def _has_others(self) -> bool:
        """Return whether others have rows under way of which this run has not told."""
        query = evolve(self._query(), states=_AT_WORK, owned_by_others_than=self._context.owner.name, size=_OTHERS)
        while found := await self._store.select(query):
            if any(row.number not in self._passed_over for row in found):
                return True
            query = evolve(query, after=found[-1].number)
        return False

    def _only_refused(self) -> bool:
        left = {*self._to_repeat.projects(), *self._backlog.projects(), *self._planned.projects()}
        return all(self._context.gates.is_refused(project) for project in left)

    def _is_source_over(self) -> bool:
        """Return whether the source has ended, or is not waited for any longer.

        A caller whose source is silent, and whose key never worked, is to get the error without waiting for an item.
        """
        if self._reader.is_done:
            return True
        silent = self._reader.is_silent and not self._context.gates.succeeded
        return self._context.gates.refusal is not None and (silent or not self._has_room_to_read())

    async def _sweep(self) -> None:
        """Free what dead owners have left: what they were sending is unknown, and this run tells of it."""
        self._is_sweep_due = False
        owner = self._context.owner.name
        await free_dead(self._store)
        doubtful = await settle_claims(self._store, owner)
        await doubt_dead(self._store, owner, followed=True)  # durable jobs tell of these
        lost = self._context.opened.take_lost()  # of runs that were left here since
        await self._tell_of([*await doubt_dead(self._store, owner, followed=False), *doubtful, *lost])
        self._jobs.look_again()
        if self._context.opened.heartbeat is not None:
            await self._planned.count_again(self._known())
