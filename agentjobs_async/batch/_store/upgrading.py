"""What makes a journal of the earlier layout one of this version."""

from collections.abc import Iterable, Iterator
from typing import Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Dialect,
    MetaData,
    Numeric,
    String,
    Table,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from agentjobs_async.batch._store.schema import (
    ADDED,
    ADDED_LIMITS,
    ADDED_PAUSES,
    ADDED_TABLES,
    ENTRIES,
    FOLLOWED_INDEX,
    LIMITS,
    PAUSES,
    RETRIED_INDEX,
)
from agentjobs_async.batch.states import RETRIED

__all__ = ["earlier_pauses", "earlier_rows", "upgrading", "upgrading_limits"]

_CHAINS: Final = f"""
WITH RECURSIVE chain (item_key, next_key, number) AS (
    SELECT key, retried_as, 2 FROM {ENTRIES.name} WHERE retried_as IS NOT NULL
        AND key NOT IN (SELECT retried_as FROM {ENTRIES.name} WHERE retried_as IS NOT NULL)
    UNION ALL
    SELECT chain.item_key, row.retried_as, chain.number + 1
        FROM chain JOIN {ENTRIES.name} AS row ON row.key = chain.next_key WHERE row.retried_as IS NOT NULL
)
UPDATE {ENTRIES.name} SET item_key = chain.item_key, tries = chain.number FROM chain WHERE key = chain.next_key
"""  # noqa: S608 - all of it is ours
"""Gives each try its place among those of its item, by the marks of the tries before it."""


def upgrading(dialect: Dialect) -> Iterator[str]:
    """Return the statements that add what the earlier layout did not have, and find which rows were tried again.

    The limits are apart: on PostgreSQL it had them.
    """
    for table in ADDED_TABLES:
        yield str(CreateTable(table, if_not_exists=True).compile(dialect=dialect))
    yield from _adding(dialect, ENTRIES, sorted(ADDED))
    yield from _adding(dialect, PAUSES, ADDED_PAUSES)
    marking = update(ENTRIES).where(_is_retried(ENTRIES)).values(retried_as=_next_key(ENTRIES))
    yield _text(marking, dialect)
    yield _CHAINS
    for index in (RETRIED_INDEX, FOLLOWED_INDEX):
        yield str(CreateIndex(index).compile(dialect=dialect))


def upgrading_limits(dialect: Dialect) -> Iterator[str]:
    """Return the statements that add the columns of the limits which the earlier layout did not have."""
    return _adding(dialect, LIMITS, ADDED_LIMITS)


def earlier_rows(dialect: Dialect) -> str:
    """Return the query of the rows of the earlier layout as those of this one, in the schema `main` of a file."""
    rows = ENTRIES.to_metadata(MetaData(), schema="main")
    made = {name: null() for name in ADDED} | {"retried_as": case((_is_retried(rows), _next_key(rows)))}
    return _text(select(*(made.get(column.name, column).label(column.name) for column in rows.columns)), dialect)


def earlier_pauses(dialect: Dialect) -> str:
    """Return the query of the pauses of the earlier layout as those of this one, in the schema `main` of a file."""
    pauses = PAUSES.to_metadata(MetaData(), schema="main")
    zero = dict.fromkeys(ADDED_PAUSES, literal(0))
    return _text(select(*(zero.get(column.name, column).label(column.name) for column in pauses.columns)), dialect)


def _adding(dialect: Dialect, table: Table, names: Iterable[str]) -> Iterator[str]:
    # On PostgreSQL, a table that the earlier layout made only when it was needed may just have been made.
    unless_there = "IF NOT EXISTS " if dialect.name == "postgresql" else ""
    for name in names:
        column = CreateColumn(table.c[name]).compile(dialect=dialect)
        yield f"ALTER TABLE {table.name} ADD COLUMN {unless_there}{column}"


def _text(statement: ClauseElement, dialect: Dialect) -> str:
    return str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def _is_retried(rows: Table) -> ColumnElement[bool]:
    """Return whether a row of the earlier layout was tried again: the next key is that of the same prompt."""
    again = rows.alias()
    is_there = exists().where(again.c.key == _next_key(rows), again.c.prompt == rows.c.prompt)
    return and_(rows.c.state.in_(sorted(RETRIED)), is_there)


def _next_key(rows: Table) -> ColumnElement[str]:
    """Return the key under which the earlier version planned a row again, as `_retries.next_key` does."""
    key = rows.c.key
    stem = func.rtrim(key, "0123456789", type_=String)
    number = func.substr(key, func.length(stem) + 1, type_=String)
    numbered = and_(number != "", func.substr(stem, func.length(stem)) == "#")
    raised = cast(cast(number, Numeric) + literal_column("1"), String)
    return case((numbered, stem.concat(raised)), else_=key.concat("#2"))
