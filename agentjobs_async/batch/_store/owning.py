"""Which owner has which rows: what it takes, what it frees, and what is freed and unknown since it died."""

from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from agentjobs_async.batch._database.schema import FOLLOWED, HAS_FOLLOWER, ITEMS, OWNERS, SHOWN, TRIES, seconds_of
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow, rows_of
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import DOUBT, RELEASE, State

_ROW: Final = ITEMS.c
_TRY: Final = TRIES.c
_OWNER_GONE: Final = "the process that sent its create ended before the answer"
_UNRECORDED: Final = "the outcome of its create was not recorded"


async def free_jobs(store: Store, query: Query) -> list[int]:
    """Return the numbers of all active rows that meet `query` and have no owner; its size does not count."""
    free = select(_ROW.number).where(store.conditions(query), _ROW.state == State.ACTIVE, _ROW.owner.is_(None))
    return [number for (number,) in await store.read(free.order_by(_ROW.number))]


async def unowned(store: Store, after: int, most: int) -> list[tuple[int, str]]:
    """Return number and key of up to `most` rows beyond the number `after` that no worker may know of.

    They are active and nobody polls them, or were planned again after their first create.
    """
    is_active = and_(_ROW.state == State.ACTIVE, _ROW.owner.is_(None))
    is_planned_again = and_(_ROW.state == State.PLANNED, _ROW.revision > 0)
    left = select(_ROW.number, _ROW.key).where(_ROW.number > after, or_(is_active, is_planned_again))
    left = left.where(_ROW.follower.is_(None)).order_by(_ROW.number).limit(most)
    return [(row.number, row.key) for row in await store.read(left)]


async def take(store: Store, query: Query, owner: str) -> list[JournalRow]:
    """Make an owner that of the next active rows that meet `query` and have none, and return them and those it has.

    Of two owners that take a row at once, one gets it.
    """
    change = uuid4().hex  # executed again, when its answer was lost, the statement finds what it did
    may_take = and_(_ROW.state == State.ACTIVE, or_(_ROW.owner.is_(None), _ROW.owner == owner, _ROW.change == change))
    wanted = select(_ROW.number).where(store.conditions(query), may_take).order_by(_ROW.number)
    # Rows that another owner is taking in this moment are its own.
    wanted = wanted.limit(query.size).with_for_update(skip_locked=True)
    taking = update(ITEMS).where(_ROW.number.in_(wanted)).values(owner=owner, change=change)
    found = rows_of((await store.write(taking.returning(*SHOWN)))[1])
    return sorted(found, key=lambda row: row.number)


async def lost_by(store: Store, owner: str, numbers: Collection[int]) -> set[int]:
    """Return which of some hundred rows are active and not an owner's any more: others took it for dead."""
    own = select(_ROW.number).where(_ROW.number.in_(numbers), or_(_ROW.owner == owner, _ROW.state != State.ACTIVE))
    return set(numbers) - {number for (number,) in await store.read(own)}


async def free_own(store: Store, owner: str) -> None:
    """Free what an owner polls or follows; what it is sending stays its own."""
    polled = update(ITEMS).where(_ROW.owner == owner, _ROW.state == State.ACTIVE)
    late = update(TRIES).where(_TRY.owner == owner)
    followed = update(ITEMS).where(HAS_FOLLOWER, _ROW.follower == owner)
    await store.write(
        polled.values(owner=None, changed_at=store.now_column()),
        late.values(owner=None),
        followed.values(follower=None),
    )


async def free_dead(store: Store) -> None:
    """Free what dead owners polled or followed."""
    polled = update(ITEMS).where(_ROW.state == State.ACTIVE, _is_dead(store, _ROW.owner))
    late = update(TRIES).where(_TRY.state == State.ACTIVE, _is_dead(store, _TRY.owner))
    followed = update(ITEMS).where(HAS_FOLLOWER, _is_dead(store, _ROW.follower))
    freeing: list[Any] = [polled.values(owner=None), late.values(owner=None), followed.values(follower=None)]
    if store.patience is not None:
        silent = OWNERS.c.seen_at < seconds_of(store.now()) - store.patience
        freeing.append(delete(OWNERS).where(silent, statements.server_is_up_for(store.patience)))
    await store.write(*freeing)


async def doubt_dead(store: Store, mover: str, *, followed: bool) -> list[JournalRow]:
    """Make the rows unknown that dead owners were sending, and return them: each is returned once, to one caller.

    What this process is sending stays so, whatever its heartbeats say: it learns the outcome.

    Args:
        store: The journal's rows.
        mover: Who does it.
        followed: Whether these are the rows of durable jobs, or those of all others.
    """
    of_others = and_(_is_dead(store, _ROW.owner), _ROW.owner.not_in(sorted(store.owners.own)))
    is_dead = and_(_ROW.state == State.SENDING, of_others, FOLLOWED if followed else ~FOLLOWED)
    numbers = [number for (number,) in await store.read(select(_ROW.number).where(is_dead))]
    if not numbers:
        return []
    # A crash after the commit: no run gives a result of these rows, and the journal shows them as unknown.
    return await store.move_all(DOUBT, _ROW.number.in_(numbers), is_dead, mover=mover, error=_OWNER_GONE)


def _is_dead(store: Store, owner: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return whether an owner has ended without leaving its rows. In a file, all that live are in this process."""
    if store.patience is None:
        return and_(owner.is_not(None), owner.not_in(sorted(store.owners.own)))
    return and_(owner.is_not(None), ~statements.is_living(owner, store.now(), store.patience))


async def settle_claims(store: Store, mover: str) -> list[JournalRow]:
    """Plan the rows again whose claims had no answer, and make those unknown whose senders have gone; return these.

    Nothing was sent under a claim without an answer, so its row is planned again even when it has become unknown
    meanwhile.
    """
    doubtful: list[JournalRow] = []
    for left in store.claims.left():
        doubtful += await store.move_all(DOUBT, *_has_claim(left), mover=mover, error=_UNRECORDED)
        store.claims.forget_left(left)
    for claims in store.claims.unanswered():
        await store.move_all(RELEASE, *_has_claim(claims), mover=mover, error=None)
    return doubtful


def _has_claim(claims: Mapping[str, str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return what names rows that have one of these claims, by their keys, which have an index; and the claims."""
    return _ROW.key.in_(set(claims.values())), _ROW.claim.in_(claims)
