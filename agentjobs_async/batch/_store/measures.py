"""What is measured and listed of a journal beside its rows: counts, ages, durations, owners, changes."""

from collections import Counter
from typing import Any, Final

from attrs import frozen
from sqlalchemy import ColumnElement, Select, Subquery, and_, case, func, literal_column, or_, select, true, union_all

from agentjobs_async.batch._database.schema import ITEMS, SENDS, SKEW_SECONDS, TRIES, seconds_of
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import legible, text_of
from agentjobs_async.batch._store.statements import owners as owners_of
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import State

_ROW: Final = ITEMS.c
_PAGE_NUMBERS: Final = 5_000  # few enough that the loop stands still for some milliseconds only


async def changed(store: Store, since: float, after: int) -> list[tuple[int, float]]:
    """Return number and time of the next rows above the number `after` that have changed since.

    Both times are in seconds since the epoch.
    """
    changed = select(_ROW.number, _ROW.changed_at).where(_ROW.changed_at >= since, _ROW.number > after)
    found = await store.read(changed.order_by(_ROW.number).limit(_PAGE_NUMBERS))
    return legible(lambda: [(int(row.number), float(row.changed_at)) for row in found])


async def last_change(store: Store) -> float:
    """Return when a row was changed last, in seconds since the epoch; 0 without any row."""
    found = await store.read(select(func.max(_ROW.changed_at)))
    return legible(lambda: float(found[0][0] or 0))


@frozen
class Activity:
    """When a journal was worked on.

    Attributes:
        seconds: From the first create that was sent to the last end of an item; `None` before the first end.
        silent_for: Seconds since the last sign of a run: a create, a poll, or the end of an item; `None` without any.
    """

    seconds: float | None = None
    silent_for: float | None = None


async def activity(store: Store) -> Activity:
    """Return when a journal was worked on, by the present tries of its items; what a person did does not count."""
    ended_at = case((_ROW.state != State.ABANDONED, _ROW.ended_at))
    ends = func.max(ended_at) - func.min(_ROW.sent_at)
    last = [func.max(time) for time in (_ROW.sent_at, _ROW.created_at, _ROW.seen_at, ended_at)]
    ages = [store.now_column() - time for time in last]
    found = (await store.read(select(ends.label("ends"), *ages)))[0]
    return legible(lambda: _activity(*found))


def _activity(ends: Any, *ages: Any) -> Activity:
    known = [max(float(age), 0.0) for age in ages if age is not None]
    return Activity(None if ends is None else max(float(ends), 0.0), min(known, default=None))


async def last_number(store: Store) -> int:
    """Return the number of the last row; 0 without any."""
    return (await store.read(select(func.max(_ROW.number))))[0][0] or 0


async def last_try(store: Store) -> int:
    """Return the number of the earlier try that was kept last; 0 without any."""
    return (await store.read(select(func.max(TRIES.c.number))))[0][0] or 0


async def counts(store: Store, query: Query | None = None) -> dict[State, int]:
    """Return how many items are in each state, of those that meet `query` where there is one."""
    counting = select(_ROW.state, func.count()).group_by(_ROW.state)
    found = await store.read(counting if query is None else counting.where(store.conditions(query)))
    counted = Counter(dict.fromkeys(State, 0))
    legible(lambda: [counted.update({State(state): number}) for state, number in map(tuple, found)])
    return dict(counted)


async def planned_projects(store: Store, query: Query) -> list[tuple[str, int, int]]:
    """Return the projects of planned rows that meet `query`: the number of the first such row, and how many there are.

    They come in the order of their first rows.
    """
    first = func.min(_ROW.number).label("first")
    planned = select(_ROW.project_id, first, func.count().label("rows")).where(_ROW.state == State.PLANNED)
    found = await store.read(planned.where(store.conditions(query)).group_by(_ROW.project_id).order_by(first))
    return legible(lambda: [(text_of(row.project_id), row.first, row.rows) for row in found])


async def owners(store: Store) -> list[tuple[str, float]]:
    """Return the owners of a shared journal that have not left, and the seconds since their last heartbeats."""
    return [(row.owner, max(row.age, 0.0)) for row in await store.read(owners_of(store.now()))]


async def active_counts(store: Store) -> dict[str, int]:
    """Return the number of active items of each owner."""
    active = select(_ROW.owner, func.count()).where(_ROW.state.in_([State.SENDING, State.ACTIVE]))
    return dict(map(tuple, await store.read(active.where(_ROW.owner.is_not(None)).group_by(_ROW.owner))))


async def sent_ages(store: Store, seconds: float, most: int) -> list[tuple[str, float]]:
    """Return the project and the age in seconds of the last `most` creates of each project, newest first.

    Left out are those older than `seconds`, and those whose time lies ahead: the clock was wrong.
    """
    moment = seconds_of(store.now())
    sends = (
        select(table.c.project_id, table.c.counted_at).where(_is_within(table.c.counted_at, moment, seconds))
        for table in (ITEMS, SENDS)
    )
    return await _ages(store, _ages_of_newest(union_all(*sends).subquery(), moment, most))


async def unknown_ages(store: Store, seconds: float | None, most: int) -> list[tuple[str, float]]:
    """Return the project and the age in seconds of the last `most` rows of each project that became unknown.

    The newest come first, and none is older than `seconds`; `None` for any age.
    """
    moment = seconds_of(store.now())
    became = true() if seconds is None else _is_within(_ROW.updated_at, moment, seconds)
    unknown = select(_ROW.project_id, _ROW.updated_at).where(_ROW.state == State.UNKNOWN, became)
    return await _ages(store, _ages_of_newest(unknown.subquery(), moment, most))


async def durations(store: Store, most: int) -> list[tuple[str, float, int, bool]]:
    """Return project, seconds, polls and whether it has ended of the last `most` jobs, newest row first.

    The seconds go from the create to the end, or for a job that was given up while it was active, to when that was
    known last.
    """
    found = map(tuple, await store.read(_durations(most)))
    return legible(lambda: [(text_of(name), float(s), int(polls), bool(end)) for name, s, polls, end in found])


async def _ages(store: Store, statement: Select[Any]) -> list[tuple[str, float]]:
    found = await store.read(statement)
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
    # No index has this: the newest rows are read until there are enough, and not all that an index of states has.
    state = _ROW.state.concat(literal_column("''"))
    ended = state.in_([State.COMPLETED, State.FAILED, State.ARCHIVED])
    given_up = and_(state.in_([State.ACTIVE, State.ABANDONED]), _ROW.error.is_not(None))
    only_seen = or_(_ROW.state == State.ABANDONED, _ROW.seen_at > _ROW.updated_at)  # a person may abandon it much later
    last_active = case((only_seen, _ROW.seen_at), else_=_ROW.updated_at)
    seconds: ColumnElement[Any] = case((ended, _ROW.ended_at), else_=last_active) - _ROW.created_at
    rows = select(_ROW.project_id, seconds.label("seconds"), _ROW.polls, ended.label("ended"))
    return rows.where(or_(ended, given_up), seconds >= 0).order_by(_ROW.number.desc()).limit(most)
