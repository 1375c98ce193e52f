"""What a command shows of an item or a job: its changes and its result, as a row of a table and as JSON."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from agentjobs_async import AgentJob, CreateOutcomeUnknownError, Estimate, JobFailedError, JobRef, WaitTimeoutError
from agentjobs_async.cli._output.outcomes import Outcome, advice_of, reason_of
from agentjobs_async.cli._output.tables import ShownItem
from agentjobs_async.report.items import COLUMNS, pull_request_of, shared_reason, time_text, without_error
from agentjobs_async.report.texts import link_or_none

if TYPE_CHECKING:
    from agentjobs_async.batch import BatchResult, JournalRow, State

Document = dict[str, Any]


@frozen
class Change:
    """What happened to a job that has not ended.

    Attributes:
        event: `created`; `status`, when a status is first seen or changes; `trouble`, when polls fail.
        ref: The job.
        job: The job as it is now; `None` for `trouble`.
        error: Why the job can't be read, as one line; only for `trouble`.
        number: Its number among the items or jobs, from 1.
        key: The key of its item; `None` for a job that is only waited for.
        prompt: Its prompt; `None` for a job that is only waited for.
        left: How long it has left; `None` while that is not known.
    """

    event: str
    ref: JobRef
    job: AgentJob | None = None
    error: str | None = None
    number: int | None = None
    key: str | None = None
    prompt: str | None = None
    left: Estimate | None = None


@frozen
class Result:
    """How one item or job ended: what every line and table of results is made of.

    Attributes:
        number: Its number among the items or jobs, from 1; `None` for what was refused before it was planned.
        outcome: How it ended.
        key: The key of its item; `None` for a job that was only waited for, and for a refused prompt without a key.
        prompt: `None` for a job that was only waited for, and for a refused one.
        ref: `None` when no job is known.
        status: The last known status of the job; `None` without one.
        pr_link: The pull request of the job; `None` without one.
        error: Why there is no ended job, as one line; `None` when there is one, or when nothing was sent yet.
        advice: What to do about the error, where nothing else at the end of the command says so.
        row: The row of its item; `None` for what has none in a journal.
    """

    number: int | None
    outcome: Outcome
    key: str | None = None
    prompt: str | None = None
    ref: JobRef | None = None
    status: str | None = None
    pr_link: str | None = None
    error: str | None = None
    advice: str = ""
    row: "JournalRow | None" = None

    @property
    def tries(self) -> int:
        """How often its item was planned."""
        return 1 if self.row is None else self.row.tries


def run_result(result: "BatchResult") -> Result:
    """Return how an item ended in this run."""
    job, row = result.job, result.row
    error = None if isinstance(result.error, JobFailedError) else result.error  # every output has words of its own
    is_refused = row is None and result.outcome == "rejected"
    outcome = Outcome(result.outcome)
    is_recorded = row is not None and row.state.value == result.outcome.value
    recorded = row.error if row is not None and is_recorded else None  # the same, as every other output says it
    has_commands = isinstance(error, CreateOutcomeUnknownError | WaitTimeoutError)  # at the end: they say what to do
    return Result(
        None if row is None else row.number,
        Outcome.REFUSED if is_refused else outcome,
        result.item.key if row is None else row.key,
        result.item.prompt,
        result.ref,
        None if job is None else job.status,
        None if job is None else job.pr_link,
        recorded or (None if error is None else reason_of(error)),
        "" if error is None or has_commands else advice_of(error),
        row,
    )


def row_result(row: "JournalRow") -> Result:
    """Return how an item stands in the journal."""
    ref = _ref_of(row)
    status = row.state if row.job_id is not None and row.state.is_job_end else None
    outcome = Outcome(row.state)
    return Result(row.number, outcome, row.key, row.prompt, ref, status, row.pr_link, row.error, row=row)


def outcomes_of(counts: "Mapping[State, int]", timed_out: Collection[Result] = ()) -> Counter[Outcome]:
    """Return how many items of a journal ended in which way.

    Args:
        counts: How many rows are in each state.
        timed_out: The results of this run whose time was up; the journal has their rows as planned or active, unless
            they were abandoned, or ended by another process, since.
    """
    outcomes = Counter({Outcome(state): number for state, number in counts.items()})
    for result in timed_out:
        left = Outcome.PLANNED if result.ref is None else Outcome.ACTIVE
        if outcomes[left]:
            outcomes[left] -= 1
            outcomes[Outcome.TIMED_OUT] += 1
    return +outcomes


def _ref_of(row: "JournalRow") -> JobRef | None:
    return None if row.job_id is None else JobRef(row.project_id, row.job_id)


def shown_row(row: "JournalRow") -> ShownItem:
    """Return the line of a table for an item as the journal has it; its job is named by its token."""
    name = row.key if row.tries == 1 else f"{row.key} (try {row.tries})"
    ref = _ref_of(row)
    token = None if ref is None else ref.to_token()
    return ShownItem(name, row.state, row.prompt, detail_of(row.state, row.error, row.pr_link, token))


def shown_result(result: Result) -> ShownItem:
    """Return the line of a table for a result: named by its key, and by its token without one."""
    token = None if result.ref is None else result.ref.to_token()
    again = f" (try {result.tries})" if result.tries > 1 else ""
    name = f"{result.key}{again}" if result.key is not None else token or f"prompt {result.number}"
    # A token that is the name already is no news.
    return ShownItem(
        name,
        result.outcome,
        result.prompt or "",
        detail_of(result.outcome, result.error, result.pr_link, None if name == token else token),
    )


def detail_of(state: str, error: str | None, pr_link: str | None, job: str | None) -> str:
    """Return what a line shows beside the state: what went wrong, else the pull request, else the job."""
    if error is not None:
        return error
    if pr_link is not None:
        return pr_link
    if state == Outcome.COMPLETED:
        return "no pull request"
    return without_error(state, job) or job or ""


def outcomes_in_words(outcomes: Mapping[Outcome, int]) -> str:
    """Return how many ended in which way, in the order of the states."""
    return ", ".join(f"{outcomes[outcome]:,} {outcome.shown}" for outcome in Outcome if outcomes.get(outcome))


def change_document(change: Change) -> Document:
    """Return a change as a document."""
    if change.job is None:
        return _event(change.event, change.ref, **_columns_of(change.ref), error=change.error)
    fields = {"number": change.number, "key": change.key, "status": change.job.status}
    if change.event == "created":
        fields["prompt"] = change.prompt
    return _event(change.event, change.ref, **fields, **_columns_of(change.ref))


def result_document(result: Result) -> Document:
    """Return the end of an item or of a job as an event: its columns by their names, context and extra as objects."""
    error = result.error or without_error(result.outcome, None)
    known = {
        "number": None,  # in the journal: its row knows it
        "key": result.key,
        "state": result.outcome.value,
        **_columns_of(result.ref),
        "pr_link": link_or_none(result.pr_link),
        "pull_request": pull_request_of(result.pr_link),
        "reason": shared_reason(error),
        "error": error,
        "prompt": result.prompt,
    }
    row = result.row
    if row is None:
        return _event("ended", result.ref, status=result.status, **known)
    columns = {name: column.of(row) for name, column in COLUMNS.items()}
    columns |= {name: value for name, value in known.items() if value is not None or name in {"reason", "error"}}
    objects = {"context": row.context, "extra": row.extra}
    fields = {name: dict(found) for name, found in objects.items() if found is not None}
    return _event("ended", result.ref, status=result.status, **columns, **fields)


def summary_document(outcomes: Mapping[Outcome, int], exit_code: int) -> Document:
    """Return the last document of a command: how many items or jobs ended in which way."""
    shown = {outcome.value: outcomes[outcome] for outcome in Outcome if outcomes.get(outcome)}
    return {"event": "summary", "states": shown, "exit_code": exit_code}


def job_document(job: AgentJob) -> Document:
    """Return a job under its token; what items have as well, by the names of their columns."""
    own = {name: value for name, value in job.to_dict().items() if name not in {"id", "project_id"}}
    times = {"created_at": time_text(job.created_at), "archived_at": time_text(job.archived_at)}
    return {"job": job.ref.to_token(), **_columns_of(job.ref), **own, **times}


def _columns_of(ref: JobRef | None) -> Document:
    return {"project": ref and ref.project_id, "job_id": ref and ref.job_id}


def _event(name: str, ref: JobRef | None, **fields: Any) -> Document:
    return {"event": name, "job": None if ref is None else ref.to_token(), **fields}
