"""Moving a journal: to PostgreSQL, so that many machines continue with it, back to a file, or to another database."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from attrs import frozen
from sqlalchemy import Column, Select, Table, delete, func, insert, select, text, update

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.address import checked_location
from agentjobs_async.batch._store.connections import AnyConnection
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.row_store import RowStore
from agentjobs_async.batch._store.rows import FROM, TO, Move, moves_of
from agentjobs_async.batch._store.schema import ITEMS, METADATA, MOVES, NO_OWNER
from agentjobs_async.batch._store.writer import Database
from agentjobs_async.batch.states import ENDED

_OWNER_SECONDS: Final = 30.0  # without a heartbeat: the default of `Journal.open`
_CLOSING_SECONDS: Final = 5.0  # for which a close waits for a server that does not answer
_PAGE_ROWS: Final = 1_000  # in memory at once: a prompt may be long
_REFUSE_WRITES: Final = """
CREATE OR REPLACE FUNCTION agentjobs_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal was moved' USING ERRCODE = 'read_only_sql_transaction';
END
$$;
CREATE TRIGGER agentjobs_moved BEFORE INSERT OR UPDATE ON agentjobs_items
    FOR EACH ROW EXECUTE FUNCTION agentjobs_moved();
"""
_ROW_COUNT: Final = select(func.count()).select_from(ITEMS)
"""Counts all rows, tries included."""


async def move_journal(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Move all that a journal holds to a new one, and close the old one for good; return the number of its rows.

    Rows under way move as well; what was being sent when the last owner ended is unknown, as on a resume. Opening the
    old journal raises a `JournalError` with the reason `moved`, which names the new one; `read_only=True` still works.
    After a kill at any moment, the same call continues to the end. When it raises an error, the old journal is open as
    before, unless the new one could not be asked whether it has the rows: then the same call continues as well.

    Args:
        source: The journal, as in `Journal.open`. Nothing else may use it.
        target: The new location: a file that does not exist or holds no rows, or a database without rows. Workers may
            already wait there: they see all rows at once.

    Raises:
        InvalidInputError: `source` is missing, holds no rows, or has another location recorded as its target; or
            `target` holds rows, is the same journal, or can't store a prompt, as PostgreSQL with NUL in it.
        JournalError: One of them can't be read or written, another owner uses `source` (`locked`), or `source` was
            moved before (`moved`).
    """
    old, new = _unopened(source), _unopened(target)
    if old.location == new.location:
        raise InvalidInputError("the journal can't be moved to where it is")
    if isinstance(old.location, Path) and not old.location.exists():
        raise InvalidInputError(f"there is no journal {old.location}")
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
    store: RowStore


@frozen
class _Moving:
    """A move in three durable steps, each of which a kill leaves undone or done.

    1. The old journal is closed, with all of its rows: from here on, no owner can send anything through it.
    2. The new journal gets all rows and the id of this move, in one transaction.
    3. The old journal records that the new one has its rows.

    The first comes before the second: at no moment may rows of both be sent. After a kill between them no journal can
    be opened, and the same call copies the closed one again. The id in the new journal decides whether the second was
    done; without it, that could be done twice, over rows that have moved on since.
    """

    old: _OpenJournal
    new: _OpenJournal

    async def move(self) -> None:
        departure = self.old.opened.moves.get(TO)
        if departure is None:
            if await _rows(self.new):
                raise InvalidInputError(f"{self.new.opened.address} holds rows already: move to a new journal")
            await self._check_service()
            await self._check_prompts()
            departure = await self._close_old()
        arrival = self.new.opened.moves.get(FROM)
        if arrival is None or arrival.move_id != departure.move_id:
            self._check_target(departure)
            await self._fill_new(departure)
        if not departure.ended:
            await self.old.database.write(update(MOVES).where(MOVES.c.direction == TO).values(ended=1))

    async def _check_service(self) -> None:
        """Check that workers which wait in the new journal do not work for another service."""
        own, other = await self.old.store.service(), await self.new.store.service()
        if other is not None and other != own:
            raise InvalidInputError(
                f"{self.new.opened.address} belongs to another service, for which workers may wait there:"
                " move to a new journal"
            )

    async def _check_prompts(self) -> None:
        """Check that the new journal can store each prompt."""
        if self.new.database.backend.stores_nul or not self.old.database.backend.stores_nul:
            return
        with_nul = select(ITEMS.c.key).where(func.instr(ITEMS.c.prompt, "\0") > 0).limit(1)
        found = await self.old.database.read(with_nul)
        if found:
            raise InvalidInputError(
                f"the prompt of {found[0].key!r:.200} contains NUL (U+0000), which PostgreSQL can't store:"
                " keep the journal in its file"
            )

    def _check_target(self, departure: Move) -> None:
        """Check that a move which has begun leads to the new journal, and has not ended."""
        if departure.ended:
            raise departure.error(self.old.opened.address)
        if departure.location != self.new.opened.address:
            raise InvalidInputError(f"its move to {departure.location} has begun: give that location again")

    async def _close_old(self) -> Move:
        departure = Move(uuid4().hex, self.new.opened.address, ended=False)

        async def close(connection: AnyConnection) -> None:
            # The lock before the look at owners: a writer waits for it, and then finds the journal closed.
            await _lock_rows(connection)
            if self.old.opened.is_shared:
                await self._check_unused(connection)
            await connection.execute(statements.sending_to_unknown(**self.old.store.unknown_columns()))
            await connection.execute(
                insert(MOVES).values(direction=TO, move_id=departure.move_id, location=departure.location, ended=0)
            )
            if self.old.opened.is_shared:
                # An owner that is open, though it was not seen among the living ones, can't change a row any more.
                await connection.exec_driver_sql(_REFUSE_WRITES)

        await self.old.database.once(close)
        return departure

    async def _check_unused(self, connection: AnyConnection) -> None:
        owners = await connection.execute(statements.owners(self.old.store.now()))
        if living := sum(owner.age < _OWNER_SECONDS for owner in owners):
            words = f"{living} workers or runs use it; stop them first"
            raise JournalError(f"journal {self.old.opened.address}: {words} (one that died counts for 30 s)", "locked")

    async def _fill_new(self, departure: Move) -> None:
        async def fill(target: AnyConnection) -> None:
            await _lock_rows(target)
            if (await target.execute(_ROW_COUNT)).scalar():
                where = f"journal {self.new.opened.address}"
                raise JournalError(f"{where}: another process has planned rows there", "locked")
            await _copy_rows(self.old.database, target)
            arrival = {"direction": FROM, "move_id": departure.move_id, "location": self.old.opened.address, "ended": 1}
            await target.execute(insert(MOVES).values(arrival))

        try:
            await self.new.database.once(fill, is_long=True)
        except JournalError:
            # The answer to a commit may be what got lost: then the new journal has the rows, and the old one must stay
            # closed. The lock makes this wait for such a commit.
            if not await self._has_arrived(departure):
                await self.old.database.once(self._reopen_old)
                raise

    async def _reopen_old(self, connection: AnyConnection) -> None:
        await connection.execute(delete(MOVES).where(MOVES.c.direction == TO, MOVES.c.ended == 0))
        if self.old.opened.is_shared:
            await connection.exec_driver_sql("DROP TRIGGER agentjobs_moved ON agentjobs_items")

    async def _has_arrived(self, departure: Move) -> bool:
        found: dict[str, Move] = {}

        async def look(connection: AnyConnection) -> None:
            await _lock_rows(connection)
            found.update(moves_of(await connection.execute(statements.MOVES_RECORDED)))

        await self.new.database.once(look)
        return FROM in found and found[FROM].move_id == departure.move_id


