"""The statements that are built once, or used in several places. Executed twice, each has its effect once."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from agentjobs_async._validation import checked_instance
from agentjobs_async.batch._store.connections import Insert
from agentjobs_async.batch._store.schema import ITEMS, MOVES, OWNERS, SENDS, SHOWN, Moment, seconds_of
from agentjobs_async.batch.states import State, origins
from agentjobs_async.batch.where import Where

_ROW: Final = ITEMS.c
_LONGEST_WINDOW_SECONDS: Final = 366 * 86_400.0  # no service counts creates for longer than a year
ROWS: Final = select(*SHOWN)
"""Select rows of items, each of which makes a `JournalRow`."""
MOVES_RECORDED: Final = select(MOVES.c.direction, MOVES.c.move_id, MOVES.c.location, MOVES.c.ended)
"""Select the moves that a journal records: at most one `to` a location, and at most one `from` one."""
FOLLOWED_AGAIN: Final = case((_ROW.told_state.is_not(None), ""))
"""What `told_state` becomes where a row is planned again: who unfollowed a durable job before has seen another end.

A planned durable job is always followed: nobody else sends it.
"""


@cache
def planning(insert: Callable[[Table], Insert], clock: ColumnElement[float] | None) -> ReturningInsert[Any]:
    """Return `plan` for rows that have all their values, but for the times where a server's clock sets them.

    It is built once: building it costs more than executing it.
    """
    return plan(insert(ITEMS), {} if clock is None else planned_times(clock))


def planned_times(now: Moment) -> dict[str, Moment]:
    """Return the columns that hold the time at which a row is planned."""
    return dict.fromkeys(("planned_at", "updated_at", "changed_at"), now)


def plan(
    insert: Insert,
    values: Mapping[str, Any],
    *,
    updated: Mapping[str, Any] = MappingProxyType({}),
    returned: Sequence[ColumnElement[Any]] = (),
) -> ReturningInsert[Any]:
    """Insert planned rows, and return them and the rows that are there already, which only get a new page.

    Left out are rows of another prompt or project under the same key, and those of an earlier page of the same source.
    Executed again, when its answer was lost, this finds rows of its own page and returns the same rows. It holds no
    value besides those of its columns, so that SQLAlchemy compiles it once for any number of rows.

    Args:
        insert: An insert into `ITEMS`.
        values: Columns of all new rows. `page` is the id of a page: 32 characters that name the source, then anything.
        updated: Other columns that change in rows that are there.
        returned: What is returned besides the rows.
    """
    # The state as a literal: a parameter would be one more for each row.
    planned = insert.values(state=literal_column(f"'{State.PLANNED}'"), **values)
    given = planned.excluded
    is_first = or_(_ROW.page.is_(None), _ROW.page == given.page, _source(_ROW.page) != _source(given.page))
    return planned.on_conflict_do_update(
        index_elements=[_ROW.key],
        set_={"page": given.page, **updated},
        where=and_(is_first, _ROW.prompt == given.prompt, _ROW.project_id == given.project_id),
    ).returning(*SHOWN, *returned)


def _source(page: ColumnElement[Any]) -> ColumnElement[str]:
    return func.substr(page, literal_column("1"), literal_column("32"), type_=String)


def move(
    key: str,
    target: State,
    *,
    origin: State | None = None,
    claim: str | None = None,
    of_job: str | None = None,
    **values: Any,
) -> tuple[ReturningUpdate[Any], dict[str, Any]]:
    """Move a row to `target` where the table of moves allows it, and return it as it is then; touch none otherwise.

    Return the statement and its parameters.

    Args:
        key: The row's key.
        target: The new state.
        origin: The state that the row has to be in; `None` for every state from which a row may come to `target`.
        claim: The claim that the row must have; `None` for any.
        of_job: The job that the row has to have; `None` for any. A resolution may have corrected it meanwhile.
        values: The other columns that change.

    Raises:
        ValueError: No row may ever go from `origin` to `target`.
    """
    wanted = {"claim": claim, "job_id": of_job}
    required = {name: value for name, value in wanted.items() if value is not None}
    timed = {name: value for name, value in values.items() if isinstance(value, ColumnElement)}  # by a server's clock
    plain = {name: value for name, value in values.items() if name not in timed}
    moving = _moving(target, origin, tuple(required), tuple(plain), tuple(timed.items()))
    parameters = {f"its_{name}": value for name, value in {"key": key, **required}.items()}
    parameters |= {f"new_{name}": value for name, value in plain.items()}
    return moving, parameters


@cache
def _moving(
    target: State,
    origin: State | None,
    required: tuple[str, ...],
    changed: tuple[str, ...],
    timed: tuple[tuple[str, ColumnElement[Any]], ...],
) -> ReturningUpdate[Any]:
    """Return the statement of a move. It is built once: building it costs more than executing it on SQLite."""
    allowed = origins(target)
    if origin is not None:
        if origin not in allowed:
            raise ValueError(f"no row moves from {origin} to {target}")
        allowed = frozenset({origin})
    # No index has this, so that the row is found by its key: to old statistics, the index of states may look as good.
    state = _ROW.state.concat(literal_column("''"))
    moving = update(ITEMS).where(state.in_([literal_column(f"'{origin}'") for origin in sorted(allowed)]))
    moving = moving.where(*(_ROW[name] == bindparam(f"its_{name}") for name in ("key", *required)))
    new = {name: bindparam(f"new_{name}", type_=_ROW[name].type) for name in changed}
    return moving.values(state=literal_column(f"'{target}'"), **new, **dict(timed)).returning(*SHOWN)


def sending_to_unknown(*conditions: ColumnElement[bool], **values: Any) -> ReturningUpdate[Any]:
    """Make the rows unknown that are sending and meet all conditions, since their owner ended; return their keys."""
    rows = update(ITEMS).where(_ROW.state == State.SENDING, *conditions)
    return rows.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def record_sends(sent: Select[Any], now: Moment) -> tuple[Executable, Executable]:
    """Return what records project and time of a create that was sent, and deletes times that no rate counts any more.

    The next claim of the row will overwrite its time, and a rate has to count both creates, each once: so this belongs
    into the transaction that plans the row again. The row stays locked until then: of two owners that move it at once,
    one records its time. Executed again after the move, this finds no such row, and records nothing.
    """
    recording = insert(SENDS).from_select(["project_id", "sent_at"], sent.with_for_update())
    return recording, delete(SENDS).where(SENDS.c.sent_at < seconds_of(now) - _LONGEST_WINDOW_SECONDS)


def unknown_send(key: str) -> Select[Any]:
    """Select project and time of the create of an unknown row."""
    return select(_ROW.project_id, _ROW.sent_at).where(_ROW.key == key, _ROW.state == State.UNKNOWN)


def refused_send(key: str, claim: str, now: Moment) -> Select[Any]:
    """Select the project of a create that the server has refused, and the present time."""
    is_claimed = and_(_ROW.claim == claim, _ROW.state.in_([State.SENDING, State.UNKNOWN]))
    return select(_ROW.project_id, seconds_of(now)).where(_ROW.key == key, is_claimed)


def conditions(where: Where | None, now: Moment) -> list[ColumnElement[bool]]:
    """Return what rows have to meet.

    Raises:
        InvalidInputError: `where` is no `Where`.
    """
    if where is None:
        return []
    checked_instance("where", where, Where)
    found: list[ColumnElement[bool]] = []
    if where.states is not None:
        found.append(_ROW.state.in_(sorted(where.states)))
    if where.project is not None:
        found.append(_ROW.project_id == where.project)
    if where.text is not None:
        # What `replace` changes holds the text: both databases have it, and in both it tells cases apart, as LIKE does
        # on one of them only.
        columns = (_ROW.key, _ROW.prompt, _ROW.error)
        found.append(or_(*(func.replace(column, literal(where.text), "") != column for column in columns)))
    if where.older_than is not None:
        found.append(_ROW.updated_at < seconds_of(now) - where.older_than)
    return found


def owners(now: Moment) -> Select[Any]:
    """Select the owners of a shared journal that have not left, and the seconds since their last heartbeats."""
    return select(OWNERS.c.owner, (now - OWNERS.c.seen_at).label("age")).order_by(OWNERS.c.owner)


def owner_is_dead(now: Moment, patience: float) -> ColumnElement[bool]:
    """Return whether a row's owner has left, or has had no heartbeat for `patience` seconds."""
    known = select(OWNERS.c.owner).where(OWNERS.c.owner == _ROW.owner)
    silent = and_(~known.where(OWNERS.c.seen_at >= now - patience).exists(), server_is_up_for(patience))
    return or_(silent, ~known.exists())


def server_is_up_for(seconds: float) -> ColumnElement[bool]:
    """Return whether the server has run for so long. A server that was down recorded no heartbeat."""
    return func.date_part("epoch", func.clock_timestamp() - func.pg_postmaster_start_time()) >= seconds
