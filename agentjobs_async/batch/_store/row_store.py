"""The moves that rows of a journal make, and the claims under which creates are sent."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from socket import gethostname
from typing import Any, Final, Self
from uuid import uuid4

from attrs import field, frozen
from sqlalchemy import (
    ColumnElement,
    Executable,
    Float,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)

from agentjobs_async import AgentJob, AgentJobsError, JobRef, NotFoundError
from agentjobs_async._text import error_text, one_line
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.file_lock import FileLock
from agentjobs_async.batch._store.reader import BEGUN, Reader
from agentjobs_async.batch._store.rows import JournalRow, refusal_text, row_of, rows_of
from agentjobs_async.batch._store.schema import (
    ITEMS,
    JOURNAL,
    NO_OWNER,
    OWNERS,
    PAUSES,
    SHOWN,
    SKEW_SECONDS,
    Moment,
    limit_columns,
    seconds_of,
)
from agentjobs_async.batch._store.writer import Database
from agentjobs_async.batch.items import BatchItem, context_text
from agentjobs_async.batch.limits import FleetLimits
from agentjobs_async.batch.states import MOVES, RETRIED_BY_KEY, State, origins

_ROW: Final = ITEMS.c
_LONGEST_ERROR_BYTES: Final = 2_000  # enough for its reason; 100,000 rows may have one
_DOUBT_SECONDS: Final = 600.0  # longer than any claim can stay under way in a connection that broke
_CLAIMS_AT_ONCE: Final = 500  # in one statement
_RESOLVED: Final = "resolved:"  # with this begins the id of a resolution, which replaces the claim of its row


@frozen
class NoRoom:
    """The limits of all owners, or a pause, let no create go now.

    Attributes:
        wait: Seconds after which there may be room.
        project_id: The only project whose creates have to wait; `None` when all have to.
    """

    wait: float
    project_id: str | None = None


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


@frozen
class _Claims:
    """The claims of one owner, which all of its runs share.

    Attributes:
        current: Under which creates may be sent, by key, until an outcome is recorded.
        unanswered: Claims without an answer: which key each is of, and the loop time at which that was noticed.
        left: Keys of rows whose senders have gone before an outcome was recorded, by claim.
    """

    current: dict[str, str] = field(factory=dict)
    unanswered: dict[str, tuple[str, float]] = field(factory=dict)
    left: dict[str, str] = field(factory=dict)


class RowStore(Reader):
    """Reads and moves the rows of a journal. Every move is atomic, and durable when its call returns.

    Each call raises a `JournalError` when the journal can't be read or written; nothing was changed then. Each run has
    its own by `of_run`; they share the claims of the owner.

    Args:
        database: The open database.
        clock: The wall clock, in seconds since the epoch: a number, or the database's own.
        lock: The lock of a file, which is checked when a row is claimed; `None` where there is none.

    Attributes:
        owner: Who claims rows by these calls.
        became_unknown: Keys of rows that these calls made unknown since the sender ended, until a run tells of them.
    """

    def __init__(self, database: Database, clock: Callable[[], Moment], lock: FileLock | None = None) -> None:
        super().__init__(database, clock)
        self.owner: str = f"{gethostname()}:{os.getpid()}:{uuid4().hex}"  # the last part alone is unique
        self.became_unknown: list[str] = []
        self._lock = lock
        self._claims = _Claims()
        self._mask: Callable[[str], str] = str

    def of_run(self, mask: Callable[[str], str]) -> Self:
        """Return what one run records by: `mask` removes its session's API key from each text before it is stored."""
        store = copy(self)  # not deep: the claims, and what became unknown, are the owner's
        store._mask = mask  # noqa: SLF001 - its own class
        return store

    async def plan(self, items: Sequence[BatchItem], page_id: str, project_id: str | None) -> dict[str, JournalRow]:
        """Plan some hundred items of different keys, and return their rows, whatever their states, by key.

        Left out are items whose key is that of another prompt or project, and those whose key came on an earlier page
        of the same source.

        Args:
            items: The items.
            page_id: What names this page: 32 characters that name the source, then anything.
            project_id: The project of items that name none; `None` where all of them name one.
        """
        now, same = self._clock(), dict[str, Any](page=page_id)
        clock = now if isinstance(now, ColumnElement) else None
        same |= statements.planned_times(now) if clock is None else {}
        planning = statements.planning(self._database.backend.insert, clock)
        rows: list[dict[str, Any]] = [
            {"key": item.key, "prompt": item.prompt, "project_id": item.project_id or project_id, **same}
            for item in items
        ]
        # A column that most items leave empty is a parameter of those pages only that have it: it costs time.
        if any(item.context is not None for item in items):
            rows = [row | {"context": context_text(item.context)} for row, item in zip(rows, items, strict=True)]
        return {row.key: row for row in rows_of((await self._database.write(planning, parameters=rows))[1])}

    async def retry(self, keys: Mapping[str, str]) -> list[str]:
        """Plan some hundred rows once more that were not tried again, and return the keys of their new rows.

        A row that may not be tried again, and one whose new key another item has taken meanwhile, are left out: of two
        owners that retry a row at once, one plans it. Executed again, when its answer was lost, the first statement
        finds the new keys that the second one has recorded, and does nothing.

        Args:
            keys: The new key of each row, by its present one.
        """
        new_key: ColumnElement[str] = case(dict(keys), value=_ROW.key)
        item_key = func.coalesce(_ROW.item_key, _ROW.key)
        untried = _ROW.key.in_(list(keys)), _ROW.state.in_(sorted(RETRIED_BY_KEY)), _ROW.retried_as.is_(None)
        now = seconds_of(self._clock())
        values = _next_try(new_key, item_key, now)
        planning = self._database.backend.insert(ITEMS).from_select(
            list(values), select(*values.values()).where(*untried).order_by(_ROW.number), include_defaults=False
        )
        again = ITEMS.alias()
        is_planned = exists().where(again.c.key == new_key, again.c.item_key == item_key)
        recording = update(ITEMS).where(*untried, is_planned).values(retried_as=new_key, changed_at=now)
        await self._database.write(planning.on_conflict_do_nothing(), recording)
        rows = await self.get_many(list(keys))
        return [new for key, new in keys.items() if key in rows and rows[key].retried_as == new]

    async def claim(self, key: str) -> str | NoRoom | None:
        """Make a planned row `sending`, durably: only the caller that gets the claim may send its create.

        Return the claim; `NoRoom` when the limits of all owners leave none; `None` when the row is not planned.
        """
        if self._lock is not None:
            self._lock.check()
        claim, now = uuid4().hex, self._clock()
        parameters = {
            "its_key": key,
            "new_claim": claim,
            "new_time": None if isinstance(now, ColumnElement) else now,  # a server takes the time by itself
            "new_owner": self.owner,
        }
        try:
            _, rows = await self._database.write(self._database.backend.claim, parameters=parameters, claims=True)
        except BaseException:
            # It may have been executed, or may be yet. The caller gets no claim, so that nothing is sent under it, and
            # `release_unanswered` may plan the row again.
            self._claims.unanswered[claim] = (key, asyncio.get_running_loop().time())
            raise
        if not rows:
            return None
        if rows[0].claimed:
            self._claims.current[key] = claim
            return claim
        return None if rows[0].wait is None else NoRoom(rows[0].wait, rows[0].of_project)

    def leave_claim(self, key: str, claim: str | None) -> None:
        """Make a row unknown at the next `release_unanswered`, unless an outcome is recorded: its sender has gone."""
        if claim is not None and self._claims.current.get(key) == claim:
            self._claims.left[claim] = key
            del self._claims.current[key]

    async def release_unanswered(self) -> tuple[str, ...]:
        """Plan the rows again whose claims had no answer, and return their keys.

        Nothing was sent under such a claim, so a row is planned again even when it has become unknown meanwhile. Each
        claim is looked for again by later calls, for ten minutes: it may still be executed, or be executed once more. A
        row that `leave_claim` was called for becomes unknown, unless its outcome was recorded.
        """
        for left in _slices(self._claims.left):
            sent = {"error": "the outcome of its create was not recorded", **self._changed("sent_at")}
            recording = statements.sending_to_unknown(_has_claim(left), **sent)
            self.became_unknown += (key for (key,) in (await self._database.write(recording))[1])
            for claim in left:
                self._claims.left.pop(claim, None)
        released: list[str] = []
        unsent = {"sent_at": None, "claimed_at": None, "error": None, "told_state": statements.FOLLOWED_AGAIN}
        for claims in _slices({claim: key for claim, (key, _) in self._claims.unanswered.items()}):
            rows = update(ITEMS).where(_has_claim(claims), _ROW.state.in_([State.SENDING, State.UNKNOWN]))
            releasing = rows.values(state=State.PLANNED, **unsent, **self._changed()).returning(_ROW.key)
            released += (key for (key,) in (await self._database.write(releasing))[1])
        oldest = asyncio.get_running_loop().time() - _DOUBT_SECONDS
        for claim, (_, noticed) in list(self._claims.unanswered.items()):
            if noticed < oldest:
                del self._claims.unanswered[claim]
        return tuple(released)

    async def release_claim(
        self, key: str, error: Exception | None, *, claim: str, was_sent: bool = False
    ) -> JournalRow | None:
        """Release a claim: nothing was sent, or the server did nothing about it. Return the row if this moved it.

        Args:
            key: The row's key.
            error: Why; `None` where nothing went wrong.
            claim: The claim. It is also released where the row has become unknown meanwhile.
            was_sent: Whether the create was sent, and refused: a rate counts it from now on.
        """
        text = None if error is None else self._text(error)
        values: dict[str, Any] = {"owner": self.owner, "error": text, "sent_at": None, "claimed_at": None}
        values |= {"told_state": statements.FOLLOWED_AGAIN}
        now = self._clock()
        before = statements.record_sends(statements.refused_send(key, claim, now), now) if was_sent else ()
        return await self._move(key, State.PLANNED, claim=claim, before=before, **values)

    async def record_created(self, key: str, ref: JobRef, traceparent: str | None = None) -> JournalRow | None:
        """Record a job's id, and the span that created it, even where the row has become unknown meanwhile.

        Return the row if this moved it. This owner has it then: who had taken it over as unknown looks at it no more.
        """
        job: dict[str, Any] = {"job_id": ref.job_id, "project_id": ref.project_id}
        values = {**job, "owner": self.owner, "error": None, "traceparent": traceparent}
        return await self._move(key, State.ACTIVE, ("sent_at", "created_at", "seen_at"), **values)

    async def record_job(self, key: str, ref: JobRef, traceparent: str | None) -> JournalRow | None:
        """Record a job's id, and return the row; `None` where it has another one, or none.

        It may have the id by a commit before whose answer was lost. A row that was abandoned meanwhile gets it, and
        stays abandoned.
        """
        row = await self.record_created(key, ref, traceparent)
        if row is None:
            given_up = update(ITEMS).where(_ROW.key == key, _ROW.state == State.ABANDONED, _ROW.job_id.is_(None))
            job = {"job_id": ref.job_id, "project_id": ref.project_id, "changed_at": seconds_of(self._clock())}
            await self._database.write(given_up.values(job))
            row = (await self.get_many([key]))[key]
        return row if row.job_id == ref.job_id else None

    async def record_ended(self, key: str, job: AgentJob, polls: int) -> JournalRow | None:
        """Record how a job ended, after `polls` polls by all runs. Return the row if this moved it."""
        link = None if job.pr_link is None else self._mask(job.pr_link).replace("\0", r"\x00")  # made by hand, say
        values: dict[str, Any] = {"pr_link": link, "error": None, "polls": polls}
        return await self._move(key, State(job.status), ("seen_at",), of_job=job.id, **values)

    async def record_rejected(self, key: str, error: Exception, *, claim: str) -> JournalRow | None:
        """Record that the service refused the create of `claim`. Return the row if this moved it."""
        values: dict[str, Any] = {"error": self._text(error), "refusal": refusal_text(error, self._mask)}
        return await self._move(key, State.REJECTED, claim=claim, sent_at=self._clock(), **values)

    async def record_unknown(self, key: str, error: Exception, *, claim: str) -> JournalRow | None:
        """Record that the create of `claim` may have started an agent. Return the row if this moved it."""
        return await self._move(key, State.UNKNOWN, claim=claim, sent_at=self._clock(), error=self._text(error))

    async def record_error(self, key: str, error: Exception, polls: int, *, of_job: str | None) -> JournalRow | None:
        """Record what ended the wait for a job that has not ended, and how many polls there were in all.

        Return the row if it is active, by the job `of_job` where that is given.
        """
        rows = update(ITEMS).where(_ROW.key == key, _ROW.state == State.ACTIVE)
        rows = rows if of_job is None else rows.where(_ROW.job_id == of_job)
        recording = rows.values(error=self._text(error), polls=polls, **self._changed()).returning(*SHOWN)
        _, found = await self._database.write(recording)
        return row_of(found[0]) if found else None

    async def record_seen(self, seen: Sequence[Seen]) -> None:
        """Record when jobs that have not ended were seen last, and how often they were polled."""
        moment = seconds_of(self._clock())
        seeing = update(ITEMS).where(_ROW.key == bindparam("its_key"), _ROW.state == State.ACTIVE)
        seen_at = moment - bindparam("age", type_=Float(53))
        recording = seeing.values(seen_at=seen_at, polls=bindparam("its_polls"), changed_at=moment)
        rows = [{"its_key": one.key, "age": one.age_seconds, "its_polls": one.polls} for one in seen]
        await self._database.write(recording, parameters=rows)

    async def resolve(self, key: str, job_id: str | None, project_id: str | None = None) -> bool:
        """Settle an unknown row by its job, in a project of its own where given; without a job, plan it again.

        A row that was settled by a job, and has not ended, can be given another one: the id that its owner found was
        wrong. An id of this resolution replaces the claim of the row, so that a repeated execution whose answer was
        lost counts as done. It replaces the owner too, who does not follow the row any more: any living one may.
        """
        resolution_id = f"{_RESOLVED}{uuid4().hex}"
        told = case((_ROW.told_state == State.UNKNOWN, ""), else_=_ROW.told_state)  # it may become unknown once more
        values: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
        values |= {"job_id": job_id, "claim": resolution_id, "owner": resolution_id, "told_state": told}
        values |= {"error": None, "seen_at": None, "polls": None, **self._changed()}
        rows = update(ITEMS).where(_ROW.key == key)
        if job_id is not None:
            corrected = and_(_ROW.state == State.ACTIVE, _ROW.claim.startswith(_RESOLVED))
            settling = rows.where(or_(_ROW.state == State.UNKNOWN, corrected))
            settling = settling.values(state=State.ACTIVE, created_at=self._clock(), **values)
            return (await self._database.write(settling))[0] == 1
        tries = func.coalesce(_ROW.tries, 1)
        counted = case((_ROW.claim == resolution_id, tries), else_=tries + 1)  # an earlier execution has counted it
        is_repeated = and_(_ROW.state == State.PLANNED, _ROW.claim == resolution_id)
        again = rows.where(or_(_ROW.state == State.UNKNOWN, is_repeated))
        values |= {"told_state": statements.FOLLOWED_AGAIN}
        again = again.values(state=State.PLANNED, sent_at=None, claimed_at=None, tries=counted, **values)
        before = statements.record_sends(statements.unknown_send(key), self._clock())
        return (await self._database.write(*before, again))[0] == 1

    async def record_gone(self, key: str, error: NotFoundError, polls: int, *, of_job: str | None) -> JournalRow | None:
        """End an active row of `of_job` as failed, since that job is gone; record how many polls there were.

        Return the row if this moved it.
        """
        text = one_line(self._mask(f"its job is gone: {error.message}"), _LONGEST_ERROR_BYTES)
        values: dict[str, Any] = {"error": text, "refusal": refusal_text(error, self._mask), "polls": polls}
        return await self._move(key, State.FAILED, of_job=of_job, **values)

    async def abandon(self, row: JournalRow) -> bool:
        """End a planned, active or unknown row as abandoned, unless its state or its job has changed since it was read.

        It is one conditional write, as a claim is: a planned row is abandoned or sent, never both.
        """
        if row.state not in origins(State.ABANDONED):
            return False
        before = "" if row.error is None else f"; before that: {row.error}"
        error = one_line(f"abandoned while {row.state}{before}", _LONGEST_ERROR_BYTES)  # masked when it was recorded
        if await self._move(row.key, State.ABANDONED, origin=row.state, of_job=row.job_id, error=error):
            return True
        now = (await self.get_many([row.key]))[row.key]  # it is so where a commit was repeated
        return (now.state, now.job_id) == (State.ABANDONED, row.job_id)

    async def record_sending_as_unknown(self) -> None:
        """Record as unknown the rows of a file that its earlier owner was sending when it ended."""
        _, found = await self._database.write(statements.sending_to_unknown(**self.unknown_columns()))
        self.became_unknown += (key for (key,) in found)

    async def record_unknown_of_dead_owners(self, patience: float) -> tuple[str, ...]:
        """Record as unknown the rows whose owner has had no heartbeat for `patience` seconds; return their keys."""
        now = self._clock()
        is_dead = statements.owner_is_dead(now, patience)
        recording = statements.sending_to_unknown(is_dead, **self.unknown_columns())
        found = tuple(key for (key,) in await self._database.read(recording, commit=True))
        self.became_unknown += found
        silent = OWNERS.c.seen_at < now - patience
        gone = delete(OWNERS).where(silent, statements.server_is_up_for(patience))
        await self._database.read(gone, commit=True)
        return found

    async def record_owner(self, keys: Sequence[str]) -> None:
        """Record that this owner waits for items which another one had begun."""
        begun = update(ITEMS).where(_ROW.key.in_(keys), BEGUN, _ROW.owner != self.owner)
        await self._database.write(begun.values(owner=self.owner))

    async def set_limits(self, limits: FleetLimits) -> None:
        """Change the limits of all owners of the journal."""
        await self._database.write(update(JOURNAL).values(limit_columns(limits)))

    async def set_service(self, service: str, *, replaces: bool) -> str:
        """Record the service that the journal belongs to, and return it; another one stays unless `replaces` is set."""
        recording = update(JOURNAL).values(service=service)
        await self._database.write(recording if replaces else recording.where(JOURNAL.c.service.is_(None)))
        return await self.service() or service

    async def pause(self, seconds: float, project_id: str | None = None) -> None:
        """Record that the service wants no create of a project for `seconds`, also for a run after a restart.

        A longer pause stands, unless a clock recorded it that was ahead.
        """
        moment, column = seconds_of(self._clock()), PAUSES.c
        pausing = self._database.backend.insert(PAUSES)
        pausing = pausing.values(project=project_id or "", set_at=moment, until=moment + seconds)
        given = pausing.excluded
        trusted = column.set_at < given.set_at + SKEW_SECONDS
        until = case((and_(trusted, column.until > given.until), column.until), else_=given.until)
        changed = {"set_at": given.set_at, "until": until}
        await self._database.write(pausing.on_conflict_do_update(index_elements=[column.project], set_=changed))

    async def flush(self) -> None:
        """Wait for all queued writes, including those whose callers were cancelled, and release unanswered claims."""
        await self._database.flush()
        await self.release_unanswered()

    async def _move(
        self, key: str, target: State, times: Sequence[str] = (), *, before: Sequence[Executable] = (), **values: Any
    ) -> JournalRow | None:
        """Move a row, and return it as it is then; the columns `times`, and that of its end, get the present time.

        The statements `before` are executed first, in the same transaction.
        """
        ending = () if MOVES[target] else ("ended_at",)
        values |= self._changed(*ending, *times)
        statement, parameters = statements.move(key, target, **values)
        claim = self._claims.current.get(key)
        _, found = await self._database.write(*before, statement, parameters=parameters)
        if found and self._claims.current.get(key) == claim:  # not a newer one
            self._claims.current.pop(key, None)
        return row_of(found[0]) if found else None

    def unknown_columns(self) -> dict[str, Any]:
        """Return the columns of a row that becomes unknown since its owner ended.

        A rate counts its create from now on. The create was given up when its owner ended, and nobody knows when that
        was: the last heartbeat came before it, now is after it.
        """
        return {"error": "the process that sent its create ended before the answer", **self._changed("sent_at")}

    def _changed(self, *times: str) -> dict[str, Any]:
        """Return the columns that each change of a row sets to the present time, and those of `times`."""
        return dict.fromkeys(("updated_at", "changed_at", *times), self._clock())

    def _text(self, error: Exception) -> str:
        """Return what happened, in the words that every output shows: of a foreign error, its type first."""
        return one_line(self._mask(_whole_text(error)), _LONGEST_ERROR_BYTES)


