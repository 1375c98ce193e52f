"""The rows of durable jobs: which are followed, by which owner, and which ends `on_end` was told of."""

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update

from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.row_store import RowStore
from agentjobs_async.batch._store.rows import JournalRow, row_of
from agentjobs_async.batch._store.schema import FOLLOWED, ITEMS, NO_OWNER, SHOWN
from agentjobs_async.batch._store.statements import ROWS
from agentjobs_async.batch.items import BatchItem, context_text
from agentjobs_async.batch.states import ENDED, State
from agentjobs_async.batch.where import Where

_PAGE_ROWS: Final = 500  # few enough that the loop stands still for some milliseconds only
_NOT_TOLD: Final = ""
_UNFOLLOWED: Final = "unfollowed"
_ROW: Final = ITEMS.c
_TO_TELL: Final = and_(_ROW.state.in_(sorted(ENDED)), _ROW.told_state != _ROW.state)
"""Whether a followed row has an end that `on_end` was not told of."""


class DurableRows:
    """Plans and follows the rows of durable jobs. Each call raises a `JournalError` when the journal can't be used.

    Args:
        store: The journal's rows.
        patience: Seconds without a heartbeat after which another owner counts as dead; `None` where there can be
            no other one, as with a file.
        tells: Whether this owner tells of ends; else it leaves them to others.
    """

    def __init__(self, store: RowStore, patience: float | None, *, tells: bool) -> None:
        self._store = store
        self._database = store._database  # noqa: SLF001 - private to other rooms
        self._patience = patience
        open_rows = _ROW.state.in_([State.PLANNED, State.ACTIVE])
        self._to_do = or_(open_rows, _TO_TELL) if tells else open_rows

    async def submit(self, item: BatchItem) -> tuple[JournalRow, bool] | None:
        """Plan an item, or find its row; return the row, and whether this owner is to continue with it.

        Return `None` when the row of this key is that of another prompt or project. A row that is there keeps its
        context; the item of a batch, which no owner follows as a durable job, is followed from now on.
        """
        owner = self._store.owner
        # Whoever owns the row of a batch tells of no end: this owner does from now on. A claim under way stays its own.
        of_a_batch = and_(_ROW.told_state.is_(None), _ROW.state != State.SENDING)
        told = func.coalesce(_ROW.told_state, _NOT_TOLD)
        times = statements.planned_times(self._store.now())
        planning = statements.plan(
            self._database.backend.insert(ITEMS),
            {"page": uuid4().hex, "owner": owner, "told_state": _NOT_TOLD, **times},
            updated={"told_state": told, "owner": case((of_a_batch, owner), else_=_ROW.owner)},
            returned=[and_(FOLLOWED, self._to_do, _ROW.owner == owner)],
        )
        values = {"key": item.key, "prompt": item.prompt, "project_id": item.project_id}
        context = {} if item.context is None else {"context": context_text(item.context)}
        _, found = await self._database.write(planning, parameters=[values | context])
        return (row_of(found[0][:-1]), bool(found[0][-1])) if found else None

    async def take_over(self, after: int, *, own: bool = False, key: str | None = None) -> list[JournalRow]:
        """Follow the next rows above the number `after` that no living owner follows, and return them.

        What is being sent is left to its owner; when that is dead, the row becomes unknown first.

        Args:
            after: The number of the last row before.
            own: Whether to return the rows, too, that this owner follows already.
            key: The key of the only row that is meant; `None` for all.
        """
        page_id = uuid4().hex  # executed again, when its answer was lost, the statement finds its own page
        free = [self._is_free(), _ROW.page == page_id, *([_ROW.owner == self._store.owner] if own else [])]
        wanted = select(_ROW.number).where(FOLLOWED, self._to_do, _ROW.number > after, or_(*free))
        wanted = wanted if key is None else wanted.where(_ROW.key == key)
        # Rows that another owner is taking over in this moment are its own.
        wanted = wanted.order_by(_ROW.number).limit(_PAGE_ROWS).with_for_update(skip_locked=True)
        rows = update(ITEMS).where(_ROW.number.in_(wanted))
        _, found = await self._database.write(rows.values(owner=self._store.owner, page=page_id).returning(*SHOWN))
        return sorted(map(row_of, found), key=lambda row: row.number)

    async def to_tell(self, after: int) -> list[JournalRow]:
        """Return the next rows of this owner above the number `after` whose ends `on_end` was not told of."""
        mine = ROWS.where(FOLLOWED, _TO_TELL, _ROW.owner == self._store.owner, _ROW.number > after)
        _, found = await self._database.write(mine.order_by(_ROW.number).limit(_PAGE_ROWS))
        return [row_of(row) for row in found]

    async def leave_to_tell(self) -> list[JournalRow]:
        """Leave to other owners this owner's rows whose ends `on_end` was not told of, and return them."""
        mine = update(ITEMS).where(FOLLOWED, _TO_TELL, _ROW.owner == self._store.owner)
        _, found = await self._database.write(mine.values(owner=NO_OWNER).returning(*SHOWN))
        return [row_of(row) for row in found]

    async def active(self, after: int, where: Where | None) -> list[JournalRow]:
        """Return the next followed rows above the number `after` that have not ended and meet `where`."""
        met = self._store.conditions(where)
        open_states = sorted(set(State) - ENDED)
        wanted = ROWS.where(FOLLOWED, _ROW.state.in_(open_states), _ROW.number > after, *met)
        found = await self._database.read(wanted.order_by(_ROW.number).limit(_PAGE_ROWS))
        return [row_of(row) for row in found]

    async def no_longer_followed(self, keys: Sequence[str]) -> set[str]:
        """Return which of some hundred rows this owner no longer follows.

        Another process took them over, since this owner's heartbeats had stopped, or was asked to unfollow them.
        """
        if self._patience is None:
            return set()
        mine = select(_ROW.key).where(_ROW.key.in_(keys), FOLLOWED, _ROW.owner == self._store.owner)
        return set(keys) - {key for (key,) in await self._database.read(mine)}

    async def record_told(self, key: str, state: State) -> None:
        """Record that `on_end` has returned for a row of this owner that ended in this state, and is still in it."""
        await self._record_told_state(key, state.value, _ROW.owner == self._store.owner, _ROW.state == state)

    async def unfollow(self, key: str) -> bool:
        """Record that a row is followed no more; return whether it was. One that is planned or being sent stays so."""
        return await self._record_told_state(key, _UNFOLLOWED, _ROW.state.not_in([State.PLANNED, State.SENDING]))

    async def followed_state(self, key: str) -> State | None:
        """Return the state of a row that is followed; `None` where it is not."""
        found = await self._database.read(select(_ROW.state).where(_ROW.key == key, FOLLOWED))
        return State(found[0].state) if found else None

    async def release(self) -> None:
        """Leave the rows of this owner to others, which may follow them at once."""
        mine = and_(FOLLOWED, _ROW.owner == self._store.owner, _ROW.state != State.SENDING)
        await self._database.write(update(ITEMS).where(mine).values(owner=None))

    async def _record_told_state(self, key: str, told_state: str, *conditions: ColumnElement[bool]) -> bool:
        row = update(ITEMS).where(_ROW.key == key, FOLLOWED, *conditions)
        return (await self._database.write(row.values(told_state=told_state)))[0] == 1

    def _is_free(self) -> ColumnElement[bool]:
        """Return whether no living owner follows a row."""
        if self._patience is not None:
            return statements.owner_is_dead(self._store.now(), self._patience)
        return _ROW.owner.is_distinct_from(self._store.owner)
