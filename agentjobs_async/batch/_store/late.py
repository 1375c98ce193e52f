"""Creates that were answered after their items had moved on: each is recorded with its try, and polled to its end."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from attrs import frozen
from sqlalchemy import ColumnElement, Integer, Select, Table, and_, insert, literal, null, or_, select, update

from agentjobs_async import JobRef, JournalError
from agentjobs_async.batch._database.schema import ITEMS, OF_A_TRY, SHOWN, TRIES, Follow
from agentjobs_async.batch._store.rows import JournalRow, row_of, rows_of
from agentjobs_async.batch._store.statements import EARLIER
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import State

_ROW: Final = ITEMS.c
_TRY: Final = TRIES.c
_WITHOUT_JOB: Final = (State.UNKNOWN, State.ABANDONED)
_OF_ANOTHER_JOB: Final = ("idempotency_key", "first_sent_at", "digest", "settled_at", "pr_link", "refusal")
"""What the row or try of the same create has of the other job."""
_ANSWERED_LATE: Final = "its create was answered late"


@frozen
class Sent:
    """What identifies one POST of a create.

    Attributes:
        key: The key of its row.
        claim: The claim under which it was sent; empty where that is not known.
        idempotency_key: That of its create; `None` without one.
    """

    key: str
    claim: str
    idempotency_key: str | None = None

    @property
    def is_row(self) -> ColumnElement[bool]:
        """Whether a row is that of its create."""
        return and_(_ROW.key == self.key, self._is_of(ITEMS))

    @property
    def is_try(self) -> ColumnElement[bool]:
        """Whether an earlier try is that of its create."""
        return self._is_of(TRIES)

    def _is_of(self, table: Table) -> ColumnElement[bool]:
        is_claim = table.c.claim == self.claim
        if self.idempotency_key is None:
            return is_claim
        return or_(is_claim, table.c.idempotency_key == self.idempotency_key)  # others were sent under other claims


async def record_late(store: Store, sent: Sent, ref: JobRef) -> JournalRow | None:
    """Record the job of a create whose row does not wait for it any more.

    Return the row where it has this job: by a commit whose answer was lost, or since it was abandoned meanwhile, as it
    stays. Return `None` where the item has moved on: its try has the job then, and any run may poll it. The end of such
    a job is never told as that of its item.

    Raises:
        JournalError: The journal can't be written; or it has no such claim (`locked`).
    """
    if (row := await _recorded_in_row(store, sent, ref)) is not None:
        return row
    if await _recorded_in_try(store, sent, ref):
        return None
    raise JournalError(f"journal: another owner has changed {sent.key!r:.200} meanwhile", "locked")


async def _recorded_in_row(store: Store, sent: Sent, ref: JobRef) -> JournalRow | None:
    """Record the job with the row, and return that; `None` where the row has moved on. The state stays as it is."""
    mine = and_(sent.is_row, or_(_ROW.job_id == ref.job_id, _ROW.state == State.ABANDONED))
    job = {"job_id": ref.job_id, "project_id": ref.project_id, "changed_at": store.now_column()}
    recording = update(ITEMS).where(mine, or_(_ROW.job_id.is_(None), _ROW.job_id == ref.job_id)).values(job)
    found = (await store.write(recording.returning(*SHOWN)))[1]
    return row_of(found[0]) if found else None


async def _recorded_in_try(store: Store, sent: Sent, ref: JobRef) -> bool:
    """Record the job with an earlier try, and return whether that has it now.

    A try that has no job becomes active. Where a person named another job, that stays with its row or try, and this one
    gets a try of its own.
    """
    is_row, is_try = sent.is_row, sent.is_try
    recorded = select(_TRY.number).where(is_try, _TRY.job_id == ref.job_id)
    late = _late(store, ref)
    own_claim = {"claim": literal(sent.claim)}  # by which it is found again
    waiting = update(TRIES).where(is_try, _TRY.state.in_(_WITHOUT_JOB), _TRY.job_id.is_(None)).values(late)
    # First: executed once more while the first execution goes on, this waits for what that has recorded.
    locks = (select(_ROW.key).where(is_row), select(_TRY.item).where(is_try))
    beside = (found.where(~recorded.exists()).limit(1) for found in _beside(is_row, is_try, late | own_claim))
    inserts = (insert(TRIES).from_select(["item", "try_number", *OF_A_TRY], found) for found in beside)
    await store.write(*(lock.with_for_update() for lock in locks), waiting, *inserts)
    return bool(await store.read(recorded))


def _beside(
    is_row: ColumnElement[bool], is_try: ColumnElement[bool], late: Mapping[str, Any]
) -> tuple[Select[Any], Select[Any]]:
    """Select the try of its own for a job whose create's row, or try, has another job."""
    columns = dict[str, Any].fromkeys(_OF_ANOTHER_JOB, null()) | {"polls": literal(0, Integer)} | dict(late)
    row = select(_ROW.number, _ROW.tries, *_columns(ITEMS, columns)).where(is_row, _ROW.job_id.is_not(None))
    earlier = select(_TRY.item, _TRY.try_number, *_columns(TRIES, columns)).where(is_try).order_by(_TRY.number)
    return row, earlier


