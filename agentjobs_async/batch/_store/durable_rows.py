"""The rows of durable jobs: which are followed, by whom, and which ends were told."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final
from uuid import uuid4

from attrs import frozen
from sqlalchemy import ColumnElement, and_, case, func, literal_column, null, or_, select, true, update

from agentjobs_async._extra import extra_text
from agentjobs_async.batch._database.schema import (
    FOLLOWED,
    HAS_FOLLOWER,
    ITEMS,
    JOURNAL,
    SHOWN,
    TO_NOTICE,
    TRIES,
    Follow,
)
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.queries import PAGE_ROWS, Query
from agentjobs_async.batch._store.rows import JournalRow, row_of, rows_of
from agentjobs_async.batch._store.statements import EARLIER, ROWS
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.items import BatchItem, context_text
from agentjobs_async.batch.states import HOLD, OPEN, State
from agentjobs_async.batch.where import Where

_ROW: Final = ITEMS.c
_CHANNEL: Final = literal_column("'agentjobs_'").concat(select(JOURNAL.c.identity).scalar_subquery())
"""On PostgreSQL, the channel of the journal's notifications."""
_OPEN: Final = sorted(OPEN)
_IS_LEFT: Final = and_(_ROW.state == State.ACTIVE, _ROW.owner.is_(None))
"""Whether nobody polls the job of an active row."""
_HAS_END_TO_TELL: Final = or_(_ROW.state.in_([*_OPEN, State.UNKNOWN]), _ROW.told_at.is_(None))


@frozen
class Noticed:
    """A row that its follower has to do something about.

    Attributes:
        row: The row.
        is_own: Whether the follower polls its job, too; else another owner does, or it has none at present.
        is_notified: Whether its job is to be polled soon, as somebody has asked for.
        is_told: Whether `on_end` has returned for its end.
    """

    row: JournalRow
    is_own: bool
    is_notified: bool = False
    is_told: bool = False

    @property
    def number(self) -> int:
        """Its number."""
        return self.row.number


@frozen
class Submitted:
    """A row as it was when it was submitted.

    Attributes:
        row: The row.
        is_followed: Whether the one who submitted it follows it.
    """

    row: JournalRow
    is_followed: bool


@frozen
class User:
    """Whose job a new row is.

    Attributes:
        id: What the row has of the user: no other user has the same.
        most_open: How many of the user's rows may be planned, sending or active; `None` for any number.
    """

    id: str
    most_open: int | None


def _columns_of(item: BatchItem) -> dict[str, Any]:
    """Return the columns that hold what an item has: a context or an extra that it does not have stays null."""
    columns = {"key": item.key, "prompt": item.prompt, "project_id": item.project_id}
    if item.context is not None:
        columns["context"] = context_text(item.context)
    if item.extra:
        columns["extra"] = extra_text(item.extra)
    return columns


def _has_room(key: str, user: User) -> ColumnElement[bool]:
    """Return whether the row of `key` is there, or its user may have one more."""
    if user.most_open is None:
        return true()
    is_there = select(_ROW.number).where(_ROW.key == key).exists()
    # Nobody would record the end of one that is not followed any more: it would count for good.
    open_rows = select(func.count()).where(_ROW.user_id == user.id, _ROW.state.in_(_OPEN), FOLLOWED)
    return or_(is_there, open_rows.scalar_subquery() < user.most_open)


