"""The journal's table, and every statement that touches it."""

import re
from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    CompoundSelect,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    TypeDecorator,
    Update,
    and_,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert as GenericInsert
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from agentjobs_async.batch.states import ENDED, State, origins

__all__ = [
    "APPLICATION",
    "ENTRIES",
    "METADATA",
    "SENDS",
    "VERSION",
    "Insert",
    "Moment",
    "added",
    "claimable",
    "claimed",
    "counts",
    "interrupted",
    "kept_send",
    "last_number",
    "met",
    "met_ended",
    "moved",
    "noted",
    "nothing",
    "page",
    "paused_for",
    "paused_until",
    "sent_ages",
    "unended",
    "with_keys",
]

Insert = sqlite.Insert | postgresql.Insert
"""An insert of a dialect that can leave out what is there already."""
Moment = float | ColumnElement[float]
"""Seconds since the epoch: a number, or the database's own clock."""

APPLICATION: Final = 0x414A6F62
"""SQLite's `application_id` of a journal: "AJob"."""
VERSION: Final = 1
"""SQLite's `user_version` of a journal: the version of this schema."""

_ESCAPED: Final = {"\0": "\x1a0", "\x1a": "\x1a1"}
_PLAIN: Final = {escaped: plain for plain, escaped in _ESCAPED.items()}


