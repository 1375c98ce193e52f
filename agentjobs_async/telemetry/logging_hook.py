"""The hook that logs events."""

import asyncio
from logging import DEBUG, INFO, WARNING
from typing import Final
from urllib.parse import quote

from agentjobs_async._text import one_line, shown_status
from agentjobs_async.errors import CreateOutcome, WaitTimeoutError, log_description
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry.events import (
    CreateFailed,
    CreateRetried,
    CreateStarted,
    Event,
    JobChanged,
    JobCreated,
    JobPolled,
    KeyRequested,
    PollFailed,
    RunEnded,
    RunStarted,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async.telemetry.observers import logger

__all__ = ["LoggingHook"]

_LOGGED: Final[dict[type, tuple[int, str]]] = {
    RunStarted: (DEBUG, "run in {project} started"),
    RunEnded: (DEBUG, "run in {project} ended after {event.elapsed:.1f} s: {end}"),
    CreateStarted: (DEBUG, "create in {project} started"),
    CreateRetried: (INFO, "create in {project} is tried again in {event.delay:.1f} s, after try {event.tries}: {end}"),
    CreateFailed: (WARNING, "create in {project} ended as {event.outcome}: {end}"),
    JobCreated: (INFO, "created {event.name} in {event.elapsed:.3f} s"),
    WaitStarted: (DEBUG, "wait for {event.name} started"),
    WaitEnded: (WARNING, "wait for {event.name} ended after {event.elapsed:.1f} s and {event.polls} polls: {end}"),
    JobPolled: (DEBUG, "poll {event.poll_number} of {event.name}: {end}"),
    JobChanged: (INFO, "{event.name} went from {previous} to {end}"),
    KeyRequested: (WARNING, "the service refused the key: {event.words}"),
    PollFailed: (DEBUG, "poll {event.poll_number} of {event.name} failed: {end}"),
}
"""The level and the text of each event; `end` is its error, else the status of its job; `previous`, the one before."""


class LoggingHook:
    """A hook that logs to the logger `agentjobs_async`.

    Polls (failed ones too), the starts of creates and waits, and `run_job` calls are logged at DEBUG; created jobs,
    repeated creates, changes, and waits that ended with a job, a timeout or a cancellation at INFO; failed creates and
    other ends of waits at WARNING; creates whose outcome is unknown, of which the session itself warns, at INFO; a key
    that was asked for anew at INFO, at WARNING where there is no other one. The server's words for an error are left
    out, since they may quote the prompt.

    Each record has four more attributes, for formatters that write JSON: `event`, the name of the event's class;
    `project`, the project id; `job`, the token of the job, `None` for a create without one; and `label`, the label of
    the job, `None` without one. A formatter that writes them must not be used for records of other loggers.
    """

    def __call__(self, event: Event, /) -> None:
        """Log `event`."""
        level, text = _LOGGED[type(event)]
        if isinstance(event, KeyRequested) and event.changed:
            level = INFO
        job: AgentJob | None = getattr(event, "job", None)
        error: BaseException | None = getattr(event, "error", None)
        if isinstance(event, WaitEnded) and (job or isinstance(error, WaitTimeoutError | asyncio.CancelledError)):
            level = INFO
        if isinstance(event, CreateFailed) and event.outcome is CreateOutcome.UNKNOWN:
            level = INFO  # the create itself has warned, with or without a hook
        end = log_description(error) if job is None else shown_status(job.status)
        previous = shown_status(event.previous.status) if isinstance(event, JobChanged) else None
        text = text.format(event=event, project=quote(event.project, safe=""), end=end, previous=previous)
        label = None if event.label is None else one_line(event.label)
        extra = {"event": type(event).__name__, "project": one_line(event.project), "job": event.name, "label": label}
        logger.log(level, "%s%s", text, "" if label is None else f" [{label}]", extra=extra)
