"""The rows of a journal: how they are planned, claimed, moved, taken and read."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from attrs import evolve, frozen
from sqlalchemy import (
    ColumnElement,
    Executable,
    Table,
    func,
    select,
    update,
)

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async._extra import extra_text
from agentjobs_async._validation import checked_instance
from agentjobs_async.batch._database.connections import Insert, Stamp
from agentjobs_async.batch._database.file_lock import FileLock
from agentjobs_async.batch._database.schema import (
    ITEMS,
    JOURNAL,
    Moment,
    limit_columns,
    limits_of,
    seconds_of,
)
from agentjobs_async.batch._database.writer import Database, Parameters, Rows
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.claims import Claims, NoRoom, Repetition
from agentjobs_async.batch._store.owners import Owners
from agentjobs_async.batch._store.queries import PAGE_ROWS, Query
from agentjobs_async.batch._store.rows import JournalRow, legible, row_of, rows_of, text_or_none
from agentjobs_async.batch._store.statements import ROWS
from agentjobs_async.batch.items import BatchItem, context_text
from agentjobs_async.batch.limits import Limits
from agentjobs_async.batch.states import Move, State
from agentjobs_async.batch.where import Where

_ROW: Final = ITEMS.c
_PAGE_NUMBERS: Final = 20_000  # few enough that the loop stands still for some milliseconds only
NOBODY: Final = ""
"""Who moves rows and is no owner, such as a person."""


@frozen
class Meta:
    """What a journal is, and what it keeps for all of its owners.

    Attributes:
        identity: What no other journal has; a move takes it along.
        service: The service that it belongs to; `None` before its first run.
        moved_to: Where it was moved to, without secrets; `None` if it was not.
        limits: The limits of all owners.
    """

    identity: str
    service: str | None
    moved_to: str | None
    limits: Limits


class Store:
    """The rows of an open journal. Every change is atomic, and durable when its call returns.

    Each call raises a `JournalError` when the journal can't be read or written; nothing was changed then.

    Args:
        database: The open database.
        clock: The wall clock, in seconds since the epoch: a number, or the database's own.
        owners: The owners in this process.
        lock: The lock of a file, which is checked when a row is claimed; `None` where there is none.
        patience: Seconds without a heartbeat after which another owner counts as dead; `None` for a file, whose owners
            are all in this process.

    Attributes:
        claims: The claims of this process whose outcomes are not known.
        owners: As given.
        patience: As given.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], Moment],
        *,
        owners: Owners,
        lock: FileLock | None = None,
        patience: float | None = None,
    ) -> None:
        self.claims: Claims = Claims()
        self.owners = owners
        self.patience = patience
        self._database = database
        self._clock = clock
        self._lock = lock

    def now(self) -> Moment:
        """Return the time by the journal's clock."""
        return self._clock()

    def now_column(self) -> ColumnElement[float]:
        """Return the time by the journal's clock, as statements take it."""
        return seconds_of(self._clock())

    async def time(self) -> float:
        """Return the time by the journal's clock, in seconds since the epoch."""
        return float((await self._database.read(select(self.now_column())))[0][0])

    @property
    def insert(self) -> Callable[[Table], Insert]:
        """What makes an insert into a table, in the database's dialect."""
        return self._database.backend.insert

    @property
    def notifies(self) -> bool:
        """Whether the database notifies those who listen, by `pg_notify`."""
        return self._database.backend.notifies

    async def read(self, statement: Executable) -> Rows:
        """Return the rows of a query. The rooms of the store use it; others have `select` and the rest."""
        return await self._database.read(statement)

    async def write(
        self, *written: Executable, parameters: Parameters | None = None, turn: str | None = None
    ) -> tuple[int, Rows]:
        """Execute statements as `Database.write`. The rooms of the store use it; others have `move` and the rest."""
        return await self._database.write(*written, parameters=parameters, turn=turn)

    def check_text(self, name: str, text: str) -> None:
        """Check that the journal can store a text of the user's.

        Raises:
            InvalidInputError: It contains NUL, and the journal is on PostgreSQL.
        """
        if "\0" in text and not self._database.backend.stores_nul:
            raise InvalidInputError(
                f"{name} contains NUL (U+0000), which PostgreSQL can't store: remove it, or use a journal in a file"
            )

    def conditions(self, query: Query) -> ColumnElement[bool]:
        """Return what the rows that meet `query` have.

        Raises:
            InvalidInputError: Its `where` is no `Where`, or looks for a text that the journal can't store.
        """
        found = query.conditions(self._clock())
        if query.where is not None and query.where.text is not None:
            self.check_text("text", query.where.text)
        return found

    async def plan(self, items: Sequence[BatchItem], page_id: str, project_id: str | None) -> dict[str, JournalRow]:
        """Plan some hundred items of different keys, and return their rows, whatever their states, by key.

        Left out are items whose key is that of another prompt, project or extra, and those whose key came on an earlier
        page of the same source.

        Args:
            items: The items.
            page_id: What names this page: 32 characters that name the source, then anything.
            project_id: The project of items that name none; `None` where all of them name one.
        """
        now, same = self._clock(), dict[str, Any](page=page_id)
        clock = now if isinstance(now, ColumnElement) else None
        same |= statements.planned_times(now) if clock is None else {}
        planning = statements.planning(self._database.backend.insert, clock)
        rows: list[dict[str, Any]] = [
            {"key": item.key, "prompt": item.prompt, "project_id": item.project_id or project_id, **same}
            for item in items
        ]
        # A column that most items leave empty is a parameter of those pages only that have it: it costs time.
        if any(item.context is not None for item in items):
            rows = [row | {"context": context_text(item.context)} for row, item in zip(rows, items, strict=True)]
        if any(item.extra for item in items):
            rows = [row | {"extra": extra_text(item.extra)} for row, item in zip(rows, items, strict=True)]
        return {row.key: row for row in rows_of((await self._database.write(planning, parameters=rows))[1])}

    async def claim(
        self, key: str, owner: str, digest: str | None = None, repetition: Repetition | None = None
    ) -> str | NoRoom | None:
        """Make a row `sending`, durably: only the caller that gets the claim may send its create, once.

        Return the claim; `NoRoom` when the limits of all owners leave none; `None` when the row is not planned, or
        what `repetition` says can't be repeated any more.

        Args:
            key: The row's key.
            owner: Who sends its create.
            digest: Of what is sent, where the service honours idempotency keys: that of a planned row is the claim.
            repetition: How the create of an unknown row is repeated; `None` for a planned row.
        """
        if self._lock is not None:
            self._lock.check()
        claim, now = uuid4().hex, self._clock()
        parameters = {
            "its_key": key,
            "new_claim": claim,
            "new_time": None if isinstance(now, ColumnElement) else now,  # a server takes the time by itself
            "new_owner": owner,
            "its_digest": digest,
        }
        backend = self._database.backend
        statements = [backend.claim]
        if repetition is not None:
            statements = [*backend.repeat]
            parameters |= {"its_idempotency_key": repetition.key, "its_seconds": repetition.seconds}
        try:
            _, rows = await self._database.write(*statements, parameters=parameters, claims=True)
        except BaseException:
            # It may have been executed, or may be yet. The caller gets no claim, so that nothing is sent under it, and
            # the row may be planned again.
            self.claims.note_unanswered(claim, key)
            raise
        if not rows:
            return None
        if rows[0].claimed:
            return claim
        return None if rows[0].wait is None else NoRoom(rows[0].wait, rows[0].cause, rows[0].of_project)

    async def move(
        self,
        move: Move,
        key: str,
        mover: str,
        *,
        target: State | None = None,
        matching: Mapping[str, Any] = MappingProxyType({}),
        new: Mapping[str, Any] = MappingProxyType({}),
        was_sent: bool = False,
    ) -> JournalRow | None:
        """Make a move of a row, and return it as it is then; `None` where it may not be made, and nothing has changed.

        Args:
            move: Which move.
            key: The row's key.
            mover: Who makes it. A follower of the row that is somebody else is to notice it.
            target: Where it leads to; `None` where the move has one target.
            matching: What the row must have, by the names of the move's `matches`: also the `state` where it has that.
            new: Other columns that change.
            was_sent: Whether a create that the service refused goes back to planned: a rate counts it from now on.
        """
        now, change = self._clock(), uuid4().hex
        clock = now if isinstance(now, ColumnElement) else None
        origin = matching.get("state")
        moving = statements.moving(move, target or move.target, origin, frozenset(new), clock)
        parameters: dict[str, Any] = {"its_key": key, "its_change": change, "its_mover": mover}
        parameters |= {} if clock is not None else {"its_time": now}
        parameters |= {f"its_{name}": value for name, value in matching.items() if name != "state"}
        parameters |= {f"new_{name}": value for name, value in new.items()}
        before: tuple[Executable, ...] = ()
        if move.begins_try or was_sent:
            matched = [_ROW[name].is_not_distinct_from(value) for name, value in matching.items()]
            by_itself = statements.met_by_itself(move)
            conditions = [_ROW.key == key, statements.in_states(move.origins), *by_itself, *matched]
            before = statements.before(move, conditions, now, sent_now=was_sent)
        _, found = await self._database.write(*before, moving, parameters=parameters)
        return row_of(found[0]) if found else None

    async def move_all(
        self, move: Move, which: ColumnElement[bool], *conditions: ColumnElement[bool], mover: str, **new: Any
    ) -> list[JournalRow]:
        """Make a move of some hundred rows, and return those that made it, as they are then.

        Args:
            move: A move of one target.
            which: Names the rows, by keys or numbers.
            conditions: What they must meet besides.
            mover: Who makes it.
            new: Other columns that change.
        """
        now, before = self._clock(), tuple[Executable, ...]()
        if move.begins_try:
            before = statements.before(move, [which, statements.in_states(move.origins), *conditions], now)
        moving = statements.moving_all(move, which, conditions, now, uuid4().hex, mover, **new)
        return rows_of((await self.write(*before, moving))[1])

    async def select(self, query: Query) -> list[JournalRow]:
        """Return rows, in the order of their numbers."""
        wanted = ROWS.where(self.conditions(query)).order_by(_ROW.number).limit(query.size)
        return rows_of(await self._database.read(wanted))

    async def pages(self, query: Query) -> AsyncIterator[list[JournalRow]]:
        """Yield the rows that meet `query`, in the order of their numbers, in lists of at most its size.

        Those of a prefix are listed by their numbers first: to find them, each page would look at all of them again.
        """
        where = checked_instance("where", query.where, Where)
        if where is None or where.prefix is None:
            while found := await self.select(query):
                yield found
                query = evolve(query, after=found[-1].number)
            return
        others = evolve(where, key=None, prefix=None)
        while numbers := await self._numbers(query):
            for page in pages_of(numbers, query.size or PAGE_ROWS):
                if found := await self.select(evolve(query, where=others, numbers=page)):
                    yield found
            query = evolve(query, after=numbers[-1])

    async def _numbers(self, query: Query) -> list[int]:
        """Return the next numbers of the rows that meet `query`; its size does not count."""
        wanted = select(_ROW.number).where(self.conditions(query)).order_by(_ROW.number).limit(_PAGE_NUMBERS)
        return [number for (number,) in await self._database.read(wanted)]

    async def rows_of(self, keys: Collection[str]) -> dict[str, JournalRow]:
        """Return the rows of some hundred keys, by key; keys that have none are left out."""
        return {row.key: row for row in await self.select(Query(keys=keys, size=None))}

    async def stamp(self) -> Stamp:
        """Return what changes when anything is written."""
        return await self._database.backend.stamp(self._database.read)

    async def count(self, query: Query) -> int:
        """Return how many rows meet `query`; its size does not count."""
        found = await self._database.read(select(func.count()).where(self.conditions(query)))
        return legible(lambda: int(found[0][0]))

    async def meta(self) -> Meta:
        """Return what the journal is, and what it keeps for all of its owners."""
        (found,) = await self._database.read(select(JOURNAL))
        return legible(
            lambda: Meta(
                str(found.identity), text_or_none(found.service), text_or_none(found.moved_to), limits_of(found)
            )
        )

    async def set_limits(self, limits: Limits) -> None:
        """Change the limits of all owners of the journal."""
        await self._database.write(update(JOURNAL).values(limit_columns(limits)))

    async def set_service(self, service: str, *, replaces: bool) -> str:
        """Record the service that the journal belongs to, and return it; another one stays unless `replaces` is set."""
        recording = update(JOURNAL).values(service=service)
        await self._database.write(recording if replaces else recording.where(JOURNAL.c.service.is_(None)))
        return (await self.meta()).service or service

    async def flush(self) -> None:
        """Wait for all queued writes, including those whose callers were cancelled."""
        await self._database.flush()


def moved_error(name: str, moved_to: str) -> JournalError:
    """Return the error of the journal `name`, which is closed because it was moved."""
    words = f"it was moved to {moved_to}; use that one, or finish the move if it has not ended"
    return JournalError(f"journal {name}: {words}", "moved")
