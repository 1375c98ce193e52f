"""What callers get of one durable job, and how its row becomes that."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from attrs import evolve, field, frozen

from agentjobs_async import AgentJob, AgentJobsError, CreateOutcome, CreateOutcomeUnknownError, JobRef, ResponseError
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.batch._failures import abandonment
from agentjobs_async.batch.states import ENDED
from agentjobs_async.durable.users import own_key

__all__ = ["DurableEntry", "abandoned_error", "end_of_row", "entry_of", "for_reader", "ref_of_row"]

_MESSAGES: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.PLANNED: "The job waits to be sent.",
        State.SENDING: "The job is being sent.",
        State.ACTIVE: "The agent is at work.",
        State.COMPLETED: "The agent has completed the job.",
        State.FAILED: "The job has failed.",
        State.ARCHIVED: "The job was archived.",
        State.REJECTED: "The job was refused: no agent was started.",
        State.UNKNOWN: "The job may have been started. Look for it before you start it again.",
        State.ABANDONED: "The job was given up.",
    }
)
"""What any end user may read about a state."""
_HELD_BACK: Final = "The job waits, and is sent as soon as that is possible."
_WITHDRAWN: Final = "The job was withdrawn before it was started."


@frozen
class DurableEntry:
    """One durable job as the journal has it: the same in every process, before the end and after it.

    Attributes:
        key: The key under which it was submitted.
        state: Where it is: `planned` (not sent yet), `sending`, `active` (the agent is at work), or how it ended.
        ref: The job; `None` while it has none, and when it is `rejected` or `unknown`.
        job: The job as far as the journal knows it: its ids, its status and, once it has ended, its `pr_link`; in
            callbacks, as the service showed it. `None` without a job, and where it is gone or was given up.
        context: The context with which it was submitted first, or that `set_context` has set; empty without one. A dict
            of the reader's own.
        error: Why the state is what it is; `None` where nothing went wrong. Of a planned job, why it is held back.
        extra: The extra with which it was submitted; empty without one. A dict of the reader's own.
        pr_link: The link of the ended job's pull request; `None` without one.
        planned_at: When it was planned, in UTC, by the journal's clock, as all times. A time is `None` where it has not
            come yet.
        sent_at: When its create was about to be sent; `None` again where it is proven that nothing was sent.
        created_at: When the job's id was recorded.
        seen_at: When the service last showed the job; to a minute while it is active.
        ended_at: When its end was recorded; `None` for an unknown one.
        tries: Which try this is: 1, and one more each time that it was planned again.
    """

    key: str
    state: State
    ref: JobRef | None = None
    job: AgentJob | None = None
    context: dict[str, Any] = field(factory=dict, repr=False, hash=False)
    error: str | None = None
    extra: dict[str, Any] = field(factory=dict, repr=False, hash=False)
    pr_link: str | None = None
    planned_at: datetime | None = None
    sent_at: datetime | None = None
    created_at: datetime | None = None
    seen_at: datetime | None = None
    ended_at: datetime | None = None
    tries: int = 1

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended: completed, failed, archived, rejected or abandoned.

        `unknown` is no end: a person may settle it. Only a person plans again what has ended.
        """
        return self.state in ENDED and self.state is not State.UNKNOWN

    def to_dict(self, *, user: str | None = None) -> dict[str, Any]:
        """Return what any end user may see, as an object of plain JSON types, the same in every process.

        It has `key`, `state`, `tries`, `job` (by its `to_dict`, or `None`), `pr_link`, `planned_at`, `sent_at`,
        `created_at` and `ended_at` (in ISO 8601, or `None`), and `message`, a sentence about the state. The context,
        the extra and the error, whose words are meant for operators, are left out; so is `seen_at`, which changes while
        nothing else does.

        Args:
            user: The user for whom it is: a key that `user_key` has made for this user is the user's own key then, as
                it was chosen. `None` leaves every key as it is.
        """
        times = {name: getattr(self, name) for name in ("planned_at", "sent_at", "created_at", "ended_at")}
        return {
            "key": self.key if user is None else own_key(user, self.key),
            "state": str(self.state),
            "message": self._message(),
            "tries": self.tries,
            "job": None if self.job is None else self.job.to_dict(),
            "pr_link": self.pr_link,
            **{name: None if time is None else time.isoformat() for name, time in times.items()},
        }

    def _message(self) -> str:
        if self.state is State.PLANNED and self.error is not None:
            return _HELD_BACK
        was_sent = self.sent_at is not None or self.ref is not None
        return _WITHDRAWN if self.state is State.ABANDONED and not was_sent else _MESSAGES[self.state]


def ref_of_row(row: JournalRow) -> JobRef | None:
    """Return the job of a row; `None` without one."""
    return None if row.job_id is None else JobRef(intern(row.project_id), row.job_id)


def _job_of_row(row: JournalRow) -> AgentJob | None:
    """Return the job of a row as far as the journal knows it; `None` without one, or where it is not there any more."""
    ref = ref_of_row(row)
    if ref is None or not (row.state is State.ACTIVE or (row.state.is_job_end and row.error is None)):
        return None
    return AgentJob(ref.job_id, ref.project_id, row.state.value, pr_link=row.pr_link)


def entry_of(row: JournalRow) -> DurableEntry:
    """Return the entry of a row."""
    return DurableEntry(
        key=row.key,
        state=row.state,
        ref=ref_of_row(row),
        job=_job_of_row(row),
        context=row.context or {},
        error=row.error,
        extra=row.extra or {},
        pr_link=row.pr_link,
        planned_at=row.planned_at,
        sent_at=row.sent_at,
        created_at=row.created_at,
        seen_at=row.seen_at,
        ended_at=row.ended_at,
        tries=row.tries,
    )


def for_reader(entry: DurableEntry) -> DurableEntry:
    """Return an entry whose context and extra are its reader's own: others have that of the same row."""
    return evolve(entry, context=deepcopy(entry.context), extra=deepcopy(entry.extra))


def abandoned_error(row: JournalRow) -> AgentJobsError:
    """Return the error of a call that waits for the create of a row which was abandoned meanwhile."""
    error = abandonment(row, f"{row.key!r:.200} was {row.error or State.ABANDONED}")
    error.ref = ref_of_row(row)
    return error


def end_of_row(row: JournalRow, refusal: ResponseError | None) -> AgentJob | AgentJobsError:
    """Return the job or the error of a row that has ended with `refusal`, or otherwise, as far as the journal knows."""
    if row.state is State.UNKNOWN:
        words = row.error or "the answer to its create was lost"
        return CreateOutcomeUnknownError(words, project_id=row.project_id, sent_at=row.sent_at)
    if (job := _job_of_row(row)) is not None:
        return job
    error = refusal or _error_without_response(row)
    if row.state is not State.ABANDONED:
        error.outcome = CreateOutcome.REJECTED if row.state is State.REJECTED else None
    error.ref = ref_of_row(row)
    return error


def _error_without_response(row: JournalRow) -> AgentJobsError:
    message = row.error or f"the item is {row.state}"
    if row.state is State.ABANDONED:
        return abandonment(row, message)
    told = "The job was refused, and not started." if row.state is State.REJECTED else None
    return AgentJobsError(message, public_message=told)
