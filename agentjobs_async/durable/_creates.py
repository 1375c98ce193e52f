"""The creates of durable jobs: each in a task of its own, which no caller's cancellation ends."""

import asyncio
import logging
from typing import Final

from attrs import define, field

from agentjobs_async import AgentJob, AgentJobsError, JobRef, JournalError, SessionClosedError
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.item_create import ItemCreate
from agentjobs_async.batch._run.repeats import rows_to_repeat
from agentjobs_async.batch._run.tasks import ItemTasks
from agentjobs_async.batch._store.owning import has_owner, settle_claims
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.store import NOBODY
from agentjobs_async.durable._following import Following
from agentjobs_async.durable.entry import DurableEntry, abandoned_error, entry_of
from agentjobs_async.errors import log_text
from agentjobs_async.telemetry.links import last_create

_HELD_SECONDS: Final = 60.0  # between two tries of a create that was refused (401, 403) or could not be sent

_logger: Final = logging.getLogger("agentjobs_async.durable")


@define(eq=False)
class _Create:
    """One create under way.

    Attributes:
        answered: Its entry, as soon as the create is answered or held back, `None` where another owner sends it; or
            what keeps it from being sent.
        held_by: What keeps it from being sent at present, where no gate knows of it; `None` otherwise.
    """

    answered: asyncio.Future[DurableEntry | None] = field(factory=lambda: asyncio.get_running_loop().create_future())
    held_by: Exception | None = None

    def hold(self, reason: Exception | None) -> None:
        """Set what keeps it from being sent; `None` once it is tried again."""
        self.held_by = reason

    def answer(self, result: DurableEntry | Exception | None) -> None:
        """Set the first result; later ones change nothing."""
        if self.answered.done():
            return
        if isinstance(result, Exception):
            self.answered.set_exception(result)
            self.answered.exception()  # retrieved: after a restart no caller waits for it
        else:
            self.answered.set_result(result)


