"""Moving a journal: to PostgreSQL, so that many machines continue with it, back to a file, or to another database."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from attrs import frozen

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async.batch._store import moves, statements
from agentjobs_async.batch._store.address import ServerAddress, server_address
from agentjobs_async.batch._store.connections import AnyConnection
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.moves import FROM, TO, Move
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.writer import Database

_OWNER_SECONDS: Final = 30.0  # without a heartbeat: the default of `Journal.open`
_CLOSING_SECONDS: Final = 5.0  # for which a close waits for a server that does not answer


async def move_journal(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Move all that a journal holds to a new one, and close the old one for good; return the number of its rows.

    Rows under way move as well; what was being sent when the last owner ended is unknown, as on a resume. Opening the
    old journal raises a `JournalError` with the reason `moved`, which names the new one; `read_only=True` still works.
    After a kill at any moment, the same call continues to the end. When it raises an error, the old journal is open as
    before, unless the new one could not be asked whether it has the rows: then the same call continues as well.

    Args:
        source: The journal, as in `Journal.open`. Nothing else may use it.
        target: The new place: a file that does not exist or holds no rows, or a database without rows. Workers may
            already wait there: they see all rows at once.

    Raises:
        InvalidInputError: `source` is missing, holds no rows, or has another place recorded as its target; or `target`
            holds rows, or is the same journal.
        JournalError: One of them can't be read or written, another owner uses `source` (`locked`), or `source` was
            moved before (`moved`).
    """
    old, new = _unopened(source), _unopened(target)
    if old.place == new.place:
        raise InvalidInputError("the journal can't be moved to where it is")
    if isinstance(old.place, Path) and not old.place.exists():
        raise InvalidInputError(f"there is no journal {old.place}")
    async with _opened(old) as journal:
        rows = await _rows(journal)
        if not rows:
            raise InvalidInputError("the journal holds no rows: there is nothing to move")
        async with _opened(new) as empty:
            await _Moving(journal, empty).move()
    return rows


@frozen
class _OpenJournal:
    """One of the two journals, open."""

    opened: Opened
    database: Database
    entries: Entries

    @property
    def address(self) -> str:
        """Where it is, without secrets."""
        place = self.opened.place
        return place.shown if isinstance(place, ServerAddress) else str(place)

    @property
    def is_shared(self) -> bool:
        return isinstance(self.opened.place, ServerAddress)


@frozen
class _Moving:
    """A move in three durable steps, each of which a kill leaves undone or done.

    1. The old journal is closed, with all of its rows: from here on, no owner can send anything through it.
    2. The new journal gets all rows and the mark of this move, in one transaction.
    3. The old journal records that the new one has its rows.

    The first comes before the second: at no moment may rows of both be sent. After a kill between them no journal can
    be opened, and the same call copies the closed one again. The mark in the new journal decides whether the second was
    done; without it, that could be done twice, over rows that have moved on since.
    """

    old: _OpenJournal
    new: _OpenJournal

    async def move(self) -> None:
        departure = self.old.opened.moves.get(TO)
        if departure is None:
            if await _rows(self.new):
                raise InvalidInputError(f"{self.new.address} holds rows already: move to a new journal")
            departure = await self._close_old()
        arrival = self.new.opened.moves.get(FROM)
        if arrival is None or arrival.mark != departure.mark:
            self._check_target(departure)
            await self._fill_new(departure)
        if not departure.ended:
            await self.old.database.write(moves.end_departure())

    def _check_target(self, departure: Move) -> None:
        """Check that a move which has begun leads to the new journal, and has not ended."""
        if departure.ended:
            raise moves.moved_error(self.old.address, departure)
        if departure.place != self.new.address:
            raise InvalidInputError(f"its move to {departure.place} has begun: give that place again")

    async def _close_old(self) -> Move:
        departure = Move(uuid4().hex, self.new.address, ended=False)

        async def close(connection: AnyConnection) -> None:
            # The lock before the look at owners: a writer waits for it, and then finds the journal closed.
            await moves.lock_rows(connection)
            if self.old.is_shared:
                await self._check_unused(connection)
            await connection.execute(statements.mark_sending_unknown(**self.old.entries.unknown_columns()))
            await moves.begin_departure(connection, departure.mark, departure.place)

        await self.old.database.once(close)
        return departure

    async def _check_unused(self, connection: AnyConnection) -> None:
        owners = await connection.execute(statements.owners(self.old.entries.now()))
        if living := sum(owner.age < _OWNER_SECONDS for owner in owners):
            words = f"{living} workers or runs use it; stop them first"
            raise JournalError(f"journal {self.old.address}: {words} (one that died counts for 30 s)", "locked")

    async def _fill_new(self, departure: Move) -> None:
        async def fill(target: AnyConnection) -> None:
            await moves.lock_rows(target)
            if (await target.execute(moves.row_count())).scalar():
                raise JournalError(f"journal {self.new.address}: another process has planned rows there", "locked")
            await moves.copy_rows(self.old.database, target)
            await target.execute(moves.insert_arrival(departure.mark, self.old.address))

        try:
            await self.new.database.once(fill, is_long=True)
        except JournalError:
            # The answer to a commit may be what got lost: then the new journal has the rows, and the old one must stay
            # closed. The lock makes this wait for such a commit.
            if not await self._has_arrived(departure):
                await self.old.database.once(moves.reopen)
                raise

    async def _has_arrived(self, departure: Move) -> bool:
        found: dict[str, Move] = {}

        async def look(connection: AnyConnection) -> None:
            await moves.lock_rows(connection)
            found.update(moves.moves_of(await connection.execute(moves.moves())))

        await self.new.database.once(look)
        return FROM in found and found[FROM].mark == departure.mark


def _unopened(place: str | os.PathLike[str]) -> Opened:
    text = os.fspath(place)
    at = server_address(text) or Path(text).resolve()
    return Opened(at, read_only=False, clock=None, owner_timeout=_OWNER_SECONDS, moving=True)


@asynccontextmanager
async def _opened(journal: Opened) -> AsyncIterator[_OpenJournal]:
    try:
        await journal.open()
        assert journal.database is not None  # noqa: S101 - it is open
        assert journal.entries is not None  # noqa: S101 - the same
        yield _OpenJournal(journal, journal.database, journal.entries)
    finally:
        await journal.close(_CLOSING_SECONDS)


async def _rows(journal: _OpenJournal) -> int:
    return int((await journal.database.read(moves.row_count()))[0][0])
