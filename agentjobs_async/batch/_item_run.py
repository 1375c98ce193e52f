"""The item of one item: a create that is sent at most once, then the wait for its job."""

import asyncio
import logging
from typing import Any, Final, TypeGuard

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
    NotFoundError,
    NotSentError,
    RateLimitedError,
    ResponseError,
    ServerError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async.batch._slots import Slot, Slots
from agentjobs_async.batch._store.entries import Entries, Lease, NoRoom
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch._throttles import LONGEST_RETRY_AFTER_SECONDS, CreateThrottles, Permit
from agentjobs_async.batch._unrecorded import Unrecorded
from agentjobs_async.batch.items import BatchResult, Outcome
from agentjobs_async.batch.states import State

__all__ = ["ItemRun", "RunContext"]

_LONGEST_CREATE: Final = 120.0
_LEAST_TIME: Final = 0.001
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_MOST_DOUBLINGS: Final = 10
_LONGEST_HOLD_SECONDS: Final = 5.0  # so that limits that are raised are noticed
_LATE: Final = NoRoom(1.0)  # until the journal may answer in time again
_logger: Final = logging.getLogger("agentjobs_async.batch")
_HELD_BACK: Final = AgentJobsError("all creates are held back")


@frozen
class RunContext:
    """What all items of a run have in common.

    Attributes:
        throttles: Say when creates may go.
        slots: Bound the items that may have an agent.
        max_sending: Bounds the creates under way, and with that what one crash leaves unknown.
        timeout: Seconds for each item; `None` for ever.
        unknown_for: Seconds for which an unknown item keeps its slot.
        halted: Set when nothing more is to be sent.
        closing: Set when nothing more is to be waited for, either.
        unrecorded: Jobs that the journal does not have yet.
    """

    session: AgentJobsSession
    entries: Entries
    throttles: CreateThrottles
    slots: Slots
    max_sending: asyncio.Semaphore
    timeout: float | None
    unknown_for: float
    halted: asyncio.Event
    closing: asyncio.Event
    unrecorded: Unrecorded = field(factory=Unrecorded)


