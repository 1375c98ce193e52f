"""The hook that logs events."""

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
from agentjobs_async.telemetry.observers import logger

__all__ = ["LoggingHook"]

_LEVELS: Final[dict[type, int]] = {
    **dict.fromkeys((CreateRetried, JobCreated, JobChanged), logging.INFO),
    CreateFailed: logging.WARNING,
}
"""Of the events that are not logged at DEBUG, but for `WaitEnded`."""


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
        label = None if event.label is None else one_line(event.label)
        logger.log(
            _level(event),
            "%s%s",
            _text(event),
            "" if label is None else f" [{label}]",
            extra={
                "event": type(event).__name__,
                "project": one_line(event.project),
                "job": event.name,
                "label": label,
            },
        )


def _level(event: Event) -> int:
    if isinstance(event, WaitEnded):
        expected = event.job is not None or isinstance(event.error, WaitTimeoutError | asyncio.CancelledError)
        return logging.INFO if expected else logging.WARNING
    return _LEVELS.get(type(event), logging.DEBUG)


def _text(event: Event) -> str:
    match event:
        case WaitStarted():
            text = f"wait for {event.name} started"
        case WaitEnded(_, job, error, polls, elapsed):
            end = job.shown_status if job is not None else describe(error)
            text = f"wait for {event.name} ended after {elapsed:.1f} s and {polls} polls: {end}"
        case JobPolled(job, polls):
            text = f"poll {polls} of {event.name}: {job.shown_status}"
        case JobChanged(job, previous):
            text = f"{event.name} went from {previous.shown_status} to {job.shown_status}"
        case PollFailed(_, error, polls):
            text = f"poll {polls} of {event.name} failed: {describe(error)}"
        case JobCreated(_, elapsed):
            text = f"created {event.name} in {elapsed:.3f} s"
        case _:
            text = _text_without_job(event, quote(event.project, safe=""))
    return text


def _text_without_job(event: RunStarted | RunEnded | CreateStarted | CreateRetried | CreateFailed, project: str) -> str:
    match event:
        case RunStarted():
            return f"run in {project} started"
        case RunEnded(_, _, error, elapsed):
            end = "with its job" if error is None else f"as {describe(error)}"
            return f"run in {project} ended after {elapsed:.1f} s {end}"
        case CreateStarted():
            return f"create in {project} started"
        case CreateRetried(_, error, tries, delay):
            return f"create in {project} is tried again in {delay:.1f} s, after try {tries}: {describe(error)}"
        case CreateFailed(_, outcome, error):
            return f"create in {project} ended as {outcome}: {describe(error)}"
