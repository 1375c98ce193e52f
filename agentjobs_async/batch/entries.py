"""The rows of a journal, and the moves they make."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import uuid4

from attrs import field, frozen
from sqlalchemy import Executable, Row

import agentjobs_async.batch._fleet as fleet
import agentjobs_async.batch._tables as tables
from agentjobs_async import AgentJob, InvalidInputError, JobRef, JournalError
from agentjobs_async._text import one_line, words_of
from agentjobs_async.batch._database import Database
from agentjobs_async.batch.items import BatchItem
from agentjobs_async.batch.limits import FleetLimits
from agentjobs_async.batch.pace import Rate
from agentjobs_async.batch.states import State

__all__ = ["Entries", "JournalRow", "NoRoom", "Rows", "difference"]

_PAGE: Final = 500
_AT_ONCE: Final = 50
_LONGEST_ERROR: Final = 2_000

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
    """The limits of all workers let no create go now.

    Attributes:
        wait: Seconds after which there may be room.
    """

    wait: float


class Entries:
    """What a runner does with a journal. Every move is one atomic statement, and durable when its call returns.

    Each call raises a `JournalError` when the journal can't be read or written; nothing was changed then.

    Args:
        clock: The wall clock, in seconds since the epoch: a number, or the database's own.
        guard: Raises a `JournalError` when claims must not be made any more.

    Attributes:
        owner: Who claims rows by these calls.
    """

    def __init__(
        self, database: Database, clock: Callable[[], tables.Moment], guard: Callable[[], None] = lambda: None
    ) -> None:
        self.owner = uuid4().hex
        self._database = database
        self._clock = clock
        self._guard = guard
        self._mask: Callable[[str], str] = str

    def mask(self, mask: Callable[[str], str]) -> None:
        """Let `mask` take the key out of everything that a session's answers and errors bring."""
        self._mask = mask

    def now(self) -> tables.Moment:
        """Give the time by the journal's clock."""
        return self._clock()

    async def add(self, items: Sequence[BatchItem]) -> int:
        """Plan items that are not there yet, some hundred at once; give how many were new."""
        rows = [self._planned(item, None) for item in items]
        # In one commit, yet by small statements: the loop stands still while each is put together.
        new = self._database.backend.insert
        parts = [tables.added(new, rows[at : at + _AT_ONCE]) for at in range(0, len(rows), _AT_ONCE)]
        return sum([touched for touched, _ in await asyncio.gather(*map(self._database.write, parts))])

    async def interrupted(self) -> tuple[str, ...]:
        """Make the rows unknown that an earlier owner was sending when it ended, and give their keys."""
        return await self._keys_of(tables.interrupted(**self._interruption()))

    async def orphaned(self, patience: float) -> tuple[str, ...]:
        """Make the rows unknown whose owner gave no sign of life for so many seconds, and give their keys."""
        return await self._keys_of(fleet.orphaned(self._clock(), patience, **self._interruption()))

    async def counts(self) -> dict[State, int]:
        """Give how many rows there are of each state."""
        found = await self._database.read(tables.counts())
        return dict.fromkeys(State, 0) | _legible(lambda: {State(state): number for state, number in map(tuple, found)})

    async def resolved(self, key: str, job_id: str | None, project_id: str | None = None) -> bool:
        """Settle an unknown row: by its job, in a project of its own where given, or without one by planning again."""
        target = State.PLANNED if job_id is None else State.CREATED
        if target is State.PLANNED:
            await self._database.write(tables.kept_send(key))
        project = {} if project_id is None else {"project_id": project_id}
        return await self._move(key, target, origin=State.UNKNOWN, job_id=job_id, error=None, **project)

    async def settle(self) -> None:
        """Wait until what was ordered is carried out, by calls that were cancelled too."""
        await self._database.write(tables.nothing())

    async def page(
        self, after: int, *, state: State | str | None = None, until: int | None = None, size: int = _PAGE
    ) -> list[JournalRow]:
        """Give the next rows whose number is above `after`, and at most `until`."""
        state = None if state is None else State(state)
        return [_row(found) for found in await self._database.read(tables.page(after, size, state=state, until=until))]

    async def last_number(self) -> int:
        """Give the number of the last row; 0 without any."""
        return (await self._database.read(tables.last_number()))[0][0] or 0

    async def named(self, keys: Sequence[str]) -> dict[str, JournalRow]:
        """Give the rows that are there of so many keys."""
        return {row.key: row for row in map(_row, await self._database.read(tables.with_keys(keys)))}

    async def unended(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Give those of the keys whose rows have not ended, in the order of the rows."""
        return tuple(key for (key,) in await self._database.read(tables.unended(keys)))

    async def meet(self, item: BatchItem, run: str) -> JournalRow | None:
        """Plan an item in a run, and give its row, whatever its state; `None` when the run has met its key before."""
        _, found = await self._database.write(tables.met(self._database.backend.insert, self._planned(item, run)))
        return _row(found[0]) if found else None

    async def meet_ended(self, keys: Sequence[str], run: str) -> set[str]:
        """Mark rows as met in a run; give the keys that it has not met before."""
        return {key for (key,) in (await self._database.write(tables.met_ended(keys, run)))[1]} if keys else set()

    async def claim(self, key: str, project_id: str | None = None) -> str | NoRoom | None:
        """Make a planned row `sending`, durably; only who gets the claim may send it.

        With `project_id`, the row keeps that as its project. Gives the claim; `NoRoom` when the limits of all workers
        leave none; `None` when the row is not planned.
        """
        self._guard()
        claim = uuid4().hex
        project: dict[str, Any] = {} if project_id is None else {"project_id": project_id}
        statement = self._database.backend.claim(key, claim, self._clock(), owner=self.owner, error=None, **project)
        _, rows = await self._database.write(statement, claims=True)
        wait, claimed = tuple(rows[0]) if rows else (None, 0)
        if claimed:
            return claim
        return None if wait is None else NoRoom(wait)

    async def created(self, key: str, ref: JobRef) -> bool:
        """Keep a job's id, late or not."""
        return await self._move(
            key, State.CREATED, job_id=ref.job_id, project_id=ref.project_id, sent_at=self._clock(), error=None
        )

    async def ended(self, key: str, job: AgentJob) -> bool:
        """Keep how a job ended."""
        return await self._move(key, State(job.status), pr_link=job.pr_link and self._mask(job.pr_link), error=None)

    async def not_sent(self, key: str, error: Exception | None, *, claim: str | None = None) -> bool:
        """Take a claim back: nothing was sent, or nothing was done about it.

        Args:
            key: The row's.
            error: Why; `None` is nobody's fault.
            claim: What `claim` gave: it is taken back even from a row that became unknown meanwhile, and a row that
                somebody else has claimed since stays as it is. `None` takes back any claim of a row that is sending.
        """
        origin = State.SENDING if claim is None else None
        words = None if error is None else self._words(error)
        return await self._move(key, State.PLANNED, origin=origin, claim=claim, sent_at=None, error=words)

    async def refused(self, key: str, error: Exception, *, claim: str | None = None) -> bool:
        """Keep that the service refused a create; with `claim`, of that claim only."""
        return await self._move(key, State.REJECTED, claim=claim, sent_at=self._clock(), error=self._words(error))

    async def lost(self, key: str, error: Exception, *, claim: str | None = None) -> bool:
        """Keep that nobody knows what became of a create; with `claim`, of that claim only."""
        return await self._move(key, State.UNKNOWN, claim=claim, sent_at=self._clock(), error=self._words(error))

    async def note(self, key: str, error: Exception) -> None:
        """Keep what ended the wait for a job that has not ended."""
        await self._database.write(tables.noted(key, error=self._words(error), updated_at=self._clock()))

    async def limits(self) -> FleetLimits:
        """Give the limits of all owners of a shared journal."""
        found = (await self._database.read(fleet.limits()))[0]
        rate = None if found.create_count is None else Rate(found.create_count, per=found.create_per)
        return FleetLimits(found.max_active, rate, found.unsure_for)

    async def set_limits(self, limits: FleetLimits) -> None:
        """Change the limits of all owners of a shared journal."""
        rate = limits.create_rate
        await self._database.write(
            fleet.limited(
                max_active=limits.max_active,
                create_count=None if rate is None else rate.count,
                create_per=None if rate is None else rate.per,
                unsure_for=limits.unsure_for,
            )
        )

    async def sent_ages(self, seconds: float, most: int) -> list[float]:
        """Give how many seconds ago the last creates were sent, newest first; none older than `seconds`."""
        found = await self._database.read(tables.sent_ages(self._clock(), seconds, most))
        return _legible(lambda: [max(age, 0.0) for (age,) in found])

    async def pause(self, seconds: float) -> None:
        """Keep that the service wants no create for so long, for a run that comes after a restart."""
        await self._database.write(tables.paused_until(self._clock(), seconds))

    async def paused_for(self) -> float:
        """Give the seconds for which the service still wants no create."""
        ((seconds,),) = await self._database.read(tables.paused_for(self._clock()))
        return _legible(lambda: max(float(seconds or 0.0), 0.0))

    async def _move(
        self, key: str, target: State, *, origin: State | None = None, claim: str | None = None, **values: Any
    ) -> bool:
        statement = tables.moved(key, target, origin=origin, claim=claim, updated_at=self._clock(), **values)
        return (await self._database.write(statement))[0] == 1

    async def _keys_of(self, statement: Executable) -> tuple[str, ...]:
        return tuple(key for (key,) in (await self._database.write(statement))[1])

    def _interruption(self) -> dict[str, Any]:
        now = self._clock()
        return {"error": "its owner ended while it was being sent", "sent_at": now, "updated_at": now}

    def _words(self, error: Exception) -> str:
        return f"{type(error).__name__}: {one_line(self._mask(_said(error)), _LONGEST_ERROR)}"

    def _planned(self, item: BatchItem, run: str | None) -> dict[str, Any]:
        now = self._clock()
        return {"key": item.key, "prompt": item.prompt, "project_id": item.project_id, "run": run, "updated_at": now}


def _said(error: Exception) -> str:
    """Give all that an error says; masking comes before cutting, which could leave a part of the key."""
    with suppress(Exception):
        return str(error)
    return words_of(error)


async def _paged(entries: Entries, state: State | str | None) -> AsyncIterator[JournalRow]:
    after = 0
    while found := await entries.page(after, state=state):
        for row in found:
            yield row
        after = found[-1].number


def difference(item: BatchItem, row: JournalRow) -> InvalidInputError | None:
    """Give the refusal of an item whose key is that of another one."""
    what = "prompt" if item.prompt != row.prompt else "project"
    same = item.prompt == row.prompt and (item.project_id in {None, row.project_id} or row.project_id is None)
    return None if same else InvalidInputError(f"the key {item.key!r:.200} is that of another {what} in the journal")


def _row(found: Row[Any]) -> JournalRow:
    return _legible(lambda: _row_of(found))


def _row_of(found: Row[Any]) -> JournalRow:
    words = (found.key, found.prompt, found.project_id, found.state, found.job_id, found.pr_link, found.error)
    if not all(word is None or isinstance(word, str) for word in words):
        raise TypeError
    return JournalRow(*words, datetime.fromtimestamp(found.updated_at, UTC), found.number)


def _legible(read: Callable[[], T]) -> T:
    """Give what `read` makes of cells; its errors would quote them."""
    with suppress(ValueError, TypeError, OverflowError, OSError):
        return read()
    raise JournalError("the journal is broken: it holds what it can't have written", "corrupt")
