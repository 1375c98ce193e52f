"""Durable jobs from entering to leaving: planned rows are sent, active ones followed, and free ones taken over."""

import asyncio
import logging
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from weakref import WeakSet

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError, SessionClosedError
from agentjobs_async._loop.until_done import until_done
from agentjobs_async.batch import BatchItem, Journal, JournalRow, State, Where
from agentjobs_async.batch._item_run import Phase, RunContext
from agentjobs_async.batch._item_tasks import ItemTasks
from agentjobs_async.batch._seen import record_seen
from agentjobs_async.batch._slots import Slots
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._throttles import REFUSED_SECONDS, throttles_of
from agentjobs_async.batch.journal import entries_of, opened_of
from agentjobs_async.durable._callback import Callback
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._following import Following
from agentjobs_async.durable.entry import DurableEntry

_SWEEP_SECONDS: Final = 2.0  # until what was resolved, retried or abandoned is noticed
_SWEEPS: Final = 4  # at least, in the time after which another owner is taken for dead
_PAGE_KEYS: Final = 500  # in one statement
_RELEASING_SECONDS: Final = 1.0  # a database that does not answer must not hold up the end of the process
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.05, 1.0  # at a row whose create another process is sending

_FOLLOWED: Final[WeakSet[Entries]] = WeakSet()
"""The open journals that durable jobs follow: two at once would both follow what their common owner has."""

_logger: Final = logging.getLogger("agentjobs_async.durable")


