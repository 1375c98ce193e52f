"""The logger of the package, and the hook that logs events."""

import asyncio
import logging
from typing import Final
from urllib.parse import quote

from agentjobs_async._text import one_line
from agentjobs_async.errors import WaitTimeoutError, describe
from agentjobs_async.telemetry.events import (
    CreateFailed,
    CreateRetried,
    Event,
    JobChanged,
    JobCreated,
    JobPolled,
    PollFailed,
    WaitEnded,
    WaitStarted,
)

__all__ = ["LoggingHook", "logger"]

logger: Final = logging.getLogger("agentjobs_async")
logger.addHandler(logging.NullHandler())


class LoggingHook:
    """A hook that logs to the logger `agentjobs_async`.

    Polls and starts of waits are logged at DEBUG, also failed polls; created jobs, repeated creates, changes, and waits
    that ended with a job, a timeout or a cancellation at INFO; failed creates and other ends of waits at WARNING.

    Each record has four more attributes, for formatters that write JSON: `event`, the name of the event's class;
    `project`, the project id; `job`, the token of the job, `None` for a create without one; and `label`, the label of
    the job, `None` without one. A formatter that writes them must not be used for records of other loggers.
    """

    def __call__(self, event: Event, /) -> None:
        """Log `event`."""
        level, text = _as_log(event)
        label = "" if event.label is None else f" [{one_line(event.label)}]"
        logger.log(level, "%s%s", text, label, extra=_as_extra(event))


def _as_extra(event: Event) -> dict[str, str | None]:
    """Return the attributes of an event's log record: printable text only."""
    match event:
        case CreateRetried() | CreateFailed():
            project, job = event.project_id, None
        case PollFailed(ref) | WaitStarted(ref) | WaitEnded(ref):
            project, job = ref.project_id, ref.to_token()
        case JobCreated(found) | JobPolled(found) | JobChanged(found):
            project, job = found.project_id, found.shown_name
    label = None if event.label is None else one_line(event.label)
    return {"event": type(event).__name__, "project": one_line(project), "job": job, "label": label}


def _as_log(event: Event) -> tuple[int, str]:
    level = logging.DEBUG
    match event:
        case JobCreated(job, elapsed):
            level, text = logging.INFO, f"created {job.shown_name} in {elapsed:.3f} s"
        case CreateRetried(project_id, error, tries, delay):
            level = logging.INFO
            where = quote(project_id, safe="")
            text = f"create in {where} is tried again in {delay:.1f} s, after try {tries}: {describe(error)}"
        case CreateFailed(project_id, outcome, error):
            level = logging.WARNING
            text = f"create in {quote(project_id, safe='')} ended as {outcome}: {describe(error)}"
        case JobPolled(job, polls):
            text = f"poll {polls} of {job.shown_name}: {job.shown_status}"
        case JobChanged(job, previous):
            level, text = logging.INFO, f"{job.shown_name} went from {previous.shown_status} to {job.shown_status}"
        case PollFailed(ref, error, polls):
            text = f"poll {polls} of {ref.to_token()} failed: {describe(error)}"
        case WaitStarted(ref):
            text = f"wait for {ref.to_token()} started"
        case WaitEnded(ref, job, error, polls, elapsed):
            end = job.shown_status if job is not None else describe(error)
            expected = job is not None or isinstance(error, WaitTimeoutError | asyncio.CancelledError)
            level = logging.INFO if expected else logging.WARNING
            text = f"wait for {ref.to_token()} ended after {elapsed:.1f} s and {polls} polls: {end}"
    return level, text
