"""The queries of a journal: they change no row."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Subquery, and_, case, func, or_, select, union_all

from agentjobs_async import InvalidInputError, ResponseError
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.connections import Stamp
from agentjobs_async.batch._store.rows import (
    JournalRow,
    Move,
    legible,
    moves_of,
    refusal_of,
    rows_of,
    text_of,
    text_or_none,
)
from agentjobs_async.batch._store.schema import (
    ITEMS,
    JOURNAL,
    PAUSES,
    SENDS,
    SKEW_SECONDS,
    Moment,
    limits_of,
    seconds_of,
)
from agentjobs_async.batch._store.statements import MOVES_RECORDED, ROWS, owner_is_dead, owners
from agentjobs_async.batch._store.writer import Database
from agentjobs_async.batch.limits import FleetLimits
from agentjobs_async.batch.states import ENDED, State
from agentjobs_async.batch.where import Where

_ROW: Final = ITEMS.c
_PAGE_ROWS: Final = 500  # few enough that the loop stands still for some milliseconds only
_PAGE_NUMBERS: Final = 5_000  # the same, of two cells each
BEGUN: Final = or_(_ROW.state == State.ACTIVE, and_(_ROW.state == State.PLANNED, _ROW.owner.is_not(None)))
"""Which items an owner waits for, or has claimed before: its own, until another one waits for them."""


class Reader:
    """Reads the rows of a journal. Each call raises a `JournalError` when the journal can't be read.

    Args:
        database: The open database.
        clock: The wall clock, in seconds since the epoch: a number, or the database's own.
    """

    def __init__(self, database: Database, clock: Callable[[], Moment]) -> None:
        self._database = database
        self._clock = clock

    def now(self) -> Moment:
        """Return the time by the journal's clock."""
        return self._clock()

    def check_text(self, name: str, text: str) -> None:
        """Check that the journal can store a text of the user's.

        Raises:
            InvalidInputError: It contains NUL, and the journal is on PostgreSQL.
        """
        if "\0" in text and not self._database.backend.stores_nul:
            raise InvalidInputError(
                f"{name} contains NUL (U+0000), which PostgreSQL can't store: remove it, or use a journal in a file"
            )

    def conditions(self, where: Where | None) -> list[ColumnElement[bool]]:
        """Return what rows have to meet.

        Raises:
            InvalidInputError: `where` is no `Where`, or looks for a text that the journal can't store.
        """
        met = statements.conditions(where, self._clock())
        if where is not None and where.text is not None:
            self.check_text("text", where.text)
        return met

    async def page(
        self,
        after: int,
        *,
        state: State | str | None = None,
        until: int | None = None,
        size: int = _PAGE_ROWS,
        project: str | None = None,
        where: Where | None = None,
        newest: bool = False,
        max_tries: int | None = None,
    ) -> list[JournalRow]:
        """Return the next `size` rows above the number `after` and up to `until`; with `project`, those of it.

        With `where`, they meet its conditions; with `newest`, they were not tried again; with `max_tries`, they have
        had fewer tries.
        """
        met = [_ROW.number > after, *self.conditions(where)]
        met += [_ROW.state == State(state)] if state is not None else []
        met += [_ROW.number <= until] if until is not None else []
        met += [_ROW.project_id == project] if project is not None else []
        met += [_ROW.retried_as.is_(None)] if newest else []
        met += [func.coalesce(_ROW.tries, 1) < max_tries] if max_tries is not None else []
        return rows_of(await self._database.read(ROWS.where(*met).order_by(_ROW.number).limit(size)))

    async def count(self, where: Where) -> int:
        """Return how many items meet `where`; one that was planned again counts by its newest row."""
        met = self.conditions(where)
        found = await self._database.read(select(func.count()).where(*met, _ROW.retried_as.is_(None)))
        return legible(lambda: int(found[0][0]))

    async def get_many(self, keys: Sequence[str]) -> dict[str, JournalRow]:
        """Return the rows of some hundred keys, by key; keys that have none are left out."""
        return {row.key: row for row in rows_of(await self._database.read(ROWS.where(_ROW.key.in_(keys))))}

    async def newest(self, key: str) -> JournalRow | None:
        """Return the row of an item's newest try, by the key of any of its tries; `None` where no row has the key."""
        row: JournalRow | None = None
        wanted: str | None = key
        while wanted is not None and (found := (await self.get_many([wanted])).get(wanted)) is not None:
            row, wanted = found, found.retried_as
        return row

    async def numbered(self, numbers: Collection[int]) -> list[JournalRow]:
        """Return the rows of some hundred numbers, in their order; numbers without a row are left out."""
        return rows_of(await self._database.read(ROWS.where(_ROW.number.in_(numbers)).order_by(_ROW.number)))

    async def refusal(self, key: str) -> ResponseError | None:
        """Return the refusal with which the row of a key has ended; `None` where it has not ended so."""
        return refusal_of((await self._database.read(select(_ROW.refusal).where(_ROW.key == key)))[0].refusal)

    async def stamp(self) -> Stamp:
        """Return what changes when anything is written."""
        return await self._database.backend.stamp(self._database.read)

    async def changed(self, since: float, after: int) -> list[tuple[int, float]]:
        """Return number and time of the next rows above the number `after` that have changed since.

        Both times are in seconds since the epoch. Earlier tries are among the rows.
        """
        changed = select(_ROW.number, _ROW.changed_at).where(_ROW.changed_at >= since, _ROW.number > after)
        found = await self._database.read(changed.order_by(_ROW.number).limit(_PAGE_NUMBERS))
        return legible(lambda: [(int(row.number), float(row.changed_at)) for row in found])

    async def last_change(self) -> float:
        """Return when a row was changed last, in seconds since the epoch; 0 without any row."""
        found = await self._database.read(select(func.max(_ROW.changed_at)))
        return legible(lambda: float(found[0][0] or 0))

    async def unended(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return those of the keys whose rows have not ended, in the order of the rows."""
        unended = select(_ROW.key).where(_ROW.key.in_(keys), _ROW.state.not_in(sorted(ENDED)))
        return tuple(key for (key,) in await self._database.read(unended.order_by(_ROW.number)))

    async def counts(self) -> dict[State, int]:
        """Return how many items are in each state; one that was planned again counts by its newest row."""
        # Two parts, so that each is served by an index alone.
        rows = select(_ROW.state, func.count()).group_by(_ROW.state)
        retried = select(_ROW.state, -func.count()).where(_ROW.retried_as.is_not(None)).group_by(_ROW.state)
        found = await self._database.read(union_all(rows, retried))
        counts = Counter(dict.fromkeys(State, 0))
        legible(lambda: [counts.update({State(state): number}) for state, number in map(tuple, found)])
        return dict(counts)

    async def planned_projects(self, until: int) -> list[tuple[str, int]]:
        """Return the projects of planned rows up to the number `until`, each with the number of its first such row."""
        first = func.min(_ROW.number).label("first")
        planned = select(_ROW.project_id, first).where(_ROW.state == State.PLANNED, _ROW.number <= until)
        found = await self._database.read(planned.group_by(_ROW.project_id).order_by(first))
        return legible(lambda: [(text_of(row.project_id), row.first) for row in found])

    async def planned_counts(self) -> dict[str, int]:
        """Return the number of planned rows of each project."""
        planned = select(_ROW.project_id, func.count()).where(_ROW.state == State.PLANNED)
        found = await self._database.read(planned.group_by(_ROW.project_id))
        return legible(lambda: {text_of(project): number for project, number in map(tuple, found)})

    async def last_number(self) -> int:
        """Return the number of the last row; 0 without any."""
        return (await self._database.read(select(func.max(_ROW.number))))[0][0] or 0

    async def unowned(self, patience: float, after: int, most: int) -> list[tuple[int, str]]:
        """Return number and key of up to `most` items beyond the number `after` that no living owner waits for.

        Their owner has had no heartbeat for `patience` seconds, and they are active, or planned again after a claim.
        """
        dead = owner_is_dead(self._clock(), patience)
        left = select(_ROW.number, _ROW.key).where(_ROW.number > after, BEGUN, dead)
        return [(row.number, row.key) for row in await self._database.read(left.order_by(_ROW.number).limit(most))]

    async def identity(self) -> str:
        """Return the journal's identity, which no other journal has; a move takes it along."""
        return str((await self._database.read(select(JOURNAL.c.identity)))[0][0])

    async def service(self) -> str | None:
        """Return the service that the journal belongs to; `None` before its first run."""
        found = await self._database.read(select(JOURNAL.c.service))
        return legible(lambda: text_or_none(found[0].service))

    async def moves(self) -> dict[str, Move]:
        """Return the moves that the journal has recorded, by their directions."""
        return moves_of(await self._database.read(MOVES_RECORDED))

    async def limits(self) -> FleetLimits:
        """Return the limits of all owners of the journal."""
        found = await self._database.read(select(JOURNAL))
        return legible(lambda: limits_of(*found))

    async def owners(self) -> list[tuple[str, float]]:
        """Return the owners of a shared journal that have not left, and the seconds since their last heartbeats."""
        return [(row.owner, max(row.age, 0.0)) for row in await self._database.read(owners(self._clock()))]

    async def active_counts(self) -> dict[str, int]:
        """Return the number of active items of each owner."""
        active = select(_ROW.owner, func.count()).where(_ROW.state.in_([State.SENDING, State.ACTIVE]))
        return dict(map(tuple, await self._database.read(active.where(_ROW.owner.is_not(None)).group_by(_ROW.owner))))

    async def sent_ages(self, seconds: float, most: int) -> list[tuple[str, float]]:
        """Return the project and the age in seconds of the last `most` creates of each project, newest first.

        Left out are those older than `seconds`, and those whose time lies ahead: the clock was wrong.
        """
        moment = seconds_of(self._clock())
        sends = (
            select(table.c.project_id, table.c.sent_at).where(_is_within(table.c.sent_at, moment, seconds))
            for table in (ITEMS, SENDS)
        )
        return await self._ages(_ages_of_newest(union_all(*sends).subquery(), moment, most))

    async def unknown_ages(self, seconds: float, most: int) -> list[tuple[str, float]]:
        """Return the project and the age in seconds of the last `most` rows of each project that became unknown.

        The newest come first, and none is older than `seconds`.
        """
        moment = seconds_of(self._clock())
        became = _is_within(_ROW.updated_at, moment, seconds)
        unknown = select(_ROW.project_id, _ROW.updated_at).where(_ROW.state == State.UNKNOWN, became)
        return await self._ages(_ages_of_newest(unknown.subquery(), moment, most))

    async def active_silence(self) -> float | None:
        """Return the seconds since an active job was seen last, or its row changed; `None` where no job is active."""
        last = func.max(func.coalesce(_ROW.seen_at, _ROW.updated_at))
        silence = select((seconds_of(self._clock()) - last).label("age")).where(_ROW.state == State.ACTIVE)
        found = await self._database.read(silence)
        return legible(lambda: None if found[0].age is None else max(float(found[0].age), 0.0))

    async def silence(self) -> float | None:
        """Return the seconds since any job was seen last; `None` where none ever was."""
        silence = select((seconds_of(self._clock()) - func.max(_ROW.seen_at)).label("age"))
        found = await self._database.read(silence)
        return legible(lambda: None if found[0].age is None else max(float(found[0].age), 0.0))

    async def durations(self, most: int) -> list[tuple[str, float, int, bool]]:
        """Return project, seconds, polls and whether it has ended of the last `most` jobs, newest row first.

        The seconds go from the create to the end, or for a job that was given up while it was active, to when that was
        known last.
        """
        found = map(tuple, await self._database.read(_durations(most)))
        return legible(lambda: [(text_of(name), float(s), int(polls), bool(end)) for name, s, polls, end in found])

    async def paused_for(self) -> dict[str | None, float]:
        """Return for each paused project the seconds for which the server still wants no create of it."""
        moment, pause = seconds_of(self._clock()), PAUSES.c
        current = and_(pause.until > moment, pause.set_at < moment + SKEW_SECONDS)
        begun = case((pause.set_at > moment, pause.set_at), else_=moment)
        found = await self._database.read(select(pause.project, (pause.until - begun).label("left")).where(current))
        return legible(lambda: {text_or_none(row.project) or None: float(row.left) for row in found})

    async def _ages(self, statement: Select[Any]) -> list[tuple[str, float]]:
        found = await self._database.read(statement)
        return legible(lambda: [(text_of(row.project_id), max(float(row.age), 0.0)) for row in found])


def _is_within(time: ColumnElement[Any], moment: ColumnElement[float], seconds: float) -> ColumnElement[bool]:
    """Return whether a time lies within the last `seconds`; one that a clock recorded which was ahead is not known."""
    return and_(time > moment - seconds, time < moment + SKEW_SECONDS)


def _ages_of_newest(times: Subquery, moment: ColumnElement[float], most: int) -> Select[Any]:
    """Select project and age of the `most` newest of each project in `times`, whose columns are project and time."""
    project, time = times.c
    rank = func.row_number().over(partition_by=project, order_by=time.desc()).label("rank")
    ranked = select(project, (moment - time).label("age"), rank).subquery()
    return select(ranked.c.project_id, ranked.c.age).where(ranked.c.rank <= most).order_by(ranked.c.age)


def _durations(most: int) -> Select[Any]:
    ended = _ROW.state.in_([State.COMPLETED, State.FAILED, State.ARCHIVED])
    given_up = and_(_ROW.state.in_([State.ACTIVE, State.ABANDONED]), _ROW.error.is_not(None))
    only_seen = or_(_ROW.state == State.ABANDONED, _ROW.seen_at > _ROW.updated_at)  # a person may abandon it much later
    last_active = case((only_seen, _ROW.seen_at), else_=_ROW.updated_at)
    seconds: ColumnElement[Any] = case((ended, _ROW.ended_at), else_=last_active) - _ROW.created_at
    polls = func.coalesce(_ROW.polls, 0).label("polls")
    rows = select(_ROW.project_id, seconds.label("seconds"), polls, ended.label("ended"))
    return rows.where(or_(ended, given_up), seconds >= 0).order_by(_ROW.number.desc()).limit(most)
