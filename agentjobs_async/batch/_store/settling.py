"""What a person decides about a row: it is settled by a job, sent again, or given up."""

from typing import Any
from uuid import uuid4

from sqlalchemy import and_, or_, update

from agentjobs_async import JobRef
from agentjobs_async._text import one_line
from agentjobs_async.batch._database.schema import ITEMS, Follow
from agentjobs_async.batch._store.rows import LONGEST_ERROR_BYTES, JournalRow
from agentjobs_async.batch._store.store import NOBODY, Store
from agentjobs_async.batch.states import ABANDON, CORRECT, SEND_AGAIN, SETTLE, State


async def settle(store: Store, row: JournalRow, job: str | JobRef | None) -> bool:
    """Settle an unknown row by its job, or without one plan it again; return whether that was done.

    It is not done where another try has begun since the row was read.

    A row that was settled by a job, and has not ended, can be given another one: the id that its owner found was wrong.

    Args:
        store: The journal's rows.
        row: The row as it was read.
        job: The id of its job, or the job where that is in another project.
    """
    tried = {"tries": row.tries}
    if job is None:
        return await store.move(SEND_AGAIN, row.key, NOBODY, matching=tried) is not None
    new: dict[str, Any] = {"job_id": job, "project_id": row.project_id, "polls": 0}
    if isinstance(job, JobRef):
        new |= {"job_id": job.job_id, "project_id": job.project_id}
    for move in (SETTLE, CORRECT):
        if await store.move(move, row.key, NOBODY, matching=tried, new=new) is not None:
            return True
    return False


async def abandon(store: Store, row: JournalRow) -> bool:
    """End a planned, active or unknown row as abandoned, unless its try, its state or its job has changed since.

    It is one conditional write, as a claim is: a planned row is abandoned or sent, never both.
    """
    if row.state not in ABANDON.origins:
        return False
    before = "" if row.error is None else f"; before that: {row.error}"
    error = one_line(f"abandoned while {row.state}{before}", LONGEST_ERROR_BYTES)  # masked when it was recorded
    matching = {"state": row.state, "tries": row.tries, "job_id": row.job_id}
    return await store.move(ABANDON, row.key, NOBODY, matching=matching, new={"error": error}) is not None


async def take_telling(store: Store, key: str) -> bool:
    """Return whether the calling run tells of an item that was withdrawn before it was sent: one of all runs does.

    Durable jobs tell of their own by `on_end`.
    """
    row, change = ITEMS.c, uuid4().hex  # executed again, when its answer was lost, the statement finds what it did
    is_untold = and_(row.state == State.ABANDONED, row.told_at.is_(None), row.follow == Follow.NO.value)
    telling = update(ITEMS).where(row.key == key, or_(is_untold, row.change == change))
    return (await store.write(telling.values(told_at=store.now_column(), change=change)))[0] == 1