class Run:
    """Durable jobs while they are open."""

    def __init__(
        self,
        session: AgentJobsSession,
        journal: Journal,
        on_change: Callback | None,
        on_end: Callback | None,
        least_gap: float,
    ) -> None:
        self._session = session
        self._shared = journal.is_shared
        self._entries = entries_of(journal)
        self._opened = opened_of(journal)
        patience = self._opened.owner_timeout if self._shared else None
        self._sweep_seconds = min(_SWEEP_SECONDS, self._opened.owner_timeout / _SWEEPS)
        self._rows = DurableRows(self._entries, patience, tells=on_end is not None)
        self._tells = on_end is not None
        self._following = Following(session, self._entries, self._rows, on_change, on_end, least_gap)
        self._submitting: set[asyncio.Task[DurableEntry]] = set()

    async def prepare(self) -> None:
        """Read the limits and pauses of the journal. Nothing is open before this has returned.

        Raises:
            InvalidInputError: Other durable jobs follow the same open journal.
        """
        limits = await self._entries.limits()
        rate = None if self._shared else limits.create_rate  # on PostgreSQL, each claim sees to it
        context = RunContext(
            self._session,
            self._entries,
            await throttles_of(self._entries, rate, refused_for=REFUSED_SECONDS),
            Slots(None),
            asyncio.Semaphore(limits.max_sending),
            timeout=None,
            unknown_for=0.0,
        )
        if self._entries in _FOLLOWED:
            raise InvalidInputError(
                "other durable jobs of this process follow the journal: share them, or open it again"
            )
        _FOLLOWED.add(self._entries)
        self._item_tasks = ItemTasks(context)
        self._creates = Creates(self._item_tasks, self._following)

    async def start(self) -> None:
        """Continue with all rows that no living owner follows, and look for more from now on."""
        limits = await self._entries.limits()
        await self._opened.share_polls(self, limits.polls_per_second, self._session)
        await self._take_over(own=True)
        _ = self._item_tasks.start_helper(record_seen(self._entries, self._following.under_way), Phase.NO_CREATES)
        _ = self._item_tasks.start_helper(self._sweep(), Phase.NO_CREATES)

    async def submit(self, item: BatchItem, *, wait_for_create: bool) -> DurableEntry:
        """Plan an item, and return its entry, at once or as soon as its create is answered or held back."""
        # In a task of its own: a cancellation between the plan and the create would leave a row that nothing sends.
        task = asyncio.get_running_loop().create_task(self._submit(item, wait_for_create=wait_for_create))
        self._submitting.add(task)
        task.add_done_callback(self._submitted)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # the caller was cancelled, and the task continues
        raise SessionClosedError("the durable jobs were closed; what is planned continues at the next start")

    async def get(self, key: str) -> DurableEntry | None:
        """Return the entry of a key's newest try; `None` if there is none."""
        row = await self._newest(key)
        return None if row is None else self._following.entry(row)

    async def active(self, where: Where | None) -> list[DurableEntry]:
        """Return the entries of all jobs that are followed and have not ended."""
        found: list[DurableEntry] = []
        after = 0
        while rows := await self._rows.active(after, where):
            found += map(self._following.entry, rows)
            after = rows[-1].number
        return found

    async def unfollow(self, key: str) -> bool:
        """Stop following the newest try of a key for good; return whether it was followed."""
        newest = await self._newest(key)
        key = key if newest is None else newest.key
        unfollowed = await self._rows.unfollow(key)
        self._creates.leave(key)
        self._following.leave(key)
        return unfollowed

    async def close(self, grace: float) -> JournalError | None:
        """Stop following, and wait `grace` seconds for creates and callbacks under way.

        Return the error that names the jobs which the journal does not have; `None` when it has all.
        """
        until = asyncio.get_running_loop().time() + grace
        self._following.stop()  # first: no job that is created meanwhile is waited for
        self._opened.stop_sharing_polls(self)
        try:
            try:
                return await self._item_tasks.close(grace)
            finally:
                await self._end_submits()
        except asyncio.CancelledError:
            until = 0.0  # a callback under way is called again at the next start
            raise
        finally:  # also where the wait before was cancelled: a scope of anyio's cancels at each turn of the loop
            await self._end_following(until)

    async def _end_submits(self) -> None:
        submitting: set[asyncio.Future[Any]] = set(self._submitting)
        for task in submitting:
            task.cancel()
        await until_done(submitting)

    async def _end_following(self, until: float) -> None:
        """Wait until the loop time `until` for callbacks under way; then the journal's rows are free for others."""
        try:
            await self._following.close(max(until - asyncio.get_running_loop().time(), 0.0))
        finally:
            _FOLLOWED.discard(self._entries)
            if self._shared:
                # If it fails, others take the rows over once this owner's heartbeats have stopped for long enough.
                with suppress(JournalError, TimeoutError):
                    async with asyncio.timeout(_RELEASING_SECONDS):
                        await self._rows.release()

    async def _submit(self, item: BatchItem, *, wait_for_create: bool) -> DurableEntry:
        planned = await self._rows.submit(item)
        if planned is None:
            raise InvalidInputError(
                f"{item.key!r:.200} is the key of another prompt or project in the journal: use another one"
            )
        row, mine = planned
        for free in () if mine else await self._rows.take_over(0, key=item.key):
            row, mine = free, True
        if mine:
            self._take_up(row)
        if not wait_for_create:
            return self._following.entry(row)
        answer = self._creates.answer_to(item.key)
        if answer is not None:
            return await asyncio.shield(answer)
        if not mine:
            row = await self._answered_elsewhere(row)
        newest = await self._newest(item.key)  # the create may have ended since the row was read; and it may be retried
        return self._following.entry(newest or row)

    def _submitted(self, task: asyncio.Task[DurableEntry]) -> None:
        self._submitting.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here: the call that asked may have been cancelled

    async def _answered_elsewhere(self, row: JournalRow) -> JournalRow:
        """Return a row once the process that follows it has had the answer to its create, or is held back."""
        delay = _FIRST_LOOK_SECONDS
        while row.state in (State.PLANNED, State.SENDING) and row.error is None:
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_LOOK_SECONDS)
            row = (await self._entries.get_many([row.key]))[row.key]
        return row

    async def _newest(self, key: str) -> JournalRow | None:
        """Return the row of a key's newest try; `None` if there is none."""
        row: JournalRow | None = None
        wanted: str | None = key
        while wanted is not None and (found := (await self._entries.get_many([wanted])).get(wanted)) is not None:
            row, wanted = found, found.retried_as
        return row

    def _take_up(self, row: JournalRow) -> None:
        """Continue with a row of this owner where it is: in place of what was done for it before it was settled."""
        if self._creates.answer_to(row.key) is not None:
            return
        if row.state is State.PLANNED:
            self._following.leave(row.key)
            self._creates.begin(row)
        else:
            self._following.take_up(row)

    async def _take_over(self, *, own: bool) -> None:
        """Continue with all rows that no living owner follows, and with this owner's where `own` says so.

        A claim that was cancelled before its answer came leaves a row that is `sending`, and that nothing sends.
        """
        own = bool(await self._entries.take_back()) or own
        after = 0
        while rows := await self._rows.take_over(after, own=own):
            for row in rows:
                self._take_up(row)
            after = rows[-1].number

    async def _sweep(self) -> None:
        """Look, until cancelled, for rows that owners left, and for ends that were not told."""
        life = self._life()
        while True:
            await asyncio.sleep(self._sweep_seconds)
            try:
                if life != (now := self._life()):
                    await self._leave_no_longer_followed()
                    life = now
                await self._take_over(own=False)
                await (self._tell() if self._tells else self._leave_to_tell())
            except JournalError as error:
                _logger.info("the journal can't be searched, and is later: %s", error)

    async def _tell(self) -> None:
        """Call `on_end` for rows that others have ended."""
        after = 0
        while rows := await self._rows.to_tell(after):
            for row in rows:
                if self._creates.answer_to(row.key) is None:  # else its create is about to tell
                    self._following.take_up(row)
            after = rows[-1].number

    async def _leave_to_tell(self) -> None:
        """Leave the rows that have ended to processes that have an `on_end`."""
        for key in await self._rows.leave_to_tell():
            self._following.leave(key)

    async def _leave_no_longer_followed(self) -> None:
        """Leave what other processes follow: they took this one for dead, since its heartbeats had stopped."""
        keys = iter([follow.key for follow in self._following.under_way()])
        while page := list(islice(keys, _PAGE_KEYS)):
            for key in await self._rows.no_longer_followed(page):
                self._following.leave(key)

    def _life(self) -> int:
        """Return what changes when this owner may have been taken for dead."""
        return 0 if self._opened.heartbeat is None else self._opened.heartbeat.life
