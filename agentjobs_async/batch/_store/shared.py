"""What many owners of one journal share, and the statements about it: who is alive, and the limits of them all."""

from collections.abc import Collection
from importlib.resources import files
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    Double,
    Integer,
    MetaData,
    Select,
    SmallInteger,
    String,
    Table,
    Update,
    and_,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.dml import ReturningUpdate

from agentjobs_async.batch._store.tables import ENTRIES, Moment
from agentjobs_async.batch.states import State

__all__ = [
    "METADATA",
    "claimed",
    "delete_dead_owners",
    "delete_owner",
    "first",
    "followed",
    "functions",
    "limited",
    "limits",
    "orphaned",
    "unfollowed",
    "upsert_heartbeat",
]

METADATA: Final = MetaData()
_ONLY: Final = 1

_OWNERS: Final = Table(
    "agentjobs_owners", METADATA, Column("owner", String, primary_key=True), Column("seen_at", Double, nullable=False)
)
_FLEET: Final = Table(
    "agentjobs_fleet",
    METADATA,
    Column("only", SmallInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("max_active", Integer),
    Column("create_count", Integer),
    Column("create_per", Double),
    Column("create_scope", String),
    Column("unknown_for", Double),
)
_ROW: Final = ENTRIES.c


def first(version: int) -> postgresql.Insert:
    """Begin a journal of this version, without limits, where there is none."""
    return postgresql.insert(_FLEET).values(only=_ONLY, version=version).on_conflict_do_nothing()


def limits() -> Select[Any]:
    """Select the version and the limits."""
    return select(_FLEET)


def limited(**values: Any) -> Update:
    """Change limits."""
    return update(_FLEET).values(**values)


def upsert_heartbeat(owner: str, now: Moment) -> postgresql.Insert:
    """Keep that an owner is alive."""
    beat = postgresql.insert(_OWNERS).values(owner=owner, seen_at=now)
    return beat.on_conflict_do_update(index_elements=[_OWNERS.c.owner], set_={"seen_at": beat.excluded.seen_at})


def delete_owner(owner: str) -> Delete:
    """Forget an owner."""
    return delete(_OWNERS).where(_OWNERS.c.owner == owner)


def delete_dead_owners(now: Moment, patience: float) -> Delete:
    """Forget all owners that were not heard of for so many seconds."""
    return delete(_OWNERS).where(_OWNERS.c.seen_at < now - patience, _up_for(patience))


def orphaned(now: Moment, patience: float, **values: Any) -> ReturningUpdate[Any]:
    """Make rows unknown whose owner was not heard of while it was sending, or has left, and give their keys."""
    known = select(_OWNERS.c.owner).where(_OWNERS.c.owner == _ROW.owner)
    silent = and_(~known.where(_OWNERS.c.seen_at >= now - patience).exists(), _up_for(patience))
    orphans = update(ENTRIES).where(_ROW.state == State.SENDING, or_(silent, ~known.exists()))
    return orphans.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def unfollowed(now: Moment, patience: float, after: int, most: int) -> Select[Any]:
    """Select number and key of items beyond `after` that were sent, or nearly, and whose owner is gone."""
    known = select(_OWNERS.c.owner).where(_OWNERS.c.owner == _ROW.owner)
    silent = and_(~known.where(_OWNERS.c.seen_at >= now - patience).exists(), _up_for(patience))
    begun = or_(_ROW.state == State.CREATED, and_(_ROW.state == State.PLANNED, _ROW.owner.is_not(None)))
    gone = select(_ROW.number, _ROW.key).where(_ROW.number > after, begun, or_(silent, ~known.exists()))
    return gone.order_by(_ROW.number).limit(most)


def followed(keys: Collection[str], owner: str) -> Update:
    """Make an owner that of items which it waits for from now on."""
    begun = or_(_ROW.state == State.CREATED, and_(_ROW.state == State.PLANNED, _ROW.owner.is_not(None)))
    return update(ENTRIES).where(_ROW.key.in_(keys), begun, _ROW.owner != owner).values(owner=owner)


def _up_for(patience: float) -> ColumnElement[bool]:
    """Return whether the server has run so long that who is alive has been heard of; while it was down nobody was."""
    return func.date_part("epoch", func.clock_timestamp() - func.pg_postmaster_start_time()) >= patience


def functions() -> str:
    """Return the statements that make the functions by which rows are claimed, and the indexes for them."""
    return files("agentjobs_async.batch._store").joinpath("claims.sql").read_text("utf-8")


def claimed(key: str, claim: str, now: Moment, owner: str, project_id: str | None) -> Select[Any]:
    """Make a planned row `sending` as far as the limits leave room; return that as `tables.claimed` does.

    The database takes the time itself, once it has waited for the claims before this one; `now` counts where it is a
    number.
    """
    given = literal(None if isinstance(now, ColumnElement) else now, Double)
    texts = [literal(text, String) for text in (key, claim, owner, project_id)]
    found = func.agentjobs_claim(*texts, given).table_valued("wait", "of_project", "claimed")
    return select(found.c.wait, found.c.of_project, found.c.claimed)