class DurableRows:
    """Plans and follows the rows of durable jobs. Each call raises a `JournalError` when the journal can't be used.

    Args:
        store: The journal's rows.
        follower: The owner that follows them.
        tells: Whether it tells of ends; else it leaves them to others.

    Attributes:
        follower: As given.
        tells: As given.
    """

    def __init__(self, store: Store, follower: str, *, tells: bool) -> None:
        self._store = store
        self.follower = follower
        self.tells = tells
        to_tell = and_(_ROW.state.not_in(_OPEN), _ROW.told_at.is_(None))
        self._to_do = or_(_ROW.state.in_(_OPEN), to_tell) if tells else _ROW.state.in_(_OPEN)
        is_to_be_polled = and_(_ROW.state == State.ACTIVE, _ROW.is_notified)
        own = and_(_ROW.follower == follower, or_(~_ROW.is_noticed, _IS_LEFT, is_to_be_polled))
        self._needs_follower = or_(own, and_(_ROW.follower.is_(None), self._to_do))

    async def submit(self, item: BatchItem, user: User | None = None) -> Submitted | None:
        """Plan a durable job, or find its row, and return it.

        Return `None` where its key is that of another prompt, project, extra or user, or where a new job would be one
        more than its user may have under way. A row that is there keeps its context. The item of a batch becomes a
        durable job, and is followed from now on.
        """
        times = statements.planned_times(self._store.now())
        is_of_a_batch = _ROW.follow == Follow.NO.value
        updated: dict[str, Any] = {
            "follow": case((is_of_a_batch, Follow.YES.value), else_=_ROW.follow),
            "follower": case((is_of_a_batch, self.follower), else_=_ROW.follower),
            "is_noticed": and_(_ROW.is_noticed, ~is_of_a_batch),
        }
        planned: dict[str, Any] = {"page": uuid4().hex, "follow": Follow.YES.value, "follower": self.follower, **times}
        insert, returned = self._store.insert(ITEMS), [_ROW.follower]
        if user is None:
            planning = statements.plan(insert, planned, updated=updated, returned=returned)
            _, found = await self._store.write(planning, parameters=[_columns_of(item)])
        else:
            planned |= {"user_id": user.id, **_columns_of(item)}
            updated |= {"user_id": func.coalesce(_ROW.user_id, user.id)}
            condition = _has_room(item.key, user)
            planning = statements.plan(insert, planned, updated=updated, returned=returned, condition=condition)
            # Of two transactions at once, neither would count the other's job. Without a limit, nothing is counted.
            _, found = await self._store.write(planning, turn=None if user.most_open is None else user.id)
        return Submitted(row_of(found[0][:-1]), found[0][-1] == self.follower) if found else None

    async def last_of(self, user_id: str, last: int) -> list[JournalRow]:
        """Return the last rows of a user, in the order of their numbers."""
        newest = ROWS.where(_ROW.user_id == user_id).order_by(_ROW.number.desc()).limit(last)
        return rows_of(await self._store.read(newest))[::-1]

    async def notice(self, after: int = 0, *, key: str | None = None) -> list[Noticed]:
        """Follow the next rows above the number `after` that need it, and return them.

        These are rows that nobody follows, own ones that another owner has moved, own active ones whose jobs are to be
        polled soon, and active ones that nobody polls: of these, this follower becomes the owner, too.

        Args:
            after: The number of the last row before.
            key: The key of the only row that is meant; `None` for all.
        """
        found = select(_ROW.number, _ROW.is_notified).where(TO_NOTICE, self._needs_follower, _ROW.number > after)
        found = found if key is None else found.where(_ROW.key == key)
        # Nearly every look finds nothing, and a read costs no commit.
        rows = await self._store.read(found.order_by(_ROW.number).limit(PAGE_ROWS))
        return await self._follow({row.number: bool(row.is_notified) for row in rows}) if rows else []

    async def _follow(self, marks: dict[int, bool]) -> list[Noticed]:
        """Follow some hundred rows, if they still need it, and return them in the order of their numbers.

        Args:
            marks: Whether each job is to be polled soon, as it was read, by the number of its row.
        """
        change = uuid4().hex  # executed again, when its answer was lost, the statement finds what it did
        still_needed = or_(self._needs_follower, _ROW.change == change)
        marked = [number for number, mark in marks.items() if mark]
        values = {
            "follower": self.follower,
            "owner": case((_IS_LEFT, self.follower), else_=_ROW.owner),
            "is_noticed": True,
            # A mark that has come after the read stays for the next look.
            "is_notified": and_(_ROW.is_notified, _ROW.number.not_in(marked)),
            "change": change,
        }
        following = update(ITEMS).where(_ROW.number.in_(list(marks)), FOLLOWED, still_needed).values(**values)
        _, found = await self._store.write(following.returning(*SHOWN, _ROW.owner, _ROW.told_at))
        noticed = [
            Noticed(row_of(cells[:-2]), cells.owner == self.follower, marks[cells.number], cells.told_at is not None)
            for cells in found
        ]
        return sorted(noticed, key=lambda one: one.number)

    async def notify(self, key: str) -> str | None:
        """Ask the follower of an active row to poll its job soon, and return that; `None` where nobody follows it.

        On PostgreSQL all who listen are notified: each looks for rows of its own.
        """
        is_meant = and_(_ROW.key == key, FOLLOWED, HAS_FOLLOWER, _ROW.state == State.ACTIVE)
        # Anybody may ask for any key, and a read costs no commit. A job that is active only now is polled at once.
        if not await self._store.read(select(_ROW.number).where(is_meant)):
            return None
        marking = update(ITEMS).where(is_meant)
        marking = marking.values(is_notified=True).returning(_ROW.follower)
        if self._store.notifies:
            marked = marking.cte("marked")
            _, found = await self._store.write(select(marked.c.follower, func.pg_notify(_CHANNEL, "")))
        else:
            _, found = await self._store.write(marking)
        return str(found[0][0]) if found else None

    async def channel(self) -> str:
        """Return the channel of the journal's notifications, on PostgreSQL."""
        return str((await self._store.read(select(_CHANNEL)))[0][0])

    async def say(self, word: str) -> None:
        """Notify all who listen, on PostgreSQL, with a word in place of nothing."""
        await self._store.write(select(func.pg_notify(_CHANNEL, word)))

    async def look_again(self, key: str | None = None) -> None:
        """Cause the next `notice` to return the rows of this follower that are not done with, whoever moved them.

        Args:
            key: The key of the only row that is meant; `None` for all.
        """
        mine = update(ITEMS).where(HAS_FOLLOWER, _ROW.follower == self.follower, self._to_do)
        mine = mine if key is None else mine.where(_ROW.key == key)
        await self._store.write(mine.values(is_noticed=False))

    async def planned(self) -> set[str]:
        """Return the keys of the planned rows that this owner follows."""
        mine = select(_ROW.key).where(HAS_FOLLOWER, _ROW.follower == self.follower, _ROW.state == State.PLANNED)
        return {key for (key,) in await self._store.read(mine)}

    def active(self, where: Where | None) -> AsyncIterator[list[JournalRow]]:
        """Return an iterator of the followed rows that have not ended and meet `where`, in lists of some hundred."""
        return self._store.pages(Query(where=where, states=_OPEN, is_followed=True))

    async def untold(self, key: str) -> list[JournalRow]:
        """Return the earlier tries of a row whose ends `on_end` was not told of, in their order."""
        tries = TRIES.c
        untold = EARLIER.where(_ROW.key == key, tries.told_at.is_(None), tries.follow == Follow.YES.value)
        return rows_of(await self._store.read(untold.order_by(tries.number)))

    async def is_given_up(self, key: str) -> bool:
        """Return whether nobody is going to repeat an unknown create: it is no durable job's, or was told as an end."""
        is_left = or_(~FOLLOWED, _ROW.told_at.is_not(None))
        unknown = select(_ROW.number).where(_ROW.key == key, _ROW.state == State.UNKNOWN, is_left)
        return bool(await self._store.read(unknown))

    async def hold(self, keys: Sequence[str], error: str) -> list[JournalRow]:
        """Record why some hundred planned rows of this follower are held back, and return those that are."""
        mine = and_(HAS_FOLLOWER, _ROW.follower == self.follower)
        return await self._store.move_all(HOLD, _ROW.key.in_(keys), mine, mover=self.follower, error=error)

    async def followed(self, key: str) -> JournalRow | None:
        """Return the row of a key; `None` where this owner does not follow it."""
        mine = ROWS.where(_ROW.key == key, FOLLOWED, _ROW.follower == self.follower)
        found = rows_of(await self._store.read(mine))
        return found[0] if found else None

    async def no_longer_followed(self, keys: Sequence[str]) -> set[str]:
        """Return which of some hundred rows this owner no longer follows.

        Another process took them over, since this owner's heartbeats had stopped, or was asked to unfollow them.
        """
        mine = select(_ROW.key).where(_ROW.key.in_(keys), FOLLOWED, _ROW.follower == self.follower)
        return set(keys) - {key for (key,) in await self._store.read(mine)}

    async def leave_to_poll(self, keys: Sequence[str]) -> None:
        """Leave the jobs of some hundred rows that this owner no longer follows to those who follow them."""
        not_mine = or_(_ROW.follower.is_(None), _ROW.follower != self.follower)
        polled = update(ITEMS).where(_ROW.key.in_(keys), _ROW.state == State.ACTIVE, _ROW.owner == self.follower)
        await self._store.write(polled.where(not_mine).values(owner=None))

    async def leave_to_tell(self) -> list[JournalRow]:
        """Leave to other followers the rows whose ends `on_end` was not told of, and return them."""
        untold = and_(_ROW.state.not_in(_OPEN), _ROW.told_at.is_(None), _ROW.follower == self.follower)
        is_end = _ROW.owner.is_(None)  # else its create is in doubt, and is to be repeated
        _, found = await self._store.write(
            update(ITEMS).where(FOLLOWED, untold, is_end).values(follower=None).returning(*SHOWN)
        )
        return rows_of(found)

    async def record_told(self, key: str, try_number: int, state: State, *, is_end_of_row: bool) -> None:
        """Record that `on_end` has returned for an end of a row that no other follower has, or of an earlier try of it.

        Args:
            key: The key of the row.
            try_number: Which of its tries has ended.
            state: How it has ended.
            is_end_of_row: Whether it may be the end in which the row is; else it is that of an earlier try alone.
        """
        now, tries = self._store.now_column(), TRIES.c
        mine = or_(_ROW.follower == self.follower, _ROW.follower.is_(None))  # nobody's, once this follower has left
        number = select(_ROW.number).where(_ROW.key == key, mine).scalar_subquery()
        earlier = update(TRIES).where(tries.item == number, tries.try_number == try_number, tries.state == state)
        told = [earlier.values(told_at=now)]
        if is_end_of_row:
            own = update(ITEMS).where(_ROW.key == key, _ROW.tries == try_number, _ROW.state == state, mine)
            told.append(own.values(told_at=now))
        await self._store.write(*told)

    async def unfollow(self, key: str) -> bool:
        """Record that a row is followed no more; return whether it was. One that is planned or being sent stays so.

        An end that was told is not followed, but for that of an unknown create, which may be settled. A job that is
        polled by another owner stays with that one.
        """
        change = uuid4().hex  # executed again, when its answer was lost, the statement finds what it did
        sent = _ROW.state.not_in([State.PLANNED, State.SENDING])
        is_followed = or_(and_(FOLLOWED, sent, _HAS_END_TO_TELL), _ROW.change == change)
        leaving = update(ITEMS).where(_ROW.key == key, is_followed)
        owner = case((_ROW.owner == self.follower, null()), else_=_ROW.owner)
        leaving = leaving.values(follow=Follow.UNFOLLOWED.value, follower=None, owner=owner, change=change)
        return (await self._store.write(leaving))[0] == 1

    async def followed_state(self, key: str) -> State | None:
        """Return the state of a row that is followed; `None` where it is not, or its end was told."""
        followed = select(_ROW.state).where(_ROW.key == key, FOLLOWED, _HAS_END_TO_TELL)
        found = await self._store.read(followed)
        return State(found[0].state) if found else None
