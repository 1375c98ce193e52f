"""The create of one item: sent once, or again only where no agent was started, or with the key of one in doubt."""

import asyncio
import logging
from typing import Any, Final

from attrs import define, field, frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    JobRef,
)
from agentjobs_async._errors import refuses_key
from agentjobs_async.batch._failures import NOT_SENT, Failure, abandonment, classify, pause_after
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.create_gate import Reason
from agentjobs_async.batch._run.create_gates import Permit
from agentjobs_async.batch._run.repeats import (
    Repetitions,
    Terms,
    final_refusal,
    first_terms,
    key_changes,
    terms_of_repetition,
    unknown_error,
)
from agentjobs_async.batch._store.claims import NoRoom, NoRoomError
from agentjobs_async.batch._store.heartbeat import Lease
from agentjobs_async.batch._store.owning import leave_unrepeated, lost_by
from agentjobs_async.batch._store.pauses import pause
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch._store.settling import take_telling
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State
from agentjobs_async.telemetry.links import last_create

_LONGEST_CREATE_SECONDS: Final = 120.0  # an item's own time may be days; no server takes that long to create a job
_LONGEST_DEFERRAL_SECONDS: Final = 5.0  # so that raised limits are noticed
_LATE: Final = NoRoom(1.0, "lock")  # seconds until the journal may answer in time again
_MOST_OUTDATED: Final = 3  # of one item: a callable that returns nothing but wrong keys is not asked for ever

