"""Moves of a journal to another place: what both of them record, and how rows are copied."""

from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Column, Delete, Insert, Select, Table, Update, delete, func, insert, select, text, update

from agentjobs_async import JournalError
from agentjobs_async.batch._store.connections import AnyConnection
from agentjobs_async.batch._store.schema import ENTRIES, METADATA, MOVES, NO_OWNER
from agentjobs_async.batch._store.writer import Database
from agentjobs_async.batch.states import ENDED

TO: Final = "to"
FROM: Final = "from"
_PAGE_ROWS: Final = 1_000  # in memory at once: a prompt may be long
_REFUSE_WRITES: Final = """
CREATE OR REPLACE FUNCTION agentjobs_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal was moved' USING ERRCODE = 'read_only_sql_transaction';
END
$$;
CREATE TRIGGER agentjobs_moved BEFORE INSERT OR UPDATE ON agentjobs_entries
    FOR EACH ROW EXECUTE FUNCTION agentjobs_moved();
"""


@frozen
class Move:
    """One move, as one of the two journals records it.

    Attributes:
        mark: What names the move in both journals.
        place: The address of the other journal, without secrets.
        ended: Whether the other journal is known to have all rows.
    """

    mark: str
    place: str
    ended: bool


def moves() -> Select[Any]:
    """Select the moves that a journal records: `to` at most one place, and `from` at most one."""
    return select(MOVES.c.direction, MOVES.c.mark, MOVES.c.place, MOVES.c.ended)


def moves_of(found: Any) -> dict[str, Move]:
    """Return the rows of `moves` by their directions."""
    return {row.direction: Move(row.mark, row.place, bool(row.ended)) for row in found}


def moved_error(name: str, move: Move) -> JournalError:
    """Return the error of a journal that is closed because it was moved."""
    words = f"it was moved to {move.place}; use that one"
    if not move.ended:
        words = f"its move to {move.place} has begun and not ended; run the same agentjobs move again"
    return JournalError(f"journal {name}: {words}", "moved")


def row_count() -> Select[Any]:
    """Count all rows, tries included."""
    return select(func.count()).select_from(ENTRIES)


async def begin_departure(connection: AnyConnection, mark: str, place: str) -> None:
    """Close a journal, within the caller's transaction, which holds the lock of its rows.

    No owner can open it any more. On a server, an owner that is open, though it was not seen among the living ones,
    can't change a row any more either: a trigger refuses it.
    """
    await connection.execute(insert(MOVES).values(direction=TO, mark=mark, place=place, ended=0))
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql(_REFUSE_WRITES)


async def reopen(connection: AnyConnection) -> None:
    """Open a journal again whose rows did not get anywhere, within the caller's transaction."""
    await connection.execute(undo_departure())
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql("DROP TRIGGER agentjobs_moved ON agentjobs_entries")


def end_departure() -> Update:
    """Record that the other journal has all rows."""
    return update(MOVES).where(MOVES.c.direction == TO).values(ended=1)


def undo_departure() -> Delete:
    """Delete the record of a move that has not ended."""
    return delete(MOVES).where(MOVES.c.direction == TO, MOVES.c.ended == 0)


def insert_arrival(mark: str, place: str) -> Insert:
    """Record where the rows came from."""
    return insert(MOVES).values(direction=FROM, mark=mark, place=place, ended=1)


async def lock_rows(connection: AnyConnection) -> None:
    """Keep all others from changing rows until the caller's transaction ends; a file has no others."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("LOCK TABLE agentjobs_entries IN SHARE ROW EXCLUSIVE MODE"))


async def copy_rows(source: Database, target: AnyConnection) -> None:
    """Copy all that a closed journal holds into one without items, within the target's transaction.

    Times, claims and numbers stay. A row that has not ended gets no owner, so that workers take it up. Limits and
    pauses replace those that the target has.
    """
    for table in _copied():
        await target.execute(delete(table))
        after = None
        while page := await source.read(_page(table, after)):
            rows = [dict(row._mapping) for row in page]  # noqa: SLF001 - SQLAlchemy's public name
            await target.execute(insert(table), [_without_owner(table, row) for row in rows])
            after = rows[-1][_key(table).name]
        await _count_on(target, table)


def _copied() -> Iterator[Table]:
    return (table for table in METADATA.sorted_tables if table is not MOVES)


def _key(table: Table) -> Column[Any]:
    return next(iter(table.primary_key.columns))


def _page(table: Table, after: Any) -> Select[Any]:
    """Select the next rows by their keys. Each page is read apart, so that a fault of either journal is its own."""
    rows = select(table).order_by(_key(table)).limit(_PAGE_ROWS)
    return rows if after is None else rows.where(_key(table) > after)


def _without_owner(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "owner": NO_OWNER} if table is ENTRIES and row["state"] not in ENDED else row


async def _count_on(connection: AnyConnection, table: Table) -> None:
    """Continue the numbers of new rows on a server after those that were copied; SQLite does that by itself."""
    numbered = table.autoincrement_column
    if connection.dialect.name == "postgresql" and numbered is not None:
        sequence = func.pg_get_serial_sequence(table.name, numbered.name)
        last = select(func.max(numbered)).scalar_subquery()
        await connection.execute(select(func.setval(sequence, last)).where(last.is_not(None)))
