"""Events: frozen records, which hooks are called with."""

from typing import Any

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
    "KeyRequested",
    "PollFailed",
    "RunEnded",
    "RunStarted",
    "WaitEnded",
    "WaitStarted",
]


@frozen(repr=False)
class _Event:
    """What all events have. One repr serves all: compiled for each class, it is a third of the cost at import."""

    label: str | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in (*self.__match_args__, "label"))
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def project(self) -> str:
        project_id: str | None = getattr(self._named_by, "project_id", None)
        return project_id or ""

    @property
    def name(self) -> str | None:
        named_by = self._named_by
        if isinstance(named_by, AgentJob):
            return shown_name(named_by.project_id, named_by.id)
        return named_by.to_token() if isinstance(named_by, JobRef) else None

    @property
    def _named_by(self) -> Any:
        return getattr(self, "ref", None) or getattr(self, "job", None) or self


@frozen(repr=False)
class _WaitEvent(_Event):
    """An event of a job that is waited for."""

    source: int = field(default=0, kw_only=True, eq=False)


@frozen(repr=False)
class CreateStarted(_Event):
    """A create began. `JobCreated` or `CreateFailed` follows, in the same task and context: that of the caller.

    Attributes:
        project_id: The project of the create.
        server_address: The host of the service.
    """

    project_id: str
    server_address: str


@frozen(repr=False)
class JobCreated(_Event):
    """The server answered a create with a job.

    Attributes:
        job: The new job.
        elapsed: Seconds from the call to the response, repetitions included.
        tries: The number of requests that were begun, from 1.
    """

    job: AgentJob
    elapsed: float
    tries: int = 1


@frozen(repr=False)
class CreateRetried(_Event):
    """A create that started no agent is about to be repeated.

    Attributes:
        project_id: The project of the create.
        error: Why the last try started no agent; its `outcome` is `NOT_SENT` or `REJECTED`.
        tries: The number of requests that were begun so far, from 1.
        delay: Seconds until the next try.
        prompt_sha256: The SHA-256 of the prompt in UTF-8, as 64 hexadecimal digits.
    """

    project_id: str
    error: AgentJobsError
    tries: int
    delay: float
    prompt_sha256: str


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
    """

    project_id: str
    outcome: CreateOutcome
    error: BaseException
    elapsed: float = 0.0
    tries: int = 1
    prompt_sha256: str = ""


@frozen(repr=False)
class JobPolled(_WaitEvent):
    """The server answered a poll with the job.

    Attributes:
        job: The job as this poll showed it.
        poll_number: Which poll of this job it is, from 1; it counts on while any wait for the job is under way.
        elapsed: Seconds that this poll took, from the call of `get_job` or the request's start to its answer.
        lateness: How late the job's end was noticed at most, in seconds: the time since the last poll that showed it at
            work, or since the wait's start if the job was created right before. `None` for a job that has not ended, or
            had ended before it was waited for.
    """

    job: AgentJob
    poll_number: int
    elapsed: float = 0.0
    lateness: float | None = None


@frozen(repr=False)
class JobChanged(_WaitEvent):
    """A poll showed a change of the job. A change of `raw` alone does not count.

    Attributes:
        job: The job as this poll showed it.
        previous: The job as it was last known. Its `raw` is empty when the service's document had more than about
            16 KiB: no more is kept between polls. What your own `get_job` returned is kept.
    """

    job: AgentJob
    previous: AgentJob


@frozen(repr=False)
class PollFailed(_WaitEvent):
    """A poll did not show the job.

    Attributes:
        ref: The job.
        error: Why; a `CancelledError` if the poll was cancelled because no caller waited for the job any more.
        poll_number: Which poll of this job it is, from 1; it counts on while any wait for the job is under way.
        elapsed: Seconds from the poll's start until it failed or was cut.
    """

    ref: JobRef
    error: BaseException
    poll_number: int
    elapsed: float = 0.0


@frozen(repr=False)
class WaitStarted(_WaitEvent):
    """A wait began. `WaitEnded` follows, in the same context: the one in which the wait began.

    Attributes:
        ref: The job waited for.
    """

    ref: JobRef


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
    lateness: float | None = None
    shared: bool = False
    server_address: str | None = None


@frozen(repr=False)
class RunStarted(_Event):
    """A `run_job` began. `RunEnded` follows, in the same task and context, after the events of its create and its wait.

    Attributes:
        project_id: The project of the create; `None` if neither the call nor the session names one, which is an error.
    """

    project_id: str | None


@frozen(repr=False)
class RunEnded(_Event):
    """A `run_job` ended with a job or with an error.

    Attributes:
        project_id: As in `RunStarted`.
        job: The ended job; `None` if `run_job` raises.
        error: The error that the caller gets, a `CancelledError` if the caller was cancelled; `None` for a job.
        elapsed: Seconds from the call to its end.
    """

    project_id: str | None
    job: AgentJob | None
    error: BaseException | None
    elapsed: float


@frozen(repr=False)
class KeyRequested(_Event):
    """The service refused the key with 401, and the session's callable `api_key` was asked for another one.

    It is one event for all calls that the service refused meanwhile.

    Attributes:
        changed: Whether the callable returned another key: the calls are repeated with it.
        error: Why there is no key: the callable raised, or returned what is none; `None` where it returned a key.
    """

    changed: bool
    error: AgentJobsError | None

    @property
    def words(self) -> str:
        """What came of it."""
        if self.error is not None:
            return self.error.message
        return f"api_key returned {'another one' if self.changed else 'the same one'}"


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
    | KeyRequested
)
"""The argument of a hook. Every event has these attributes, too:

- `project`: the id of the project; the empty string where a `run_job` names none, and of a `KeyRequested`.
- `name`: the token of the job, printable also where the job was made by hand; `None` before there is a job.
- `label`: the label that `create_job` or `run_job` was given; of a wait, that of the `AgentJob` that it was given; of
  polls, the first of those. `None` without one, or where waits were given a `JobRef` or an id only.

Events of waits and polls have `source`, a number for the session or tracker in this process: two of them may wait for
jobs of one name. It is no part of an event's equality and repr.
"""