_logger: Final = logging.getLogger("agentjobs_async.batch")


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
    _terms: Terms = field(init=False)
    _repetitions: Repetitions = field(factory=Repetitions, init=False)
    _outdated: int = field(default=0, init=False)

    @_terms.default
    def _without_key(self) -> Terms:
        return Terms(self.item.context.session)

    async def run(self) -> AgentJob | Ended:
        """Return the job, whose id is in the journal then; send the create as often as no agent was started for sure.

        Where the service honours idempotency keys, a create whose outcome is unknown is sent again with its key, as
        long as the service remembers that: from then on only a job settles it, and all else leaves it unknown. So an
        item may also begin whose row is unknown since an earlier run.

        Raises:
            JournalError: The journal can't be written. A job id that it could not record is logged.
            NotSentError: The server's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed.
        """
        if self.item.state is State.UNKNOWN and isinstance(ended := await self._find_terms(), Ended):
            return ended
        while self.item.phase < Phase.NO_CREATES:
            if (sent := await self._send()) is not None:
                return sent
        return Ended(None)

    async def _send(self) -> AgentJob | Ended | None:
        """Try to send the create once; return `None` where it is planned again or in doubt, and to be sent later.

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

        A repetition goes the same way, and keeps its slot of `max_active` meanwhile: an agent may be at work.
        """
        if self.item.state is State.UNKNOWN:
            await self._repetitions.wait()
        permit = self.item.context.gates.permit(self.item.slot.project)
        try:
            if not await permit.pass_next():
                return await self._leave()
            if self.item.state is State.UNKNOWN:
                self.item.context.slots.take_over(self.item.slot)
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

    async def _leave(self) -> Ended:
        """End an item that the service refuses at present: its row is planned, or left unknown to any other run."""
        if self.item.state is State.UNKNOWN:
            await self._leave_unrepeated()
        return Ended(None)

    async def _leave_unrepeated(self) -> bool:
        return await leave_unrepeated(self.item.context.records.store, self.item.row, self.item.context.owner.name)

    async def _find_terms(self) -> Terms | Ended | None:
        """Return what the create is sent with; `None` where it can't be sent now, or its row was planned again.

        End the item where its create is in doubt and can't be repeated any more.
        """
        context = self.item.context
        if self.item.state is not State.UNKNOWN:
            return await first_terms(context.session, self.item.row)
        found = await terms_of_repetition(context, self.item.row, self._terms)
        if found is None:
            return await self._end_doubt()
        if isinstance(found, Terms):
            return found
        return await self._postpone_repetition(Failure.NOT_SENT, found)  # the callable API key raised

    async def _claim_and_create(self, permit: Permit) -> AgentJob | Ended | None:
        before, terms = self.item.state, await self._find_terms()
        if not isinstance(terms, Terms):
            return terms
        self._terms = terms
        # While the state is `sending`, nothing but `Phase.CUT` cancels this item: its answer would be lost.
        self.item.set_state(State.SENDING)
        self.item.send_under(None)  # an earlier claim says nothing about what is asked for now
        heartbeat = self.item.context.opened.heartbeat
        self._lease = None if heartbeat is None else Lease(heartbeat)
        claimed = await self.item.context.records.claim(self.item.row.key, terms.digest, terms.repetition)
        if isinstance(claimed, NoRoom):
            self._defer(claimed)
        if not isinstance(claimed, str):
            self.item.set_state(before)
            return await self._end_unclaimed() if claimed is None else None
        self.item.send_under(claimed, terms.key_of(claimed))
        if not self._may_go(permit):
            await self._plan_again(claimed, None)
            return None
        if not self._may_leave():
            await self._plan_late(claimed)
            return None
        answer = await self._create(permit)
        if isinstance(answer, Failed):
            return await self._record_failure(claimed, answer)
        return await self._record_job(claimed, answer)

    async def _end_unclaimed(self) -> Ended | None:
        """End an item whose row could not be claimed: it was abandoned or settled, or another owner has it."""
        if self.item.state is State.UNKNOWN:
            return await self._end_doubt()
        return await self._end_moved()

    async def _end_doubt(self) -> Ended | None:
        """End an item whose create is in doubt, and can't be repeated by this run any more."""
        # A crash after the commit: no run gives a result of it, and the journal shows it as unknown.
        if not await self._leave_unrepeated():
            return await self._end_moved()
        await self._set_row(None)
        return self._end(Outcome.UNKNOWN, self._repetitions.error or unknown_error(self.item.row))

    async def _end_moved(self) -> Ended | None:
        """End an item whose row others have moved; return `None` where that is planned again."""
        await self._set_row(None)
        if self.item.row.state is State.PLANNED:
            self.item.set_state(State.PLANNED)
            return None
        if self.item.row.state is not State.ABANDONED:
            return Ended(None)
        ended = self._end_abandoned()
        # Any other run may have read the planned row, too. After a crash from here on, the journal alone tells of it.
        return ended if await take_telling(self.item.context.records.store, self.item.key) else Ended(None)

    def _may_go(self, permit: Permit) -> bool:
        return permit.is_current and self.item.phase is Phase.RUNNING

    async def _plan_late(self, claim: str) -> None:
        """Release a claim whose owner may have counted as dead since it was asked for; it is asked for anew."""
        if self._terms.may_leave():  # else the API key was replaced, or the service forgets the key of a repetition
            _logger.warning("%r was claimed too late to be sent; the journal answers slowly", self.item.row.key)
            self._defer(_LATE)
        await self._plan_again(claim, None)

    def _defer(self, room: NoRoom) -> None:
        """Defer creates of this project, or all, until there may be room, or the limits may have been raised."""
        gates = self.item.context.gates
        gate = gates.common if room.project_id is None else gates.of(self.item.slot.project)
        gate.hold(Reason.FULL, min(room.wait, _LONGEST_DEFERRAL_SECONDS), NoRoomError(room.cause), expected=room.wait)

    def _may_leave(self) -> bool:
        """Return whether the create may still be sent, right before its first byte."""
        return (self._lease is None or self._lease.is_valid()) and self._terms.may_leave()

    def _means(self) -> dict[str, Any]:
        """Return what a create is sent with beside what its row says."""
        key = self.item.idempotency_key
        means: dict[str, Any] = {} if key is None else {"idempotency_key": key}
        if self.item.row.extra is not None:
            means["extra"] = self.item.row.extra
        return means if self._lease is None and key is None else means | {"before_send": self._may_leave}

    async def _create(self, permit: Permit) -> AgentJob | Failed:
        """Create the job, or return why there is none; the gates get either of them at once."""
        started, changes = _now(), key_changes(self.item.context.session)
        last_create.set(None)  # that of an earlier create of the caller's, where this session makes no spans
        try:
            job = await self.item.context.session.create_job(
                self.item.row.prompt,
                project_id=self.item.row.project_id,
                timeout=min(self.item.timeout, _LONGEST_CREATE_SECONDS),
                label=self.item.row.key,
                retry=False,  # here a 429, or a dead network, holds creates back
                **self._means(),
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the row has to say so
            failure = self._failure_of(error, changes)
            # What the server asks for costs the item none of its time, and the age of a doubt has its repetitions.
            if failure is not Failure.LIMITED and self._terms.repetition is None:
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

    def _failure_of(self, error: Exception, changes: int) -> Failure:
        """Return what an error means, after the API key had been replaced `changes` times before the create."""
        failure = classify(error)
        is_replaced = key_changes(self.item.context.session) != changes and self._outdated < _MOST_OUTDATED
        if failure is Failure.UNAUTHORIZED and is_replaced and refuses_key(error):
            self._outdated += 1
            failure = Failure.OUTDATED
        return failure

    def _hold_back(self, permit: Permit, failure: Failure, error: Exception, started: float) -> None:
        """Hold other creates back after one that was started at `started` and failed."""
        gates = self.item.context.gates
        match failure:
            case Failure.UNKNOWN:
                gates.count_unknown(permit, error)
            case Failure.REJECTED | Failure.OUTDATED:
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
        if self._terms.digest is not None and await self._is_polled_by_another():
            return Ended(None)
        self.item.set_state(State.ACTIVE)
        return job

    async def _is_polled_by_another(self) -> bool:
        """Return whether the answer to another POST with the same key came first, to an owner that sees to the job."""
        records, row = self.item.context.records, self.item.row
        return row.state.is_job_end or row.number in await lost_by(records.store, records.owner, [row.number])

    def _start_recording(self, claim: str, ref: JobRef) -> asyncio.Task[None]:
        """Start to record an id, which continues when this item is cancelled; a draining waits for it."""
        recording = self.item.context.unrecorded.start(self.item.key, ref, self._record_id(claim, ref))
        self.item.context.session._shutdown.recorded_by(recording, ref)
        return recording

    async def _record_id(self, claim: str, ref: JobRef) -> None:
        key = self.item.idempotency_key
        row = await self.item.context.records.created(self.item.key, claim, ref, last_create.get(), key)
        if row is None:
            _logger.warning("%r has another job by now; its earlier create gave %s", self.item.key, ref.to_token())
            self.item.context.has_late_job.set()
        await self._set_row(row)

    async def _record_failure(self, claim: str, failed: Failed) -> Ended | None:
        """Record a create that gave no job, and decide whether it is sent again."""
        records, error = self.item.context.records, failed.error
        if self._terms.repetition is not None:
            return await self._record_repetition(claim, failed)
        match failed.failure:
            case Failure.UNKNOWN:
                may_repeat = self._terms.digest is not None
                row = await records.unknown(self.item.key, claim, error, is_own=may_repeat)
                if row is None or not may_repeat:
                    return await self._end_create(row, Outcome.UNKNOWN, error)
                self._repetitions.start(error)
                self.item.row = row
                self.item.set_state(State.UNKNOWN)
                return await self._postpone_repetition(failed.failure, error)
            case Failure.REJECTED:
                row = await records.rejected(self.item.key, claim, error)
                return await self._end_create(row, Outcome.REJECTED, error)
            case Failure.WITHHELD:
                await self._plan_late(claim)
                return None
            case failure:
                was_sent = failure in {Failure.LIMITED, Failure.UNAUTHORIZED, Failure.OUTDATED}
                await self._plan_again(claim, error, was_sent=was_sent)
                return await self._postpone(failure, error)

    async def _record_repetition(self, claim: str, failed: Failed) -> Ended | None:
        """Record a repetition that gave no job, which leaves its create in doubt whatever it was answered."""
        records, failure, row = self.item.context.records, failed.failure, self.item.row
        if failure is Failure.WITHHELD:
            await self._plan_late(claim)
            return None
        error, final = self._repetitions.add(row, failed.error, records.text), final_refusal(failure, failed.error)
        if failure in NOT_SENT:
            recorded = await records.unsent(row.key, claim, error)
        else:
            recorded = await records.unknown(row.key, claim, error, is_own=True, final=final)
        self.item.set_state(State.UNKNOWN)
        if recorded is None:  # others had taken this owner for dead: they tell of it
            return await self._end_moved()
        self.item.row = recorded
        if final is not None:
            return await self._end_doubt()
        if failure is Failure.FATAL:
            raise failed.error
        if failure is Failure.LIMITED:
            await self._record_pause()
        return await self._postpone_repetition(failure, failed.error)

    async def _postpone_repetition(self, failure: Failure, error: Exception) -> Ended | None:
        """Set when the create is repeated, after one that `failure` says; end the item where that would be too late."""
        self._repetitions.postpone(failure, error)
        if failure in NOT_SENT:
            self._spend_failure()
        # Pauses count as well: an item in doubt keeps its slot, and others wait for that.
        is_late = self._repetitions.age() >= self.item.left_seconds or self._terms.remaining <= self._repetitions.pause
        return await self._end_doubt() if is_late else None

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
            case Failure.OUTDATED:
                return None
            case Failure.LIMITED:
                await self._record_pause()
                return None
            case _:
                self._spend_failure()
                return None if self.item.left_seconds > 0 else self._end(Outcome.TIMED_OUT, error)

    def _spend_failure(self) -> None:
        """Count a create that did not reach the server, and the pause after it."""
        self.item.spent_seconds += pause_after(self.item.failures)
        self.item.failures += 1

    async def _record_pause(self) -> None:
        """Record for how long the service wants no create of the project."""
        project = self.item.slot.project
        seconds = self.item.context.gates.of(project).limited_for
        # A crash before this commit: the next run sends one create, and is refused once more.
        await pause(self.item.context.records.store, seconds, project)

    async def _plan_again(self, claim: str, error: Exception | None, *, was_sent: bool = False) -> None:
        """Record that nothing came of a claim: the row is planned again, or in doubt as before a repetition."""
        records = self.item.context.records
        if self._terms.repetition is not None:
            await self._set_row(await records.unsent(self.item.key, claim, error))
            self.item.set_state(State.UNKNOWN)
            return
        await self._set_row(await records.released(self.item.key, claim, error, was_sent=was_sent))
        self.item.set_state(State.PLANNED)

    async def _set_row(self, row: JournalRow | None) -> None:
        """Set the row as it was recorded; read it where it is `None`, since another owner had changed it."""
        self.item.row = row or (await self.item.context.records.store.rows_of([self.item.key]))[self.item.key]

    def _end_abandoned(self) -> Ended:
        self.item.set_state(State.ABANDONED)
        return self._end(Outcome.ABANDONED, abandonment(self.item.row, self.item.row.error or "abandoned"))

    def _end(self, outcome: Outcome, error: Exception) -> Ended:
        return Ended(self.item.result(outcome, error))


def _now() -> float:
    return asyncio.get_running_loop().time()
