"""Events, the hooks that are called with them, and the logger of the package."""

import asyncio
import logging
from typing import Final, Protocol
from urllib.parse import quote

from attrs import frozen

from agentjobs_async.errors import CreateOutcome, WaitTimeoutError, describe
from agentjobs_async.models import AgentJob, JobRef

__all__ = [
    "CreateFailed",
    "Event",
    "Hook",
    "JobChanged",
    "JobCreated",
    "JobPolled",
    "LoggingHook",
    "PollFailed",
    "WaitEnded",
    "WaitStarted",
]


logger: Final = logging.getLogger("agentjobs_async")
logger.addHandler(logging.NullHandler())


@frozen
class JobCreated:
    """The server answered a create with a job.

    Attributes:
        job: The new job.
        elapsed: Seconds from the call to the response, repetitions included.
    """

    job: AgentJob
    elapsed: float


@frozen
class CreateFailed:
    """A create ended without a job.

    Attributes:
        project_id: The project of the create.
        outcome: How the create ended; never `CREATED`.
        error: The error that the caller gets; a `CancelledError` if the caller was cancelled.
    """

    project_id: str
    outcome: CreateOutcome
    error: BaseException


@frozen
class JobPolled:
    """The server answered a poll with the job.

    Attributes:
        job: The job as this poll showed it.
        polls: The number of polls of this job so far, this one included.
    """

    job: AgentJob
    polls: int


@frozen
class JobChanged:
    """A poll showed a change of the job. A change of `raw` alone does not count.

    Attributes:
        job: The job as this poll showed it.
        previous: The job as it was last known. Its `raw` is empty when the document had more than about 16 KiB of text:
            no more is kept between polls.
    """

    job: AgentJob
    previous: AgentJob


@frozen
class PollFailed:
    """A poll did not show the job.

    Attributes:
        ref: The job.
        error: Why; a `CancelledError` if the poll was cancelled because no caller waited for the job any more.
        polls: The number of polls of this job so far, this one included.
    """

    ref: JobRef
    error: BaseException
    polls: int


@frozen
class WaitStarted:
    """A wait for the job `ref` began. `WaitEnded` follows, in the same context: the one in which the wait began."""

    ref: JobRef


@frozen
class WaitEnded:
    """A wait ended with a job or with an error. Hooks are called in the context in which the wait began.

    Attributes:
        ref: The job waited for.
        job: The ended job; `None` if the wait ended with an error.
        error: The error that the caller gets, a `CancelledError` if the caller was cancelled; `None` if the wait ended
            with a job.
        polls: The number of polls that served this wait.
        elapsed: Seconds from the wait's start to its end.
    """

    ref: JobRef
    job: AgentJob | None
    error: BaseException | None
    polls: int
    elapsed: float


Event = JobCreated | CreateFailed | JobPolled | JobChanged | PollFailed | WaitStarted | WaitEnded
"""The argument of a hook."""


class Hook(Protocol):
    """Called with each event as it happens, in the event loop, so that it must be quick.

    What a hook raises is logged once and has no other effect.

    Events of a create come in the caller's context; those of a wait, in a copy of the caller's context from the wait's
    start. `JobPolled`, `JobChanged` and `PollFailed` belong to the job, for which many callers may wait: they come in
    an empty context, with no context variable set.
    """

    def __call__(self, event: Event, /) -> object:
        """Process `event`; the returned value is ignored."""
        ...


class LoggingHook:
    """A hook that logs to the logger `agentjobs_async`.

    Polls and starts of waits are logged at DEBUG, also failed polls; created jobs, changes, and waits that ended with a
    job, a timeout or a cancellation at INFO; failed creates and other ends of waits at WARNING.
    """

    def __call__(self, event: Event, /) -> None:
        """Log `event`."""
        level, text = _as_log(event)
        logger.log(level, "%s", text)


def _as_log(event: Event) -> tuple[int, str]:
    level = logging.DEBUG
    match event:
        case JobCreated(job, elapsed):
            level, text = logging.INFO, f"created {job.shown_name} in {elapsed:.3f} s"
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