class _AnyText(TypeDecorator[str]):
    """Text with any character; a NUL, which PostgreSQL can't store, is escaped there."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return re.sub("[\0\x1a]", lambda found: _ESCAPED[found[0]], value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return re.sub("\x1a[01]", lambda found: _PLAIN[found[0]], value)


METADATA: Final = MetaData()
_WITH_ID: Final = [State.CREATED, State.COMPLETED, State.FAILED, State.ARCHIVED]


def _listed(states: Collection[State]) -> str:
    return ", ".join(f"'{state}'" for state in states)


ENTRIES: Final = Table(
    "agentjobs_entries",
    METADATA,
    Column("number", Integer().with_variant(BigInteger(), "postgresql"), primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("prompt", _AnyText, nullable=False),
    Column("project_id", String),
    Column("state", String, nullable=False),
    Column("job_id", String),
    Column("pr_link", Text),
    Column("error", _AnyText),
    Column("run", String),
    Column("owner", String),
    Column("claim", String),
    Column("sent_at", Float(53)),
    Column("updated_at", Float(53), nullable=False),
    CheckConstraint(f"state IN ({_listed(list(State))})", name="known_state"),
    CheckConstraint(f"(job_id IS NOT NULL) = (state IN ({_listed(_WITH_ID)}))", name="id_when_created"),
    Index("agentjobs_entries_by_state", "state", "number"),
    Index("agentjobs_entries_by_sending", "sent_at"),
)
_ROW: Final = ENTRIES.c
SENDS: Final = Table(
    "agentjobs_sends", METADATA, Column("number", Integer, primary_key=True), Column("sent_at", Float(53))
)
"""When rows were sent that have been planned again since."""
_PAUSES: Final = Table(
    "agentjobs_pauses", METADATA, Column("number", Integer, primary_key=True), Column("until", Float(53))
)
"""Until when the service wanted no create."""


def added(insert: Insert, rows: Collection[dict[str, Any]]) -> ReturningInsert[Any]:
    """Insert planned rows, and give their keys; one whose key is there already is left out."""
    planned = [{**row, "state": State.PLANNED} for row in rows]
    return insert.values(planned).on_conflict_do_nothing(index_elements=[_ROW.key]).returning(_ROW.key)


def met(insert: Insert, row: dict[str, Any]) -> ReturningInsert[Any]:
    """Insert a planned row, or mark the one that is there as met in `row["run"]`; give it the first time only."""
    planned = insert.values({**row, "state": State.PLANNED})
    return planned.on_conflict_do_update(
        index_elements=[_ROW.key],
        set_={"run": planned.excluded.run},
        where=_ROW.run.is_distinct_from(planned.excluded.run),
    ).returning(*ENTRIES.c)


def claimable(key: str, claim: str) -> ColumnElement[bool]:
    """Tell whether a row is planned, or claimed by this very claim, whose answer was lost."""
    repeated = and_(_ROW.state == State.SENDING, _ROW.claim == claim)
    return and_(_ROW.key == key, or_(_ROW.state == State.PLANNED, repeated))


def claimed(key: str, claim: str, **values: Any) -> ReturningUpdate[None, int]:
    """Make a planned row `sending`; give no row when it is not, else (null, 1)."""
    claiming = update(ENTRIES).where(claimable(key, claim)).values(state=State.SENDING, claim=claim, **values)
    return claiming.returning(null(), literal(1))


def met_ended(keys: Collection[str], run: str) -> Any:
    """Mark rows as met in a run, and give the keys of those that it has not met before."""
    fresh = update(ENTRIES).where(_ROW.key.in_(keys), _ROW.run.is_distinct_from(run))
    return fresh.values(run=run).returning(_ROW.key)


def moved(key: str, target: State, *, origin: State | None = None, claim: str | None = None, **values: Any) -> Update:
    """Move a row to `target` from wherever it may come, or from `origin` only. Touches no row when that is not allowed.

    Args:
        key: The row's.
        target: Where to.
        origin: Where from; `None` from anywhere.
        claim: The claim that the row has to bear; `None` for any.
        values: What changes beside the state.

    Raises:
        ValueError: No row may ever go from `origin` to `target`.
    """
    allowed = origins(target)
    if origin is not None:
        if origin not in allowed:
            raise ValueError(f"no row goes from {origin} to {target}")
        allowed = frozenset({origin})
    moving = update(ENTRIES).where(_ROW.key == key, _ROW.state.in_(sorted(allowed)))
    if claim is not None:
        moving = moving.where(_ROW.claim == claim)
    return moving.values(state=target, **values)


def interrupted(**values: Any) -> ReturningUpdate[Any]:
    """Make all rows unknown that an owner left while sending, and give their keys."""
    orphans = update(ENTRIES).where(_ROW.state == State.SENDING)
    return orphans.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def noted(key: str, **values: Any) -> Update:
    """Change what is known about a row that has a job, without moving it."""
    return update(ENTRIES).where(_ROW.key == key, _ROW.state == State.CREATED).values(**values)


def page(after: int, size: int, *, state: State | None = None, until: int | None = None) -> Select[Any]:
    """Select the next rows by number, of one state or of all."""
    rows = select(ENTRIES).where(_ROW.number > after).order_by(_ROW.number).limit(size)
    if state is not None:
        rows = rows.where(_ROW.state == state)
    return rows if until is None else rows.where(_ROW.number <= until)


def with_keys(keys: Collection[str]) -> Select[Any]:
    """Select rows by their keys."""
    return select(ENTRIES).where(_ROW.key.in_(keys))


def unended(keys: Collection[str]) -> Select[Any]:
    """Select those of the keys whose rows have not ended."""
    return select(_ROW.key).where(_ROW.key.in_(keys), _ROW.state.not_in(sorted(ENDED))).order_by(_ROW.number)


def nothing() -> Select[Any]:
    """Select no rows."""
    return select(_ROW.number).limit(0)


def counts() -> Select[Any]:
    """Count the rows of each state."""
    return select(_ROW.state, func.count()).group_by(_ROW.state)


def last_number() -> Select[Any]:
    """Give the highest number, or null."""
    return select(func.max(_ROW.number))


def sent_ages(now: Moment, seconds: float, most: int) -> CompoundSelect[Any]:
    """Select how many seconds ago the last creates were sent, newest first; none older than `seconds`."""
    moment = _seconds(now)
    ages = [
        select((moment - sent).label("age")).where(sent > moment - seconds) for sent in (_ROW.sent_at, SENDS.c.sent_at)
    ]
    return union_all(*ages).order_by("age").limit(most)


def kept_send(key: str) -> GenericInsert:
    """Keep when an unknown row was sent, which another claim will overwrite."""
    sent = select(_ROW.sent_at).where(_ROW.key == key, _ROW.state == State.UNKNOWN)
    return insert(SENDS).from_select(["sent_at"], sent)


def paused_until(now: Moment, seconds: float) -> GenericInsert:
    """Keep that the service wants no create for so long."""
    return insert(_PAUSES).values(until=_seconds(now) + seconds)


def paused_for(now: Moment) -> Select[Any]:
    """Select for how many seconds the service still wants no create; null when it never said so."""
    return select(func.max(_PAUSES.c.until) - _seconds(now))


def _seconds(moment: Moment) -> ColumnElement[float]:
    return moment if isinstance(moment, ColumnElement) else literal(moment, Float(53))
