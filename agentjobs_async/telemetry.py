"""Hooks, the events that they are called with, and the logger of the package."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import Context
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from urllib.parse import quote

from attrs import frozen

from agentjobs_async._validation import is_async
from agentjobs_async.errors import CreateOutcome, InvalidInputError, WaitTimeoutError, describe
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
    "RunApart",
    "WaitEnded",
    "WaitStarted",
    "call_apart",
    "call_in",
]


T = TypeVar("T")


def call_in(context: Context, call: Callable[[T], None], value: T) -> None:
    """Call `call` with `value` in `context`, or in a copy while something runs in it already.

    `call` must contain what its own callback raises.
    """
    try:
        context.run(call, value)
    except RuntimeError:  # entered already: a callback that runs in it ended its own wait, say
        context.copy().run(call, value)


def call_apart(call: Callable[[T], None], value: T) -> None:
    """Call `call` with `value` in an empty context: it belongs to no caller."""
    Context().run(call, value)


class RunApart(Generic[T]):
    """Awaits a coroutine in an empty context, in the task that awaits it: no other task, which could outlive it.

    Whatever the coroutine makes that lasts (sockets, timers) keeps no variable of its caller alive.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the coroutine step by step."""
        context, coroutine = Context(), self._coroutine
        try:
            awaited = context.run(coroutine.send, None)
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    context.run(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - a cancellation, say: it is the coroutine's
                    awaited = context.run(coroutine.throw, error)
                else:
                    awaited = context.run(coroutine.send, value)
        except StopIteration as end:
            result: T = end.value
            return result


logger: Final = logging.getLogger("agentjobs_async")
logger.addHandler(logging.NullHandler())

_MAX_WARNINGS: Final = 100  # statuses that are logged: a server may make up any number


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


def checked_observer(name: str, observer: object) -> None:
    """Check a callable that is called with events or jobs; a coroutine function would never be awaited.

    Raises:
        InvalidInputError: `observer` is a class, not callable, or async.
    """
    if isinstance(observer, type):
        raise InvalidInputError(f"{name} must be an instance, not the class itself: {observer.__name__}()")
    if not callable(observer):
        raise InvalidInputError(f"{name} must be callable, not {type(observer).__name__}")
    if is_async(observer):
        raise InvalidInputError(f"{name} must be a plain function: to await something, start a task in it")


class GuardedCallback:
    """Calls a user's observer; contains what it raises, and logs the first of it."""

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
        except BaseException as error:  # CancelledError too: it would cancel a task that is not the observer's
            if not self._logged:
                self._logged = True
                logger.warning(
                    "%s raised %s; it is still called, but further errors of it are not logged",
                    self._name,
                    type(error).__name__,
                    exc_info=error,
                )


class Hooks(tuple[GuardedCallback, ...]):
    """All hooks of one session or tracker, each contained. Falsy without hooks: callers then make no events.

    Raises:
        InvalidInputError: A hook is a class, not callable, or async, or `hooks` is not iterable.
    """

    __slots__ = ()

    def __new__(cls, hooks: Sequence[Hook] = ()) -> Self:
        if not isinstance(hooks, Iterable):
            raise InvalidInputError(
                f"hooks must be a sequence of hooks, not {type(hooks).__name__}: put it into a list"
            )
        return super().__new__(cls, (GuardedCallback("a hook", hook) for hook in hooks))

    def emit(self, event: Event) -> None:
        """Call every hook with `event`, in the current context."""
        for hook in self:
            hook(event)

    def emit_in(self, context: Context, event: Event) -> None:
        """Call every hook with `event`, in the context of the caller to whom the event belongs."""
        call_in(context, self.emit, event)

    def emit_apart(self, event: Event) -> None:
        """Call every hook with an event that belongs to no caller, in an empty context."""
        call_apart(self.emit, event)


class StatusWarnings:
    """Logs each unknown status once, and at most 100 of them."""

    __slots__ = ("_warned",)

    def __init__(self) -> None:
        self._warned: tuple[str, ...] = ()  # a tuple: all empty ones are one object, and most stay empty

    def check(self, job: AgentJob) -> None:
        """Log if the status of `job` is unknown to this version; an unknown status does not end a wait."""
        if (
            type(job.status) is not JobStatus
            and job.shown_status not in self._warned
            and len(self._warned) < _MAX_WARNINGS
        ):
            self._warned += (job.shown_status,)
            logger.warning("job %s has the unknown status %s: taken as not ended", job.shown_name, job.shown_status)


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
