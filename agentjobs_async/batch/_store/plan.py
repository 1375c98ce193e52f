"""The statement that plans rows, or finds those that are there already."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import ColumnElement, String, and_, func, literal_column, or_
from sqlalchemy.sql.dml import ReturningInsert

from agentjobs_async.batch._store.connections import Insert
from agentjobs_async.batch._store.schema import ENTRIES, SHOWN, Moment
from agentjobs_async.batch.states import State

_ROW: Final = ENTRIES.c


def plan(
    insert: Insert,
    mark: str,
    now: Moment,
    *,
    values: Mapping[str, Any] = MappingProxyType({}),
    kept: Mapping[str, Any] = MappingProxyType({}),
    returned: Sequence[ColumnElement[Any]] = (),
) -> ReturningInsert[Any]:
    """Insert planned rows, and return them and the rows that are there already, which are only marked.

    Left out are rows of another prompt or project under the same key, and those that an earlier page of the same source
    has marked. Executed again, when its answer was lost, this finds its own mark and returns the same rows. It holds no
    value besides those of its columns, so that SQLAlchemy compiles it once for any number of rows.

    Args:
        insert: An insert into the entries.
        mark: The page: 32 characters that name the source, then anything.
        now: The time by the journal's clock.
        values: Other columns of new rows.
        kept: Other columns that change in rows that are there.
        returned: What is returned besides the rows.
    """
    # The state as a literal: a parameter would be one more for each row.
    planning = insert.values(
        state=literal_column(f"'{State.PLANNED}'"), run=mark, planned_at=now, updated_at=now, changed_at=now, **values
    )
    given = planning.excluded
    unmarked = or_(_ROW.run.is_(None), _ROW.run == given.run, _source(_ROW.run) != _source(given.run))
    same_project = or_(_ROW.project_id.is_(None), given.project_id.is_(None), _ROW.project_id == given.project_id)
    return planning.on_conflict_do_update(
        index_elements=[_ROW.key],
        set_={"run": given.run, **kept},
        where=and_(unmarked, _ROW.prompt == given.prompt, same_project),
    ).returning(*SHOWN, *returned)


def _source(mark: ColumnElement[Any]) -> ColumnElement[str]:
    return func.substr(mark, literal_column("1"), literal_column("32"), type_=String)
