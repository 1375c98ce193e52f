"""The heartbeat of one owner among many: how long it keeps its claims, and the rows of owners that are dead."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

from attrs import field, frozen

from agentjobs_async import JournalError
from agentjobs_async.batch._store import shared
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.poll_sharing import PollSharing
from agentjobs_async.batch._store.writer import Database

_BEATS: Final = 4  # within the patience: some may get lost
_ANSWERED_WITHIN: Final = 0.5  # of the patience: a beat that takes longer is begun anew, over a new connection
_SURE_FOR: Final = 0.75  # of the patience: the rest is for clocks that run unequally, and for bytes on their way
_CLAIMED_WITHIN: Final = 0.5  # of the patience: a claim is sent no later than this after it was asked for
_PARTING_SECONDS: Final = 1.0  # to say that the owner leaves; otherwise its silence shows it, later

_logger: Final = logging.getLogger("agentjobs_async.batch")


def _boot_time() -> float:
    """Return seconds that are counted while the machine sleeps, where the system does so."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@frozen
class _Instant:
    """A moment by two clocks: one that is never set, and the wall clock, which counts a virtual machine's sleep too."""

    boot: float = field(factory=_boot_time)
    wall: float = field(factory=time.time)

    def age(self) -> float:
        """Return the seconds since then, by the clock that counted more."""
        return max(_boot_time() - self.boot, time.time() - self.wall)


class Lease:
    """For how long a claim is certain to be its owner's, from before it was asked for: its answer may be late."""

    def __init__(self, heartbeat: "Heartbeat") -> None:
        self._heartbeat = heartbeat
        self._life = heartbeat.life
        self._asked = _Instant()

    def holds(self) -> bool:
        """Return whether no other owner has taken this one for dead since, or will within the next seconds."""
        heartbeat = self._heartbeat
        in_time = self._asked.age() < heartbeat.patience * _CLAIMED_WITHIN
        return in_time and heartbeat.is_sure and heartbeat.life == self._life


class Heartbeat:
    """Records again and again that an owner is alive, and makes the rows of dead owners unknown.

    It has a connection of its own: no heartbeat waits for anything else that the owner does.

    Attributes:
        became_unknown: Keys of rows that became unknown, until `Opened.take_unknown` takes them.
        patience: Seconds without a heartbeat after which an owner is taken for dead.
        polls: The owner's share of the journal's polls.
        life: Changes when a heartbeat came so late that the owner may have been taken for dead before it.
    """

    def __init__(self, database: Database, entries: Entries, patience: float) -> None:
        self.became_unknown: list[str] = []
        self.patience = patience
        self.life: int = 0
        self.polls: PollSharing = PollSharing(database, entries, patience, self)
        self._database = database
        self._entries = entries
        self._heard = _Instant()
        self._beating: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the last recorded heartbeat still keeps other owners from taking this one for dead."""
        return self._heard.age() < self.patience * _SURE_FOR

    async def begin(self) -> None:
        """Record the first heartbeat, and start the others."""
        await self._beat()
        await self._sweep()
        self._beating = asyncio.get_running_loop().create_task(self._beat_on(), context=Context())

    async def rest(self) -> None:
        """Stop looking for rows of dead owners."""
        sweeping, self._sweeping = self._sweeping, None
        if sweeping is not None:
            sweeping.cancel()
            await asyncio.wait([sweeping])

    async def end(self) -> None:
        """Record that the owner leaves: from now on, others make the rows unknown that it is still sending."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])
            await self.rest()
            await _logged(self._part)
        await self._database.close(_PARTING_SECONDS)

    def give_up(self) -> None:
        """Stop waiting for a database that is gone."""
        self._database.connector.give_up()

    async def _part(self) -> None:
        try:
            async with asyncio.timeout(_PARTING_SECONDS):
                await self._database.write(shared.delete_owner(self._entries.owner))
        except TimeoutError:
            error = JournalError("the journal could not be told that its owner leaves", "io")
        else:
            return
        raise error

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self.patience / _BEATS)
            await _logged(self._beat)  # callers learn of a database that is gone by their own writes
            await _logged(self.polls.renew)
            # In a task of its own: a sweep may wait for a row that another owner has locked, and a beat must not.
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = asyncio.get_running_loop().create_task(_logged(self._sweep), context=Context())

    async def _beat(self) -> None:
        asked = _Instant()
        try:
            async with asyncio.timeout(self.patience * _ANSWERED_WITHIN):
                await self._database.write(shared.upsert_heartbeat(self._entries.owner, self._entries.now()))
        except TimeoutError:
            self._database.connector.cut()
            error = JournalError("the database did not confirm a heartbeat in time", "io")
        else:
            self.life += not self.is_sure
            self._heard = asked
            return
        raise error

    async def _sweep(self) -> None:
        found = await self._entries.mark_unknown_of_dead_owners(self.patience)
        if found:
            _logger.warning("%d creates became unknown: their owners are gone", len(found))
        self.became_unknown += found
        await self._entries.take_back()


async def _logged(work: Callable[[], Awaitable[None]]) -> None:
    """Await `work`, and log the error of a journal that can't do it.

    It is called here: a coroutine that is an argument of a task cancelled before it began would never be awaited.
    """
    try:
        await work()
    except JournalError as error:
        _logger.warning("%s", error)
