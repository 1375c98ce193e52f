"""The way of one item: its create, sent at most once, then the wait for its job, and the record of its end."""

import asyncio
import logging
from collections.abc import Awaitable
from enum import Enum, auto
from math import inf
from typing import Any, Final

from attrs import define, field, frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    JobRef,
    NotFoundError,
    NotSentError,
    RateLimitedError,
    ServerError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.create_gate import Reason
from agentjobs_async.batch._run.create_gates import Permit
from agentjobs_async.batch._run.kinds import Fault, fault_of
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.claims import NoRoom
from agentjobs_async.batch._store.heartbeat import Lease
from agentjobs_async.batch._store.pauses import pause
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch._store.settling import take_telling
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State
from agentjobs_async.telemetry.links import last_create, resumed_from

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0  # so that the end of an outage is noticed within a minute
_MOST_DOUBLINGS: Final = 10  # enough for the longest pause, and no overflow
_LONGEST_CREATE_SECONDS: Final = 120.0  # an item's own time may be days; no server takes that long to create a job
_LONGEST_DEFERRAL_SECONDS: Final = 5.0  # so that raised limits are noticed
_LATE: Final = NoRoom(1.0)  # seconds until the journal may answer in time again

_logger: Final = logging.getLogger("agentjobs_async.batch")


class Failure(Enum):
    """Why a create gave no job. All but `REJECTED` and `UNKNOWN` leave the item planned."""

    INVALID = auto()
    """Refused before any I/O: no later try would help."""
    WITHHELD = auto()
    """Not sent, since its claim could have been lost by then."""
    NOT_SENT = auto()
    """The create did not reach the server."""
    FATAL = auto()
    """The create did not reach the server, and no other one would."""
    LIMITED = auto()
    """Refused for now: by a 429, or by a 5xx that the user's gateway gives by itself."""
    UNAUTHORIZED = auto()
    """Refused with 401 or 403."""
    REJECTED = auto()
    """Refused for good."""
    UNKNOWN = auto()
    """An agent may have been started."""


def classify(error: Exception) -> Failure:
    """Return what the error of a create means."""
    outcome = error.outcome if isinstance(error, AgentJobsError) else None
    match outcome, error:
        case CreateOutcome.REJECTED, AuthError():
            failure = Failure.UNAUTHORIZED
        case CreateOutcome.REJECTED, RateLimitedError() | ServerError():
            failure = Failure.LIMITED
        case CreateOutcome.REJECTED, _:
            failure = Failure.REJECTED
        case CreateOutcome.NOT_SENT, InvalidInputError():
            failure = Failure.INVALID
        case CreateOutcome.NOT_SENT, NotSentError(reason="withheld"):
            failure = Failure.WITHHELD
        case CreateOutcome.NOT_SENT, _:
            failure = Failure.FATAL if ends_the_run(error) else Failure.NOT_SENT
        case _:
            failure = Failure.UNKNOWN
    return failure


def ends_the_run(error: Exception) -> bool:
    """Return whether every other item would meet the same error, however often it is tried."""
    return isinstance(error, SessionClosedError) or fault_of(error) is Fault.CONNECTION


def pause_after(failures: int) -> float:
    """Return for how many seconds all creates pause after one that did not reach the server, as others before it."""
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)


@frozen
class Failed:
    """A create that gave no job: what that means, and the error that says why."""

    failure: Failure
    error: Exception


@frozen
class Ended:
    """The item ends in this run: with a result, or with `None` where another owner or a later run continues with it."""

    result: BatchResult | None


