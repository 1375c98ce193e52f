"""What many owners of one journal share, and the statements about it: who is alive, and the limits of them all."""

from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    Double,
    Integer,
    MetaData,
    ScalarSelect,
    Select,
    SmallInteger,
    String,
    Table,
    Update,
    and_,
    case,
    delete,
    func,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.dml import ReturningUpdate

from agentjobs_async.batch._tables import ENTRIES, SENDS, Moment, claimable
from agentjobs_async.batch.states import State

__all__ = ["METADATA", "alive", "claimed", "first", "forgotten", "limited", "limits", "locked", "orphaned", "parted"]

METADATA: Final = MetaData()
_POLL: Final = 0.5
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
    Column("unsure_for", Double),
)
_ROW: Final = ENTRIES.c
_LIMITS: Final = _FLEET.c


def first(version: int) -> postgresql.Insert:
    """Begin a journal of this version, without limits, where there is none."""
    return postgresql.insert(_FLEET).values(only=_ONLY, version=version).on_conflict_do_nothing()


def limits() -> Select[Any]:
    """Select the version and the limits."""
    return select(_FLEET)


def limited(**values: Any) -> Update:
    """Change limits."""
    return update(_FLEET).values(**values)


def locked() -> Select[Any]:
    """Let claims go one transaction after the other, where there are limits: each has to see those before it."""
    some = or_(_LIMITS.max_active.is_not(None), _LIMITS.create_count.is_not(None))
    return select(_LIMITS.only).where(some).with_for_update()


def alive(owner: str, now: Moment) -> postgresql.Insert:
    """Keep that an owner is alive."""
    beat = postgresql.insert(_OWNERS).values(owner=owner, seen_at=now)
    return beat.on_conflict_do_update(index_elements=[_OWNERS.c.owner], set_={"seen_at": beat.excluded.seen_at})


def parted(owner: str) -> Delete:
    """Forget an owner."""
    return delete(_OWNERS).where(_OWNERS.c.owner == owner)


def forgotten(now: Moment, patience: float) -> Delete:
    """Forget all owners that were not heard of for so many seconds."""
    return delete(_OWNERS).where(_OWNERS.c.seen_at < now - patience, _up_for(patience))


def orphaned(now: Moment, patience: float, **values: Any) -> ReturningUpdate[Any]:
    """Make rows unknown whose owner was not heard of while it was sending, or has left, and give their keys."""
    known = select(_OWNERS.c.owner).where(_OWNERS.c.owner == _ROW.owner)
    silent = and_(~known.where(_OWNERS.c.seen_at >= now - patience).exists(), _up_for(patience))
    orphans = update(ENTRIES).where(_ROW.state == State.SENDING, or_(silent, ~known.exists()))
    return orphans.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def _up_for(patience: float) -> ColumnElement[bool]:
    """Tell whether the server has run so long that who is alive has been heard of; while it was down nobody was."""
    return func.date_part("epoch", func.clock_timestamp() - func.pg_postmaster_start_time()) >= patience


def claimed(key: str, claim: str, now: Moment, **values: Any) -> Select[Any]:
    """Make a planned row `sending` as far as the limits leave room.

    Gives (seconds after which there may be room, or null; how many rows were claimed).
    """
    room = select(_wait(now).label("wait")).select_from(_FLEET).cte("room")
    wait = select(room.c.wait).scalar_subquery()
    # A claim whose answer was lost is part of what the limits count.
    free = or_(wait.is_(None), _ROW.state == State.SENDING)
    claiming = update(ENTRIES).where(claimable(key, claim), free)
    values = {"state": State.SENDING, "claim": claim, "sent_at": now, "updated_at": now, **values}
    done = claiming.values(**values).returning(_ROW.key).cte("done")
    return select(wait, select(func.count()).select_from(done).scalar_subquery())


def _wait(now: Moment) -> ColumnElement[float]:
    """Give after how many seconds a create may go as far as the limits are concerned; null is now."""
    again = _oldest(now) + _LIMITS.create_per - now
    without = and_(_LIMITS.max_active.is_(None), _LIMITS.create_count.is_(None))
    return case(
        (without, null()),  # nothing is counted in vain
        (_active(now) >= _LIMITS.max_active, _POLL),
        (_recent(now) >= _LIMITS.create_count, func.greatest(func.coalesce(again, 0.0), _POLL)),
    )


def _active(now: Moment) -> ScalarSelect[int]:
    """Count what may have an agent at work, what is unknown included."""
    unsure = and_(_ROW.state == State.UNKNOWN, func.coalesce(_ROW.updated_at > now - _LIMITS.unsure_for, True))
    busy = or_(_ROW.state.in_([State.SENDING, State.CREATED]), unsure)
    return select(func.count()).select_from(ENTRIES).where(busy).correlate(_FLEET).scalar_subquery()


def _recent(now: Moment) -> ColumnElement[int]:
    """Count the creates in the window; those under way are, since nobody knows when the service will count them."""
    within = or_(_ROW.state == State.SENDING, _ROW.sent_at > now - _LIMITS.create_per)
    rows = select(func.count()).select_from(ENTRIES).where(within).correlate(_FLEET).scalar_subquery()
    before = SENDS.c.sent_at > now - _LIMITS.create_per
    return rows + select(func.count()).select_from(SENDS).where(before).correlate(_FLEET).scalar_subquery()


def _oldest(now: Moment) -> ScalarSelect[float]:
    within = _ROW.sent_at > now - _LIMITS.create_per
    return select(func.min(_ROW.sent_at)).where(within).correlate(_FLEET).scalar_subquery()