def _columns(table: Table, changed: Mapping[str, Any]) -> list[Any]:
    """Return the columns of a try, with these changes."""
    return [changed.get(name, table.c[name]) for name in OF_A_TRY]


def _late(store: Store, ref: JobRef) -> dict[str, Any]:
    """Return the columns of a try whose create was answered late."""
    words = {"job_id": ref.job_id, "project_id": ref.project_id, "state": State.ACTIVE.value}
    words |= {"follow": Follow.NO.value, "error": _ANSWERED_LATE}
    times = dict.fromkeys(("created_at", "seen_at", "counted_at", "updated_at"), store.now_column())
    empty = dict.fromkeys(("owner", "ended_at", "told_at"), null())
    return {name: literal(word) for name, word in words.items()} | times | empty


async def take_late(store: Store, owner: str, but: Collection[str] = ()) -> list[tuple[JournalRow, JobRef]]:
    """Make a run the owner of the tries whose jobs are active and that nobody polls; return them with their jobs.

    Args:
        store: The journal's rows.
        owner: The run.
        but: The ids of jobs that it leaves to others.
    """
    is_free = and_(_TRY.state == State.ACTIVE, _TRY.owner.is_(None), _TRY.job_id.not_in(sorted(but)))
    numbers = [number for (number,) in await store.read(select(_TRY.number).where(is_free))]
    if not numbers:
        return []
    await store.write(update(TRIES).where(_TRY.number.in_(numbers), is_free).values(owner=owner))
    rows = rows_of(await store.read(EARLIER.where(_TRY.number.in_(numbers), _TRY.owner == owner)))
    return [(row, JobRef(row.project_id, row.job_id)) for row in rows if row.job_id is not None]


async def end_late(store: Store, row: JournalRow, ref: JobRef, state: State, **columns: Any) -> None:
    """Record how the wait for the job of a try has ended: `active` where the job has not, and is left to others."""
    now = store.now_column()
    its_job = and_(_TRY.item == row.number, _TRY.try_number == row.tries, _TRY.job_id == ref.job_id)
    active = update(TRIES).where(its_job, _TRY.state == State.ACTIVE)
    ended_at = None if state is State.ACTIVE else now
    await store.write(active.values(state=state, owner=None, ended_at=ended_at, updated_at=now, **columns))


async def late_tries(store: Store, most: int) -> list[JournalRow]:
    """Return the first tries whose creates were answered late, at most `most`: but for those whose jobs are gone.

    Each is one agent too many, whether its job has ended or not.
    """
    late = EARLIER.where(_TRY.error == _ANSWERED_LATE).order_by(_TRY.number).limit(most)
    return rows_of(await store.read(late))
