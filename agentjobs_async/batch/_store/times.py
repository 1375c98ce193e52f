"""Statements about times: when creates were sent or became unknown, and until when the server asked for none."""

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Delete,
    Select,
    Subquery,
    and_,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    union_all,
)
from sqlalchemy.sql.dml import Insert as GenericInsert

from agentjobs_async.batch._store.connections import Insert
from agentjobs_async.batch._store.schema import ENTRIES, PAUSES, SENDS, Moment, seconds_of
from agentjobs_async.batch.states import State

_LONGEST_WINDOW_SECONDS: Final = 366 * 86_400.0  # no service counts creates for longer than a year
_SKEW_SECONDS: Final = 60.0  # clocks are set back by as much in daily life; a time further ahead is ignored

_ROW: Final = ENTRIES.c


def sent_ages(now: Moment, seconds: float, most: int) -> Select[Any]:
    """Select the project and the age in seconds of the last creates of each project, newest first.

    Args:
        now: The time by the journal's clock.
        seconds: The greatest age.
        most: The largest number for one project.
    """
    moment = seconds_of(now)
    sends = union_all(
        *(
            select(table.c.project_id, table.c.sent_at).where(
                table.c.sent_at > moment - seconds,
                # A later time was recorded by a clock that was ahead: the real one is not known.
                table.c.sent_at < moment + _SKEW_SECONDS,
            )
            for table in (ENTRIES, SENDS)
        )
    ).subquery()
    return _ages_of_newest(sends, moment, most)


def durations(most: int) -> Select[Any]:
    """Select the project, the seconds, the polls and whether it has ended of the last `most` jobs, newest row first.

    The seconds go from the create to the end, or for a job that was given up while it was active, to when that was
    known last.
    """
    ended = _ROW.state.in_([State.COMPLETED, State.FAILED, State.ARCHIVED])
    given_up = and_(_ROW.state.in_([State.ACTIVE, State.ABANDONED]), _ROW.error.is_not(None))
    only_seen = or_(_ROW.state == State.ABANDONED, _ROW.seen_at > _ROW.updated_at)  # a person may abandon it much later
    last_active = case((only_seen, _ROW.seen_at), else_=_ROW.updated_at)
    seconds: ColumnElement[Any] = case((ended, _ROW.ended_at), else_=last_active) - _ROW.created_at
    polls = func.coalesce(_ROW.polls, 0).label("polls")
    rows = select(_ROW.project_id, seconds.label("seconds"), polls, ended.label("ended"))
    return rows.where(or_(ended, given_up), seconds >= 0).order_by(_ROW.number.desc()).limit(most)


def active_ages(now: Moment, seconds: float, most: int) -> Select[Any]:
    """Select the project and the age in seconds of up to `most` active jobs that were seen in the last `seconds`."""
    moment = seconds_of(now)
    age = (moment - _ROW.created_at).label("age")
    seen = and_(_ROW.state == State.ACTIVE, _ROW.created_at.is_not(None), _ROW.seen_at > moment - seconds)
    return select(_ROW.project_id, age).where(seen).order_by(_ROW.number).limit(most)


def active_silence(now: Moment) -> Select[Any]:
    """Select the seconds since an active job was seen last, or its row changed; null where no job is active."""
    last = func.max(func.coalesce(_ROW.seen_at, _ROW.updated_at))
    return select((seconds_of(now) - last).label("age")).where(_ROW.state == State.ACTIVE)


def unknown_ages(now: Moment, seconds: float, most: int) -> Select[Any]:
    """Select the project and the age in seconds of the last rows of each project that became unknown, newest first.

    Args:
        now: The time by the journal's clock.
        seconds: The greatest age.
        most: The largest number for one project.
    """
    moment = seconds_of(now)
    within = and_(_ROW.updated_at > moment - seconds, _ROW.updated_at < moment + _SKEW_SECONDS)
    unknown = select(_ROW.project_id, _ROW.updated_at).where(_ROW.state == State.UNKNOWN, within).subquery()
    return _ages_of_newest(unknown, moment, most)


def _ages_of_newest(times: Subquery, moment: ColumnElement[float], most: int) -> Select[Any]:
    """Select project and age of the `most` newest of each project in `times`, whose columns are project and time."""
    project, time = times.c
    rank = func.row_number().over(partition_by=project, order_by=time.desc()).label("rank")
    ranked = select(project, (moment - time).label("age"), rank).subquery()
    return select(ranked.c.project_id, ranked.c.age).where(ranked.c.rank <= most).order_by(ranked.c.age)


def recent_ends(now: Moment, seconds: float) -> Select[Any]:
    """Select how many rows ended within `seconds`, none by a person, and the age in seconds of the first of these."""
    moment = seconds_of(now)
    within = and_(_ROW.ended_at > moment - seconds, _ROW.ended_at < moment + _SKEW_SECONDS)
    age: ColumnElement[Any] = (moment - func.min(_ROW.ended_at)).label("age")
    return select(func.count().label("ended"), age).where(within, _ROW.state != State.ABANDONED)


def keep_send(key: str) -> GenericInsert:
    """Copy the time at which an unknown row was sent: its next claim will overwrite it.

    The row stays locked until the transaction has moved it: of two owners that resolve it at once, one copies its time.
    Executed again after the move, this finds no unknown row, and copies nothing.
    """
    unknown = select(_ROW.project_id, _ROW.sent_at).where(_ROW.key == key, _ROW.state == State.UNKNOWN)
    return insert(SENDS).from_select(["project_id", "sent_at"], unknown.with_for_update())


def delete_old_sends(now: Moment) -> Delete:
    """Delete the times of creates that no rate counts any more."""
    return delete(SENDS).where(SENDS.c.sent_at < seconds_of(now) - _LONGEST_WINDOW_SECONDS)


def upsert_pause(insert_pause: Insert, project: str, now: Moment, seconds: float) -> Insert:
    """Record that the server asked for no create of a project for `seconds`.

    A longer pause stands, unless a clock recorded it that was ahead.
    """
    moment = seconds_of(now)
    new = insert_pause.values(project=project, set_at=moment, until=moment + seconds, times=1, seconds=seconds)
    column, given = PAUSES.c, new.excluded
    trusted = column.set_at < given.set_at + _SKEW_SECONDS
    until = case((and_(trusted, column.until > given.until), column.until), else_=given.until)
    goes_on = and_(trusted, column.until > given.set_at)  # 429s of creates in flight together are one pause
    longer = case((goes_on, until - column.until), else_=given.seconds)
    changed = {"times": column.times + case((goes_on, 0), else_=1), "seconds": column.seconds + longer}
    return new.on_conflict_do_update(
        index_elements=[column.project], set_={"set_at": given.set_at, "until": until, **changed}
    )


def pauses() -> Select[Any]:
    """Select how often the service asked for no create of a project, and for how many seconds, over all projects."""
    times = func.coalesce(func.sum(PAUSES.c.times), 0).label("times")
    seconds: ColumnElement[Any] = func.coalesce(func.sum(PAUSES.c.seconds), 0.0).label("seconds")
    return select(times, seconds)


def paused_for(now: Moment) -> Select[Any]:
    """Select each paused project, and the seconds for which the server still wants no create of it."""
    moment, pause = seconds_of(now), PAUSES.c
    current = and_(pause.until > moment, pause.set_at < moment + _SKEW_SECONDS)
    begun = case((pause.set_at > moment, pause.set_at), else_=moment)
    return select(pause.project, (pause.until - begun).label("left")).where(current)
