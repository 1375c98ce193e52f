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
    CreateStarted,
    Event,
    JobChanged,
    JobCreated,
    JobPolled,
    PollFailed,
    RunEnded,
    RunStarted,
    WaitEnded,
    WaitStarted,
)

__all__ = ["LoggingHook", "logger"]

logger: Final = logging.getLogger("agentjobs_async")
logger.addHandler(logging.NullHandler())


class LoggingHook:
    """A hook that logs to the logger `agentjobs_async`.

    Polls (failed ones too), the starts of creates and waits, and `run_job` calls are logged at DEBUG; created jobs,
    repeated creates, changes, and waits that ended with a job, a timeout or a cancellation at INFO; failed creates and
    other ends of waits at WARNING.

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
        case CreateStarted() | CreateRetried() | CreateFailed() | RunStarted() | RunEnded():
            project, job = event.project_id or "", None
        case PollFailed(ref) | WaitStarted(ref) | WaitEnded(ref):
            project, job = ref.project_id, ref.to_token()
        case JobCreated(found) | JobPolled(found) | JobChanged(found):
            project, job = found.project_id, found.shown_name
    label = None if event.label is None else one_line(event.label)
    return {"event": type(event).__name__, "project": one_line(project), "job": job, "label": label}


def _as_log(event: Event) -> tuple[int, str]:
    match event:
        case RunStarted() | RunEnded() | CreateStarted() | CreateRetried() | CreateFailed() | JobCreated():
            return _call_as_log(event)
        case WaitStarted(ref):
            level, text = logging.DEBUG, f"wait for {ref.to_token()} started"
        case WaitEnded(ref, job, error, polls, elapsed):
            end = job.shown_status if job is not None else describe(error)
            expected = job is not None or isinstance(error, WaitTimeoutError | asyncio.CancelledError)
            level = logging.INFO if expected else logging.WARNING
            text = f"wait for {ref.to_token()} ended after {elapsed:.1f} s and {polls} polls: {end}"
        case JobPolled(job, polls):
            level, text = logging.DEBUG, f"poll {polls} of {job.shown_name}: {job.shown_status}"
        case JobChanged(job, previous):
            level, text = logging.INFO, f"{job.shown_name} went from {previous.shown_status} to {job.shown_status}"
        case PollFailed(ref, error, polls):
            level, text = logging.DEBUG, f"poll {polls} of {ref.to_token()} failed: {describe(error)}"
    return level, text


def _call_as_log(
    event: RunStarted | RunEnded | CreateStarted | CreateRetried | CreateFailed | JobCreated,
) -> tuple[int, str]:
    level = logging.DEBUG
    project = quote(event.job.project_id if isinstance(event, JobCreated) else event.project_id or "", safe="")
    match event:
        case RunStarted():
            text = f"run in {project} started"
        case RunEnded(_, _, error, elapsed):
            end = "with its job" if error is None else f"as {describe(error)}"
            text = f"run in {project} ended after {elapsed:.1f} s {end}"
        case CreateStarted():
            text = f"create in {project} started"
        case CreateRetried(_, error, tries, delay):
            level = logging.INFO
            text = f"create in {project} is tried again in {delay:.1f} s, after try {tries}: {describe(error)}"
        case CreateFailed(_, outcome, error):
            level, text = logging.WARNING, f"create in {project} ended as {outcome}: {describe(error)}"
        case JobCreated(job, elapsed):
            level, text = logging.INFO, f"created {job.shown_name} in {elapsed:.3f} s"
    return level, text
