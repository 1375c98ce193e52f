"""Which owner has which rows: what it takes, what it frees, and what is freed and unknown since it died."""

from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from agentjobs_async.batch._database.schema import (
    FOLLOWED,
    HAS_FOLLOWER,
    ITEMS,
    OWNERS,
    SHOWN,
    SKEW_SECONDS,
    TRIES,
    Follow,
    seconds_of,
)
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.claims import Repetition
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow, row_of, rows_of
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import DOUBT, RELEASE, UNSENT, State

_ROW: Final = ITEMS.c
_TRY: Final = TRIES.c
_WITHOUT_CREATE: Final = (State.ACTIVE, State.UNKNOWN)
"""The states in which a row may have an owner that has no create of it under way."""
_ROUNDED_SECONDS: Final = 1e-6  # the times of a `JournalRow` are whole microseconds
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


async def repeatable(store: Store, query: Query, owner: str, seconds: float) -> list[tuple[JournalRow, str]]:
    """Return the rows that meet `query` whose unknown creates may be repeated, and that no other owner has.

    Each comes with the digest of what was sent. The size of `query` does not count.

    Args:
        store: The journal's rows.
        query: What they meet.
        owner: The owner that asks.
        seconds: For how long after the first POST the service remembers its key.
    """
    free = select(*SHOWN, _ROW.digest).where(store.conditions(query), _may_repeat(store, seconds), _is_free(owner))
    found = await store.read(free.order_by(_ROW.number))
    return [(row_of(row), str(row.digest)) for row in found]


async def take_to_repeat(
    store: Store, key: str, owner: str, digest: str, seconds: float
) -> tuple[Repetition, float] | None:
    """Make `owner` the owner of an unknown row whose create may be repeated.

    Return how it is repeated, and for how many seconds the service still remembers its key; `None` where it may not be
    repeated, or another owner is going to.

    Args:
        store: The journal's rows.
        key: The key of the row.
        owner: The owner.
        digest: Of what it would send.
        seconds: As of `repeatable`.
    """
    free = (_may_repeat(store, seconds), _is_free(owner))
    mine = update(ITEMS).where(_ROW.key == key, *free, _ROW.digest == digest)
    left = (_ROW.first_sent_at + seconds - store.now_column()).label("left")
    found = (await store.write(mine.values(owner=owner).returning(_ROW.idempotency_key, left)))[1]
    return (Repetition(str(found[0].idempotency_key), seconds), float(found[0].left)) if found else None


async def leave_unrepeated(store: Store, row: JournalRow, owner: str) -> bool:
    """Free an unknown row that an owner repeats no more; return whether no other owner has it, or had it since.

    `row` is as its owner knows it. Where that had counted as dead, another one may have repeated its create, and told.
    """
    known = row.updated_at.timestamp()
    is_unchanged = _ROW.updated_at.between(known - _ROUNDED_SECONDS, known + _ROUNDED_SECONDS)
    is_mine = or_(_ROW.owner == owner, and_(_ROW.owner.is_(None), is_unchanged))
    mine = update(ITEMS).where(_ROW.key == row.key, _ROW.state == State.UNKNOWN, is_mine)
    return (await store.write(mine.values(owner=None)))[0] == 1


async def has_owner(store: Store, key: str) -> bool:
    """Return whether a row has an owner."""
    return bool(await store.read(select(_ROW.number).where(_ROW.key == key, _ROW.owner.is_not(None))))


def _is_free(owner: str) -> ColumnElement[bool]:
    """Return whether no other owner has a row. One of its own may be left from an item that was cut off."""
    return or_(_ROW.owner.is_(None), _ROW.owner == owner)


def _may_repeat(store: Store, seconds: float) -> ColumnElement[bool]:
    """Return whether the create of an unknown row may be repeated, unless what it would send has changed."""
    now, sent_at = store.now_column(), _ROW.first_sent_at
    in_time = and_(sent_at > now - seconds, sent_at < now + SKEW_SECONDS)  # else a clock recorded it that was ahead
    may_end_otherwise = and_(_ROW.idempotency_key.is_not(None), _ROW.refusal.is_(None))
    return and_(_ROW.state == State.UNKNOWN, may_end_otherwise, in_time, _ROW.follow != Follow.UNFOLLOWED.value)


async def lost_by(store: Store, owner: str, numbers: Collection[int]) -> set[int]:
    """Return which of some hundred rows are active and not an owner's any more: others took it for dead."""
    own = select(_ROW.number).where(_ROW.number.in_(numbers), or_(_ROW.owner == owner, _ROW.state != State.ACTIVE))
    return set(numbers) - {number for (number,) in await store.read(own)}


async def free_own(store: Store, owner: str) -> None:
    """Free what an owner polls, follows or was going to repeat; what it is sending stays its own."""
    polled = update(ITEMS).where(_ROW.owner == owner, _ROW.state.in_(_WITHOUT_CREATE))
    late = update(TRIES).where(_TRY.owner == owner)
    followed = update(ITEMS).where(HAS_FOLLOWER, _ROW.follower == owner)
    await store.write(
        polled.values(owner=None, changed_at=store.now_column()),
        late.values(owner=None),
        followed.values(follower=None),
    )


async def free_dead(store: Store) -> None:
    """Free what dead owners polled, followed or were going to repeat."""
    polled = update(ITEMS).where(_ROW.state.in_(_WITHOUT_CREATE), _is_dead(store, _ROW.owner))
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
    meanwhile. Where it was to repeat a create, that is in doubt as before.
    """
    doubtful: list[JournalRow] = []
    for left in store.claims.left():
        doubtful += await store.move_all(DOUBT, *_has_claim(left), mover=mover, error=_UNRECORDED)
        store.claims.forget_left(left)
    for claims in store.claims.unanswered():
        await store.move_all(RELEASE, *_has_claim(claims), mover=mover, error=None)
        await store.move_all(UNSENT, *_has_claim(claims), mover=mover)
    return doubtful


def _has_claim(claims: Mapping[str, str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return what names rows that have one of these claims, by their keys, which have an index; and the claims."""
    return _ROW.key.in_(set(claims.values())), _ROW.claim.in_(claims)
