"""Events: frozen records, which hooks are called with."""

from typing import Any, ClassVar

from attrs import field, frozen

from agentjobs_async._text import shown_name
from agentjobs_async.errors import AgentJobsError, CreateOutcome
from agentjobs_async.models import AgentJob, JobRef

__all__ = [
    "CreateFailed",
    "CreateRetried",
    "CreateStarted",
    "Event",
    "JobChanged",
    "JobCreated",
    "JobPolled",
    "PollFailed",
    "RunEnded",
    "RunStarted",
    "WaitEnded",
    "WaitStarted",
]


class _Event:
    """The repr of all events, written once: one that is compiled for each class is a third of its cost at import."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def project(self) -> str:
        """The id of the project; the empty string where a `run_job` names none."""
        project_id: str | None = self._named_by.project_id
        return project_id or ""

    @property
    def name(self) -> str | None:
        """The token of the job, printable also where the job was made by hand; `None` before there is a job."""
        named_by = self._named_by
        if isinstance(named_by, AgentJob):
            return shown_name(named_by.project_id, named_by.id)
        return named_by.to_token() if isinstance(named_by, JobRef) else None

    @property
    def _named_by(self) -> Any:
        return getattr(self, "ref", None) or getattr(self, "job", None) or self


@frozen(repr=False)
class _WaitEvent(_Event):
    """An event of a job that is waited for.

    Attributes:
        source: A number for the session or tracker, in this process: two of them may wait for jobs of one name. It is
            no part of an event's equality and repr.
    """

    source: int = field(default=0, kw_only=True, eq=False)


@frozen(repr=False)
class CreateStarted(_Event):
    """A create began. `JobCreated` or `CreateFailed` follows, in the same task and context: that of the caller.

    Attributes:
        project_id: The project of the create.
        server_address: The host of the service.
        label: The label that `create_job` was given; `None` without one.
    """

    project_id: str
    server_address: str
    label: str | None = None


@frozen(repr=False)
class JobCreated(_Event):
    """The server answered a create with a job.

    Attributes:
        job: The new job.
        elapsed: Seconds from the call to the response, repetitions included.
        tries: The number of requests that were begun, from 1.
        label: The label that `create_job` was given; `None` without one.
    """

    job: AgentJob
    elapsed: float
    tries: int = 1
    label: str | None = None


@frozen(repr=False)
class CreateRetried(_Event):
    """A create that started no agent is about to be repeated.

    Attributes:
        project_id: The project of the create.
        error: Why the last try started no agent; its `outcome` is `NOT_SENT` or `REJECTED`.
        tries: The number of requests that were begun so far, from 1.
        delay: Seconds until the next try.
        prompt_sha256: The SHA-256 of the prompt in UTF-8, as 64 hexadecimal digits.
        label: The label that `create_job` was given; `None` without one.
    """

    project_id: str
    error: AgentJobsError
    tries: int
    delay: float
    prompt_sha256: str
    label: str | None = None


@frozen(repr=False)
class CreateFailed(_Event):
    """A create ended without a job.

    Attributes:
        project_id: The project of the create.
        outcome: How the create ended; never `CREATED`.
        error: The error that the caller gets; a `CancelledError` if the caller was cancelled.
        elapsed: Seconds from the call to its end, repetitions included.
        tries: The number of requests that were begun, from 1.
        prompt_sha256: The SHA-256 of the prompt in UTF-8, as 64 hexadecimal digits: it names what was not created.
        label: The label that `create_job` was given; `None` without one.
    """

    project_id: str
    outcome: CreateOutcome
    error: BaseException
    elapsed: float = 0.0
    tries: int = 1
    prompt_sha256: str = ""
    label: str | None = None


@frozen(repr=False)
class JobPolled(_WaitEvent):
    """The server answered a poll with the job.

    Attributes:
        job: The job as this poll showed it.
        poll_number: Which poll of this job it is, from 1; it counts on while any wait for the job is under way.
        elapsed: Seconds that this poll took, from the call of `get_job` or the request's start to its answer.
        label: The label of the job, where a wait for it was given the `AgentJob` of `create_job`; else `None`.
        lateness: How late the job's end was noticed at most, in seconds: the time since the last poll that showed it at
            work, or since the wait's start if the job was created right before. `None` for a job that has not ended, or
            had ended before it was waited for.
    """

    job: AgentJob
    poll_number: int
    elapsed: float = 0.0
    label: str | None = None
    lateness: float | None = None


@frozen(repr=False)
class JobChanged(_WaitEvent):
    """A poll showed a change of the job. A change of `raw` alone does not count.

    Attributes:
        job: The job as this poll showed it.
        previous: The job as it was last known. Its `raw` is empty when the document had more than about 16 KiB of text:
            no more is kept between polls.
        label: As in `JobPolled`.
    """

    job: AgentJob
    previous: AgentJob
    label: str | None = None


@frozen(repr=False)
class PollFailed(_WaitEvent):
    """A poll did not show the job.

    Attributes:
        ref: The job.
        error: Why; a `CancelledError` if the poll was cancelled because no caller waited for the job any more.
        poll_number: Which poll of this job it is, from 1; it counts on while any wait for the job is under way.
        elapsed: Seconds from the poll's start until it failed or was cut.
        label: As in `JobPolled`.
    """

    ref: JobRef
    error: BaseException
    poll_number: int
    elapsed: float = 0.0
    label: str | None = None


@frozen(repr=False)
class WaitStarted(_WaitEvent):
    """A wait began. `WaitEnded` follows, in the same context: the one in which the wait began.

    Attributes:
        ref: The job waited for.
        label: The label of the `AgentJob` that the wait was given; `None` if it has none, or if a `JobRef` or an id was
            given.
    """

    ref: JobRef
    label: str | None = None


@frozen(repr=False)
class WaitEnded(_WaitEvent):
    """A wait ended with a job or with an error. Hooks are called in the context in which the wait began.

    Attributes:
        ref: The job waited for.
        job: The ended job; `None` if the wait ended with an error.
        error: The error that the caller gets, a `CancelledError` if the caller was cancelled; `None` if the wait ended
            with a job.
        polls: The number of polls that served this wait.
        elapsed: Seconds from the wait's start to its end.
        label: As in `WaitStarted`.
        lateness: As in `JobPolled`, or the time since this wait's start if that was later. `None` also if no poll of
            this wait showed the end.
        shared: Whether another wait for the job shared the polls of this one.
        server_address: The host of the service; `None` for a `JobTracker`, and for a session with its own `get_job`.
    """

    ref: JobRef
    job: AgentJob | None
    error: BaseException | None
    polls: int
    elapsed: float
    label: str | None = None
    lateness: float | None = None
    shared: bool = False
    server_address: str | None = None


@frozen(repr=False)
class RunStarted(_Event):
    """A `run_job` began. `RunEnded` follows, in the same task and context, after the events of its create and its wait.

    Attributes:
        project_id: The project of the create; `None` if neither the call nor the session names one, which is an error.
        label: The label that `run_job` was given; `None` without one.
    """

    project_id: str | None
    label: str | None = None


@frozen(repr=False)
class RunEnded(_Event):
    """A `run_job` ended with a job or with an error.

    Attributes:
        project_id: As in `RunStarted`.
        job: The ended job; `None` if `run_job` raises.
        error: The error that the caller gets, a `CancelledError` if the caller was cancelled; `None` for a job.
        elapsed: Seconds from the call to its end.
        label: As in `RunStarted`.
    """

    project_id: str | None
    job: AgentJob | None
    error: BaseException | None
    elapsed: float
    label: str | None = None


Event = (
    RunStarted
    | CreateStarted
    | CreateRetried
    | CreateFailed
    | JobCreated
    | WaitStarted
    | JobPolled
    | PollFailed
    | JobChanged
    | WaitEnded
    | RunEnded
)
"""The argument of a hook."""