def _unopened(location: str | os.PathLike[str]) -> Opened:
    at = checked_location(location)
    return Opened(
        at.resolve() if isinstance(at, Path) else at,
        read_only=False,
        clock=None,
        owner_timeout=_OWNER_SECONDS,
        moving=True,
    )


@asynccontextmanager
async def _opened(journal: Opened) -> AsyncIterator[_OpenJournal]:
    try:
        await journal.open()
        assert journal.database is not None  # noqa: S101 - it is open
        assert journal.store is not None  # noqa: S101 - the same
        yield _OpenJournal(journal, journal.database, journal.store)
    finally:
        await journal.close(_CLOSING_SECONDS)


async def _rows(journal: _OpenJournal) -> int:
    return int((await journal.database.read(_ROW_COUNT))[0][0])


async def _lock_rows(connection: AnyConnection) -> None:
    """Keep all others from changing rows until the caller's transaction ends; a file has no others."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("LOCK TABLE agentjobs_items IN SHARE ROW EXCLUSIVE MODE"))


async def _copy_rows(source: Database, target: AnyConnection) -> None:
    """Copy all that a closed journal holds into one without items, within the target's transaction.

    Times, claims and numbers stay. A row that has not ended gets no owner, so that workers continue with it. Limits and
    pauses replace those that the target has.
    """
    for table in (table for table in METADATA.sorted_tables if table is not MOVES):
        await target.execute(delete(table))
        after = None
        while page := await source.read(_page(table, after)):
            rows = [dict(row._mapping) for row in page]  # noqa: SLF001 - SQLAlchemy's public name
            await target.execute(insert(table), [_without_owner(table, row) for row in rows])
            after = rows[-1][_key(table).name]
        await _count_on(target, table)


def _key(table: Table) -> Column[Any]:
    return next(iter(table.primary_key.columns))


def _page(table: Table, after: Any) -> Select[Any]:
    """Select the next rows by their keys. Each page is read apart, so that a fault of either journal is its own."""
    rows = select(table).order_by(_key(table)).limit(_PAGE_ROWS)
    return rows if after is None else rows.where(_key(table) > after)


def _without_owner(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "owner": NO_OWNER} if table is ITEMS and row["state"] not in ENDED else row


async def _count_on(connection: AnyConnection, table: Table) -> None:
    """Continue the numbers of new rows on a server after those that were copied; SQLite does that by itself."""
    numbered = table.autoincrement_column
    if connection.dialect.name == "postgresql" and numbered is not None:
        sequence = func.pg_get_serial_sequence(table.name, numbered.name)
        last = select(func.max(numbered)).scalar_subquery()
        await connection.execute(select(func.setval(sequence, last)).where(last.is_not(None)))
