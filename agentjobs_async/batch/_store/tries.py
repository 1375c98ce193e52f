"""The earlier tries of rows, with which refusal a try has ended, and which rows a job belongs to by one of them."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Table, select

from agentjobs_async import JobRef, ResponseError
from agentjobs_async.batch._database.schema import ITEMS, TRIES
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow, refusal_of, rows_of
from agentjobs_async.batch._store.statements import EARLIER
from agentjobs_async.batch._store.store import Store

_ROW: Final = ITEMS.c
_TRY: Final = TRIES.c


async def with_earlier_tries(store: Store, rows: Sequence[JournalRow]) -> list[JournalRow]:
    """Return some hundred rows, in the order of their numbers, each after its earlier tries as they were then."""
    # A create that was answered after a person had settled its row has a try of its own beside the first one, too.
    earlier = rows_of(
        await store.read(EARLIER.where(_ROW.number.in_([row.number for row in rows])).order_by(_TRY.number))
    )
    return sorted([*earlier, *rows], key=lambda row: row.number)  # stable: the row itself comes last


async def refusal(store: Store, row: JournalRow) -> ResponseError | None:
    """Return the refusal with which a row, or an earlier try of it, has ended; `None` where it has not ended so."""
    own = select(_ROW.refusal).where(_ROW.number == row.number, _ROW.tries == row.tries)
    earlier = select(_TRY.refusal).where(_TRY.item == row.number, _TRY.try_number == row.tries)
    found = await store.read(own.union_all(earlier))
    return refusal_of(found[0].refusal) if found else None


async def rows_with_job(store: Store, job: str | JobRef, most: int) -> list[JournalRow]:
    """Return the first rows, at most `most`, that have a job or had it in an earlier try, as they are now.

    Args:
        store: The journal's rows.
        job: The job; its id alone stands for the jobs of this id in all projects.
        most: How many at the most.
    """
    rows = select(_ROW.number).where(*_has_job(ITEMS, job))
    numbers = rows.union(select(_TRY.item).where(*_has_job(TRIES, job))).limit(most)
    found = [number for (number,) in await store.read(numbers)]
    return await store.select(Query(numbers=found)) if found else []


def _has_job(table: Table, job: str | JobRef) -> list[ColumnElement[bool]]:
    if isinstance(job, JobRef):
        return [table.c.job_id == job.job_id, table.c.project_id == job.project_id]
    return [table.c.job_id == job]
