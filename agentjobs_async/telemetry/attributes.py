"""What spans and metrics say of an event: the names of OpenTelemetry's conventions where there is one."""

import asyncio
from typing import Final

from agentjobs_async._text import shown_status
from agentjobs_async.errors import CreateOutcome, CreateOutcomeUnknownError, ResponseError
from agentjobs_async.models import JobStatus
from agentjobs_async.telemetry.events import CreateFailed, CreateStarted, JobCreated, RunEnded, RunStarted, WaitEnded

__all__ = ["Attributes", "end_attributes", "error_attributes", "start_attributes", "wait_outcome"]

Attributes = dict[str, str | int | float | bool]
"""The values are of these types exactly: an exporter need not know a subclass."""

_INVOKE: Final[Attributes] = {"gen_ai.operation.name": "invoke_agent"}


def start_attributes(event: RunStarted | CreateStarted) -> Attributes:
    """Return the attributes of a `run_job` or a create at its start."""
    address: Attributes = {"server.address": event.server_address} if isinstance(event, CreateStarted) else {}
    return _INVOKE | _common(event) | address


def end_attributes(event: JobCreated | CreateFailed | WaitEnded | RunEnded, *, content: bool) -> Attributes:
    """Return how a create, a wait or a `run_job` ended; the link to the pull request with `content` only."""
    job = None if isinstance(event, CreateFailed) else event.job
    found: Attributes = {} if event.name is None else {"agentjobs.job.id": event.name}
    if job is not None:
        found["agentjobs.job.status"] = shown_status(job.status)
        if content and job.pr_link:
            found["agentjobs.job.pr_link"] = job.pr_link
    if isinstance(event, WaitEnded):
        found |= _of_wait(event)
    elif not isinstance(event, RunEnded):
        found |= _of_create(event)
    return found if isinstance(event, JobCreated) else found | error_attributes(event.error)


def _of_create(event: JobCreated | CreateFailed) -> Attributes:
    outcome = event.outcome if isinstance(event, CreateFailed) else CreateOutcome.CREATED
    repeats: Attributes = {"http.request.resend_count": event.tries - 1} if event.tries > 1 else {}
    return {"agentjobs.create.outcome": str(outcome), **repeats}


def _of_wait(event: WaitEnded) -> Attributes:
    """Return the attributes of a wait's span, which is made at its end."""
    found = _common(event) | {
        "agentjobs.polls": event.polls,
        "agentjobs.wait.outcome": wait_outcome(event),
        "agentjobs.wait.shared": event.shared,
    }
    if event.lateness is not None:
        found["agentjobs.wait.lateness"] = event.lateness
    if event.server_address is not None:
        found["server.address"] = event.server_address
    return found


def _common(event: RunStarted | CreateStarted | WaitEnded) -> Attributes:
    label: Attributes = {} if event.label is None else {"agentjobs.label": event.label}
    return {"agentjobs.project.id": event.project, **label}


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