class Creates:
    """Sends the creates of planned rows, as a batch does, and hands each job over to be followed."""

    def __init__(self, item_tasks: ItemTasks, following: Following) -> None:
        self._item_tasks = item_tasks
        self._following = following
        self._under_way: dict[str, _Create] = {}

    async def repeatable(self, rows: list[JournalRow]) -> set[int]:
        """Return the numbers of those of some hundred rows whose unknown creates may be repeated."""
        numbers = [row.number for row in rows]
        found = await rows_to_repeat(self._item_tasks.context, Query(numbers=numbers)) if numbers else []
        return {row.number for row in found}

    async def left_in_doubt(self) -> list[JournalRow]:
        """Return some hundred rows that nobody follows, and whose unknown creates may be repeated."""
        found = await rows_to_repeat(self._item_tasks.context, Query(is_followed=True, has_follower=False))
        return [row for row in found if not await self._following.rows.is_given_up(row.key)]

    async def is_repeated(self, key: str) -> bool:
        """Return whether a create is under way here, or another process has that of an unknown row to repeat."""
        return key in self._under_way or await has_owner(self._item_tasks.context.records.store, key)

    async def may_be_repeated(self, key: str) -> bool:
        """Return whether a process repeats an unknown create or may still take it to do so, or its row has moved on."""
        if await self._following.rows.is_given_up(key):
            return False
        row = (await self._item_tasks.context.records.store.rows_of([key]))[key]
        if row.state is not State.UNKNOWN or row.number in await self.repeatable([row]):
            return True
        return await self.is_repeated(key)  # after it: what another process has taken meanwhile was not repeatable

    def cease(self, key: str) -> None:
        """Repeat the create of a row no more; one that is under way continues until it is answered."""
        self._item_tasks.advance(Phase.NO_CREATES, self._item_tasks.tasks_of(key))

    def begin(self, row: JournalRow) -> None:
        """Send the create of a planned row, or repeat that of an unknown one, unless that is being done."""
        if row.key not in self._under_way:
            self._under_way[row.key] = _Create()
            _ = self._item_tasks.begin(row, self._run)

    def answer_to(self, key: str) -> asyncio.Future[DurableEntry | None] | None:
        """Return the entry to come of a create that is under way, which is `None` where another owner sends it.

        Return `None` when no create is under way.
        """
        create = self._under_way.get(key)
        return None if create is None else create.answered

    def held_by(self, key: str) -> Exception | None:
        """Return what keeps a create under way from being sent, where no gate knows of it; `None` otherwise."""
        create = self._under_way.get(key)
        return None if create is None else create.held_by

    def withdraw(self, row: JournalRow) -> None:
        """End a create that waits to be sent, and whose row was abandoned; a claim that is asked for is refused."""
        if row.state is State.ABANDONED and row.key in self._under_way:
            self._under_way[row.key].answer(abandoned_error(row))
            self.cease(row.key)

    async def _run(self, item: RunningItem) -> None:
        create = self._under_way[item.key]
        try:
            while not await self._try_to_send(item, create):  # noqa: ASYNC110 - it sends; it does not look
                await asyncio.sleep(_HELD_SECONDS)
        finally:
            del self._under_way[item.key]
            create.answer(
                SessionClosedError(f"closed; {item.key!r:.200} is in the journal, and continues at the next start")
            )

    async def _try_to_send(self, item: RunningItem, create: _Create) -> bool:
        """Send the create as soon as it may go; return false when it is to be tried again later."""
        context = self._item_tasks.context
        create.hold(None)
        try:
            await settle_claims(context.records.store, NOBODY)  # so that the sweep notices what this moves
            await self._send(item, create)
            if item.over or item.phase >= Phase.NO_CREATES:
                return True
            row = (await context.records.store.rows_of([item.key]))[item.key]
            if row.state is not State.PLANNED:
                # Others have sent or settled it. The sweep may have noticed that while this create was under way. No
                # await after it: what is noticed from here on finds no create any more.
                await self._following.rows.look_again(item.key)
        except SessionClosedError as error:
            create.answer(error)
            return True
        except AgentJobsError as error:  # of the journal; or no connection that can be trusted, or the proxy refuses
            return await self._hold_back(item, create, error)
        create.answer(self._answer(row))
        return row.state is not State.PLANNED  # else the server refuses the key at present; or another owner has it

    def _answer(self, row: JournalRow) -> DurableEntry | Exception | None:
        """Return what is answered to a create that was not sent, since its row had been moved or must wait."""
        if row.state is State.ABANDONED:
            return abandoned_error(row)
        return None if row.state is State.SENDING else entry_of(row)

    async def _send(self, item: RunningItem, create: _Create) -> None:
        sending = ItemCreate(item)
        sent = await sending.run()
        if isinstance(sent, AgentJob):
            item.over = True
            create.answer(entry_of(item.row))
            self._following.start(item.row, sent, last_create.get())
        elif sent.result is not None and item.state is not State.ABANDONED:
            error = sent.result.error or AgentJobsError("the create gave no job")
            if item.state is State.PLANNED:
                raise error  # refused before any I/O: it is no end, since another session may be able to send it
            item.over = True
            create.answer(entry_of(item.row))
            self._following.tell(item.row, item.state, error)

    async def _hold_back(self, item: RunningItem, create: _Create, error: AgentJobsError) -> bool:
        """Answer a create that can't be sent or recorded at present; return whether it is over."""
        context = self._item_tasks.context
        if isinstance(error, JournalError) and (ref := context.unrecorded.ref_of(item.key)) is not None:
            create.answer(context.unrecorded.error(error))
            await self._record_later(item, ref)
            return True
        create.answer(error)
        if not isinstance(error, JournalError):
            create.hold(error)
        if item.claim is not None:  # the next sweep tells of an outcome that was not recorded
            context.records.store.claims.leave(item.claim, item.key)
        _logger.warning("%r is held back for %.0f s: %s", item.key, _HELD_SECONDS, log_text(error))
        item.set_state(State.PLANNED)  # if it is not, the next claim finds that out
        return item.phase >= Phase.NO_CREATES

    async def _recorded(self, item: RunningItem, ref: JobRef) -> JournalRow | None:
        """Record the id of a job, again until the journal has it; return its row, `None` if the item has moved on."""
        while True:
            await asyncio.sleep(_HELD_SECONDS)
            try:
                return await self._item_tasks.context.records.created(
                    item.key, item.claim or "", ref, last_create.get(), item.idempotency_key
                )
            except JournalError as error:
                _logger.warning("the job of %r is recorded later: %s", item.key, error)

    async def _record_later(self, item: RunningItem, ref: JobRef) -> None:
        """Record a job that the journal could not record, as soon as it can, and follow it then."""
        item.set_state(State.ACTIVE)  # leaving cancels this at once, and raises an error that names the job
        with self._item_tasks.context.session._shutdown.recording() as recording:
            recording.add(ref)
            row = await self._recorded(item, ref)
        self._item_tasks.context.unrecorded.forget(item.key)
        # Else it was settled by other means, and is followed as that.
        if row is not None and row.state.is_open:
            self._following.start(item.row, ref, last_create.get())
