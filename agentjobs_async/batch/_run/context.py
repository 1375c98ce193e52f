"""What all items of a run have in common, and one item under way: where it is, and how far it is to go."""

import asyncio
from enum import IntEnum
from math import inf
from typing import Final

from attrs import define, field, frozen

from agentjobs_async import AgentJob, AgentJobsSession, JobRef
from agentjobs_async.batch._run.create_gates import CreateGates
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._run.slots import Slot, Slots
from agentjobs_async.batch._run.unrecorded import Unrecorded
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.owners import Owner
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch.items import BatchItem, Outcome
from agentjobs_async.batch.limits import Limits
from agentjobs_async.batch.states import State

_LEAST_SECONDS: Final = 0.001  # the time of an item may be up, and the session takes no timeout of 0


class Phase(IntEnum):
    """How far a run or one of its items has ended. Each phase includes those before it, and there is no way back."""

    RUNNING = 0
    NO_CREATES = 1
    """Nothing more is sent. Items that wait for their create are cancelled."""
    ANSWERS_ONLY = 2
    """Waits for jobs are cancelled as well. A create under way continues to its durable outcome, and no further."""
    LEFT = 3
    """No caller takes results any more: items that have one to hand over are cancelled as well."""
    CUT = 4
    """Creates under way are cancelled as well."""


_CANCELLED_FROM: Final = {
    State.PLANNED: Phase.NO_CREATES,
    State.UNKNOWN: Phase.NO_CREATES,  # it waits to be repeated
    State.ACTIVE: Phase.ANSWERS_ONLY,
    State.SENDING: Phase.CUT,
}


@frozen
class RunContext:
    """What all items of a run have in common.

    Attributes:
        owner: The run as an owner of the journal's rows.
        records: What it records by.
        limits: The limits in force, as the run was given them or the journal keeps them.
        gates: Decide when creates may go.
        slots: Bound how many items have an agent.
        max_sending: Bounds the creates under way, and with that what one crash leaves unknown.
        changed: Set when something has changed that may let an item begin.
        unrecorded: Jobs that the journal does not have yet.
        has_late_job: Set when a create was answered whose item has moved on: its job is polled beside the items.
    """

    session: AgentJobsSession
    opened: Opened
    owner: Owner
    records: Records
    limits: Limits
    gates: CreateGates
    slots: Slots
    max_sending: asyncio.Semaphore
    changed: asyncio.Event
    unrecorded: Unrecorded = field(factory=Unrecorded)
    has_late_job: asyncio.Event = field(factory=asyncio.Event)


@define(eq=False)
class RunningItem:
    """One item under way.

    Attributes:
        row: Its row as it was read or recorded last.
        item: What its result names: the item as the run was given it.
        state: Where its row is: planned, sending or active; unknown while its create is to be repeated.
        since: Loop time of the last change of `state`.
        slot: Its slot of `max_active`, which it keeps until `end`.
        ref: Its job; `None` before it is known.
        claim: The claim under which its create is sent; `None` before that.
        idempotency_key: The key of its create; `None` where the service honours none.
        watch: The wait for its job; `None` before that.
        phase: How far it is to go.
        over: Whether it has ended, in whatever state.
        spent_seconds: What it has spent of its time.
        failures: How many of its creates did not reach the server.
    """

    row: JournalRow
    item: BatchItem
    context: RunContext
    state: State
    since: float
    slot: Slot
    ref: JobRef | None = None
    claim: str | None = None
    idempotency_key: str | None = None
    watch: asyncio.Future[AgentJob] | None = None
    phase: Phase = Phase.RUNNING
    over: bool = False
    spent_seconds: float = 0.0
    failures: int = 0

    @classmethod
    def of(cls, row: JournalRow, context: RunContext, item: BatchItem) -> "RunningItem":
        """Return the item of a row that is planned, active or to be repeated, which takes part in the run now."""
        ref = None if row.job_id is None else JobRef(row.project_id, row.job_id)
        slot = context.slots.enter(row.project_id)
        return cls(row, item, context, row.state, asyncio.get_running_loop().time(), slot, ref)

    @property
    def cancelled_from(self) -> Phase:
        """The first phase that cancels the item where it is now."""
        return Phase.LEFT if self.over else _CANCELLED_FROM.get(self.state, Phase.LEFT)

    @property
    def key(self) -> str:
        """The key of its row."""
        return self.row.key

    @property
    def left_seconds(self) -> float:
        """What is left of its time; infinite where it has no bound."""
        timeout = self.context.limits.timeout
        return inf if timeout is None else timeout - self.spent_seconds

    @property
    def timeout(self) -> float:
        """The seconds above 0 that a call of the session for it may take; infinite where its time has no bound."""
        return max(self.left_seconds, _LEAST_SECONDS)

    @property
    def polls(self) -> int:
        """How often its job was polled, by earlier runs and this one."""
        return self.row.polls + getattr(self.watch, "polls", 0)  # a session in memory may return any future

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this run last showed its job; `None` before, and once the wait is over."""
        return getattr(self.watch, "seen", None)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its job, whose end was not seen yet."""
        return self.watch is not None and not self.watch.done()

    def set_state(self, state: State) -> None:
        """Record where the row is from now on."""
        self.state, self.since = state, asyncio.get_running_loop().time()

    def send_under(self, claim: str | None, idempotency_key: str | None = None) -> None:
        """Note the claim and the idempotency key under which its create is sent; `None` while a claim is asked for."""
        self.claim, self.idempotency_key = claim, idempotency_key

    def result(self, outcome: Outcome, error: Exception, job: AgentJob | None = None) -> BatchResult:
        """Return a result without an ended job."""
        return BatchResult(self.item, outcome, job, error, self.ref, self.row)

    def end(self) -> None:
        """End it and release its slot; that of an unknown item stays taken for a time: its agent may be at work."""
        self.over = True
        self.context.slots.leave(self.slot, self.context.limits.unknown_for if self.state is State.UNKNOWN else 0.0)
