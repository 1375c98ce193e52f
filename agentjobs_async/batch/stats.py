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
        waiting: How many items wait for their create. They are among the `planned`.
        active: How many items are being created or wait for their job.
        next_create: Seconds until the next create may be sent; `None` when that depends on one that is under way.
        outcomes: How many items ended in each way in this run.
        stopped: Whether no more items are started because `max_failures` was reached.
        paused_by: Why nothing is sent right now although items are planned. `None` when only a rate holds them back:
            `next_create` says for how long. The type of the error says what happened:
            `AuthError` (the key was refused with 401 or 403),
            `RateLimitedError` or another `ResponseError` (refused for now, such as a 429),
            `CreateOutcomeUnknownError` (an outage),
            `NotSentError` (no create can be sent at all).
            Any other `AgentJobsError` says in words what is waited for, which is no fault: `max_active` is used up, by
            this run or by all that work on the journal; unknown items keep all of its slots; or the service told an
            earlier run to wait.
        planned: How many items this run still has to send: those that wait for their create, and those that have not
            begun. `None` for a worker, which a queue hands its items.
        total: How many items this run has in all: planned, active and ended, and those of earlier runs that are still
            to be waited for. `None` while its source is still being read, and for a worker.
        ends_in: Seconds until all of them have ended, if each job takes the median time of the last ones. Before the
            first job has ended (`usual` is `None`), the seconds until the last create may be sent. `None` while that is
            not known: while the source is being read; while neither a rate nor the time of a job is known; while
            creates are held back by more than a 429 or a limit; and for a worker.
        decided_by: The limit that decides `ends_in`, with its value, such as `max_active 20` or `create_rate 100/h`;
            `None` where `ends_in` is `None`.
        usual: The seconds within which half of the last 500 jobs ended, and nine of ten; `None` before one has ended.
    """

    waiting: int
    active: int
    next_create: float | None
    outcomes: Mapping[Outcome, int]
    stopped: bool
    paused_by: Exception | None = None
    planned: int | None = None
    total: int | None = None
    ends_in: float | None = None
    decided_by: str | None = None
    usual: tuple[float, float] | None = None


@frozen
class ActiveItem:
    """An item that a run works on.

    Attributes:
        key: Its key.
        state: `planned` (it waits for its create), `sending` or `active`.
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
