"""The submissions of durable jobs: each is planned in a task of its own, and waits for the answer to its create."""

import asyncio
from collections.abc import Iterator
from typing import Final

from agentjobs_async import AgentJobsSession, InvalidInputError, SessionClosedError, UserLimitError
from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.delays import doubling
from agentjobs_async._loop.tasks import until_done
from agentjobs_async.batch import BatchItem, JournalRow, State
from agentjobs_async.batch._store.durable_rows import DurableRows, Noticed, Submitted, User
from agentjobs_async.batch._store.owning import has_owner
from agentjobs_async.batch._store.store import Store
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._held import HeldJobs
from agentjobs_async.durable._noticing import Noticing
from agentjobs_async.durable.entry import DurableEntry, abandoned_error, entry_of, for_reader

_FIRST_LOOK_SECONDS: Final = 0.05  # at a row whose create another process is sending
_LONGEST_LOOK_SECONDS: Final = 1.0


class Submissions:
    """Plans jobs, and waits for the answers to their creates, which this process or another one sends.

    Args:
        session: Its draining ends the waits.
        store: The journal's rows.
        rows: Those of them that are durable jobs.
        creates: Sends the creates of planned rows.
        held: Knows why creates are held back.
        noticing: Continues with each row where it is.
    """

    def __init__(
        self,
        session: AgentJobsSession,
        store: Store,
        rows: DurableRows,
        creates: Creates,
        held: HeldJobs,
        noticing: Noticing,
    ) -> None:
        self._session = session
        self._store = store
        self._rows = rows
        self._creates = creates
        self._held = held
        self._noticing = noticing
        self._under_way: set[asyncio.Task[DurableEntry]] = set()

    async def submit(self, item: BatchItem, user: User | None, *, wait_for_create: bool) -> DurableEntry:
        """Plan an item, and return its entry, at once or as soon as its create is answered or held back.

        Raises:
            InvalidInputError: Its key is that of another prompt, project, extra or user.
            UserLimitError: Its user has as many jobs under way as allowed.
            SessionClosedError: The session or the durable jobs were closed.
            JournalError: The journal can't be written.
            AgentJobsError: What keeps the create from being sent.
        """
        # In a task of its own: a cancellation between the plan and the create would leave a row that nothing sends.
        task = asyncio.get_running_loop().create_task(self._submit(item, user, wait_for_create=wait_for_create))
        self._under_way.add(task)
        task.add_done_callback(self._on_end)
        await asyncio.wait([task])
        if task.cancelled():
            raise SessionClosedError("the durable jobs were closed; what is planned continues at the next start")
        # All who wait for the same create have one entry.
        return for_reader(self._held.explained(task.result(), item.project_id))

    async def cancel(self) -> None:
        """Cancel all submissions, and wait for their ends: what is planned continues at the next start."""
        for task in self._under_way:
            task.cancel()
        await until_done(set(self._under_way))

    async def _submit(self, item: BatchItem, user: User | None, *, wait_for_create: bool) -> DurableEntry:
        """Plan an item, and return its entry, at once or as soon as its create is answered or held back."""
        submitted = await self._planned(item, user)
        row = submitted.row
        if submitted.is_followed and row.state is State.PLANNED:
            # No await before it: whatever moves the row from here on is noticed after this, and ends this create.
            self._noticing.continue_with(Noticed(row, is_own=False))
        else:
            await self._noticing.notice(item.key)
        if not wait_for_create:
            return entry_of(row)
        answer = self._creates.answer_to(item.key)
        entry = None if answer is None else await asyncio.shield(answer)
        if entry is not None:
            return entry
        row = await self._answered_elsewhere(row)
        # The create may have ended since the row was read; and it may be retried.
        newest = (await self._store.rows_of([item.key])).get(item.key)
        return entry_of(newest or row)

    async def _planned(self, item: BatchItem, user: User | None) -> Submitted:
        """Plan an item, or find its row.

        Raises:
            InvalidInputError: Its key is taken.
            UserLimitError: Its key is not known, and its user has as many jobs as allowed.
        """
        submitted = await self._rows.submit(item, user)
        if submitted is None and user is not None and user.most_open is not None:
            if not await self._store.rows_of([item.key]):
                raise UserLimitError(user.most_open)
            submitted = await self._rows.submit(item, user)  # it may be known only since the limit refused it
        if submitted is None:
            words = "is the key of another prompt, project, extra or user in the journal: use another one"
            raise InvalidInputError(f"{item.key!r:.200} {words}", reason="key_taken")
        return submitted

    def _on_end(self, task: asyncio.Task[DurableEntry]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here: the call that asked may have been cancelled

    async def _answered_elsewhere(self, row: JournalRow) -> JournalRow:
        """Return a row once the process that follows it has had the answer to its create, or is held back."""
        delays = look_delays()
        while await self._is_to_be_answered(row):
            with CancelScope(None, self._session._shutdown.waits) as scope:
                await asyncio.sleep(next(delays))
            if scope.reason is not None:
                raise scope.reason
            row = (await self._store.rows_of([row.key]))[row.key]
            if row.state is State.ABANDONED:
                raise abandoned_error(row)
        return row

    async def _is_to_be_answered(self, row: JournalRow) -> bool:
        """Return whether another process sends the create of a row, or is going to repeat it."""
        if row.state is State.UNKNOWN:
            return await has_owner(self._store, row.key)
        return row.state is State.SENDING or (row.state is State.PLANNED and row.error is None)


def look_delays() -> Iterator[float]:
    """Return the seconds from one look at a row to the next."""
    return doubling(_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS)
