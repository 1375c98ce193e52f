"""The course of one item: a create that is sent at most once, then the wait for its job."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from attrs import define, field, frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    JobRef,
    JournalError,
    NotSentError,
    RateLimitedError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async.batch.entries import Entries, JournalRow, NoRoom
from agentjobs_async.batch.items import BatchResult, Outcome
from agentjobs_async.batch.pace import Pace
from agentjobs_async.batch.states import State

__all__ = ["LONGEST_WISH", "Course", "Means", "named"]

_LONGEST_CREATE: Final = 120.0
_LEAST_TIME: Final = 0.001
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_MOST_DOUBLINGS: Final = 10
LONGEST_WISH: Final = 3600.0
_HELD_BACK: Final = AgentJobsError("all creates are held back")

_logger: Final = logging.getLogger("agentjobs_async.batch")


@frozen
class Means:
    """What all items of a run have in common.

    Attributes:
        gate: Bounds the creates under way, and with that what one crash leaves unsure.
        timeout: Seconds for each item; `None` for ever.
        halted: Set when nothing more is to be sent.
        closing: Set when nothing more is to be waited for, either.
        lost: Jobs that the journal could not take, by the keys of their items.
    """

    session: AgentJobsSession
    entries: Entries
    pace: Pace
    gate: asyncio.Semaphore
    timeout: float | None
    halted: asyncio.Event
    closing: asyncio.Event
    lost: dict[str, JobRef] = field(factory=dict)


@define(eq=False)
class Course:
    """One item under way.

    Attributes:
        state: Where its row is: planned, sending or created.
        since: Loop time of the last change of `state`.
        ref: Its job, or the job's bare id where the row knows no project; `None` before it is known.
        claim: The claim under which its create is sent; `None` before that.
        leaving: Whether nobody waits for its end any more: a create under way is brought to its answer, no further.
        over: Whether it has ended, in whatever state.
    """

    row: JournalRow
    means: Means
    state: State
    since: float
    ref: JobRef | str | None = None
    claim: str | None = None
    leaving: bool = False
    over: bool = False
    _spent: float = 0.0
    _failures: int = 0

    @classmethod
    def of(cls, row: JournalRow, means: Means) -> "Course":
        """Give the course of a row that is planned or created."""
        ref: JobRef | str | None = row.job_id
        if row.job_id is not None and row.project_id is not None:
            ref = JobRef(row.project_id, row.job_id)
        return cls(row, means, row.state, _now(), ref)

    async def run(self) -> BatchResult | None:
        """Give the result; `None` when somebody else took the row, or when nothing more is to be done.

        Raises:
            JournalError: The journal can't be written. A job id that it could not take is in `Means.lost` and the log.
            AuthError: 401 to a create: the key is refused, and would be for every item.
            NotSentError: The service's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed.
        """
        try:
            return await self._run()
        finally:
            self.over = True

    async def _run(self) -> BatchResult | None:
        target: AgentJob | JobRef | str | None = self.ref
        while target is None:
            sent = await self._send()
            if sent is None or isinstance(sent, BatchResult):
                return sent
            if isinstance(sent, AgentJob):
                target = sent
            elif self.means.halted.is_set() or self.leaving:
                return None
        return None if self.leaving or self.means.closing.is_set() else await self._wait(target)

    async def _send(self) -> AgentJob | BatchResult | Exception | NoRoom | None:
        """Send the create once: give the job, a result, `None`, or the reason why it is to be sent later."""
        async with self.means.gate:
            await self.means.pace.take()
            # From here on nobody may cancel lightly: see `Batch.aclose`.
            self._is(State.SENDING)
            try:
                claimed = await self.means.entries.claim(self.row.key, self._project())
            except BaseException:
                self.means.pace.unspent()
                raise
            if not isinstance(claimed, str):
                self.means.pace.unspent()
                return self._held_back(claimed)
            self.claim = claimed
            if self.means.halted.is_set() or self.leaving or self.means.pace.paused:  # since the pace let it go
                self.means.pace.unspent()
                await self._planned_again(None)
                return _HELD_BACK
            answer = await self._answer()
            if isinstance(answer, AgentJob):
                await self._keep(answer)
                return answer
            return await self._failed(answer)

    def _held_back(self, room: NoRoom | None) -> NoRoom | None:
        """Let no create of this run ask again before there may be room."""
        self._is(State.PLANNED)
        if room is not None:
            self.means.pace.hold(room.wait)
        return room

    async def _answer(self) -> AgentJob | Exception:
        """Create the job, or give the error; the pace is told in any case."""
        started = _now()
        nothing_done = False
        try:
            return await self.means.session.create_job(
                self.row.prompt,
                project_id=self._project(),
                timeout=min(max(self._left(), _LEAST_TIME), _LONGEST_CREATE),
                retry=False,  # here a 429, or a dead network, holds all creates back
            )
        except RateLimitedError as error:
            nothing_done = True
            started = _now()  # the service's own wish costs the item none of its time
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, the row has to say so
            nothing_done = _outcome(error) is CreateOutcome.NOT_SENT
            return error
        finally:
            (self.means.pace.unspent if nothing_done else self.means.pace.spent)()
            self._spent += _now() - started

    async def _keep(self, job: AgentJob) -> None:
        """Write the id down; when that fails, it goes into the log and among the lost."""
        words, reason = "journal: somebody else changed the row meanwhile", "locked"
        try:
            kept = await self.means.entries.created(self.row.key, job.ref) or await self._is_kept(job)
        except JournalError as error:
            kept, words, reason = False, str(error), error.reason
        if not kept:
            self.means.lost[self.row.key] = job.ref
            _logger.critical("%s; %s", words, named({self.row.key: job.ref}))
            raise JournalError(words, reason)
        self.ref = job.ref
        self._is(State.CREATED)

    async def _is_kept(self, job: AgentJob) -> bool:
        """Tell whether the row has the id already: a commit may have been told twice."""
        return (await self.means.entries.named([self.row.key]))[self.row.key].job_id == job.id

    async def _failed(self, error: Exception) -> BatchResult | Exception:
        """Decide about a create that gave no job."""
        outcome = _outcome(error)
        if outcome not in {CreateOutcome.REJECTED, CreateOutcome.NOT_SENT}:
            await self.means.entries.lost(self.row.key, error, claim=self.claim)
            self._is(State.UNKNOWN)
            return self._result(Outcome.UNKNOWN, error)
        again = isinstance(error, RateLimitedError) or outcome is CreateOutcome.NOT_SENT
        if not again and not _ends_the_run(error):
            await self.means.entries.refused(self.row.key, error, claim=self.claim)
            self._is(State.REJECTED)
            return self._result(Outcome.REJECTED, error)
        await self._planned_again(error)
        if _ends_the_run(error):
            raise error
        return await self._postponed(error)

    async def _planned_again(self, error: Exception | None) -> None:
        await self.means.entries.not_sent(self.row.key, error, claim=self.claim)
        self._is(State.PLANNED)

    async def _postponed(self, error: Exception) -> BatchResult | Exception:
        """Hold all creates back for a while; or end, when no try would help or the time is up."""
        if isinstance(error, InvalidInputError):
            return self._result(Outcome.REJECTED, error)
        pause = min(_FIRST_PAUSE * 2 ** min(self._failures, _MOST_DOUBLINGS), _LONGEST_PAUSE)
        self._failures += 1
        if isinstance(error, RateLimitedError):
            wish = error.retry_after
            pause = pause if wish is None else min(max(wish, _FIRST_PAUSE), LONGEST_WISH)
            self._hold_back_all(pause, error)
            await self.means.entries.pause(pause)
            return error
        self._hold_back_all(pause, error)
        self._spent += pause
        return error if self._left() > 0 else self._result(Outcome.TIMED_OUT, error)

    def _hold_back_all(self, seconds: float, reason: Exception) -> None:
        self.means.pace.pause(seconds, reason)
        _logger.warning("all creates are held back for %.0f s: %s", seconds, reason)

    async def _wait(self, target: AgentJob | JobRef | str) -> BatchResult:
        left = self._left()
        timeout = None if left == float("inf") else max(left, _LEAST_TIME)
        try:
            job = await self.means.session.watch(target, timeout=timeout)
        except Exception as error:  # noqa: BLE001 - each item has its own fate, a get_job's own errors included
            return await self._unfinished(error)
        await self.means.entries.ended(self.row.key, job)
        return BatchResult(self.row.item, Outcome(job.status), job, None, job.ref)

    async def _unfinished(self, error: Exception) -> BatchResult:
        # A refused key ends a run only by a create: of a job that may not be read, the others must not suffer.
        if _ends_the_run(error) and not isinstance(error, AuthError):
            raise error
        await self.means.entries.note(self.row.key, error)
        if isinstance(error, WaitTimeoutError):
            return self._result(Outcome.TIMED_OUT, error, error.last_job)
        return self._result(Outcome.UNFINISHED, error)

    def _result(self, outcome: Outcome, error: Exception, job: AgentJob | None = None) -> BatchResult:
        return BatchResult(self.row.item, outcome, job, error, self.ref if isinstance(self.ref, JobRef) else None)

    def _project(self) -> str | None:
        return self.row.project_id or self.means.session.project_id

    def _left(self) -> float:
        return float("inf") if self.means.timeout is None else self.means.timeout - self._spent

    def _is(self, state: State) -> None:
        self.state, self.since = state, _now()


def named(lost: Mapping[str, JobRef]) -> str:
    """Say which jobs are lost, by the keys of their items, and what to do about it."""
    jobs = ", ".join(f"the job of {key!r:.200} is {ref.to_token()}" for key, ref in lost.items())
    return f"{jobs}: keep it, and resolve it later"


def _outcome(error: Exception) -> CreateOutcome | None:
    return error.outcome if isinstance(error, AgentJobsError) else None


def _ends_the_run(error: Exception) -> bool:
    """Tell whether an error would befall every other item as well, however often it is tried."""
    match error:
        case SessionClosedError() | AuthError(status=401) | NotSentError(reason="certificate" | "proxy"):
            return True
        case _:
            return False


def _now() -> float:
    return asyncio.get_running_loop().time()
