"""What spans and metrics say of an event: the names of OpenTelemetry's conventions where there is one."""

import asyncio
from typing import Final

from agentjobs_async._text import shown_name, shown_status
from agentjobs_async.errors import CreateOutcome, CreateOutcomeUnknownError, ResponseError
from agentjobs_async.models import AgentJob, JobStatus
from agentjobs_async.telemetry.events import CreateFailed, CreateStarted, JobCreated, RunStarted, WaitEnded

__all__ = [
    "Attributes",
    "call_attributes",
    "create_attributes",
    "error_attributes",
    "job_attributes",
    "wait_attributes",
    "wait_outcome",
]

Attributes = dict[str, str | int | float | bool]
"""The values are of these types exactly: an exporter need not know a subclass."""

_INVOKE: Final[Attributes] = {"gen_ai.operation.name": "invoke_agent"}


def call_attributes(event: RunStarted | CreateStarted) -> Attributes:
    """Return the attributes of a `run_job` or a create at its start."""
    found = {**_INVOKE, "agentjobs.project.id": event.project, **_labelled(event.label)}
    return found | {"server.address": event.server_address} if isinstance(event, CreateStarted) else found


def create_attributes(event: JobCreated | CreateFailed) -> Attributes:
    """Return how a create ended; its tries are counted by `http.request.resend_count`, which a single try has not."""
    outcome = event.outcome if isinstance(event, CreateFailed) else CreateOutcome.CREATED
    repeats: Attributes = {"http.request.resend_count": event.tries - 1} if event.tries > 1 else {}
    return {"agentjobs.create.outcome": str(outcome), **repeats}


def job_attributes(job: AgentJob | None, *, content: bool) -> Attributes:
    """Return what is said of a job; the link to its pull request with `content` only."""
    if job is None:
        return {}
    link: Attributes = {"agentjobs.job.pr_link": job.pr_link} if content and job.pr_link else {}
    name, status = shown_name(job.project_id, job.id), shown_status(job.status)
    return {"agentjobs.job.id": name, "agentjobs.job.status": status, **link}


def wait_attributes(event: WaitEnded) -> Attributes:
    """Return the attributes of a wait, without those of its job and its error."""
    found: Attributes = {
        "agentjobs.project.id": event.project,
        "agentjobs.job.id": event.ref.to_token(),
        "agentjobs.polls": event.polls,
        "agentjobs.wait.outcome": wait_outcome(event),
        "agentjobs.wait.shared": event.shared,
        **_labelled(event.label),
    }
    if event.lateness is not None:
        found["agentjobs.wait.lateness"] = event.lateness
    if event.server_address is not None:
        found["server.address"] = event.server_address
    return found


def wait_outcome(event: WaitEnded) -> str:
    """Return how a wait ended, in one word of a few: the job's status, `other`, `cancelled` or `error`."""
    if event.job is not None:
        return str(event.job.status) if type(event.job.status) is JobStatus else "other"
    return "cancelled" if isinstance(event.error, asyncio.CancelledError) else "error"


def error_attributes(error: BaseException | None) -> Attributes:
    """Return the class of an error and the status of the response; nothing for a cancellation: it is no error."""
    if not isinstance(error, Exception):
        return {}
    status = error.status if isinstance(error, ResponseError | CreateOutcomeUnknownError) else None
    return {"error.type": type(error).__name__} | ({} if status is None else {"http.response.status_code": status})


def _labelled(label: str | None) -> Attributes:
    return {} if label is None else {"agentjobs.label": label}
