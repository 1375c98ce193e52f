"""What one POST of a create is sent with where the service honours idempotency keys, and whether it may be repeated."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from attrs import define, field, frozen

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    CreateOutcomeUnknownError,
    InvalidInputError,
    ResponseError,
)
from agentjobs_async._errors import may_be_under_way
from agentjobs_async.batch._failures import Failure, pause_after
from agentjobs_async.batch._run.context import RunContext
from agentjobs_async.batch._run.create_gate import LONGEST_RETRY_AFTER_SECONDS
from agentjobs_async.batch._store.claims import Repetition
from agentjobs_async.batch._store.heartbeat import Instant
from agentjobs_async.batch._store.owning import repeatable, take_to_repeat
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow

_REPEATED: Final = ", and a repetition with the same key ended: "
_FINAL: Final = {Failure.REJECTED, Failure.UNAUTHORIZED, Failure.OUTDATED}


@frozen
class Terms:
    """What one POST of a create is sent with.

    Attributes:
        session: Sends it.
        digest: Of what it sends; `None` where the service honours no key.
        key_changes: How often the API key had been replaced when the digest was made.
        repetition: How a create is repeated that is in doubt; `None` for the first POST.
        left: Seconds from `began` on for which the service remembers the key.
        began: The moment before the journal was asked.
    """

    session: AgentJobsSession = field(repr=False)
    digest: str | None = None
    key_changes: int = 0
    repetition: Repetition | None = None
    left: float = inf
    began: Instant = field(factory=Instant)

    @property
    def remaining(self) -> float:
        """Seconds for which the service still remembers the key."""
        return self.left - self.began.age()

    def key_of(self, claim: str) -> str | None:
        """Return the idempotency key of what is sent under a claim; `None` where the service honours none."""
        if self.repetition is not None:
            return self.repetition.key
        return None if self.digest is None else claim

    def may_leave(self) -> bool:
        """Return whether the first byte may leave now: the API key is that of the digest, and a repetition is in time.

        Under another API key, the service could take a repetition for a create of somebody else.
        """
        in_time = self.repetition is None or self.remaining > 0
        return in_time and (self.digest is None or key_changes(self.session) == self.key_changes)


def remembered_for(session: AgentJobsSession) -> float | None:
    """Return for how many seconds the service remembers idempotency keys; `None` where it honours none."""
    dialect = getattr(session, "dialect", None)  # a session in memory may have none
    return None if dialect is None or dialect.idempotency_header is None else float(dialect.idempotency_seconds)


def key_changes(session: AgentJobsSession) -> int:
    """Return how often a session has replaced its API key by another one."""
    return int(getattr(session, "_key_changes", 0))  # a session in memory may have none


async def digest_of(session: AgentJobsSession, row: JournalRow) -> str | AgentJobsError:
    """Return the digest of what the create of a row sends, or the error with which `create_job` would refuse it."""
    try:
        return await session._digest_of_create(row.prompt, project_id=row.project_id, extra=row.extra)
    except AgentJobsError as error:
        return error.with_traceback(None)


async def first_terms(session: AgentJobsSession, row: JournalRow) -> Terms:
    """Return what the first POST of a create is sent with.

    What can't be sent has no digest, and is not repeated: its create meets the same error.
    """
    seconds, changes = remembered_for(session), key_changes(session)
    if seconds is None:
        return Terms(session)
    began = Instant()
    digest = await digest_of(session, row)
    if not isinstance(digest, str):
        return Terms(session)
    return Terms(session, digest, changes, left=seconds, began=began)


async def terms_of_repetition(context: RunContext, row: JournalRow, last: Terms) -> Terms | AgentJobsError | None:
    """Return what a repetition of an unknown create is sent with, and become the owner of its row.

    It has no more time than the `last` POST of this run had: the journal's clock may have been set back. Return `None`
    where it may not be repeated, or another owner is going to; the error where it can't be sent now.

    Raises:
        JournalError: The journal can't be read or written.
    """
    session = context.session
    seconds, changes, began = remembered_for(session), key_changes(session), Instant()
    if seconds is None:
        return None
    digest = await digest_of(session, row)
    if not isinstance(digest, str):
        return digest
    found = await take_to_repeat(context.records.store, row.key, context.owner.name, digest, seconds)
    if found is None or (left := min(found[1], last.remaining)) <= 0:
        return None
    return Terms(session, digest, changes, found[0], left, began)


async def rows_to_repeat(context: RunContext, query: Query) -> list[JournalRow]:
    """Return the unknown rows that meet `query`, may be repeated, and that no other owner is going to repeat.

    Those that this one is repeating are among them. A row is left out if what would be sent has changed: the address,
    the header, the body or the API key.

    Raises:
        JournalError: The journal can't be read.
    """
    seconds = remembered_for(context.session)
    if seconds is None:
        return []
    found = await repeatable(context.records.store, query, context.owner.name, seconds)
    return [row for row, digest in found if await digest_of(context.session, row) == digest]


def final_refusal(failure: Failure, error: Exception) -> Exception | None:
    """Return the error of a repetition with which every other one would end, too; `None` for one that may pass."""
    return error if failure in _FINAL and not may_be_under_way(error) else None


def unknown_error(row: JournalRow) -> InvalidInputError:
    """Return the error of a row that is unknown since another owner sent its create."""
    return InvalidInputError(f"{row.error}; look whether its agent runs, and resolve it")


def asked_pause(error: Exception) -> float:
    """Return for how many seconds the service asked with an error, 3600 at most; 0 where it did not."""
    asked = error.retry_after if isinstance(error, ResponseError | CreateOutcomeUnknownError) else None
    return min(asked or 0.0, LONGEST_RETRY_AFTER_SECONDS)


@define(eq=False)
class Repetitions:
    """Why the create of an item is in doubt, by what this run has sent, and when it is repeated next.

    Attributes:
        error: Why it is in doubt; `None` before this run has sent it.
        pause: Seconds until it is repeated.
    """

    error: CreateOutcomeUnknownError | Exception | None = field(default=None, init=False)
    pause: float = field(default=0.0, init=False)
    _count: int = field(default=0, init=False)
    _began: float | None = field(default=None, init=False)

    def start(self, error: Exception) -> None:
        """Record the error of the first POST, after which the create is in doubt."""
        self.error = error

    def age(self) -> float:
        """Return the seconds since this run has first postponed it; 0 before."""
        return 0.0 if self._began is None else asyncio.get_running_loop().time() - self._began

    def add(self, row: JournalRow, error: Exception, text: Callable[[Exception], str]) -> Exception:
        """Record how a repetition ended that gave no job, and return why the create is in doubt.

        Args:
            row: Its row, which says so where this run has not sent it before.
            error: How the repetition ended.
            text: Returns an error in words.
        """
        if not isinstance(error, CreateOutcomeUnknownError):
            doubt = (row.error or "") if self.error is None else text(self.error)
            words = doubt.partition(_REPEATED)[0] + _REPEATED + text(error)
            error = CreateOutcomeUnknownError(words, project_id=row.project_id)
        self.error = error
        return error

    def postpone(self, failure: Failure, error: Exception) -> None:
        """Set when it is repeated, after a create that ended so: after 1 s doubling to 60 s, or as the service asks."""
        if self._began is None:
            self._began = asyncio.get_running_loop().time()
        if failure is Failure.LIMITED:
            return  # the gate of its project holds it back
        self.pause = max(pause_after(self._count), asked_pause(error))
        self._count += 1

    async def wait(self) -> None:
        """Wait until it is to be repeated."""
        seconds, self.pause = self.pause, 0.0
        if seconds:
            await asyncio.sleep(seconds)