def _whole_text(error: Exception) -> str:
    """Return an error's text uncut: it is masked first, since cutting could leave a part of the API key."""
    if isinstance(error, AgentJobsError):
        return error.message
    text = ""
    with suppress(Exception):
        text = str(error)
    return f"{type(error).__name__}: {text or error_text(error)}"


def _next_try(new_key: ColumnElement[str], item_key: ColumnElement[str], now: ColumnElement[float]) -> dict[str, Any]:
    """Return the columns of the row that plans an ended row once more."""
    copied = {name: _ROW[name] for name in ("prompt", "project_id", "context")}
    return {
        **copied,
        "key": new_key,
        "state": literal(State.PLANNED.value),
        "owner": literal(NO_OWNER),  # the chunk of the first try is over: no task of a queue has this key
        "tries": func.coalesce(_ROW.tries, 1) + 1,
        "told_state": statements.FOLLOWED_AGAIN,
        "item_key": item_key,
        **dict.fromkeys(("planned_at", "updated_at", "changed_at"), now),
    }


def _has_claim(claims: Mapping[str, str]) -> ColumnElement[bool]:
    """Return whether a row has one of these claims; the keys of the rows, which have an index, are given by claim."""
    return and_(_ROW.key.in_(set(claims.values())), _ROW.claim.in_(claims))


def _slices(claims: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield claims in parts that fit into one statement each: SQLite has a limit of parameters."""
    pairs = list(claims.items())
    return (dict(pairs[start : start + _CLAIMS_AT_ONCE]) for start in range(0, len(pairs), _CLAIMS_AT_ONCE))
