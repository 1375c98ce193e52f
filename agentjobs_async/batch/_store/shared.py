"""What the owners of one journal on PostgreSQL share: who is alive, and claims within the limits of all."""

from collections.abc import Collection
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    Double,
    MetaData,
    Select,
    String,
    Table,
    Update,
    and_,
    bindparam,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from agentjobs_async.batch._store.limits import first_row
from agentjobs_async.batch._store.schema import ENTRIES, JOURNAL, Moment
from agentjobs_async.batch.states import State

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

METADATA: Final = MetaData()
_OWNERS: Final = Table(
    "agentjobs_owners",
    METADATA,
    Column("owner", String, primary_key=True),
    Column("seen_at", Double, nullable=False),
    # Null for an owner that does not poll; else no less than the polls per second that it starts at any moment.
    Column("polls", Double),
)
_ROW: Final = ENTRIES.c
_BEGUN: Final = or_(_ROW.state == State.ACTIVE, and_(_ROW.state == State.PLANNED, _ROW.owner.is_not(None)))
"""Which items an owner waits for, or has claimed before: its own, until another one follows them."""


def insert_row() -> "postgresql.Insert":
    """Insert the one row of a new journal, where there is none."""
    return _insert(JOURNAL).values(first_row()).on_conflict_do_nothing()


def _insert(table: Table) -> "postgresql.Insert":
    # Readers and writers of a file import this module too, and do without the dialect, which takes long to import.
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - only where there is a server

    return postgresql.insert(table)


def upsert_heartbeat(owner: str, now: Moment) -> "postgresql.Insert":
    """Record that an owner is alive."""
    beat = _insert(_OWNERS).values(owner=owner, seen_at=now)
    return beat.on_conflict_do_update(index_elements=[_OWNERS.c.owner], set_={"seen_at": beat.excluded.seen_at})


def delete_owner(owner: str) -> Delete:
    """Delete an owner that leaves: it is dead from now on."""
    return delete(_OWNERS).where(_OWNERS.c.owner == owner)


def owners(now: Moment) -> Select[Any]:
    """Select the owners that have not left, and the seconds since their last heartbeats."""
    return select(_OWNERS.c.owner, (now - _OWNERS.c.seen_at).label("age")).order_by(_OWNERS.c.owner)


def active_counts() -> Select[Any]:
    """Count the active items of each owner."""
    active = select(_ROW.owner, func.count()).where(_ROW.state.in_([State.SENDING, State.ACTIVE]))
    return active.where(_ROW.owner.is_not(None)).group_by(_ROW.owner)


def share_polls(owner: str, held: float, patience: float, used: float, now: Moment) -> Select[Any]:
    """Select an owner's share in polls per second, NULL for any number; its number, that of all pollers, and the time.

    `used` is the part of the journal's limit that is shared out, `held` the most that the owner has used until now.
    What it gives up is free for others once it calls this again.
    """
    moment = literal(None if isinstance(now, ColumnElement) else now, Double)
    arguments = (literal(owner, String), *(literal(number, Double) for number in (held, patience, used)), moment)
    found = func.agentjobs_share_polls(*arguments).table_valued("share", "number", "pollers", "moment")
    return select(found.c.share, found.c.number, found.c.pollers, found.c.moment)


def stop_polling(owner: str) -> Update:
    """Record that an owner does not poll any more."""
    return update(_OWNERS).where(_OWNERS.c.owner == owner, _OWNERS.c.polls.is_not(None)).values(polls=None)


def delete_dead_owners(now: Moment, patience: float) -> Delete:
    """Delete all owners without a heartbeat for `patience` seconds."""
    return delete(_OWNERS).where(_OWNERS.c.seen_at < now - patience, _up_for(patience))


def mark_unknown_of_dead_owners(now: Moment, patience: float, **values: Any) -> ReturningUpdate[Any]:
    """Make the rows unknown that are sending and whose owner is dead; return their keys."""
    rows = update(ENTRIES).where(_ROW.state == State.SENDING, owner_is_dead(now, patience))
    return rows.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def unfollowed(now: Moment, patience: float, after: int, most: int) -> Select[Any]:
    """Select number and key of up to `most` items beyond the number `after` that a dead owner had begun."""
    left = select(_ROW.number, _ROW.key).where(_ROW.number > after, _BEGUN, owner_is_dead(now, patience))
    return left.order_by(_ROW.number).limit(most)


def follow(keys: Collection[str], owner: str) -> Update:
    """Make `owner` the owner of items that another one had begun."""
    return update(ENTRIES).where(_ROW.key.in_(keys), _BEGUN, _ROW.owner != owner).values(owner=owner)


def owner_is_dead(now: Moment, patience: float) -> ColumnElement[bool]:
    """Return whether a row's owner has left, or has had no heartbeat for `patience` seconds."""
    known = select(_OWNERS.c.owner).where(_OWNERS.c.owner == _ROW.owner)
    silent = and_(~known.where(_OWNERS.c.seen_at >= now - patience).exists(), _up_for(patience))
    return or_(silent, ~known.exists())


def _up_for(patience: float) -> ColumnElement[bool]:
    """Return whether the server has run for `patience` seconds. A server that was down recorded no heartbeat."""
    return func.date_part("epoch", func.clock_timestamp() - func.pg_postmaster_start_time()) >= patience


def functions() -> str:
    """Return the statements that create the functions by which rows are claimed, and their indexes."""
    return files("agentjobs_async.batch._store").joinpath("claims.sql").read_text("utf-8")


def _claim() -> Select[Any]:
    texts = [bindparam(name, type_=String) for name in ("its_key", "new_claim", "new_owner", "new_project")]
    found = func.agentjobs_claim(*texts, bindparam("new_time", type_=Double))
    cells = found.table_valued("wait", "of_project", "claimed").c
    return select(cells.wait, cells.of_project, cells.claimed)


CLAIM: Final = _claim()
"""Make a planned row `sending` as far as the limits leave room; its parameters and results are `statements.CLAIM`'s.

The function takes the time after it has waited for the claims before this one, unless it is given one.
"""
