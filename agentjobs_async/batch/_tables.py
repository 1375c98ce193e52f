"""The journal's table, and every statement that touches it."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    CompoundSelect,
    Float,
    Index,
    Insert,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    Update,
    desc,
    func,
    insert,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import ReturningInsert

from agentjobs_async.batch.states import State, origins

__all__ = [
    "APPLICATION",
    "METADATA",
    "VERSION",
    "added",
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
    "sent_since",
    "setting",
    "with_keys",
    "with_setting",
]

APPLICATION: Final = 0x414A6F62
"""SQLite's `application_id` of a journal: "AJob"."""
VERSION: Final = 1
"""SQLite's `user_version` of a journal: the version of this schema."""

METADATA: Final = MetaData()
_WITH_ID: Final = [State.CREATED, State.COMPLETED, State.FAILED, State.ARCHIVED]


def _listed(states: Collection[State]) -> str:
    return ", ".join(f"'{state}'" for state in states)


_ENTRIES: Final = Table(
    "entries",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("prompt", Text, nullable=False),
    Column("project_id", String),
    Column("state", String, nullable=False),
    Column("job_id", String),
    Column("pr_link", Text),
    Column("error", Text),
    Column("run", String),
    Column("sent_at", Float(53)),
    Column("updated_at", Float(53), nullable=False),
    CheckConstraint(f"state IN ({_listed(list(State))})", name="known_state"),
    CheckConstraint(f"(job_id IS NOT NULL) = (state IN ({_listed(_WITH_ID)}))", name="id_when_created"),
    Index("entries_by_state", "state", "number"),
    Index("entries_by_sending", "sent_at"),
)
_ROW: Final = _ENTRIES.c
_SENDS: Final = Table(
    "agentjobs_sends", METADATA, Column("number", Integer, primary_key=True), Column("sent_at", Float(53))
)
"""When rows were sent that have been planned again since."""
_SETTINGS: Final = Table(
    "agentjobs_settings",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)
"""What holds for the whole journal."""


def added(rows: Collection[dict[str, Any]]) -> sqlite.Insert:
    """Insert planned rows; one whose key is there already is left out."""
    planned = [{**row, "state": State.PLANNED} for row in rows]
    return sqlite.insert(_ENTRIES).values(planned).on_conflict_do_nothing(index_elements=[_ROW.key])


def met(row: dict[str, Any]) -> ReturningInsert[Any]:
    """Insert a planned row, or mark the one that is there as met in `row["run"]`; give it the first time only."""
    insert = sqlite.insert(_ENTRIES).values({**row, "state": State.PLANNED})
    return insert.on_conflict_do_update(
        index_elements=[_ROW.key],
        set_={"run": insert.excluded.run},
        where=_ROW.run.is_distinct_from(insert.excluded.run),
    ).returning(*_ENTRIES.c)


def met_ended(keys: Collection[str], run: str) -> Any:
    """Mark rows as met in a run, and give the keys of those that it has not met before."""
    fresh = update(_ENTRIES).where(_ROW.key.in_(keys), _ROW.run.is_distinct_from(run))
    return fresh.values(run=run).returning(_ROW.key)


def moved(key: str, target: State, *, origin: State | None = None, **values: Any) -> Update:
    """Move a row to `target` from wherever it may come, or from `origin` only. Touches no row when that is not allowed.

    Raises:
        ValueError: No row may ever go from `origin` to `target`.
    """
    allowed = origins(target)
    if origin is not None:
        if origin not in allowed:
            raise ValueError(f"no row goes from {origin} to {target}")
        allowed = frozenset({origin})
    moving = update(_ENTRIES).where(_ROW.key == key, _ROW.state.in_(sorted(allowed)))
    return moving.values(state=target, **values)


def interrupted(**values: Any) -> Any:
    """Make all rows unknown that an owner left while sending, and give their keys."""
    orphans = update(_ENTRIES).where(_ROW.state == State.SENDING)
    return orphans.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def noted(key: str, **values: Any) -> Update:
    """Change what is known about a row that has a job, without moving it."""
    return update(_ENTRIES).where(_ROW.key == key, _ROW.state == State.CREATED).values(**values)


def page(after: int, size: int, *, state: State | None = None, until: int | None = None) -> Select[Any]:
    """Select the next rows by number, of one state or of all."""
    rows = select(_ENTRIES).where(_ROW.number > after).order_by(_ROW.number).limit(size)
    if state is not None:
        rows = rows.where(_ROW.state == state)
    return rows if until is None else rows.where(_ROW.number <= until)


def with_keys(keys: Collection[str]) -> Select[Any]:
    """Select rows by their keys."""
    return select(_ENTRIES).where(_ROW.key.in_(keys))


def nothing() -> Select[Any]:
    """Select no rows."""
    return select(_ROW.number).limit(0)


def counts() -> Select[Any]:
    """Count the rows of each state."""
    return select(_ROW.state, func.count()).group_by(_ROW.state)


def last_number() -> Select[Any]:
    """Give the highest number, or null."""
    return select(func.max(_ROW.number))


def sent_since(moment: float, most: int) -> CompoundSelect[Any]:
    """Select when the last creates were sent, newest first."""
    times = [select(sent).where(sent > moment) for sent in (_ROW.sent_at, _SENDS.c.sent_at)]
    return union_all(*times).order_by(desc("sent_at")).limit(most)


def kept_send(key: str) -> Insert:
    """Keep when an unknown row was sent, which another claim will overwrite."""
    sent = select(_ROW.sent_at).where(_ROW.key == key, _ROW.state == State.UNKNOWN)
    return insert(_SENDS).from_select(["sent_at"], sent)


def setting(name: str) -> Select[Any]:
    """Select the value of a setting."""
    return select(_SETTINGS.c.value).where(_SETTINGS.c.name == name)


def with_setting(name: str, value: str) -> sqlite.Insert:
    """Keep the value of a setting."""
    new = sqlite.insert(_SETTINGS).values(name=name, value=value)
    return new.on_conflict_do_update(index_elements=[_SETTINGS.c.name], set_={"value": value})
