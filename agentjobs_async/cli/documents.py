"""The JSON of the command line: one document for each line, on standard output and in the file of `--out`."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from agentjobs_async import AgentJob, Estimate, JobRef
from agentjobs_async.cli.outcomes import Outcome, Result

__all__ = ["Change", "Document", "change_document", "identity", "job_document", "result_document", "summary_document"]

Document = dict[str, Any]


@frozen
class Change:
    """What happened to a job that has not ended.

    Attributes:
        event: `created`; `status`, when a status is first seen or changes; `trouble`, when polls fail.
        ref: The job.
        job: The job as it is now; `None` for `trouble`.
        error: Why the job can't be read, as one line; only for `trouble`.
        number: Its place among the prompts, tasks or jobs, from 1.
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


def change_document(change: Change) -> Document:
    """Return a change as a document."""
    if change.job is None:
        return _event(change.event, change.ref, error=change.error)
    fields = {"number": change.number, "key": change.key, "status": change.job.status}
    if change.event == "created":
        fields["prompt"] = change.prompt
    return _event(change.event, change.ref, **fields)


def result_document(result: Result) -> Document:
    """Return the end of an item or of a job as a document."""
    return _event(
        "ended",
        result.ref,
        number=result.number,
        key=result.key,
        prompt=result.prompt,
        outcome=result.outcome,
        status=result.status,
        pr_link=result.pr_link,
        error=result.error,
        **({} if (result.tries or 1) == 1 else {"tries": result.tries}),
        **({} if result.context is None else {"context": dict(result.context)}),
    )


def summary_document(outcomes: Mapping[Outcome, int], exit_code: int) -> Document:
    """Return the last document of a command: how many prompts, tasks or jobs ended in which way."""
    shown = {outcome: number for outcome, number in outcomes.items() if number}
    return {"event": "summary", "outcomes": shown, "exit_code": exit_code}


def job_document(job: AgentJob) -> Document:
    """Return the job's own document under its token."""
    return {"job": job.ref.to_token(), **job.to_dict()}


def identity(document: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what distinguishes one end of an item from another.

    A refused task has no place in the journal; there the reason is part of it.
    """
    reason = document.get("error") if document.get("number", 0) is None else None
    return document.get("key"), document.get("tries", 1), document.get("outcome"), document.get("job"), reason


def _event(name: str, ref: JobRef | None, **fields: Any) -> Document:
    return {"event": name, "job": None if ref is None else ref.to_token(), **fields}
