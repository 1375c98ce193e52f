"""Looks for the rows of durable jobs that need something of this process, since others have moved or left them."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from agentjobs_async import JournalError, SessionClosedError
from agentjobs_async.batch import State
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._store.durable_rows import DurableRows, Noticed
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.owning import doubt_dead, free_dead, settle_claims
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.store import NOBODY, Store
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._following import Following

_SWEEP_SECONDS: Final = 2.0  # until what was resolved, retried or abandoned is noticed
_SWEEPS: Final = 4  # at least, in the time after which another owner counts as dead
_LEAST_GAP_SECONDS: Final = 0.1  # between two looks, however many notifications come

_logger: Final = logging.getLogger("agentjobs_async.durable")


class Noticing:
    """Looks for rows that need something of this process, and continues with each where it is.

    Args:
        opened: The open journal.
        store: Its rows.
        rows: Those of them that are durable jobs.
        creates: Sends the creates of planned rows.
        following: Follows the jobs of active rows, and tells of ends.

    Attributes:
        unknown: How many durable jobs of the journal were unknown at the last sweep.
        seconds: Seconds from one sweep to the next.
    """

    def __init__(self, opened: Opened, store: Store, rows: DurableRows, creates: Creates, following: Following) -> None:
        self._opened = opened
        self._store = store
        self._rows = rows
        self._creates = creates
        self._following = following
        self.seconds: float = min(_SWEEP_SECONDS, opened.owner_timeout / _SWEEPS)
        self._has_missed = False
        self.unknown: int = 0
        self._look_soon = asyncio.Event()

    def continue_with(self, noticed: Noticed, *, repeats: bool = False) -> None:
        """Continue with a row that this process follows, where it is: in place of what was done for it before.

        `repeats` says that its create is in doubt, and may be sent again with its key.
        """
        row = noticed.row
        self._creates.withdraw(row)
        if self._creates.answer_to(row.key) is not None and row.state is not State.ABANDONED:
            return  # it goes on by itself, polls its job as soon as it is followed, and tells of an end
        if row.state is State.PLANNED or repeats:
            self._following.tell_earlier(row)
            self._creates.begin(row)
        elif not noticed.is_told and (row.state is not State.ACTIVE or noticed.is_own):
            # Else it was told after another look had been asked for; or another owner polls it, until it leaves it.
            self._following.follow(row)
        if noticed.is_notified:
            with suppress(SessionClosedError):  # the next start polls it at once
                self._following.notify(row.key)

    def look_soon(self) -> None:
        """Look for rows that need something as soon as `sweep` may, 0.1 s after its last look."""
        self._look_soon.set()

    async def notice(self, key: str | None = None) -> None:
        """Continue with the rows that nobody follows, and with own ones that another owner has moved or left."""
        after = 0
        try:
            while found := await self._rows.notice(after, key=key):
                unknown = [noticed for noticed in found if noticed.row.state is State.UNKNOWN]
                # No await before it. Unknown ones may wait: whoever moves them meanwhile has them noticed once more.
                for noticed in found:
                    if noticed.row.state is not State.UNKNOWN:
                        self.continue_with(noticed)
                numbers = await self._creates.repeatable([noticed.row for noticed in unknown])
                for noticed in unknown:
                    self.continue_with(noticed, repeats=noticed.number in numbers)
                after = found[-1].number
        except JournalError:
            self._has_missed = True  # they may count as noticed by now: only the answer was lost
            raise

    async def sweep_once(self) -> None:
        """Free what dead owners have, and continue with what needs it; without an `on_end`, leave ends to others.

        A claim that was cancelled before its answer came leaves a row that is `sending`, and that nothing sends.
        """
        await free_dead(self._store)
        # Moved by nobody: so the rows are to be noticed, as those that others have moved.
        await settle_claims(self._store, NOBODY)
        await doubt_dead(self._store, NOBODY, followed=True)
        if self._has_missed:
            await self._rows.look_again()
            self._has_missed = False
        self.unknown = await self._store.count(Query(states={State.UNKNOWN}, is_followed=True))
        await self.notice()
        await self._send_unattended()
        if not self._rows.tells:
            for row in await self._rows.leave_to_tell():
                self._creates.withdraw(row)
                self._following.leave(row.key)
            # Nobody may have an `on_end`. A repetition is owned by who sends it, and followed once it has a job.
            for row in await self._creates.left_in_doubt():
                self._creates.begin(row)

    async def _send_unattended(self) -> None:
        """Send what is planned and has no create under way: one may have been ending as its row was planned again."""
        keys = [key for key in await self._rows.planned() if self._creates.answer_to(key) is None]
        for page in pages_of(keys):
            for row in (await self._store.rows_of(page)).values():
                if row.state is State.PLANNED:
                    self.continue_with(Noticed(row, is_own=False))

    async def sweep(self) -> None:
        """Look, until cancelled, for rows that owners left, and for what others have moved or asked for."""
        loop = asyncio.get_running_loop()
        due, life = loop.time() + self.seconds, self._life()
        while True:
            try:
                if await self._is_asked_before(due):
                    await self.notice()
                    continue
                if life != (now := self._life()):
                    await self._leave_no_longer_followed()
                    life = now
                await self.sweep_once()
            except JournalError as error:
                _logger.info("the journal can't be searched, and is later: %s", error)
            due = loop.time() + self.seconds

    async def _is_asked_before(self, due: float) -> bool:
        """Wait until `look_soon` is called, or the loop time `due` has come; return whether the former was first."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(min(_LEAST_GAP_SECONDS, max(due - loop.time(), 0.0)))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._look_soon.wait()
        is_asked = self._look_soon.is_set() and loop.time() < due
        self._look_soon.clear()  # before the look: what comes during it may be too late for it
        return is_asked

    async def _leave_no_longer_followed(self) -> None:
        """Leave what other processes follow: for them this one counts as dead, since its heartbeats had stopped."""
        for page in pages_of([followed.key for followed in self._following.under_way()]):
            left = await self._rows.no_longer_followed(page)
            for key in left:
                self._following.leave(key)
            await self._rows.leave_to_poll(list(left))

    def _life(self) -> int:
        """Return what changes when this owner may have counted as dead."""
        return 0 if self._opened.heartbeat is None else self._opened.heartbeat.life
