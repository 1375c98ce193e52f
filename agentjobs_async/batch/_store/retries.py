"""The statements of retries: each makes a row of its own, and marks the row before it in the same transaction."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Update, case, exists, func, literal, select, update

from agentjobs_async.batch._store.connections import Insert
from agentjobs_async.batch._store.schema import ENTRIES, NO_OWNER, Moment, seconds_of
from agentjobs_async.batch.states import RETRIED_BY_KEY, State

_ROW: Final = ENTRIES.c
_COPIED: Final = ("prompt", "project_id", "context")


def plan_retries(insert: Insert, keys: Mapping[str, str], now: Moment) -> Insert:
    """Plan rows once more that ended so that they may be, and were not tried again before.

    A new key that another row has is left out: of two owners that retry a row at once, one plans it. Executed again,
    when its answer was lost, this finds the marks of `mark_retried`, and does nothing.

    Args:
        insert: An insert into the entries.
        keys: The new key of each row, by its present one.
        now: The time by the journal's clock.
    """
    values: dict[str, ColumnElement[Any]] = {name: _ROW[name] for name in _COPIED} | {
        "key": _new_key(keys),
        "state": literal(State.PLANNED.value),
        "owner": literal(NO_OWNER),  # the chunk of the first try is over: no task of a queue has this key
        "tries": func.coalesce(_ROW.tries, 1) + 1,
        "notified_state": case((_ROW.notified_state.is_not(None), "")),  # a durable job is followed again
        "item_key": func.coalesce(_ROW.item_key, _ROW.key),
        **dict.fromkeys(("planned_at", "updated_at", "changed_at"), seconds_of(now)),
    }
    ended = select(*values.values()).where(*_untried(keys)).order_by(_ROW.number)
    return insert.from_select(list(values), ended, include_defaults=False).on_conflict_do_nothing()


def mark_retried(keys: Mapping[str, str], now: Moment) -> Update:
    """Mark the rows whose next try `plan_retries` has planned."""
    again = ENTRIES.alias()
    of_item = again.c.item_key == func.coalesce(_ROW.item_key, _ROW.key)
    planned = exists().where(again.c.key == _new_key(keys), of_item)
    return update(ENTRIES).where(*_untried(keys), planned).values(retried_as=_new_key(keys), changed_at=seconds_of(now))


def fewer_tries(most: int) -> ColumnElement[bool]:
    """Return whether a row has had fewer than `most` tries."""
    return func.coalesce(_ROW.tries, 1) < most


def _new_key(keys: Mapping[str, str]) -> ColumnElement[str]:
    return case(dict(keys), value=_ROW.key)


def _untried(keys: Mapping[str, str]) -> tuple[ColumnElement[bool], ...]:
    return _ROW.key.in_(list(keys)), _ROW.state.in_(sorted(RETRIED_BY_KEY)), _ROW.retried_as.is_(None)
