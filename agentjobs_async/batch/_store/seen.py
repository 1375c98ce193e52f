"""When jobs were seen last: what runs record each minute, and how long a journal has been silent."""

from collections.abc import Sequence
from typing import Final

from attrs import frozen
from sqlalchemy import ColumnElement, Float, bindparam, func, select, true, update

from agentjobs_async.batch._database.schema import ITEMS
from agentjobs_async.batch._store.rows import legible
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import State

_ROW: Final = ITEMS.c


@frozen
class Seen:
    """When the job of a row was seen last.

    Attributes:
        key: The row's key.
        age_seconds: How many seconds ago a poll showed the job.
        polls: The number of polls of the job in all.
    """

    key: str
    age_seconds: float
    polls: int


async def record_seen(store: Store, seen: Sequence[Seen]) -> None:
    """Record when jobs that have not ended were seen last, and how often they were polled."""
    moment = store.now_column()
    seeing = update(ITEMS).where(_ROW.key == bindparam("its_key"), _ROW.state == State.ACTIVE)
    seen_at = moment - bindparam("age", type_=Float(53))
    recording = seeing.values(seen_at=seen_at, polls=bindparam("its_polls"), changed_at=moment)
    rows = [{"its_key": one.key, "age": one.age_seconds, "its_polls": one.polls} for one in seen]
    await store.write(recording, parameters=rows)


async def active_silence(store: Store) -> float | None:
    """Return the seconds since an active job was seen last, or its row changed; `None` where no job is active."""
    return await _age(store, func.coalesce(_ROW.seen_at, _ROW.updated_at), _ROW.state == State.ACTIVE)


async def silence(store: Store) -> float | None:
    """Return the seconds since any job was seen last; `None` where none ever was."""
    return await _age(store, _ROW.seen_at, true())


async def _age(store: Store, time: ColumnElement[float], which: ColumnElement[bool]) -> float | None:
    found = await store.read(select((store.now_column() - func.max(time)).label("age")).where(which))
    return legible(lambda: None if found[0].age is None else max(float(found[0].age), 0.0))
