"""What happens, told to whoever asks: hooks and their events, and the logger of the package."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, Self
from urllib.parse import quote

from attrs import frozen

from agentjobs_async._checks import is_async
from agentjobs_async.errors import CreateOutcome, InvalidInputError, WaitTimeoutError, said_by
from agentjobs_async.models import AgentJob, JobRef, JobStatus

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
]

logger: Final = logging.getLogger("agentjobs_async")
logger.addHandler(logging.NullHandler())

_MOST_WARNINGS: Final = 100


@frozen
class JobCreated:
    """A create was answered with a job.

    Attributes:
        elapsed: Seconds from the call to the answer, tries that were not sent included.
    """

    job: AgentJob
    elapsed: float


@frozen
class CreateFailed:
    """A create ended without a job.

    Attributes:
        outcome: Never `CREATED`.
        error: What the caller gets; a `CancelledError` when the caller was cancelled.
    """

    project_id: str
    outcome: CreateOutcome
    error: BaseException


@frozen
class JobPolled:
    """A poll was answered with a job.

    Attributes:
        polls: How many polls there were so far, this one included.
    """

    job: AgentJob
    polls: int


@frozen
class JobChanged:
    """A poll showed a change of the job. What only `raw` holds does not count.

    Attributes:
        previous: The job as it was known.
    """

    job: AgentJob
    previous: AgentJob


@frozen
class PollFailed:
    """A poll gave no job.

    Attributes:
        error: Why; a `CancelledError` when the poll was cut short because nobody waited any more.
        polls: How many polls there were so far, this one included.
    """

    ref: JobRef
    error: BaseException
    polls: int


@frozen
class WaitEnded:
    """A wait ended: with a job, or with an error.

    Attributes:
        job: The job that ended; `None` with an error.
        error: What the caller gets; a `CancelledError` when the caller was cancelled; `None` with a job.
        polls: How many polls served this wait.
        elapsed: Seconds from the wait's start.
    """

    ref: JobRef
    job: AgentJob | None
    error: BaseException | None
    polls: int
    elapsed: float


Event = JobCreated | CreateFailed | JobPolled | JobChanged | PollFailed | WaitEnded
"""What a hook is told."""


class Hook(Protocol):
    """Gets each event as it happens, in the event loop: be quick. What it raises is logged once and disturbs nobody."""

    def __call__(self, event: Event, /) -> object:
        """Take notice of `event`; what it returns is ignored."""
        ...


def checked_observer(name: str, observer: object) -> None:
    """Refuse what can't be called, and coroutine functions: nobody would await them.

    Raises:
        InvalidInputError: `observer` is either.
    """
    if isinstance(observer, type):
        raise InvalidInputError(f"{name} must be an instance, not the class itself: {observer.__name__}()")
    if not callable(observer):
        raise InvalidInputError(f"{name} must be callable, not {type(observer).__name__}")
    if is_async(observer):
        raise InvalidInputError(f"{name} must be a plain function: start a task in it for what has to be awaited")


class Contained:
    """Calls a user's observer, and logs the first thing that it raises, and only that."""

    __slots__ = ("_logged", "_name", "_observer")

    def __init__(self, name: str, observer: Callable[[Any], object]) -> None:
        checked_observer(name, observer)
        self._name = name
        self._observer = observer
        self._logged = False

    def __call__(self, value: Any) -> None:
        try:
            self._observer(value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if not self._logged:
                self._logged = True
                logger.warning(
                    "%s raised %s; it goes on being called, further faults are not logged",
                    self._name,
                    type(error).__name__,
                    exc_info=error,
                )


class Hooks(tuple[Contained, ...]):
    """All hooks of one session or tracker, each contained. Falsy without hooks, so that no event is made for nobody.

    Raises:
        InvalidInputError: A hook is no plain callable, or `hooks` no sequence of them.
    """

    __slots__ = ()

    def __new__(cls, hooks: Sequence[Hook] = ()) -> Self:
        if not isinstance(hooks, Iterable):
            raise InvalidInputError(
                f"hooks must be a sequence of hooks, not {type(hooks).__name__}: put it into a list"
            )
        return super().__new__(cls, (Contained("a hook", hook) for hook in hooks))

    def emit(self, event: Event) -> None:
        """Tell every hook."""
        for hook in self:
            hook(event)


class StatusWarnings:
    """Logs each unknown status once, and no more than a hundred: a server may make up any number."""

    __slots__ = ("_warned",)

    def __init__(self) -> None:
        self._warned: tuple[str, ...] = ()  # mostly empty: then it weighs nothing

    def check(self, job: AgentJob) -> None:
        """Log that the service used a status which this version does not know."""
        if (
            type(job.status) is not JobStatus
            and job.shown_status not in self._warned
            and len(self._warned) < _MOST_WARNINGS
        ):
            self._warned += (job.shown_status,)
            logger.warning("job %s has the unknown status %s: taken as not ended", job.shown_name, job.shown_status)


class LoggingHook:
    """A hook that logs under `agentjobs_async`: polls at DEBUG, changes and ends at INFO, failures at WARNING."""

    def __call__(self, event: Event, /) -> None:
        """Log `event`."""
        level, text = _as_log(event)
        logger.log(level, "%s", text)


def _as_log(event: Event) -> tuple[int, str]:
    match event:
        case JobCreated(job, elapsed):
            return logging.INFO, f"created {job.shown_name} in {elapsed:.3f} s"
        case CreateFailed(project_id, outcome, error):
            return (
                logging.WARNING,
                f"create in {quote(project_id, safe='')} ended as {outcome}: {said_by(error)}",
            )
        case JobPolled(job, polls):
            return logging.DEBUG, f"poll {polls} of {job.shown_name}: {job.shown_status}"
        case JobChanged(job, previous):
            return logging.INFO, f"{job.shown_name} went from {previous.shown_status} to {job.shown_status}"
        case PollFailed(ref, error, polls):
            return logging.DEBUG, f"poll {polls} of {ref.to_token()} failed: {said_by(error)}"
        case WaitEnded(ref, job, error, polls, elapsed):
            end = job.shown_status if job is not None else said_by(error)
            expected = job is not None or isinstance(error, WaitTimeoutError | asyncio.CancelledError)
            return (
                logging.INFO if expected else logging.WARNING,
                f"wait for {ref.to_token()} ended after {elapsed:.1f} s and {polls} polls: {end}",
            )
