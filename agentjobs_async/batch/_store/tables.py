"""The journal's table, and every statement that touches it."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    CompoundSelect,
    Delete,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    Numeric,
    Select,
    String,
    Subquery,
    Table,
    Text,
    TypeDecorator,
    Update,
    and_,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert as GenericInsert
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from agentjobs_async.batch.states import ENDED, RETRIED, State, origins

__all__ = [
    "APPLICATION",
    "ENTRIES",
    "METADATA",
    "SENDS",
    "VERSION",
    "Insert",
    "Moment",
    "claimed",
    "counts",
    "delete_old_sends",
    "interrupted",
    "keep_send",
    "last_number",
    "move",
    "nothing",
    "page",
    "paused_for",
    "paused_until",
    "plan",
    "planned_counts",
    "planned_projects",
    "record_error",
    "resolve",
    "sent_ages",
    "taken_back",
    "unended",
    "unknown_ages",
    "with_keys",
]

Insert = sqlite.Insert | postgresql.Insert
"""An insert of a dialect that can leave out what is there already."""
Moment = float | ColumnElement[float]
"""Seconds since the epoch: a number, or the database's own clock."""

APPLICATION: Final = 0x414A6F62
"""SQLite's `application_id` of a journal: "AJob"."""
VERSION: Final = 2
"""SQLite's `user_version` of a journal: the version of this schema."""

_ESCAPED: Final = {"\0": "\x1a0", "\x1a": "\x1a1"}
_PLAIN: Final = {escaped: plain for plain, escaped in _ESCAPED.items()}


