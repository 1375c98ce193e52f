"""One owner of a journal among many: its heartbeat, how long it keeps its claims, and its share of the polls."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from attrs import evolve, field, frozen
from sqlalchemy import ColumnElement, Double, Select, String, delete, func, literal, select, update

from agentjobs_async import JournalError
from agentjobs_async._polling.limiters import PollShare
from agentjobs_async.batch._store.row_store import RowStore
from agentjobs_async.batch._store.schema import OWNERS, Moment
from agentjobs_async.batch._store.writer import Database

_BEATS: Final = 4  # within the patience: some may get lost
_LONGEST_GAP_SECONDS: Final = 7.5  # a move, which does not know the patience, counts an owner as dead after 30 s
_ANSWERED_WITHIN: Final = 0.5  # of the patience: a beat that takes longer is begun anew, over a new connection
_SURE_FOR: Final = 0.75  # of the patience: the rest is for clocks that run unequally, and for bytes on their way
_CLAIMED_WITHIN: Final = 0.5  # of the patience: a claim is sent no later than this after it was asked for
_PARTING_SECONDS: Final = 1.0  # to say that the owner leaves; otherwise its silence shows it, later
_USED: Final = 0.95  # of the limit of polls: they take unequal times, and some arrive closer than they left

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

    def is_valid(self) -> bool:
        """Return whether this owner has not counted as dead for any other since, nor will within the next seconds."""
        heartbeat = self._heartbeat
        in_time = self._asked.age() < heartbeat.patience * _CLAIMED_WITHIN
        return in_time and heartbeat.is_sure and heartbeat.life == self._life


class Heartbeat:
    """Records again and again that an owner is alive, and makes the rows of dead owners unknown.

    It has a connection of its own: no heartbeat waits for anything else that the owner does.

    Attributes:
        patience: Seconds without a heartbeat after which an owner counts as dead.
        polls: The owner's share of the journal's polls.
        life: Changes when a heartbeat came so late that the owner may have counted as dead before it.
    """

    def __init__(self, database: Database, store: RowStore, patience: float) -> None:
        self.patience = patience
        self.life: int = 0
        self.polls: PollSharing = PollSharing(database, store, patience, self)
        self._database = database
        self._store = store
        self._heard = _Instant()
        self._beating: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def is_sure(self) -> bool:
        """Whether, by its last recorded heartbeat, this owner counts as alive for all others."""
        return self._heard.age() < self.patience * _SURE_FOR

    @property
    def gap(self) -> float:
        """Seconds from one heartbeat to the next."""
        return min(self.patience / _BEATS, _LONGEST_GAP_SECONDS)

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
                await self._database.write(delete(OWNERS).where(OWNERS.c.owner == self._store.owner))
        except TimeoutError:
            error = JournalError("the journal could not be told that its owner leaves", "io")
        else:
            return
        raise error

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self.gap)
            await _logged(self._beat)  # callers learn of a database that is gone by their own writes
            await _logged(self.polls.renew)
            # In a task of its own: a sweep may wait for a row that another owner has locked, and a beat must not.
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = asyncio.get_running_loop().create_task(_logged(self._sweep), context=Context())

    async def _beat(self) -> None:
        asked = _Instant()
        beat = self._database.backend.insert(OWNERS).values(owner=self._store.owner, seen_at=self._store.now())
        beating = beat.on_conflict_do_update(index_elements=[OWNERS.c.owner], set_={"seen_at": beat.excluded.seen_at})
        try:
            async with asyncio.timeout(self.patience * _ANSWERED_WITHIN):
                await self._database.write(beating)
        except TimeoutError:
            self._database.connector.cut()
            error = JournalError("the database did not confirm a heartbeat in time", "io")
        else:
            self.life += not self.is_sure
            self._heard = asked
            return
        raise error

    async def _sweep(self) -> None:
        found = await self._store.record_unknown_of_dead_owners(self.patience)
        if found:
            _logger.warning("%d creates became unknown: their owners are gone", len(found))
        await self._store.release_unanswered()


class PollSharing:
    """Asks for the owner's share of the polls at each beat, while the owner polls.

    All shares together never exceed the limit. An owner that joins polls nothing until the others have given up enough
    for its whole share, with their next beats; a dead owner's share is free once it counts as dead. An owner that is
    not sure to count as alive polls nothing.

    Args:
        heartbeat: Says whether this owner counts as alive for all others.
    """

    def __init__(self, database: Database, store: RowStore, patience: float, heartbeat: Heartbeat) -> None:
        self._database = database
        self._store = store
        self._patience = patience
        self._heartbeat = heartbeat
        self._on_share: Callable[[PollShare | None], None] | None = None
        self._share: PollShare | None = None
        self._recorded = False

    async def begin(self, on_share: Callable[[PollShare | None], None]) -> None:
        """Call `on_share` with the owner's share, or with `None` for any number of polls, now and at each beat.

        The first share is asked for with the patience of a run: the connection of the heartbeats may have been cut.
        """
        self._on_share = on_share
        await self._renew(self._store._database)  # noqa: SLF001 - private to other rooms

    def end(self) -> None:
        """Ask for no share any more; the next beat gives up the last one."""
        self._on_share = self._share = None

    async def renew(self) -> None:
        """Ask for the owner's share."""
        if self._on_share is not None:
            await self._renew(self._database)
        elif self._recorded:
            polling = update(OWNERS).where(OWNERS.c.owner == self._store.owner, OWNERS.c.polls.is_not(None))
            await self._database.write(polling.values(polls=None))
            self._recorded = False

    async def _renew(self, database: Database) -> None:
        in_use = self._in_use()
        await self._ask(in_use, database)
        if self._in_use() < in_use:  # what it does not use any more can now be recorded as free
            await self._ask(self._in_use(), database)

    def _in_use(self) -> float:
        return self._share.per_second if self._share is not None and self._heartbeat.is_sure else 0.0

    async def _ask(self, in_use: float, database: Database) -> None:
        """Use the share that the journal grants; `in_use` is what the owner has used until now, in polls per second."""
        asking = share_polls(self._store.owner, in_use, self._patience, _USED, self._store.now())
        self._recorded = True
        # As a claim: the lock of all owners must not wait for this process to commit.
        _, rows = await database.write(asking, claims=True)
        if self._on_share is None:
            return  # it ended meanwhile
        per_second, number, pollers, moment = tuple(rows[0])
        if per_second is None:
            self._share = None
        elif number is not None:
            self._share = self._with_turns(per_second, number / pollers, moment)
        elif not in_use:
            self._share = PollShare(0.0)
        self._on_share(self._share)

    def _with_turns(self, per_second: float, offset: float, moment: float) -> PollShare:
        """Return a share whose turns follow the journal's clock, which shows `moment`, as those of all owners do.

        `offset` is the position of a turn within the interval, from 0 to 1.
        """
        interval = 1 / per_second
        begin = asyncio.get_running_loop().time() - moment % interval
        return PollShare(per_second, begin + offset * interval, self._heartbeat)


