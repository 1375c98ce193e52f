"""The statements that are built once, or used in several places. Executed twice, each has its effect once."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    Float,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from agentjobs_async.batch._database.connections import Insert
from agentjobs_async.batch._database.schema import (
    ITEMS,
    OF_A_TRY,
    OWNERS,
    SENDS,
    SHOWN,
    TRIES,
    Follow,
    Moment,
    seconds_of,
)
from agentjobs_async.batch.states import Move, State

_ROW: Final = ITEMS.c
_LONGEST_WINDOW_SECONDS: Final = 366 * 86_400.0  # no service counts creates for longer than a year
_EACH_CHANGE: Final = frozenset({"updated_at", "changed_at"})
ROWS: Final = select(*SHOWN)
"""Select rows of items, each of which makes a `JournalRow`."""
_TRIES_SHOWN: Final = {"tries": TRIES.c.try_number} | {name: TRIES.c[name] for name in OF_A_TRY}
EARLIER: Final = select(*(_TRIES_SHOWN.get(column.name, column) for column in SHOWN)).where(TRIES.c.item == _ROW.number)
"""Select earlier tries, each of which makes a `JournalRow` of its item as it was."""


@cache
def planning(insert: Callable[[Table], Insert], clock: ColumnElement[float] | None) -> ReturningInsert[Any]:
    """Return `plan` for rows that have all their values, but for the times where a server's clock sets them.

    It is built once: building it costs more than executing it.
    """
    return plan(insert(ITEMS), {} if clock is None else planned_times(clock))


def planned_times(now: Moment) -> dict[str, Moment]:
    """Return the columns that hold the time at which a row is planned."""
    return dict.fromkeys(("planned_at", *sorted(_EACH_CHANGE)), now)


def plan(
    insert: Insert,
    values: Mapping[str, Any],
    *,
    updated: Mapping[str, Any] = MappingProxyType({}),
    returned: Sequence[ColumnElement[Any]] = (),
    condition: ColumnElement[bool] | None = None,
) -> ReturningInsert[Any]:
    """Insert planned rows, and return them and the rows that are there already, which only get a new page.

    Left out are rows of another prompt, project, extra or user under the same key, and those of an earlier page of the
    same source.
    Executed again, when its answer was lost, this finds rows of its own page and returns the same rows. It holds no
    value besides those of its columns, so that SQLAlchemy compiles it once for any number of rows.

    Args:
        insert: An insert into `ITEMS`.
        values: Columns of all new rows. `page` is the id of a page: 32 characters that name the source, then anything.
        updated: Other columns that change in rows that are there.
        returned: What is returned besides the rows.
        condition: What must be true, or else nothing is done; `None` for no such condition. With it, the insert is of
            one row, and `values` are all of its columns.
    """
    # The state as a literal: a parameter would be one more for each row.
    values = {"state": literal_column(f"'{State.PLANNED}'"), **values}
    planned = insert.values(**values) if condition is None else _from_select(insert, values, condition)
    given = planned.excluded
    # An extra that is not among the columns is null: `=` would never find it the same.
    is_same = and_(
        _ROW.prompt == given.prompt,
        _ROW.project_id == given.project_id,
        _ROW.extra.is_not_distinct_from(given.extra),
        or_(given.user_id.is_(None), _ROW.user_id.is_(None), _ROW.user_id == given.user_id),
    )
    is_first = or_(_ROW.page.is_(None), _ROW.page == given.page, _source(_ROW.page) != _source(given.page))
    return planned.on_conflict_do_update(
        index_elements=[_ROW.key],
        set_={"page": given.page, **updated},
        where=and_(is_first, is_same),
    ).returning(*SHOWN, *returned)


def _from_select(insert: Insert, values: Mapping[str, Any], condition: ColumnElement[bool]) -> Insert:
    """Return an insert of one row, if `condition` is true as the statement is executed."""
    cells = [cast(value, _ROW[name].type).label(name) for name, value in values.items()]
    return insert.from_select(list(values), select(*cells).where(condition))


def _source(page: ColumnElement[Any]) -> ColumnElement[str]:
    return func.substr(page, literal_column("1"), literal_column("32"), type_=String)


@cache
def moving(
    move: Move, target: State, origin: State | None, given: frozenset[str], clock: ColumnElement[float] | None
) -> ReturningUpdate[Any]:
    """Return the statement that makes a move of the row of one key, and returns the row as it is then.

    It touches no row where the move may not be made. Executed again, when its answer was lost, it finds what it did by
    the id of the change. It is built once: building it costs more than executing it on SQLite. Its parameters are
    `its_key`, `its_change`, `its_mover`, `its_time` unless the database's `clock` tells it, `its_COLUMN` for what the
    row must match, and `new_COLUMN` for each of `given`.

    Raises:
        ValueError: The move does not begin in `origin`, or does not lead to `target`.
    """
    if target not in move.targets or (origin is not None and origin not in move.origins):
        raise ValueError(f"the move {move.name} does not lead from {origin} to {target}")
    # No index has this, so that the row is found by its key: to old statistics, the index of states may look as good.
    state = _ROW.state.concat(literal_column("''"))
    allowed = state.in_([literal_column(f"'{name}'") for name in sorted(move.origins if origin is None else [origin])])
    met = [_matched(name) for name in sorted(move.matches - {"state", *_NO_COLUMNS})]
    is_repeated = _ROW.change == bindparam("its_change")
    rows = update(ITEMS).where(
        _ROW.key == bindparam("its_key"), or_(and_(allowed, *met, *met_by_itself(move)), is_repeated)
    )
    now = bindparam("its_time", type_=Float(53)) if clock is None else clock
    new = {name: bindparam(f"new_{name}", type_=_ROW[name].type) for name in given}
    changed = _changed(move, target, now, bindparam("its_change"), bindparam("its_mover"))
    return rows.values(changed | new).returning(*SHOWN)


def moving_all(
    move: Move,
    which: ColumnElement[bool],
    conditions: Iterable[ColumnElement[bool]],
    now: Moment,
    change: str,
    mover: str,
    **new: Any,
) -> ReturningUpdate[Any]:
    """Return the statement that makes a move of many rows, and returns them as they are then.

    Executed again, it finds what it did, as that of `moving`.

    Args:
        move: A move of one target.
        which: Names the rows, by an index, and holds of them after the move, too.
        conditions: What they must meet besides it, before the move.
        now: The time by the journal's clock.
        change: The id of the change.
        mover: Who makes it.
        new: Columns that change besides those of the move.
    """
    met = and_(in_states(move.origins), *met_by_itself(move), *conditions)
    rows = update(ITEMS).where(which, or_(met, _ROW.change == change))
    return rows.values(_changed(move, move.target, now, change, mover) | new).returning(*SHOWN)


_NO_COLUMNS: Final = {
    "settled": _ROW.settled_at.is_not(None),
    "sent_once": or_(_ROW.idempotency_key.is_(None), _ROW.idempotency_key == _ROW.claim),
    "repeated": _ROW.idempotency_key != _ROW.claim,
}
"""What a row must match that is no column: the key of a create is the claim of its first POST."""


def met_by_itself(move: Move) -> list[ColumnElement[bool]]:
    """Return what a row must meet for a move, whatever its caller gives."""
    return [_NO_COLUMNS[name] for name in sorted(move.matches & _NO_COLUMNS.keys())]


def _matched(name: str) -> ColumnElement[bool]:
    return _ROW[name].is_not_distinct_from(bindparam(f"its_{name}", type_=_ROW[name].type))


def _changed(move: Move, target: State, now: Any, change: Any, mover: Any) -> dict[str, Any]:
    """Return the columns that a move changes, besides those that its caller gives."""
    values: dict[str, Any] = dict.fromkeys(sorted(move.clears), null())
    values |= dict.fromkeys(sorted(move.times | _EACH_CHANGE), now)
    values |= {
        "state": literal_column(f"'{target}'"),
        "change": change,
        "revision": _ROW.revision + literal_column("1"),
        "is_noticed": func.coalesce(_ROW.follower == mover, literal_column("false")),
    }
    if target is State.PLANNED:  # whoever unfollowed a durable job did so before this try
        followed = literal_column(f"'{Follow.YES}'", String)
        values["follow"] = case((_ROW.follow == literal_column(f"'{Follow.UNFOLLOWED}'"), followed), else_=_ROW.follow)
    if move.begins_try:
        is_repeated = _ROW.change == change  # an earlier execution has counted it
        values["tries"] = case((is_repeated, _ROW.tries), else_=_ROW.tries + literal_column("1"))
        values["polls"] = literal_column("0")
    return values


def before(
    move: Move, conditions: Sequence[ColumnElement[bool]], now: Moment, *, sent_now: bool = False
) -> tuple[Executable, ...]:
    """Return what has to come before a move that plans rows again, in the same transaction.

    Args:
        move: The move.
        conditions: Which rows.
        now: The time by the journal's clock.
        sent_now: As of `counting_sends`.
    """
    tries = (keeping_tries(conditions),) if move.begins_try else ()
    return (*tries, *counting_sends(conditions, now, sent_now=sent_now))


def keeping_tries(conditions: Iterable[ColumnElement[bool]]) -> Executable:
    """Keep what rows are as earlier tries: of the same transaction as the move that begins the next ones.

    The rows stay locked until then: of two owners that move one at once, one keeps it.
    """
    kept = select(_ROW.number, _ROW.tries, *(_ROW[name] for name in OF_A_TRY)).where(*conditions)
    return insert(TRIES).from_select(["item", "try_number", *OF_A_TRY], kept.with_for_update())


def counting_sends(conditions: Iterable[ColumnElement[bool]], now: Moment, *, sent_now: bool) -> tuple[Executable, ...]:
    """Return what keeps the creates of rows that are planned again, and forgets those that no rate counts any more.

    The next claim of such a row will overwrite its time, and a rate has to count both creates, each once: so this
    belongs into the transaction that plans the row again.

    Args:
        conditions: Which rows.
        now: The time by the journal's clock.
        sent_now: Whether the creates were answered just now; otherwise they count from when the rows say.
    """
    oldest = seconds_of(now) - _LONGEST_WINDOW_SECONDS
    time = seconds_of(now) if sent_now else _ROW.counted_at
    sent = select(_ROW.project_id, time).where(*conditions, *(() if sent_now else (_ROW.counted_at > oldest,)))
    recording = insert(SENDS).from_select(["project_id", "counted_at"], sent.with_for_update())
    return recording, delete(SENDS).where(SENDS.c.counted_at < oldest)


def in_states(states: Collection[State]) -> ColumnElement[bool]:
    """Return whether a row is in one of some states."""
    return _ROW.state.in_(sorted(states))


def owners(now: Moment) -> Select[Any]:
    """Select the owners of a shared journal that have not left, and the seconds since their last heartbeats."""
    return select(OWNERS.c.owner, (now - OWNERS.c.seen_at).label("age")).order_by(OWNERS.c.owner)


def is_living(owner: ColumnElement[Any], now: Moment, patience: float) -> ColumnElement[bool]:
    """Return whether an owner has not left, and has had a heartbeat in the last `patience` seconds.

    While a server is down it records no heartbeat: after its start, each owner gets as long.
    """
    return select(OWNERS.c.owner).where(OWNERS.c.owner == owner, is_heard(now, patience)).exists()


def is_heard(now: Moment, patience: float) -> ColumnElement[bool]:
    """Return whether an owner that has not left has had a heartbeat in the last `patience` seconds."""
    return or_(OWNERS.c.seen_at >= now - patience, ~server_is_up_for(patience))


def server_is_up_for(seconds: float) -> ColumnElement[bool]:
    """Return whether the server has run for so long. A server that was down recorded no heartbeat."""
    return func.date_part("epoch", func.clock_timestamp() - func.pg_postmaster_start_time()) >= seconds
