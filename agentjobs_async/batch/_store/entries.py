"""The rows of a journal, and the moves they make."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

from attrs import field, frozen
from sqlalchemy import Executable, Row

from agentjobs_async import AgentJob, JobRef, JournalError
from agentjobs_async._text import error_text, one_line
from agentjobs_async.batch._store import shared as fleet
from agentjobs_async.batch._store import tables
from agentjobs_async.batch._store.writer import Database
from agentjobs_async.batch.items import BatchItem
from agentjobs_async.batch.limits import FleetLimits, Rate
from agentjobs_async.batch.states import State

__all__ = ["Entries", "JournalRow", "Lease", "NoRoom", "Rows"]

_PAGE: Final = 500
_LONGEST_ERROR: Final = 2_000
_DOUBT_SECONDS: Final = 600.0  # longer than any claim can stay under way in a connection that broke

T = TypeVar("T")


@frozen
class JournalRow:
    """What a journal knows of one item.

    Attributes:
        project_id: `None` is the session's, and the job is not created yet.
        job_id: The job's id; `None` before it is known, and always in the state `unknown`.
        error: Why the state is what it is, or what ended the last wait; `None` where nothing went wrong.
        updated_at: When the row was changed last, in UTC.
        number: Its place in the journal, from 1.
    """

    key: str
    prompt: str = field(repr=False)
    project_id: str | None
    state: State = field(converter=State)
    job_id: str | None
    pr_link: str | None
    error: str | None
    updated_at: datetime
    number: int

    @property
    def item(self) -> BatchItem:
        """The item as it was planned."""
        return BatchItem(self.key, self.prompt, self.project_id)


class Rows(AsyncIterator[JournalRow]):
    """Rows in the order in which they came: `async for` reads them page by page, `await` gives a list of them all."""

    def __init__(self, entries: "Entries", state: State | str | None) -> None:
        self._rows = _paged(entries, state)

    async def __anext__(self) -> JournalRow:
        return await anext(self._rows)

    def __await__(self) -> Generator[Any, None, list[JournalRow]]:
        return self._listed().__await__()

    async def _listed(self) -> list[JournalRow]:
        return [row async for row in self._rows]


@frozen
class NoRoom:
    """The limits of all workers, or a pause, let no create go now.

    Attributes:
        wait: Seconds after which there may be room.
        project_id: The only project whose creates have to wait; `None` when all have to.
    """

    wait: float
    project_id: str | None = None


class Lease(Protocol):
    """For how long a claim is certain to be its owner's."""

    def holds(self) -> bool:
        """Return whether it still is."""