@define(eq=False)
class ItemCreate:
    """The create of an item, tried until it is answered for good or the item is to go no further."""

    item: RunningItem
    _lease: Lease | None = field(default=None, init=False)

    async def run(self) -> AgentJob | Ended:
        """Return the job, whose id is in the journal then; send the create as often as no agent was started for sure.

        Raises:
            JournalError: The journal can't be written. A job id that it could not record is logged.
            NotSentError: The server's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed.
        """
        while self.item.phase < Phase.NO_CREATES:
            if (sent := await self._send()) is not None:
                return sent
        return Ended(None)

    async def _send(self) -> AgentJob | Ended | None:
        """Try to send the create once; return `None` where the item is planned again, and to be sent later.

        This is the order of a create in a batch; no step may change places:

        1. The gate of the project, then a slot of `max_active`: an item that waits for its project has nothing
           that an item of another project needs, neither a slot nor a part of a rate for all.
        2. The gate of all projects.
        3. A slot of `max_sending`. It comes last of what is waited for and is kept until the outcome is durable, since
           it bounds what one crash leaves unknown.
        4. The durable claim: after a crash, a row that may have been sent is `sending`, never `planned`.
        5. Once more, whether creates or the run were held back meanwhile, and whether the claim is still certain to be
           this owner's: all of the above takes time. The session asks for the latter again before the first byte.
        6. The create. Its answer reaches the gates before any other create can go.
        7. The durable outcome. Only then slots and permits are given back.
        """
        permit = self.item.context.gates.permit(self.item.slot.project)
        try:
            if not await permit.pass_next():
                return Ended(None)
            await self.item.context.slots.take(self.item.slot)
            await permit.pass_next()
            async with self.item.context.max_sending:
                if not self._may_go(permit):
                    return None
                with self.item.context.session._shutdown.recording() as created:  # a draining waits for it
                    try:
                        return await self._claim_and_create(permit)
                    except asyncio.CancelledError:
                        for ref in tuple(created):  # its answer came together with the cancellation
                            _ = self._start_recording(self.item.claim or "", ref)
                        raise
        finally:
            permit.refund()
            if self.item.state is State.PLANNED:
                self.item.context.slots.put_back(self.item.slot)

    async def _claim_and_create(self, permit: Permit) -> AgentJob | Ended | None:
        # While the state is `sending`, nothing but `Phase.CUT` cancels this item: its answer would be lost.
        self.item.set_state(State.SENDING)
        self.item.claim = None  # an earlier one says nothing about what is asked for now
        heartbeat = self.item.context.opened.heartbeat
        lease = self._lease = None if heartbeat is None else Lease(heartbeat)
        claimed = await self.item.context.records.claim(self.item.row.key)
        if isinstance(claimed, NoRoom):
            self._defer(claimed)
        if not isinstance(claimed, str):
            self.item.set_state(State.PLANNED)
            return await self._end_unclaimed() if claimed is None else None
        self.item.claim = claimed
        if not self._may_go(permit):
            await self._plan_again(claimed, None)
            return None
        if lease is not None and not lease.is_valid():
            await self._plan_late(claimed)
            return None
        answer = await self._create(permit)
        if isinstance(answer, AgentJob):
            return await self._record_job(claimed, answer)
        return await self._record_failure(claimed, answer)

    async def _end_unclaimed(self) -> Ended | None:
        """End an item whose row is planned no more: it was abandoned, or another owner has it."""
        await self._set_row(None)
        if self.item.row.state is State.PLANNED:
            return None  # the other owner has planned it again
        if self.item.row.state is not State.ABANDONED:
            return Ended(None)
        ended = self._end_abandoned()
        # Any other run may have read the planned row, too. After a crash from here on, the journal alone tells of it.
        return ended if await take_telling(self.item.context.records.store, self.item.key) else Ended(None)

    def _may_go(self, permit: Permit) -> bool:
        return permit.is_current and self.item.phase is Phase.RUNNING

    async def _plan_late(self, claim: str) -> None:
        """Release a claim whose owner may have counted as dead since it was asked for; it is asked for anew."""
        _logger.warning("%r was claimed too late to be sent; the journal answers slowly", self.item.row.key)
        await self._plan_again(claim, None)
        self._defer(_LATE)

    def _defer(self, room: NoRoom) -> None:
        """Defer creates of this project, or all, until there may be room, or the limits may have been raised."""
        gates = self.item.context.gates
        gate = gates.common if room.project_id is None else gates.of(self.item.slot.project)
        gate.hold(Reason.FULL, min(room.wait, _LONGEST_DEFERRAL_SECONDS))

    async def _create(self, permit: Permit) -> AgentJob | Failed:
        """Create the job, or return why there is none; the gates get either of them at once."""
        started = _now()
        last_create.set(None)  # that of an earlier create of the caller's, where this session makes no spans
        try:
            job = await self.item.context.session.create_job(
                self.item.row.prompt,
                project_id=self.item.row.project_id,
                timeout=min(self.item.timeout, _LONGEST_CREATE_SECONDS),
                label=self.item.row.key,
                retry=False,  # here a 429, or a dead network, holds creates back
                **(dict[str, Any]() if self._lease is None else {"before_send": self._lease.is_valid}),
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the row has to say so
            failure = classify(error)
            if failure is not Failure.LIMITED:  # what the server asks for costs the item none of its time
                self.item.spent_seconds += _now() - started
            self._hold_back(permit, failure, error, started)
            # The result holds the error, whose traceback would hold the frames of this item.
            return Failed(failure, error.with_traceback(None) if isinstance(error, AgentJobsError) else error)
        finally:
            permit.spend()  # cancelled: the server may have counted it
        self.item.spent_seconds += _now() - started
        if self.item.context.gates.accept(permit):
            self.item.context.changed.set()  # others of the project may begin again
        return job

    def _hold_back(self, permit: Permit, failure: Failure, error: Exception, started: float) -> None:
        """Hold other creates back after one that was started at `started` and failed."""
        gates = self.item.context.gates
        match failure:
            case Failure.UNKNOWN:
                gates.count_unknown(permit, error)
            case Failure.REJECTED:
                gates.count_definite(permit)
            case Failure.UNAUTHORIZED:
                gates.refuse(permit, error)
            case Failure.LIMITED:
                gates.limit(permit, error, started)
            case Failure.NOT_SENT:
                permit.refund()
                gates.hold_all(pause_after(self.item.failures), error)
            case Failure.INVALID | Failure.WITHHELD | Failure.FATAL:
                permit.refund()

    async def _record_job(self, claim: str, job: AgentJob) -> AgentJob | Ended:
        """Record the id, to the end even when this item is cancelled."""
        await asyncio.shield(self._start_recording(claim, job.ref))
        if self.item.row.job_id != job.id:
            return Ended(None)  # the item has moved on: its earlier try has the job
        self.item.ref = job.ref
        if self.item.row.state is State.ABANDONED:  # its outcome was unknown to another owner, or to its user
            return self._end_abandoned()
        self.item.set_state(State.ACTIVE)
        return job

    def _start_recording(self, claim: str, ref: JobRef) -> asyncio.Task[None]:
        """Start to record an id, which continues when this item is cancelled; a draining waits for it."""
        recording = self.item.context.unrecorded.start(self.item.key, ref, self._record_id(claim, ref))
        self.item.context.session._shutdown.recorded_by(recording, ref)
        return recording

    async def _record_id(self, claim: str, ref: JobRef) -> None:
        row = await self.item.context.records.created(self.item.key, claim, ref, last_create.get())
        if row is None:
            _logger.warning("%r has another job by now; its earlier create gave %s", self.item.key, ref.to_token())
            self.item.context.has_late_job.set()
        await self._set_row(row)

    async def _record_failure(self, claim: str, failed: Failed) -> Ended | None:
        """Record a create that gave no job, and decide whether it is sent again."""
        records, error = self.item.context.records, failed.error
        match failed.failure:
            case Failure.UNKNOWN:
                row = await records.unknown(self.item.key, claim, error)
                return await self._end_create(row, Outcome.UNKNOWN, error)
            case Failure.REJECTED:
                row = await records.rejected(self.item.key, claim, error)
                return await self._end_create(row, Outcome.REJECTED, error)
            case Failure.WITHHELD:
                await self._plan_late(claim)
                return None
            case failure:
                was_sent = failure in {Failure.LIMITED, Failure.UNAUTHORIZED}
                await self._plan_again(claim, error, was_sent=was_sent)
                return await self._postpone(failure, error)

    async def _end_create(self, row: JournalRow | None, outcome: Outcome, error: Exception) -> Ended:
        """End an item whose create gave no job; whoever has changed its row meanwhile tells of it."""
        await self._set_row(row)
        self.item.set_state(State(outcome.value))
        return Ended(None) if row is None else self._end(outcome, error)

    async def _postpone(self, failure: Failure, error: Exception) -> Ended | None:
        """Decide about an item that is planned again: later, or not in this run."""
        match failure:
            case Failure.FATAL:
                raise error
            case Failure.UNAUTHORIZED:
                return Ended(None)
            case Failure.INVALID:
                return self._end(Outcome.REJECTED, error)
            case Failure.LIMITED:
                project = self.item.slot.project
                seconds = self.item.context.gates.of(project).limited_for
                # A crash before this commit: the next run sends one create, and is refused once more.
                await pause(self.item.context.records.store, seconds, project)
                return None
            case _:
                self.item.spent_seconds += pause_after(self.item.failures)
                self.item.failures += 1
                return None if self.item.left_seconds > 0 else self._end(Outcome.TIMED_OUT, error)

    async def _plan_again(self, claim: str, error: Exception | None, *, was_sent: bool = False) -> None:
        records = self.item.context.records
        await self._set_row(await records.released(self.item.key, claim, error, was_sent=was_sent))
        self.item.set_state(State.PLANNED)

    async def _set_row(self, row: JournalRow | None) -> None:
        """Set the row as it was recorded; read it where it is `None`, since another owner had changed it."""
        self.item.row = row or (await self.item.context.records.store.rows_of([self.item.key]))[self.item.key]

    def _end_abandoned(self) -> Ended:
        self.item.set_state(State.ABANDONED)
        return self._end(Outcome.ABANDONED, AgentJobsError(self.item.row.error or "abandoned"))

    def _end(self, outcome: Outcome, error: Exception) -> Ended:
        return Ended(self.item.result(outcome, error))


def _now() -> float:
    return asyncio.get_running_loop().time()


async def run_item(item: RunningItem) -> BatchResult | None:
    """Return the result of an item; `None` when another owner has the row, or when nothing more is to be done.

    The latter leaves it planned where the server refuses the creates of its project. An item whose row was abandoned
    before it was sent has the outcome `abandoned`.

    Raises:
        JournalError: The journal can't be written. A job id that it could not record is logged.
        NotSentError: The server's certificate is not trusted, or the proxy refuses.
        SessionClosedError: The session was closed.
    """
    try:
        target: AgentJob | JobRef | Ended | None = item.ref
        resumed_from.set(item.row.traceparent)  # `None` unless an earlier run created the job
        if target is None:
            target = await ItemCreate(item).run()
        if isinstance(target, Ended):
            return target.result
        if item.phase >= Phase.ANSWERS_ONLY:
            return None
        await item.context.slots.take(item.slot, has_job=True)
        return await _wait(item, target)
    finally:
        item.over = True


async def _wait(item: RunningItem, target: AgentJob | JobRef) -> BatchResult | None:
    ended = await result_of(_watch(item, target))
    job_id = None if item.ref is None else item.ref.job_id
    recorded, outcome = await record_end(item.context.records, item.row.key, job_id, ended, item.polls)
    item.row = recorded.row
    if not recorded.is_own and _is_of_another(recorded.row, job_id):
        return None
    if isinstance(ended, AgentJob):
        error = AgentJobsError("its item was given another job meanwhile") if outcome is Outcome.ACTIVE else None
        return BatchResult(item.item, outcome, ended, error, ended.ref, item.row)
    return item.result(outcome, ended, ended.last_job if isinstance(ended, WaitTimeoutError) else None)


def _is_of_another(row: JournalRow, job_id: str | None) -> bool:
    """Return whether another owner polls the job, or has seen its end: this one had counted as dead."""
    return row.state.is_job_end or (row.state is State.ACTIVE and row.job_id == job_id)


async def _watch(item: RunningItem, target: AgentJob | JobRef) -> AgentJob:
    timeout = None if item.timeout == inf else item.timeout
    item.watch = item.context.session.watch(target, timeout=timeout)
    return await item.watch


async def result_of(wait: Awaitable[AgentJob]) -> AgentJob | Exception:
    """Return the job or the error with which a wait ends: no error of one wait may end another item."""
    try:
        return await wait
    except Exception as error:  # noqa: BLE001 - a get_job's own, too
        return error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as raised:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return AgentJobsError(f"get_job raised {raised!r}")


@frozen
class Recorded:
    """A row as it is once the wait for its job has ended.

    Attributes:
        row: The row.
        is_own: Whether this end is in it; else another owner or a person had moved it before.
    """

    row: JournalRow
    is_own: bool


async def record_end(
    records: Records, key: str, job_id: str | None, ended: AgentJob | Exception, polls: int
) -> tuple[Recorded, Outcome]:
    """Record how the wait for a job ended, after `polls` polls of it in all.

    Return what was recorded, and what that means for its item. Where the item was abandoned, or given another job,
    since the wait began, it stays so.

    Args:
        records: Those of the run.
        key: The key of the row.
        job_id: The id of its job.
        ended: The job, or the error with which the wait ended.
        polls: How often the job was polled.

    Raises:
        JournalError: The journal can't be written.
        Exception: `ended`, if every other wait would end with it.
    """
    if isinstance(ended, AgentJob):
        recorded, outcome = await records.ended(key, ended, polls), Outcome(ended.status)
    elif ends_the_run(ended):
        raise ended
    elif isinstance(ended, NotFoundError):
        # Beyond its grace: the session has ridden out what may pass.
        recorded, outcome = await records.gone(key, job_id, ended, polls), Outcome.FAILED
    else:
        recorded = await records.noted(key, job_id, ended, polls)
        outcome = Outcome.TIMED_OUT if isinstance(ended, WaitTimeoutError) else Outcome.ACTIVE
    if recorded is not None:
        return Recorded(recorded, is_own=True), outcome
    row = (await records.store.rows_of([key]))[key]
    return Recorded(row, is_own=False), Outcome.ACTIVE if row.state.is_open else Outcome(row.state.value)
