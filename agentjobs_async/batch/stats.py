"""A run at one moment."""

from collections.abc import Mapping

from attrs import field, frozen

from agentjobs_async import JobRef
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State

__all__ = ["ActiveItem", "BatchStats"]


@frozen
class BatchStats:
    """A run at one moment.

    Attributes:
        waiting: How many items wait for their create.
        active: How many items are being created or wait for their job.
        next_create: Seconds until the next create may be sent; `None` when that depends on one that is under way.
        outcomes: How many items ended in each way in this run.
        stopped: Whether no more items are started because `max_failures` was reached.
        paused_by: Why creates that wait are held back right now: a 429, what kept a create from being sent, what left
            creates unknown, or that unknown items keep all slots of `max_active`; `None` when nothing but a rate does
            so.
    """

    waiting: int
    active: int
    next_create: float | None
    outcomes: Mapping[Outcome, int]
    stopped: bool
    paused_by: Exception | None = None


@frozen
class ActiveItem:
    """An item that a run works on.

    Attributes:
        state: planned (it waits for its create), sending or active.
        age: Seconds that it has been in this state.
        ref: Its job; `None` before that is known.
        prompt: Its prompt.
        row: Its row, as the run knows it.
    """

    key: str
    state: State
    age: float
    ref: JobRef | None
    prompt: str = ""
    row: JournalRow | None = field(default=None, repr=False, eq=False)
