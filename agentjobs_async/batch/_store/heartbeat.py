"""The heartbeats of the owners of one process, and how long these keep their claims."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from attrs import field, frozen
from sqlalchemy import Select, delete, select

from agentjobs_async import JournalError
from agentjobs_async.batch._database.schema import JOURNAL, OWNERS
from agentjobs_async.batch._database.writer import Database
from agentjobs_async.batch._store.owners import Owner, Owners, RecordedOwner
from agentjobs_async.batch._store.statements import is_heard
from agentjobs_async.batch._store.store import Store

_BEATS: Final = 4  # within the patience: some may get lost
_LONGEST_GAP_SECONDS: Final = 7.5  # a move, which does not know the patience, counts an owner as dead after 30 s
_ANSWERED_WITHIN: Final = 0.5  # of the patience: a beat that takes longer is begun anew, over a new connection
_SURE_FOR: Final = 0.75  # of the patience: the rest is for clocks that run unequally, and for bytes on their way
_CLAIMED_WITHIN: Final = 0.5  # of the patience: a claim is sent no later than this after it was asked for
_PARTING_SECONDS: Final = 1.0  # to say that the owner leaves; otherwise its silence shows it, later

_logger: Final = logging.getLogger("agentjobs_async.batch")


def _boot_time() -> float:
    """Return seconds that are counted while the machine sleeps, where the system does so."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _wall_time() -> float:
    """Return the seconds of the wall clock."""
    return time.time()


@frozen
class Instant:
    """A moment by two clocks: one that is never set, and the wall clock, which counts a virtual machine's sleep too."""

    boot: float = field(factory=_boot_time)
    wall: float = field(factory=_wall_time)

    def age(self) -> float:
        """Return the seconds since then, by the clock that counted more."""
        return max(_boot_time() - self.boot, _wall_time() - self.wall)


class Lease:
    """For how long a claim is certain to be its owner's, from before it was asked for: its answer may be late."""

    def __init__(self, heartbeat: "Heartbeat") -> None:
        self._heartbeat = heartbeat
        self._life = heartbeat.life
        self._asked = Instant()

    def is_valid(self) -> bool:
        """Return whether this owner has not counted as dead for any other since, nor will within the next seconds."""
        heartbeat = self._heartbeat
        in_time = self._asked.age() < heartbeat.patience * _CLAIMED_WITHIN
        return in_time and heartbeat.is_sure and heartbeat.life == self._life


class Heartbeat:
    """Records again and again that the owners of this process are alive, and counts those of all processes.

    It has a connection of its own: no heartbeat waits for anything else that an owner does.

    Attributes:
        patience: Seconds without a heartbeat after which an owner counts as dead.
        life: Changes when a heartbeat came so late that the owners may have counted as dead before it.
    """

    def __init__(self, database: Database, store: Store, owners: Owners, patience: float) -> None:
        self.patience = patience
        self.life: int = 0
        self._database = database
        self._store = store
        self._owners = owners
        self._heard = Instant()
        self._beating: asyncio.Task[None] | None = None
        self._one_beat = asyncio.Lock()

    @property
    def is_sure(self) -> bool:
        """Whether, by their last recorded heartbeat, these owners count as alive for all others."""
        return self._heard.age() < self.patience * _SURE_FOR

    @property
    def gap(self) -> float:
        """Seconds from one heartbeat to the next."""
        return min(self.patience / _BEATS, _LONGEST_GAP_SECONDS)

    async def join(self, owner: Owner) -> None:
        """Record the first heartbeat of an owner, which others count from then on.

        Raises:
            JournalError: The journal can't be written.
        """
        await self._store.time()  # waits for a server that is gone, as all work does, and longer than a beat
        await self.beat()
        # A statement that begins only now: who has counted the owners as of a later time has counted this one.
        owner.join(await self._time())
        await self.beat()
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat_on(), context=Context())

    async def leave(self, name: str) -> None:
        """Record that an owner leaves: from now on, others take what is left of its work. An error is logged."""

        async def part() -> None:
            try:
                async with asyncio.timeout(_PARTING_SECONDS):
                    await self._database.write(delete(OWNERS).where(OWNERS.c.owner == name))
            except TimeoutError:
                error = JournalError("the journal could not be told that its owner leaves", "io")
            else:
                return
            raise error

        await _logged(part)

    async def end(self) -> None:
        """Send no more heartbeats."""
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])
        await self._database.close(_PARTING_SECONDS)

    def give_up(self) -> None:
        """Stop waiting for a database that is gone."""
        self._database.connector.give_up()

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self.gap)
            await _logged(self.beat)  # callers learn of a database that is gone by their own writes

    async def beat(self) -> None:
        """Count all owners, and record a heartbeat of those of this process.

        They are counted first: a heartbeat says as of when this process keeps to the share that follows from it.

        Raises:
            JournalError: The database did not confirm it in time.
        """
        # One at a time: a count that is older than the last one could take a share that another owner has by now.
        async with self._one_beat:
            if not await self._beaten():
                raise JournalError("the database did not confirm a heartbeat in time", "io")

    async def _beaten(self) -> bool:
        asked = Instant()
        try:
            async with asyncio.timeout(self.patience * _ANSWERED_WITHIN):
                counted_at = await self._count()
                await self._record(counted_at)
                if not self.is_sure:
                    self.life += 1
                    # A statement that begins only now, as in `join`.
                    self._owners.rejoin(await self._time())
        except TimeoutError:
            self._database.connector.cut()
            return False
        self._heard = asked
        return True

    async def _count(self) -> float:
        """Count the owners, and return the time by the journal's clock as of which that was."""
        found = await self._database.read(_counting(self._store, self.patience))
        self._owners.share_out(found[0].polls_per_second)
        owners = (RecordedOwner(row.owner, row.is_living, row.counted_at) for row in found if row.owner is not None)
        self._owners.count(list(owners))
        return float(found[0].moment)

    async def _time(self) -> float:
        """Return the time by the journal's clock."""
        return float((await self._database.read(select(self._store.now_column())))[0][0])

    async def _record(self, counted_at: float) -> None:
        if not self._owners.own:
            return
        beat = self._database.backend.insert(OWNERS).values(seen_at=self._store.now(), counted_at=counted_at)
        changed = {"seen_at": beat.excluded.seen_at, "counted_at": beat.excluded.counted_at}
        beating = beat.on_conflict_do_update(index_elements=[OWNERS.c.owner], set_=changed)
        await self._database.write(beating, parameters=[{"owner": name} for name in self._owners.own])


def _counting(store: Store, patience: float) -> Select[Any]:
    """Select the time, the limit of polls, and each owner; without any, one row that has none."""
    moment, owner = store.now_column(), OWNERS.c
    living = is_heard(store.now(), patience).label("is_living")
    cells = moment.label("moment"), JOURNAL.c.polls_per_second, owner.owner, living, owner.counted_at
    return select(*cells).select_from(JOURNAL.outerjoin(OWNERS, JOURNAL.c.only == 1))


async def _logged(work: Callable[[], Awaitable[None]]) -> None:
    """Await `work`, and log the error of a journal that can't do it.

    It is called here: a coroutine that is an argument of a task cancelled before it began would never be awaited.
    """
    try:
        await work()
    except JournalError as error:
        _logger.warning("%s", error)