class Entries:
    """What a runner does with a journal. Every move is one atomic statement, and durable when its call returns.

    Each call raises a `JournalError` when the journal can't be read or written; nothing was changed then.

    Args:
        clock: The wall clock, in seconds since the epoch: a number, or the database's own.
        guard: Raises a `JournalError` when claims must not be made any more.

    Attributes:
        owner: Who claims rows by these calls.
        lease: Begins, before a claim is asked for, the time within which it may be sent; gives `None` where nobody else
            can take the claim away.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], tables.Moment],
        guard: Callable[[], None] = lambda: None,
        lease: Callable[[], Lease | None] = lambda: None,
    ) -> None:
        self.owner = uuid4().hex
        self._database = database
        self._clock = clock
        self._guard = guard
        self.lease = lease
        self._mask: Callable[[str], str] = str
        # Claims without an answer: which key each is of, and the loop time at which that was noticed.
        self._unanswered: dict[str, tuple[str, float]] = {}

    def mask(self, mask: Callable[[str], str]) -> None:
        """Set `mask`, which removes the key from all text of a session's responses and errors."""
        self._mask = mask

    def now(self) -> tables.Moment:
        """Return the time by the journal's clock."""
        return self._clock()

    async def plan(self, items: Sequence[BatchItem], source: str, page: int) -> dict[str, JournalRow]:
        """Plan some hundred items with keys of their own, and return their rows, whatever their states, by key.

        Left out are items whose key is that of another prompt or project, and those whose key came on an earlier page
        of the same source.
        """
        backend = self._database.backend
        planning = tables.plan(backend.insert, f"{source}.{page}", self._clock())
        rows = [{"key": item.key, "prompt": item.prompt, "project_id": item.project_id} for item in items]
        return {row.key: row for row in map(_row, await self._database.insert(planning, rows))}

    async def interrupted(self) -> tuple[str, ...]:
        """Make the rows unknown that an earlier owner was sending when it ended, and give their keys."""
        return await self._keys_of(tables.interrupted(**self._interruption()))

    async def orphaned(self, patience: float) -> tuple[str, ...]:
        """Mark the rows unknown whose owner gave no sign of life for `patience` seconds; return their keys."""
        found = await self._database.sweep(fleet.orphaned(self._clock(), patience, **self._interruption()))
        await self._database.sweep(fleet.delete_dead_owners(self._clock(), patience))
        return tuple(key for (key,) in found)

    async def unfollowed(self, patience: float, after: int, most: int) -> list[tuple[int, str]]:
        """Return number and key of up to `most` items beyond the number `after` that no living owner waits for.

        Their owner gave no sign of life for `patience` seconds, and they are created, or planned again after a claim.
        """
        found = await self._database.read(fleet.unfollowed(self._clock(), patience, after, most))
        return [(row.number, row.key) for row in found]

    async def follow(self, keys: Sequence[str]) -> None:
        """Record that this owner waits for items which another one had begun."""
        await self._database.write(fleet.followed(keys, self.owner))

    async def counts(self) -> dict[State, int]:
        """Return how many items are in each state; one that was planned again counts by its newest row."""
        found = await self._database.read(tables.counts())
        counts = Counter(dict.fromkeys(State, 0))
        _legible(lambda: [counts.update({State(state): number}) for state, number in map(tuple, found)])
        return dict(counts)

    async def resolved(self, key: str, job_id: str | None, project_id: str | None = None) -> bool:
        """Settle an unknown row by its job, in a project of its own where given; without a job, plan it again."""
        changes: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
        changes |= {"job_id": job_id, "error": None, "updated_at": self._clock()}
        resolution = uuid4().hex
        if job_id is not None:
            statements: tuple[Executable, ...] = (tables.resolve(key, State.CREATED, resolution, **changes),)
        else:
            # The time of the first create goes to a table of its own, and leaves the row: a rate counts it once. All
            # in one transaction, so that a lost connection or a kill between them counts it neither twice nor never.
            again = tables.resolve(key, State.PLANNED, resolution, sent_at=None, **changes)
            statements = (tables.keep_send(key), tables.delete_old_sends(self._clock()), again)
        return (await self._database.write(*statements))[0] == 1

    async def abandoned(self, key: str, reason: str) -> bool:
        """End a row as failed whose job can't be read, or of which nobody knows whether it was created."""
        return await self._move(key, State.FAILED, error=one_line(self._mask(reason), _LONGEST_ERROR))

    async def flush(self) -> None:
        """Wait until all that was ordered is carried out, by calls that were cancelled too, and take claims back."""
        await self._database.settle(tables.nothing())
        await self.take_back()

    async def page(
        self,
        after: int,
        *,
        state: State | str | None = None,
        until: int | None = None,
        size: int = _PAGE,
        project: tuple[str | None] | None = None,
    ) -> list[JournalRow]:
        """Return the next rows above the number `after` and up to `until`; with `project`, those of this one."""
        state = None if state is None else State(state)
        statement = tables.page(after, size, state=state, until=until, project=project)
        return [_row(found) for found in await self._database.read(statement)]

    async def planned_projects(self, until: int) -> list[tuple[str | None, int]]:
        """Return (project, the number of its first row) of the planned rows up to the number `until`."""
        found = await self._database.read(tables.planned_projects(until))
        return _legible(lambda: [(_text_or_none(row.project_id), row.first) for row in found])

    async def planned_counts(self) -> dict[str | None, int]:
        """Return the number of planned rows of each project; `None` stands for rows that name none."""
        found = await self._database.read(tables.planned_counts())
        return _legible(lambda: {_text_or_none(project): number for project, number in map(tuple, found)})

    async def last_number(self) -> int:
        """Return the number of the last row; 0 without any."""
        return (await self._database.read(tables.last_number()))[0][0] or 0

    async def get_many(self, keys: Sequence[str]) -> dict[str, JournalRow]:
        """Return the rows that are there of so many keys."""
        return {row.key: row for row in map(_row, await self._database.read(tables.with_keys(keys)))}

    async def unended(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return those of the keys whose rows have not ended, in the order of the rows."""
        return tuple(key for (key,) in await self._database.read(tables.unended(keys)))

    async def claim(self, key: str, project_id: str | None = None) -> str | NoRoom | None:
        """Make a planned row `sending`, durably; only who gets the claim may send it.

        With `project_id`, the row keeps that as its project. Gives the claim; `NoRoom` when the limits of all workers
        leave none; `None` when the row is not planned.
        """
        self._guard()
        claim = uuid4().hex
        statement = self._database.backend.claim(key, claim, self._clock(), self.owner, project_id)
        try:
            _, rows = await self._database.write(statement, claims=True)
        except BaseException:
            # It may have been carried out, or may be yet; since nobody gets the claim, nothing is sent under it.
            self._unanswered[claim] = (key, asyncio.get_running_loop().time())
            raise
        if not rows:
            return None
        if rows[0].claimed:
            return claim
        return None if rows[0].wait is None else NoRoom(rows[0].wait, rows[0].of_project)

    async def take_back(self) -> tuple[str, ...]:
        """Plan the rows again whose claims had no answer, and return their keys.

        Nothing was sent under such a claim, so a row is planned again even when it has become unknown meanwhile. A
        claim without a row is looked for again by later calls: it may still be carried out.
        """
        if not self._unanswered:
            return ()
        unanswered = {claim: key for claim, (key, _) in self._unanswered.items()}
        statement = tables.taken_back(unanswered, updated_at=self._clock())
        taken = (await self._database.write(statement))[1]
        oldest = asyncio.get_running_loop().time() - _DOUBT_SECONDS
        found = {row.claim for row in taken}
        for claim, (_, since) in list(self._unanswered.items()):
            if claim in found or since < oldest:
                del self._unanswered[claim]
        return tuple(row.key for row in taken)

    async def mark_created(self, key: str, ref: JobRef) -> bool:
        """Keep a job's id, late or not."""
        return await self._move(
            key, State.CREATED, job_id=ref.job_id, project_id=ref.project_id, sent_at=self._clock(), error=None
        )

    async def mark_ended(self, key: str, job: AgentJob) -> bool:
        """Keep how a job ended."""
        return await self._move(key, State(job.status), pr_link=job.pr_link and self._mask(job.pr_link), error=None)

    async def release_claim(self, key: str, error: Exception | None, *, claim: str | None = None) -> bool:
        """Release a claim: nothing was sent, or the server did nothing about it.

        Args:
            key: The row's.
            error: Why; `None` is nobody's fault.
            claim: What `claim` gave: it is taken back even from a row that became unknown meanwhile, and a row that
                somebody else has claimed since stays as it is. `None` takes back any claim of this owner's, of a row
                that is sending.
        """
        origin = State.SENDING if claim is None else None
        words = None if error is None else self._words(error)
        return await self._move_mine(key, State.PLANNED, claim, origin=origin, sent_at=None, error=words)

    async def mark_rejected(self, key: str, error: Exception, *, claim: str | None = None) -> bool:
        """Record that the service refused a create: of `claim`, or of any claim of this owner's."""
        return await self._move_mine(key, State.REJECTED, claim, sent_at=self._clock(), error=self._words(error))

    async def mark_unknown(self, key: str, error: Exception, *, claim: str | None = None) -> bool:
        """Record that nobody knows what became of a create: of `claim`, or of any claim of this owner's."""
        return await self._move_mine(key, State.UNKNOWN, claim, sent_at=self._clock(), error=self._words(error))

    async def record_error(self, key: str, error: Exception) -> None:
        """Keep what ended the wait for a job that has not ended."""
        await self._database.write(tables.record_error(key, error=self._words(error), updated_at=self._clock()))

    async def limits(self) -> FleetLimits:
        """Return the limits of all owners of a shared journal."""
        found = (await self._database.read(fleet.limits()))[0]
        count, per = found.create_count, found.create_per
        rate = None if count is None else Rate(count, per=per, scope=found.create_scope)
        return FleetLimits(found.max_active, rate, found.unknown_for)

    async def set_limits(self, limits: FleetLimits) -> None:
        """Change the limits of all owners of a shared journal."""
        rate = limits.create_rate
        await self._database.write(
            fleet.limited(
                max_active=limits.max_active,
                create_count=None if rate is None else rate.count,
                create_per=None if rate is None else rate.per,
                create_scope=None if rate is None else rate.scope,
                unknown_for=limits.unknown_for,
            )
        )

    async def sent_ages(self, seconds: float, most: int) -> list[tuple[str | None, float]]:
        """Return (project, how many seconds ago) for the last `most` creates of each project, newest first.

        Left out are those older than `seconds`, and those whose time lies ahead: the clock was wrong.
        """
        found = await self._database.read(tables.sent_ages(self._clock(), seconds, most))
        return _legible(lambda: [(_text_or_none(row.project_id), max(row.age, 0.0)) for row in found])

    async def unknown_ages(self, seconds: float, most: int) -> list[tuple[str | None, float]]:
        """Return (project, how many seconds ago) for the last `most` rows of each project that became unknown.

        The newest come first, and none is older than `seconds`.
        """
        found = await self._database.read(tables.unknown_ages(self._clock(), seconds, most))
        return _legible(lambda: [(_text_or_none(row.project_id), max(row.age, 0.0)) for row in found])

    async def pause(self, seconds: float, project_id: str | None = None) -> None:
        """Record that the service wants no create of a project for `seconds`, for a run that comes after a restart."""
        insert = self._database.backend.insert
        await self._database.write(tables.paused_until(insert, project_id or "", self._clock(), seconds))

    async def paused_for(self) -> dict[str | None, float]:
        """Return for which projects the service still wants no create, and for how many seconds."""
        found = await self._database.read(tables.paused_for(self._clock()))
        return _legible(lambda: {_text_or_none(row.project) or None: float(row.left) for row in found})

    async def _move_mine(self, key: str, target: State, claim: str | None, **values: Any) -> bool:
        """Move a row that bears a claim, or any claim of this owner's: another owner's row stays as it is."""
        return await self._move(key, target, **values, **({"owner": self.owner} if claim is None else {"claim": claim}))

    async def _move(self, key: str, target: State, **values: Any) -> bool:
        statement = tables.move(key, target, updated_at=self._clock(), **values)
        return (await self._database.write(statement))[0] == 1

    async def _keys_of(self, statement: Executable) -> tuple[str, ...]:
        return tuple(key for (key,) in (await self._database.write(statement))[1])

    def _interruption(self) -> dict[str, Any]:
        now = self._clock()
        return {"error": "its owner ended while it was being sent", "sent_at": now, "updated_at": now}

    def _words(self, error: Exception) -> str:
        return f"{type(error).__name__}: {one_line(self._mask(_said(error)), _LONGEST_ERROR)}"


def _said(error: Exception) -> str:
    """Return all that an error says; masking comes before cutting, which could leave a part of the key."""
    with suppress(Exception):
        return str(error)
    return error_text(error)


async def _paged(entries: Entries, state: State | str | None) -> AsyncIterator[JournalRow]:
    after = 0
    while found := await entries.page(after, state=state):
        for row in found:
            yield row
        after = found[-1].number


def _row(found: Row[Any]) -> JournalRow:
    return _legible(lambda: _row_of(found))


def _row_of(found: Row[Any]) -> JournalRow:
    words = (found.key, found.prompt, found.project_id, found.state, found.job_id, found.pr_link, found.error)
    if not all(word is None or isinstance(word, str) for word in words):
        raise TypeError
    return JournalRow(*words, datetime.fromtimestamp(found.updated_at, UTC), found.number)


def _text_or_none(cell: object) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    raise TypeError


def _legible(read: Callable[[], T]) -> T:
    """Return what `read` makes of cells; its errors would quote them."""
    with suppress(ValueError, TypeError, OverflowError, OSError):
        return read()
    raise JournalError("the journal is broken: it holds what it can't have written", "corrupt")
