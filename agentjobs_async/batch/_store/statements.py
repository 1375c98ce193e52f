"""The statements that read and move rows. Executed twice, when an answer was lost, each has its effect once."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Float,
    Select,
    String,
    Update,
    and_,
    bindparam,
    case,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from agentjobs_async._validation import checked_instance
from agentjobs_async.batch._store.schema import ENTRIES, SHOWN, AnyText, Moment, seconds_of
from agentjobs_async.batch.states import ENDED, State, origins
from agentjobs_async.batch.where import Where

RESOLVED: Final = "resolved:"
"""With this begins the mark of a row whose job its owner found."""
_ROW: Final = ENTRIES.c


def _claim() -> ReturningUpdate[None, None, int]:
    token, now = bindparam("new_claim", type_=String), bindparam("new_time", type_=Float(53))
    repeated = and_(_ROW.state == State.SENDING, _ROW.claim == token)  # executed before, and the answer was lost
    claiming = update(ENTRIES).where(_ROW.key == bindparam("its_key"), or_(_ROW.state == State.PLANNED, repeated))
    project = func.coalesce(bindparam("new_project", type_=String), _ROW.project_id)
    values = {"claim": token, "owner": bindparam("new_owner"), "project_id": project, "error": None}
    times = {"sent_at": now, "claimed_at": now, "updated_at": now, "changed_at": now}
    found = null().label("wait"), null().label("of_project"), literal(1).label("claimed")
    return claiming.values(state=State.SENDING, **values, **times).returning(*found)


CLAIM: Final = _claim()
"""Make a planned row `sending`, under a claim; its parameters are those of `claim_parameters`.

Return no row when it is not planned, else (`wait`, `of_project`, `claimed`): the seconds after which there may be room,
or null; the only project that has no room, null for all of them; the number of rows that were claimed. Built once:
building it costs more than executing it on SQLite.
"""


def claim_parameters(key: str, claim: str, now: Moment, owner: str, project_id: str | None) -> dict[str, Any]:
    """Return the parameters of a claim; with `project_id`, that becomes the project of the row.

    A server takes the time from its own clock, unless `now` is a number.
    """
    moment = None if isinstance(now, ColumnElement) else now
    new = {"new_claim": claim, "new_time": moment, "new_owner": owner, "new_project": project_id}
    return {"its_key": key, **new}


def move(
    key: str,
    target: State,
    *,
    origin: State | None = None,
    claim: str | None = None,
    owner: str | None = None,
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
        owner: The owner that has to have claimed the row last; `None` for any.
        of_job: The job that the row has to have; `None` for any. A resolution may have corrected it meanwhile.
        values: The other columns that change.

    Raises:
        ValueError: No row may ever go from `origin` to `target`.
    """
    wanted = {"claim": claim, "owner": owner, "job_id": of_job}
    borne = {name: value for name, value in wanted.items() if value is not None}
    timed = {name: value for name, value in values.items() if isinstance(value, ColumnElement)}  # by a server's clock
    plain = {name: value for name, value in values.items() if name not in timed}
    moving = _moving(target, origin, tuple(borne), tuple(plain))
    parameters = {f"its_{name}": value for name, value in {"key": key, **borne}.items()}
    parameters |= {f"new_{name}": value for name, value in plain.items()}
    return (moving.values(timed) if timed else moving), parameters


@cache
def _moving(
    target: State, origin: State | None, borne: tuple[str, ...], changed: tuple[str, ...]
) -> ReturningUpdate[Any]:
    """Return the statement of a move. It is built once: building it costs more than executing it on SQLite."""
    allowed = origins(target)
    if origin is not None:
        if origin not in allowed:
            raise ValueError(f"no row moves from {origin} to {target}")
        allowed = frozenset({origin})
    moving = update(ENTRIES).where(_ROW.state.in_([literal_column(f"'{state}'") for state in sorted(allowed)]))
    moving = moving.where(*(_ROW[name] == bindparam(f"its_{name}") for name in ("key", *borne)))
    new = {name: bindparam(f"new_{name}", type_=_ROW[name].type) for name in changed}
    return moving.values(state=literal_column(f"'{target}'"), **new).returning(*SHOWN)


def resolve(key: str, target: State, resolution: str, **values: Any) -> Update:
    """Move an unknown row to `target`, and mark it with `resolution` in place of its claim.

    A row with this mark was moved by an earlier execution whose answer was lost, and counts as moved. An active
    row with the mark of any resolution may be given another job: the id that its owner found was wrong. The mark
    also takes the place of its owner, who does not follow the row any more, so that any living one may.
    """
    repeated = and_(_ROW.state == target, _ROW.claim == resolution)
    open_rows = [_ROW.state == State.UNKNOWN, repeated]
    if target is State.ACTIVE:
        open_rows.append(and_(_ROW.state == State.ACTIVE, _ROW.claim.startswith(RESOLVED)))
    resolving = update(ENTRIES).where(_ROW.key == key, or_(*open_rows))
    notified = _ROW.notified_state
    untold = case((notified == State.UNKNOWN, ""), else_=notified)  # it may become unknown once more
    return resolving.values(state=target, claim=resolution, owner=resolution, notified_state=untold, **values)


def resolve_again(key: str, resolution: str, **values: Any) -> Update:
    """Plan an unknown row again, as `resolve` does, for its next try."""
    tries = func.coalesce(_ROW.tries, 1)
    counted = case((_ROW.claim == resolution, tries), else_=tries + 1)  # an earlier execution has counted it
    return resolve(key, State.PLANNED, resolution, sent_at=None, claimed_at=None, tries=counted, **values)


