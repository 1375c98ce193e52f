"""What callers get of one durable job, and how its row becomes that."""

from sys import intern
from typing import Any

from attrs import field, frozen

from agentjobs_async import AgentJob, AgentJobsError, CreateOutcome, CreateOutcomeUnknownError, JobRef, ResponseError
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.batch._failures import abandonment

__all__ = ["DurableEntry", "abandoned_error", "end_of_row", "entry_of", "ref_of_row"]


@frozen
class DurableEntry:
    """One durable job at one moment.

    Attributes:
        key: The key under which it was submitted.
        state: Where it is: `planned` (not sent yet), `sending`, `active` (the agent is at work), or how it ended.
        ref: The job; `None` while it has none, and when it is `rejected` or `unknown`.
        job: The job as it was seen last by this process; `None` when it was not.
        context: The context with which it was submitted first; empty without one. A dict of the reader's own.
        error: Why the state is what it is; `None` where nothing went wrong.
        extra: The extra with which it was submitted; empty without one. A dict of the reader's own.
    """

    key: str
    state: State
    ref: JobRef | None = None
    job: AgentJob | None = None
    context: dict[str, Any] = field(factory=dict, repr=False, hash=False)
    error: str | None = None
    extra: dict[str, Any] = field(factory=dict, repr=False, hash=False)


def ref_of_row(row: JournalRow) -> JobRef | None:
    """Return the job of a row; `None` without one."""
    return None if row.job_id is None else JobRef(intern(row.project_id), row.job_id)


def entry_of(row: JournalRow, job: AgentJob | None = None) -> DurableEntry:
    """Return the entry of a row."""
    return DurableEntry(row.key, row.state, ref_of_row(row), job, row.context or {}, row.error, row.extra or {})


def abandoned_error(row: JournalRow) -> AgentJobsError:
    """Return the error of a call that waits for the create of a row which was abandoned meanwhile."""
    error = abandonment(row, f"{row.key!r:.200} was {row.error or State.ABANDONED}")
    error.ref = ref_of_row(row)
    return error


def end_of_row(row: JournalRow, ref: JobRef | None, refusal: ResponseError | None) -> AgentJob | AgentJobsError:
    """Return the job or the error of a row that has ended with `refusal`, or otherwise, as far as the journal knows."""
    if row.state is State.UNKNOWN:
        words = row.error or "the answer to its create was lost"
        return CreateOutcomeUnknownError(words, project_id=row.project_id, sent_at=row.sent_at)
    if ref is not None and row.error is None:
        return AgentJob(ref.job_id, ref.project_id, row.state.value, pr_link=row.pr_link)
    error = refusal or _error_without_response(row)
    error.outcome = CreateOutcome.REJECTED if row.state is State.REJECTED else None
    error.ref = ref
    return error


def _error_without_response(row: JournalRow) -> AgentJobsError:
    message = row.error or f"the item is {row.state}"
    if row.state is State.ABANDONED:
        return abandonment(row, message)
    told = "The job was refused, and not started." if row.state is State.REJECTED else None
    return AgentJobsError(message, public_message=told)
