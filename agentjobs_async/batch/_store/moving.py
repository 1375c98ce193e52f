"""Moving a journal from a file to PostgreSQL, so that many machines continue with it."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Float,
    Select,
    String,
    Table,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async.batch._database.address import ServerAddress, checked_location
from agentjobs_async.batch._database.connections import AnyConnection
from agentjobs_async.batch._database.schema import ITEMS, JOURNAL, METADATA, NUMBER
from agentjobs_async.batch._database.writer import Database
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.owning import doubt_dead, free_dead
from agentjobs_async.batch._store.store import NOBODY, Meta, Store
from agentjobs_async.batch.states import ENDED

_OWNER_SECONDS: Final = 30.0  # without a heartbeat: the default of `Journal.open`
_CLOSING_SECONDS: Final = 5.0  # for which a close waits for a server that does not answer
_PAGE_ROWS: Final = 1_000  # in memory at once: a prompt may be long
_LARGEST_INTEGER: Final = 2**31 - 1
"""Of PostgreSQL's `integer`."""
_LARGEST_FLOAT: Final = sys.float_info.max
_ROW_COUNT: Final = select(func.count()).select_from(ITEMS)


async def move_journal(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Move all that a journal in a file holds to PostgreSQL, and close the file for good; return the number of items.

    Rows under way move as well; what was being sent when the last owner ended is unknown, as on a resume. Opening the
    file raises a `JournalError` with the reason `moved` from then on, which names the new location; `read_only=True`
    still works. After a kill at any moment, the same call finishes the move; `undo_move` takes it back before that.

    Args:
        source: The path of the file. Nothing else may use it.
        target: The URL of a database without rows of a journal. Workers may already wait there: they see all rows at
            once.

    Raises:
        InvalidInputError: `source` is no file, is missing or holds no rows, or its move to another location has begun;
            or `target` is no URL, holds rows, belongs to another service, or can't store a text. Nothing was written.
        JournalError: One of them can't be read or written, or another owner uses `source` (`locked`).
    """
    file, server = _unopened(source), _unopened(target)
    if not isinstance(file.location, Path) or not isinstance(server.location, ServerAddress):
        raise InvalidInputError("a journal is moved from a file to PostgreSQL: give a path and a URL")
    _check_exists(file.location)
    async with _opened(file) as old, _opened(server) as new:
        move = _Move(old, new)
        if not move.has_ended:
            await move.check()
            await move.make()
        return await _rows(new)


async def undo_move(source: str | os.PathLike[str]) -> None:
    """Open a file again whose move has begun and not ended.

    Args:
        source: The path of the file.

    Raises:
        InvalidInputError: `source` is no file, is missing, or was not moved; or the move has ended, so that the rows
            belong to the new journal.
        JournalError: One of them can't be read or written: without the answer of the new one nothing is changed.
    """
    file = _unopened(source)
    if not isinstance(file.location, Path):
        raise InvalidInputError("only a file is moved: give its path")
    _check_exists(file.location)
    async with _opened(file) as old:
        moved_to = old.meta.moved_to
        if moved_to is None:
            raise InvalidInputError(f"{file.name} was not moved")
        if await _identity(moved_to) == old.meta.identity:
            raise InvalidInputError(f"{file.name} was moved to {moved_to}, which has all of its rows")
        await old.store.write(update(JOURNAL).values(moved_to=None))


@frozen
class _OpenJournal:
    """One of the two journals, open; `meta` is what it was before the move."""

    opened: Opened
    database: Database
    store: Store
    meta: Meta


@frozen
class _Move:
    """A move in two durable steps: the file is closed with all of its rows, then PostgreSQL has them and its identity.

    The first comes before the second: at no moment may rows of both be sent. Each step is one commit. After a kill
    between them no journal has rows that can be sent, and the same call makes the move anew; the identity says whether
    the second step was made. PostgreSQL has been given everything before the first: what it refuses closes no file.
    """

    old: _OpenJournal
    new: _OpenJournal

    @property
    def has_ended(self) -> bool:
        """Whether PostgreSQL has the rows already."""
        return self.new.meta.identity == self.old.meta.identity

    async def check(self) -> None:
        """Refuse what can't move. Nothing was written before, nor is by this.

        Raises:
            InvalidInputError: The move makes no sense, or PostgreSQL can't store what the file holds.
            JournalError: One of them can't be read, or the file holds what no journal can have written (`corrupt`).
        """
        address = self.new.opened.address
        if self.old.meta.moved_to not in (None, address):
            raise InvalidInputError(
                f"its move to {self.old.meta.moved_to} has begun: give that location again, or undo the move"
            )
        if not await _rows(self.old):
            raise InvalidInputError("the journal holds no rows: there is nothing to move")
        if await _rows(self.new):
            raise InvalidInputError(f"{address} holds rows already: move to a new journal")
        if self.new.meta.service not in (None, self.old.meta.service):
            raise InvalidInputError(
                f"{address} belongs to another service, for which workers may wait there: move to a new journal"
            )
        for table in METADATA.sorted_tables:
            await _check_cells(self.old.store, table)

    async def make(self) -> None:
        """Copy all that the file holds to PostgreSQL, and close the file just before that is committed.

        Raises:
            JournalError: One of them can't be written, or another process has planned rows there meanwhile (`locked`).
        """
        await free_dead(self.old.store)
        for followed in (True, False):
            await doubt_dead(self.old.store, NOBODY, followed=followed)

        async def fill(target: AnyConnection) -> None:
            await target.exec_driver_sql("LOCK TABLE agentjobs_items IN SHARE ROW EXCLUSIVE MODE")
            if (await target.execute(_ROW_COUNT)).scalar():
                where = f"journal {self.new.opened.address}"
                raise JournalError(f"{where}: another process has planned rows there", "locked")
            for table in METADATA.sorted_tables:
                await _copy(self.old.store, target, table)
            # From here on, nothing is sent from the file. The commit of PostgreSQL follows.
            await self.old.store.write(update(JOURNAL).values(moved_to=self.new.opened.address))

        await self.new.database.once(fill, is_long=True)


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise InvalidInputError(f"there is no journal {path}")


def _unopened(location: str | os.PathLike[str]) -> Opened:
    at = checked_location(location)
    place = at.resolve() if isinstance(at, Path) else at
    return Opened(place, read_only=False, clock=None, owner_timeout=_OWNER_SECONDS, moving=True)


@asynccontextmanager
async def _opened(journal: Opened) -> AsyncIterator[_OpenJournal]:
    try:
        await journal.open()
        assert journal.database is not None  # noqa: S101 - it is open
        assert journal.store is not None  # noqa: S101 - the same
        yield _OpenJournal(journal, journal.database, journal.store, await journal.store.meta())
    finally:
        await journal.close(_CLOSING_SECONDS)


async def _rows(journal: _OpenJournal) -> int:
    return int((await journal.store.read(_ROW_COUNT))[0][0])


async def _identity(moved_to: str) -> str | None:
    """Return the identity of the journal in a database; `None` where there is none. Nothing is written there.

    Raises:
        JournalError: The database can't be read, or another version has made its journal.
    """
    address = checked_location(moved_to)
    assert isinstance(address, ServerAddress)  # noqa: S101 - a file moves nowhere else
    from agentjobs_async.batch._database.postgresql import ServerBackend, settled_identity  # noqa: PLC0415 - as elsewhere

    database = Database(ServerBackend(address, read_only=True, owner_timeout=_OWNER_SECONDS))
    found: list[str | None] = []

    async def look(connection: AnyConnection) -> None:
        found.append(await settled_identity(connection, address.name))

    try:
        await database.once(look)
    finally:
        await database.close(_CLOSING_SECONDS)
    return found[0]


async def _check_cells(store: Store, table: Table) -> None:
    """Refuse the cells of a file that PostgreSQL can't store, or that another program must have written.

    Raises:
        InvalidInputError: A text contains NUL.
        JournalError: A cell holds another kind of value than its column, or a number that is out of range (`corrupt`).
    """
    name = table.c.key if table is ITEMS else _key(table)
    for column in table.columns:
        where = f"{table.name}.{column.name}"
        if await store.read(select(name).where(_is_foreign(column)).limit(1)):
            raise JournalError(f"the journal is broken: {where} holds what it can't have written", "corrupt")
        with_nul = select(name).where(func.instr(column, "\0") > 0).limit(1)
        if isinstance(column.type, String) and (found := await store.read(with_nul)):
            raise InvalidInputError(
                f"{where} of {found[0][0]!r:.200} contains NUL (U+0000), which PostgreSQL can't store:"
                " keep the journal in its file"
            )


def _is_foreign(column: Column[Any]) -> ColumnElement[bool]:
    """Return whether a cell is no value of its column: SQLite stores any kind of value in any column."""
    kind, size = func.typeof(column), func.abs(column)
    if isinstance(column.type, String):
        return kind.not_in(["text", "null"])
    if isinstance(column.type, Float):
        return or_(kind.not_in(["real", "integer", "null"]), size > _LARGEST_FLOAT)
    if column.type is NUMBER:  # as large as those of SQLite
        return kind != "integer"
    largest = 1 if isinstance(column.type, Boolean) else _LARGEST_INTEGER
    return or_(kind.not_in(["integer", "null"]), size > largest)


async def _copy(source: Store, target: AnyConnection, table: Table) -> None:
    """Copy a table of a closed journal into one without items, within the target's transaction.

    Times, claims and numbers stay. Limits and pauses replace those that the target has.
    """
    await target.execute(delete(table))
    after = None
    while page := await source.read(_page(table, after)):
        rows = [dict(row._mapping) for row in page]  # noqa: SLF001 - SQLAlchemy's public name
        await target.execute(insert(table), [_arrived(table, row) for row in rows])
        after = rows[-1][_key(table).name]
    # The numbers of new rows continue after those that were copied; SQLite does that by itself.
    if (numbered := table.autoincrement_column) is not None:
        sequence = func.pg_get_serial_sequence(table.name, numbered.name)
        last = select(func.max(numbered)).scalar_subquery()
        await target.execute(select(func.setval(sequence, last)).where(last.is_not(None)))


def _key(table: Table) -> Column[Any]:
    return next(iter(table.primary_key.columns))


def _page(table: Table, after: Any) -> Select[Any]:
    """Select the next rows by their keys. Each page is read apart, so that a fault of either journal is its own."""
    rows = select(table).order_by(_key(table)).limit(_PAGE_ROWS)
    return rows if after is None else rows.where(_key(table) > after)


def _arrived(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as the target has it: workers continue with what is open, and nothing of it was moved from there."""
    if table is JOURNAL:
        return row | {"moved_to": None}
    if table is ITEMS and row["state"] not in ENDED:
        return row | {"revision": row["revision"] + 1}
    return row