def mark_sending_unknown(**values: Any) -> ReturningUpdate[Any]:
    """Make all rows unknown that are sending, since their owner ended, and return their keys."""
    rows = update(ENTRIES).where(_ROW.state == State.SENDING)
    return rows.values(state=State.UNKNOWN, **values).returning(_ROW.key)


def mark_left_unknown(claims: Mapping[str, str], **values: Any) -> Update:
    """Make the rows unknown that are sending under one of these claims; the keys of the rows are given by claim."""
    borne = and_(_ROW.key.in_(set(claims.values())), _ROW.claim.in_(claims))
    return update(ENTRIES).where(borne, _ROW.state == State.SENDING).values(state=State.UNKNOWN, **values)


def take_back(claims: Mapping[str, str], **values: Any) -> ReturningUpdate[Any]:
    """Plan the rows again that have one of these claims, under which nothing was sent; return (key, claim) of each.

    Args:
        claims: The keys of the rows, by claim.
        values: The other columns that change.
    """
    borne = and_(_ROW.key.in_(set(claims.values())), _ROW.claim.in_(claims))
    taking = update(ENTRIES).where(borne, _ROW.state.in_([State.SENDING, State.UNKNOWN]))
    return taking.values(state=State.PLANNED, sent_at=None, claimed_at=None, error=None, **values).returning(
        _ROW.key, _ROW.claim
    )


def record_error(key: str, of_job: str | None, **values: Any) -> ReturningUpdate[Any]:
    """Change columns of an active row, and return it; with `of_job`, only where it has this job."""
    rows = update(ENTRIES).where(_ROW.key == key, _ROW.state == State.ACTIVE).values(**values).returning(*SHOWN)
    return rows if of_job is None else rows.where(_ROW.job_id == of_job)


def record_seen(now: Moment) -> Update:
    """Record of active rows that their jobs were seen: `its_key`, `age` (seconds ago) and `its_polls` of each."""
    moment = seconds_of(now)
    seeing = update(ENTRIES).where(_ROW.key == bindparam("its_key"), _ROW.state == State.ACTIVE)
    seen = {"seen_at": moment - bindparam("age", type_=Float(53)), "polls": bindparam("its_polls")}
    return seeing.values(**seen, changed_at=moment)


def page(
    after: int,
    size: int,
    *,
    state: State | None = None,
    until: int | None = None,
    projects: tuple[str | None, ...] | None = None,
    where: Sequence[ColumnElement[bool]] = (),
) -> Select[Any]:
    """Select the next `size` rows above the number `after`, of one state or all, of these projects or all.

    They meet all conditions of `where`.
    """
    rows = select(*SHOWN).where(_ROW.number > after, *where).order_by(_ROW.number).limit(size)
    if state is not None:
        rows = rows.where(_ROW.state == state)
    if projects is not None:
        rows = rows.where(or_(*map(_ROW.project_id.is_not_distinct_from, projects)))
    return rows if until is None else rows.where(_ROW.number <= until)


def conditions(where: Where, now: Moment) -> list[ColumnElement[bool]]:
    """Return what rows have to meet.

    Raises:
        InvalidInputError: `where` is no `Where`.
    """
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
        found.append(or_(*(func.replace(column, literal(where.text, AnyText), "") != column for column in columns)))
    if where.older_than is not None:
        moment = seconds_of(now)
        found.append(_ROW.updated_at < moment - where.older_than)
    return found


def changed_since(moment: float, after: int, size: int) -> Select[Any]:
    """Select number and time of up to `size` rows above the number `after` that were changed at `moment` or later."""
    changed = select(_ROW.number, _ROW.updated_at).where(_ROW.updated_at >= moment, _ROW.number > after)
    return changed.order_by(_ROW.number).limit(size)


def has_number(numbers: Collection[int]) -> ColumnElement[bool]:
    """Return whether a row has one of these numbers."""
    return _ROW.number.in_(numbers)


def newest_try() -> ColumnElement[bool]:
    """Return whether a row was not tried again."""
    return _ROW.retried_as.is_(None)


def planned_projects(until: int) -> Select[Any]:
    """Select (project, the number of its first row) of the planned rows up to the number `until`, in that order."""
    first = func.min(_ROW.number).label("first")
    planned = select(_ROW.project_id, first).where(_ROW.state == State.PLANNED, _ROW.number <= until)
    return planned.group_by(_ROW.project_id).order_by(first)


def planned_counts() -> Select[Any]:
    """Count the planned rows of each project."""
    return select(_ROW.project_id, func.count()).where(_ROW.state == State.PLANNED).group_by(_ROW.project_id)


def get_many(keys: Collection[str]) -> Select[Any]:
    """Select the rows of these keys."""
    return select(*SHOWN).where(_ROW.key.in_(keys))


def refusal(key: str) -> Select[Any]:
    """Select the refusal of the row of this key, or null."""
    return select(_ROW.refusal).where(_ROW.key == key)


def unended(keys: Collection[str]) -> Select[Any]:
    """Select those of the keys whose rows have not ended, in the order of the rows."""
    return select(_ROW.key).where(_ROW.key.in_(keys), _ROW.state.not_in(sorted(ENDED))).order_by(_ROW.number)


def nothing() -> Select[Any]:
    """Select no rows: a statement that changes nothing."""
    return select(_ROW.number).limit(0)


def counts() -> CompoundSelect[Any]:
    """Count the rows of each state, and, as a negative number, those that were tried again: an item counts once."""
    # Two parts, so that each is served by an index alone.
    rows = select(_ROW.state, func.count())
    retried = select(_ROW.state, -func.count()).where(_ROW.retried_as.is_not(None))
    return union_all(rows.group_by(_ROW.state), retried.group_by(_ROW.state))


def last_number() -> Select[Any]:
    """Select the highest number, or null."""
    return select(func.max(_ROW.number))