class _AnyText(TypeDecorator[str]):
    """Text with any character; a NUL, which PostgreSQL can't store, is escaped there."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return re.sub("[\0\x1a]", lambda found: _ESCAPED[found[0]], value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return re.sub("\x1a[01]", lambda found: _PLAIN[found[0]], value)


METADATA: Final = MetaData()
_WITH_ID: Final = [State.CREATED, State.COMPLETED, State.ARCHIVED]
_WITHOUT_ID: Final = [state for state in State if state not in {*_WITH_ID, State.FAILED}]
_LONGEST_WINDOW_SECONDS: Final = 366 * 86_400.0  # no service counts creates for longer than a year
_SKEW_SECONDS: Final = 60.0  # by so much clocks are set back in daily life, which is no reason to forget anything


def _listed(states: Collection[State]) -> str:
    return ", ".join(f"'{state}'" for state in states)


ENTRIES: Final = Table(
    "agentjobs_entries",
    METADATA,
    Column("number", Integer().with_variant(BigInteger(), "postgresql"), primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("prompt", _AnyText, nullable=False),
    Column("project_id", String),
    Column("state", String, nullable=False),
    Column("job_id", String),
    Column("pr_link", Text),
    Column("error", _AnyText),
    Column("run", String),
    Column("owner", String),
    Column("claim", String),
    Column("sent_at", Float(53)),
    Column("updated_at", Float(53), nullable=False),
    CheckConstraint(f"state IN ({_listed(list(State))})", name="known_state"),
    # A failed row has no id when it was unknown and was abandoned.
    CheckConstraint(f"job_id IS NOT NULL OR state NOT IN ({_listed(_WITH_ID)})", name="id_when_created"),
    CheckConstraint(f"job_id IS NULL OR state NOT IN ({_listed(_WITHOUT_ID)})", name="no_id_before"),
    Index("agentjobs_entries_by_state", "state", "number"),
    Index("agentjobs_entries_by_sending", "sent_at"),
)
_ROW: Final = ENTRIES.c
SENDS: Final = Table(
    "agentjobs_sends",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("project_id", String),
    Column("sent_at", Float(53)),
    Index("agentjobs_sends_by_sending", "sent_at"),
)
"""When rows were sent that have been planned again since."""
_PAUSES: Final = Table(
    "agentjobs_pauses",
    METADATA,
    Column("project", String, primary_key=True),
    Column("set_at", Float(53), nullable=False),
    Column("until", Float(53), nullable=False),
)
"""Until when the service wanted no create of a project; the empty one is that of a session without a project."""


def plan(insert: Insert, mark: str, now: Moment) -> ReturningInsert[Any]:
    """Insert planned rows, and return them and the rows that are there already, which are only marked.

    Left out are rows of another prompt or project under the same key, and those that an earlier page of the same source
    has marked. Executed again, when its answer was lost, this finds its own mark and returns the same rows. It holds no
    value besides those of its columns, so that SQLAlchemy compiles it once for any number of rows.

    Args:
        insert: An insert into the entries.
        mark: The page: 32 characters that name the source, then anything.
        now: The time by the journal's clock.
    """
    planning = insert.values(state=State.PLANNED, run=mark, updated_at=now)
    given = planning.excluded
    unmarked = or_(_ROW.run.is_(None), _ROW.run == given.run, _source(_ROW.run) != _source(given.run))
    same_project = or_(_ROW.project_id.is_(None), given.project_id.is_(None), _ROW.project_id == given.project_id)
    return planning.on_conflict_do_update(
        index_elements=[_ROW.key],
        set_={"run": given.run},
        where=and_(unmarked, _ROW.prompt == given.prompt, same_project),
    ).returning(*ENTRIES.c)


def _source(mark: ColumnElement[Any]) -> ColumnElement[str]:
    return func.substr(mark, literal_column("1"), literal_column("32"), type_=String)


def claimed(key: str, claim: str, now: Moment, owner: str, project_id: str | None) -> ReturningUpdate[None, None, int]:
    """Make a planned row `sending`; with `project_id`, it keeps that as its project.

    Return no row when it is not planned, else (`wait`, `of_project`, `claimed`): seconds after which there may be room,
    or null; the only project that has none, null for all; how many rows were claimed.
    """
    repeated = and_(_ROW.state == State.SENDING, _ROW.claim == claim)  # its answer was lost
    claiming = update(ENTRIES).where(_ROW.key == key, or_(_ROW.state == State.PLANNED, repeated))
    values = {"claim": claim, "owner": owner, "sent_at": now, "updated_at": now, "error": None}
    project = {} if project_id is None else {"project_id": project_id}
    found = null().label("wait"), null().label("of_project"), literal(1).label("claimed")
    return claiming.values(state=State.SENDING, **values, **project).returning(*found)


def move(
    key: str,
    target: State,
    *,
    origin: State | None = None,
    claim: str | None = None,
    owner: str | None = None,
    **values: Any,
) -> Update:
    """Move a row to `target` from wherever it may come, or from `origin` only. Touches no row when that is not allowed.

    Args:
        key: The row's.
        target: Where to.
        origin: Where from; `None` from anywhere.
        claim: The claim that the row has to bear; `None` for any.
        owner: Who has to have claimed the row last; `None` for anybody.
        values: What changes beside the state.

    Raises:
        ValueError: No row may ever go from `origin` to `target`.
    """
    allowed = origins(target)
    if origin is not None:
        if origin not in allowed:
            raise ValueError(f"no row goes from {origin} to {target}")
        allowed = frozenset({origin})
    moving = update(ENTRIES).where(_ROW.key == key, _ROW.state.in_(sorted(allowed)))
    if claim is not None:
        moving = moving.where(_ROW.claim == claim)
    if owner is not None:
        moving = moving.where(_ROW.owner == owner)
    return moving.values(state=target, **values)


def interrupted(**values: Any) -> ReturningUpdate[Any]:
    """Make all rows unknown that an owner left while sending, and give their keys."""
    orphans = update(ENTRIES).where(_ROW.state == State.SENDING)
    return orphans.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def taken_back(claims: Mapping[str, str], **values: Any) -> ReturningUpdate[Any]:
    """Plan the rows again that bear one of these claims, under which nothing was sent; return (key, claim) of each.

    Args:
        claims: The keys of the rows, by claim.
        values: What changes beside the state.
    """
    borne = and_(_ROW.key.in_(set(claims.values())), _ROW.claim.in_(claims))
    taking = update(ENTRIES).where(borne, _ROW.state.in_([State.SENDING, State.UNKNOWN]))
    return taking.values(state=State.PLANNED, sent_at=None, error=None, **values).returning(_ROW.key, _ROW.claim)


def record_error(key: str, **values: Any) -> Update:
    """Change what is known about a row that has a job, without moving it."""
    return update(ENTRIES).where(_ROW.key == key, _ROW.state == State.CREATED).values(**values)


def page(
    after: int,
    size: int,
    *,
    state: State | None = None,
    until: int | None = None,
    project: tuple[str | None] | None = None,
) -> Select[Any]:
    """Select the next rows by number, of one state or of all, of one project or of all."""
    rows = select(ENTRIES).where(_ROW.number > after).order_by(_ROW.number).limit(size)
    if state is not None:
        rows = rows.where(_ROW.state == state)
    if project is not None:
        rows = rows.where(_ROW.project_id.is_not_distinct_from(project[0]))
    return rows if until is None else rows.where(_ROW.number <= until)


def planned_projects(until: int) -> Select[Any]:
    """Select (project, the number of its first row) of the planned rows up to the number `until`, in that order."""
    first = func.min(_ROW.number).label("first")
    planned = select(_ROW.project_id, first).where(_ROW.state == State.PLANNED, _ROW.number <= until)
    return planned.group_by(_ROW.project_id).order_by(first)


def planned_counts() -> Select[Any]:
    """Count the planned rows of each project."""
    return select(_ROW.project_id, func.count()).where(_ROW.state == State.PLANNED).group_by(_ROW.project_id)


def with_keys(keys: Collection[str]) -> Select[Any]:
    """Select rows by their keys."""
    return select(ENTRIES).where(_ROW.key.in_(keys))


def unended(keys: Collection[str]) -> Select[Any]:
    """Select those of the keys whose rows have not ended."""
    return select(_ROW.key).where(_ROW.key.in_(keys), _ROW.state.not_in(sorted(ENDED))).order_by(_ROW.number)


def nothing() -> Select[Any]:
    """Select no rows."""
    return select(_ROW.number).limit(0)


def counts() -> CompoundSelect[Any]:
    """Count the rows of each state, and, negative, those of them that were planned again: an item counts once."""
    again = ENTRIES.alias()
    tried_again = exists().where(again.c.key == _next_key(), again.c.prompt == _ROW.prompt)
    # Apart, so that the index alone serves the first part; of the second only what failed is read.
    outdated = select(_ROW.state, -func.count()).where(_ROW.state.in_(sorted(RETRIED)), tried_again)
    rows = select(_ROW.state, func.count())
    return union_all(rows.group_by(_ROW.state), outdated.group_by(_ROW.state))


def _next_key() -> ColumnElement[str]:
    """Return the key under which `Journal.retry` plans a row again: `key#2`, or the number at its end raised by one."""
    stem = func.rtrim(_ROW.key, "0123456789", type_=String)
    number = func.substr(_ROW.key, func.length(stem) + 1, type_=String)
    numbered = and_(number != "", func.substr(stem, func.length(stem)) == "#")
    raised = cast(cast(number, Numeric) + literal_column("1"), String)
    return case((numbered, stem.concat(raised)), else_=_ROW.key.concat("#2"))


def last_number() -> Select[Any]:
    """Return the highest number, or null."""
    return select(func.max(_ROW.number))


def sent_ages(now: Moment, seconds: float, most: int) -> Select[Any]:
    """Select (project, how many seconds ago) for the last creates of each project, newest first.

    Args:
        now: The time by the journal's clock.
        seconds: None older than that.
        most: No more of one project than that.
    """
    moment = _seconds(now)
    sends = union_all(
        *(
            select(table.c.project_id, table.c.sent_at).where(
                table.c.sent_at > moment - seconds,
                # By a clock that was ahead, which says nothing about when it was.
                table.c.sent_at < moment + _SKEW_SECONDS,
            )
            for table in (ENTRIES, SENDS)
        )
    ).subquery()
    return _ages_of_newest(sends, moment, most)


def keep_send(key: str) -> GenericInsert:
    """Copy when an unknown row was sent, which its next claim will overwrite.

    The row stays locked until the transaction has moved it: of two owners that resolve it at once, one copies its time.
    Executed again after the move, this finds no unknown row, and copies nothing.
    """
    unknown = select(_ROW.project_id, _ROW.sent_at).where(_ROW.key == key, _ROW.state == State.UNKNOWN)
    return insert(SENDS).from_select(["project_id", "sent_at"], unknown.with_for_update())


def resolve(key: str, target: State, resolution: str, **values: Any) -> Update:
    """Move an unknown row to `target`, and mark it with `resolution` in place of its claim.

    A row that bears this mark was moved by an earlier execution whose answer was lost, and counts as moved.
    """
    repeated = and_(_ROW.state == target, _ROW.claim == resolution)
    resolving = update(ENTRIES).where(_ROW.key == key, or_(_ROW.state == State.UNKNOWN, repeated))
    return resolving.values(state=target, claim=resolution, **values)


def delete_old_sends(now: Moment) -> Delete:
    """Delete the times of creates that no rate counts any more."""
    return delete(SENDS).where(SENDS.c.sent_at < _seconds(now) - _LONGEST_WINDOW_SECONDS)


def unknown_ages(now: Moment, seconds: float, most: int) -> Select[Any]:
    """Select (project, how many seconds ago) for the last rows of each project that became unknown, newest first.

    Args:
        now: The time by the journal's clock.
        seconds: None older than that.
        most: No more of one project than that.
    """
    moment = _seconds(now)
    within = and_(_ROW.updated_at > moment - seconds, _ROW.updated_at < moment + _SKEW_SECONDS)
    unknown = select(_ROW.project_id, _ROW.updated_at).where(_ROW.state == State.UNKNOWN, within).subquery()
    return _ages_of_newest(unknown, moment, most)


def _ages_of_newest(times: Subquery, moment: ColumnElement[float], most: int) -> Select[Any]:
    """Select (project, age) of the `most` newest of each project in `times`, whose columns are project and time."""
    project, time = times.c
    rank = func.row_number().over(partition_by=project, order_by=time.desc()).label("rank")
    ranked = select(project, (moment - time).label("age"), rank).subquery()
    return select(ranked.c.project_id, ranked.c.age).where(ranked.c.rank <= most).order_by(ranked.c.age)


def paused_until(table_insert: Insert, project: str, now: Moment, seconds: float) -> Insert:
    """Record that the service wants no create of a project for so long; a longer pause stands.

    One that was recorded by a clock that was ahead does not stand.
    """
    moment = _seconds(now)
    new = type(table_insert)(_PAUSES).values(project=project, set_at=moment, until=moment + seconds)
    column, given = _PAUSES.c, new.excluded
    stands = and_(column.set_at < given.set_at + _SKEW_SECONDS, column.until > given.until)
    until = case((stands, column.until), else_=given.until)
    return new.on_conflict_do_update(index_elements=[column.project], set_={"set_at": given.set_at, "until": until})


def paused_for(now: Moment) -> Select[Any]:
    """Select (project, for how many seconds the service still wants no create of it)."""
    moment, pause = _seconds(now), _PAUSES.c
    current = and_(pause.until > moment, pause.set_at < moment + _SKEW_SECONDS)
    begun = case((pause.set_at > moment, pause.set_at), else_=moment)
    return select(pause.project, (pause.until - begun).label("left")).where(current)


def _seconds(moment: Moment) -> ColumnElement[float]:
    return moment if isinstance(moment, ColumnElement) else literal(moment, Float(53))