def share_polls(owner: str, in_use: float, patience: float, used: float, now: Moment) -> Select[Any]:
    """Select an owner's share in polls per second, NULL for any number; its number, that of all pollers, and the time.

    `used` is the part of the journal's limit that is shared out, `in_use` the most that the owner has used until now.
    What it gives up is free for others once it calls this again.
    """
    moment = literal(None if isinstance(now, ColumnElement) else now, Double)
    arguments = (literal(owner, String), *(literal(number, Double) for number in (in_use, patience, used)), moment)
    found = func.agentjobs_share_polls(*arguments).table_valued("share", "number", "pollers", "moment").c
    return select(found.share, found.number, found.pollers, found.moment)


def parts_of(share: PollShare | None, count: int) -> list[PollShare]:
    """Return `count` equal parts of a share, each with every `count`-th turn; no parts without a share."""
    if share is None:
        return []
    turns = [None if share.turn is None else share.turn + number * share.interval for number in range(count)]
    return [evolve(share, per_second=share.per_second / count, turn=turn) for turn in turns]


async def _logged(work: Callable[[], Awaitable[None]]) -> None:
    """Await `work`, and log the error of a journal that can't do it.

    It is called here: a coroutine that is an argument of a task cancelled before it began would never be awaited.
    """
    try:
        await work()
    except JournalError as error:
        _logger.warning("%s", error)