@define(eq=False)
class ItemRun:
    """One item under way.

    Attributes:
        state: Where its row is: planned, sending or created.
        since: Loop time of the last change of `state`.
        slot: Its slot among those of `max_active`, which it keeps until `leave_slot`.
        ref: Its job, or the job's bare id where the row knows no project; `None` before it is known.
        claim: The claim under which its create is sent; `None` before that.
        lease: For how long that claim is certain to be this owner's; `None` where nobody can take it away.
        leaving: Whether nobody waits for its end any more: a create under way is brought to its answer, no further.
        over: Whether it has ended, in whatever state.
    """

    row: JournalRow
    context: RunContext
    state: State
    since: float
    slot: Slot
    ref: JobRef | str | None = None
    claim: str | None = None
    lease: Lease | None = None
    leaving: bool = False
    over: bool = False
    _spent: float = 0.0
    _failures: int = 0

    @classmethod
    def of(cls, row: JournalRow, context: RunContext) -> "ItemRun":
        """Return the item of a row that is planned or created."""
        ref: JobRef | str | None = row.job_id
        if row.job_id is not None and row.project_id is not None:
            ref = JobRef(row.project_id, row.job_id)
        slot = context.slots.enter(row.project_id or context.session.project_id)
        return cls(row, context, row.state, _now(), slot, ref)

    async def run(self) -> BatchResult | None:
        """Return the result; `None` when somebody else took the row, or when nothing more is to be done.

        The latter leaves it planned where the service refuses the creates of its project.

        Raises:
            JournalError: The journal can't be written. A job id that it could not take is logged.
            NotSentError: The service's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed.
        """
        try:
            return await self._run()
        finally:
            self.over = True

    def leave_slot(self) -> None:
        """Release the slot; one of an unknown item stays taken for a while, since its agent may be at work."""
        self.context.slots.leave(self.slot, self.context.unknown_for if self.state is State.UNKNOWN else 0.0)

    async def _run(self) -> BatchResult | None:
        target: AgentJob | JobRef | str | None = self.ref
        while target is None:
            sent = await self._send()
            if sent is None or isinstance(sent, BatchResult):
                return sent
            if isinstance(sent, AgentJob):
                target = sent
            elif self.context.halted.is_set() or self.leaving:
                return None
        if self.leaving or self.context.closing.is_set():
            return None
        await self.context.slots.take(self.slot, has_job=True)
        return await self._wait(target)

    async def _send(self) -> AgentJob | BatchResult | Exception | NoRoom | None:
        """Send the create once: return the job, a result, `None`, or the reason why it is to be sent later.

        The order is: the throttle of the project, a slot of `max_active`, the throttle of all projects, a slot of
        `max_sending`, the durable claim; then a check that neither creates nor the run were held back meanwhile; only
        then the first byte, and last the durable outcome. An item that waits for its project holds nothing that an
        item of another project needs: neither a slot nor a part of a rate for all.
        """
        permit = await self.context.throttles.take(self.slot.project)
        if permit is None:
            return None
        try:
            await self.context.slots.take(self.slot)
            await permit.take_common()
            async with self.context.max_sending:
                return await self._send_by(permit) if self._may_go(permit) else _HELD_BACK
        finally:
            permit.refund()
            if self.state is State.PLANNED:
                self.context.slots.put_back(self.slot)

    async def _send_by(self, permit: Permit) -> AgentJob | BatchResult | Exception | NoRoom | None:
        # From here on nobody may cancel lightly: see `Batch.aclose`.
        self._is(State.SENDING)
        self.claim = None  # an earlier one says nothing about what is asked for now
        lease = self.lease = self.context.entries.lease()
        claimed = await self.context.entries.claim(self.row.key, self._project())
        if not isinstance(claimed, str):
            return self._held_back(claimed)
        self.claim = claimed
        if not self._may_go(permit):
            await self._planned_again(None)
            return _HELD_BACK
        if lease is not None and not lease.holds():
            return await self._claimed_too_late()
        answer = await self._answer(permit)
        if isinstance(answer, AgentJob):
            await self._keep(answer)
            return answer
        return await self._failed(answer)

    def _may_go(self, permit: Permit) -> bool:
        return permit.is_current and not self.leaving and not self.context.halted.is_set()

    async def _claimed_too_late(self) -> Exception:
        """Release a claim whose owner may have been taken for dead since it was asked for; it is asked for anew."""
        _logger.warning("%r was claimed too late to be sent; the journal answers slowly", self.row.key)
        await self._planned_again(None)
        self._held_back(_LATE)
        return _HELD_BACK

    def _held_back(self, room: NoRoom | None) -> NoRoom | None:
        """Hold creates of this project, or all, back until there may be room, or the limits may have been raised."""
        self._is(State.PLANNED)
        if room is not None:
            throttles = self.context.throttles
            pace = throttles.common if room.project_id is None else throttles.of(self.slot.project)
            pace.defer(min(room.wait, _LONGEST_HOLD_SECONDS))
        return room

    async def _answer(self, permit: Permit) -> AgentJob | Exception:
        """Create the job, or return the error; the throttles hear of it at once, before any other create goes."""
        started = _now()
        try:
            job = await self.context.session.create_job(
                self.row.prompt,
                project_id=self._project(),
                timeout=min(max(self._left(), _LEAST_TIME), _LONGEST_CREATE),
                retry=False,  # here a 429, or a dead network, holds creates back
                **(dict[str, Any]() if self.lease is None else {"before_send": self.lease.holds}),
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the row has to say so
            if not _is_held_off(error):  # the service's own wish costs the item none of its time
                self._spent += _now() - started
            self._throttle(permit, error)
            return error
        finally:
            permit.spend()  # cancelled: the service may have counted it
        self._spent += _now() - started
        self.context.throttles.accept(permit)
        return job

    def _throttle(self, permit: Permit, error: Exception) -> None:
        """Hold other creates back after an error of one."""
        throttles, outcome = self.context.throttles, _outcome(error)
        if _is_held_off(error):
            throttles.mark_definite(permit, counts=False)
            throttles.pause(permit.project, self._pause(error), error)
        elif outcome is CreateOutcome.NOT_SENT:
            permit.refund()
            if not (isinstance(error, InvalidInputError) or _is_withheld(error) or _ends_the_run(error)):
                throttles.pause_all(self._pause(error), error)
        elif outcome is CreateOutcome.REJECTED and isinstance(error, AuthError):
            throttles.refuse(permit, error)
        elif outcome is CreateOutcome.REJECTED:
            throttles.mark_definite(permit)
        else:
            throttles.mark_unknown(permit, error)

    def _pause(self, error: Exception) -> float:
        """Return for how many seconds creates are held back: as the server asks, else ever longer."""
        if isinstance(error, ResponseError) and error.retry_after is not None:
            return min(max(error.retry_after, _FIRST_PAUSE), LONGEST_RETRY_AFTER_SECONDS)
        return min(_FIRST_PAUSE * 2.0 ** min(self._failures, _MOST_DOUBLINGS), _LONGEST_PAUSE)

    async def _keep(self, job: AgentJob) -> None:
        """Write the id down, to the end even when this item is cancelled."""
        await self.context.unrecorded.record(self.row.key, job.ref, self._record(job))
        self.ref = job.ref
        self._is(State.CREATED)

    async def _record(self, job: AgentJob) -> None:
        if not (await self.context.entries.mark_created(self.row.key, job.ref) or await self._is_kept(job)):
            raise JournalError("journal: somebody else changed the row meanwhile", "locked")

    async def _is_kept(self, job: AgentJob) -> bool:
        """Return whether the row has the id already: a commit may have been told twice."""
        return (await self.context.entries.get_many([self.row.key]))[self.row.key].job_id == job.id

    async def _failed(self, error: Exception) -> BatchResult | Exception | None:
        """Record a create that gave no job, and decide whether it goes again."""
        outcome = _outcome(error)
        if outcome not in {CreateOutcome.REJECTED, CreateOutcome.NOT_SENT}:
            await self.context.entries.mark_unknown(self.row.key, error, claim=self.claim)
            self._is(State.UNKNOWN)
            return self._result(Outcome.UNKNOWN, error)
        again = _is_held_off(error) or isinstance(error, AuthError) or outcome is CreateOutcome.NOT_SENT
        if not again:
            await self.context.entries.mark_rejected(self.row.key, error, claim=self.claim)
            self._is(State.REJECTED)
            return self._result(Outcome.REJECTED, error)
        if _is_withheld(error):
            return await self._claimed_too_late()
        await self._planned_again(error)
        if _ends_the_run(error):
            raise error
        return None if isinstance(error, AuthError) else await self._postponed(error)

    async def _planned_again(self, error: Exception | None) -> None:
        await self.context.entries.release_claim(self.row.key, error, claim=self.claim)
        self._is(State.PLANNED)

    async def _postponed(self, error: Exception) -> BatchResult | Exception:
        """Send it later; or end, when no try would help or the time is up."""
        if isinstance(error, InvalidInputError):
            return self._result(Outcome.REJECTED, error)
        pause = self._pause(error)
        self._failures += 1
        if _is_held_off(error):
            await self.context.entries.pause(pause, self.slot.project)
            return error
        self._spent += pause
        return error if self._left() > 0 else self._result(Outcome.TIMED_OUT, error)

    async def _wait(self, target: AgentJob | JobRef | str) -> BatchResult:
        left = self._left()
        timeout = None if left == float("inf") else max(left, _LEAST_TIME)
        try:
            job = await self.context.session.watch(target, timeout=timeout)
        except Exception as error:  # noqa: BLE001 - each item has its own fate, a get_job's own errors included
            return await self._unfinished(error)
        await self.context.entries.mark_ended(self.row.key, job)
        return BatchResult(self.row.item, Outcome(job.status), job, None, job.ref)

    async def _unfinished(self, error: Exception) -> BatchResult:
        if _ends_the_run(error):
            raise error
        if isinstance(error, NotFoundError):
            # Beyond its grace: the session has ridden out what may pass.
            await self.context.entries.abandon(self.row.key, f"its job is gone: {error.message}")
            return self._result(Outcome.FAILED, error)
        await self.context.entries.record_error(self.row.key, error)
        if isinstance(error, WaitTimeoutError):
            return self._result(Outcome.TIMED_OUT, error, error.last_job)
        return self._result(Outcome.UNFINISHED, error)

    def _result(self, outcome: Outcome, error: Exception, job: AgentJob | None = None) -> BatchResult:
        return BatchResult(self.row.item, outcome, job, error, self.ref if isinstance(self.ref, JobRef) else None)

    def _project(self) -> str | None:
        return self.row.project_id or self.context.session.project_id

    def _left(self) -> float:
        return float("inf") if self.context.timeout is None else self.context.timeout - self._spent

    def _is(self, state: State) -> None:
        self.state, self.since = state, _now()


def _outcome(error: Exception) -> CreateOutcome | None:
    return error.outcome if isinstance(error, AgentJobsError) else None


def _is_withheld(error: Exception) -> bool:
    """Return whether the create was not sent because its claim could have been lost by then."""
    return isinstance(error, NotSentError) and error.reason == "withheld"


def _is_held_off(error: Exception) -> TypeGuard[ResponseError]:
    """Return whether the create was refused for now: by a 429, or by a 5xx that the user's gateway gives by itself."""
    return isinstance(error, RateLimitedError | ServerError) and error.outcome is CreateOutcome.REJECTED


def _ends_the_run(error: Exception) -> bool:
    """Return whether an error would befall every other item as well, however often it is tried."""
    match error:
        case SessionClosedError() | NotSentError(reason="certificate" | "proxy"):
            return True
        case _:
            return False


def _now() -> float:
    return asyncio.get_running_loop().time()
