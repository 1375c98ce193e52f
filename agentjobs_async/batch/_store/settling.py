"""What a person decides about a row: it is settled by a job, sent again, given up, or has another context."""

from asyncio import gather
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from attrs import evolve
from sqlalchemy import and_, or_, update

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_instance
from agentjobs_async.batch._database.schema import ITEMS, Follow
from agentjobs_async.batch._store.measures import last_number
from agentjobs_async.batch._store.queries import Query, as_found
from agentjobs_async.batch._store.rows import LONGEST_ERROR_BYTES, JournalRow
from agentjobs_async.batch._store.store import NOBODY, Store
from agentjobs_async.batch.states import ABANDON, CORRECT, SEND_AGAIN, SETTLE, State
from agentjobs_async.batch.where import Where


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
    matching = {"state": row.state, "tries": row.tries, "job_id": row.job_id}
    return await store.move(ABANDON, row.key, NOBODY, matching=matching, new={"error": _error_of(row)}) is not None


def _error_of(row: JournalRow) -> str:
    """Return what the error of a row says once it is abandoned."""
    before = "" if row.error is None else f"; before that: {row.error}"
    return one_line(f"abandoned while {row.state}{before}", LONGEST_ERROR_BYTES)  # masked when it was recorded


def abandoned_where(where: Where) -> Where:
    """Return `where`; if it names no states, with `planned` alone: of the others, an agent may be at work.

    Raises:
        InvalidInputError: It is no `Where`, or names another state than planned, active and unknown.
    """
    checked_instance("where", where, Where)
    states = {State.PLANNED} if where.states is None else frozenset(map(State, where.states))
    if foreign := sorted(states - ABANDON.origins):
        raise InvalidInputError(f"states has {foreign[0]}: only what is planned, active or unknown is abandoned")
    return evolve(where, states=states)


async def abandon_rows(store: Store, where: Where) -> tuple[str, ...]:
    """End all rows as abandoned that meet `where`, and return their keys.

    Page by page, each with a few conditional writes: what has changed since its page was read is left as it is.

    Raises:
        InvalidInputError: `where` names a state in which nothing is abandoned.
    """
    query = Query(where=abandoned_where(where), until=await last_number(store))
    keys: list[str] = []
    async for found in store.pages(query):
        keys += await abandon_found(store, found)
    return tuple(keys)


async def abandon_found(store: Store, rows: Sequence[JournalRow]) -> list[str]:
    """End some hundred rows as abandoned, and return their keys; those that have changed since are left out."""
    by_error: dict[str, list[JournalRow]] = {}  # nearly always one
    for row in rows:
        by_error.setdefault(_error_of(row), []).append(row)
    # At once, so that the writes share their commits.
    moves = (_abandon_alike(store, alike, error) for error, alike in by_error.items())
    moved = {row.key for alike in await gather(*moves) for row in alike}
    return [row.key for row in rows if row.key in moved]


async def _abandon_alike(store: Store, rows: Sequence[JournalRow], error: str) -> list[JournalRow]:
    return await store.move_all(ABANDON, *as_found(rows), mover=NOBODY, error=error)


async def take_telling(store: Store, key: str) -> bool:
    """Return whether the calling run tells of an item that was withdrawn before it was sent: one of all runs does.

    Durable jobs tell of their own by `on_end`.
    """
    row, change = ITEMS.c, uuid4().hex  # executed again, when its answer was lost, the statement finds what it did
    is_untold = and_(row.state == State.ABANDONED, row.told_at.is_(None), row.follow == Follow.NO.value)
    telling = update(ITEMS).where(row.key == key, or_(is_untold, row.change == change))
    return (await store.write(telling.values(told_at=store.now_column(), change=change)))[0] == 1


async def set_context(store: Store, key: str, context: str | None) -> bool:
    """Replace the context of a row in any state, and return whether there is such a row.

    It moves nothing: `updated_at` stays. Streams show it, and so do the rows of earlier tries, which have none of their
    own.

    Args:
        store: The journal's rows.
        key: The key of the row.
        context: The context as `context_text` returns it; `None` for none.
    """
    row = ITEMS.c
    # The id of the last change stays: a move whose answer was lost finds by it what it did.
    setting = update(ITEMS).where(row.key == key).values(context=context, revision=row.revision + 1)
    return (await store.write(setting.values(changed_at=store.now_column())))[0] == 1
