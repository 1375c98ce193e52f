"""Every error that this package raises.

AgentJobsError                             .outcome: CreateOutcome | None, .ref: JobRef | None
├─ InvalidInputError (ValueError)          before any I/O
├─ SessionClosedError (RuntimeError)       closed, another loop, a forked child
├─ NotSentError (ConnectionError)          no byte of the request left                .reason
├─ TransportError (ConnectionError)        broke after the first byte left
├─ CreateOutcomeUnknownError               an agent may have been started             .phase .status
├─ ResponseError                           .status .request_id .retry_after .excerpt
│  ├─ AuthError                            401 403
│  ├─ NotFoundError                        404 410
│  ├─ RateLimitedError                     429
│  ├─ RejectedError                        other 3xx and 4xx
│  └─ ServerError                          5xx
├─ ProtocolError                           an answer that is none                     .reason .retry_after
├─ WaitTimeoutError (TimeoutError)         .last_job .last_error .polls .elapsed
├─ JobFailedError                          .job; only by AgentJob.raise_for_status()
└─ JournalError                            locked, corrupt, version, full, …          .reason .lost
"""

import pickle
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agentjobs_async._text import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentjobs_async.models import AgentJob, JobRef

__all__ = [
    "AgentJobsError",
    "AuthError",
    "CreateOutcome",
    "CreateOutcomeUnknownError",
    "InvalidInputError",
    "JobFailedError",
    "JournalError",
    "NotFoundError",
    "NotSentError",
    "ProtocolError",
    "RateLimitedError",
    "RejectedError",
    "ResponseError",
    "ServerError",
    "SessionClosedError",
    "TransportError",
    "WaitTimeoutError",
]


E = TypeVar("E", bound=Exception)


class CreateOutcome(StrEnum):
    """How a create ended: each ends as exactly one of these."""

    CREATED = "created"
    """The service answered with a job."""
    REJECTED = "rejected"
    """The service refused: no agent was started."""
    NOT_SENT = "not_sent"
    """No byte of the request left this process: no agent was started."""
    UNKNOWN = "unknown"
    """An agent may have been started, and nobody can tell: look at the project before creating again."""


class AgentJobsError(Exception):
    """The base of every error of this package. Its text is one line: the job, what happened, what to do about it."""

    outcome: CreateOutcome | None = None
    """What became of the create that raised this; `None` when it was not raised by a create."""
    ref: "JobRef | None" = None
    """The job that was read or waited for; `None` when it was raised by anything else."""
    advice = ""
    """What to do about it, where the message does not say so itself."""

    @property
    def message(self) -> str:
        """What happened, without the job's name and the advice that `str` gives beside it."""
        return super().__str__()

    def __str__(self) -> str:
        named = self.message if self.ref is None else f"job {self.ref.to_token()}: {self.message}"
        return f"{named}; {self.advice}" if self.advice else named

    def __reduce__(self) -> "tuple[Callable[..., AgentJobsError], tuple[Any, ...]]":
        """Pickle the fields themselves: an exception's own way calls `__init__` with the finished message."""
        return _rebuild, (type(self), self.args, dict(vars(self)))


def _rebuild(cls: type[AgentJobsError], args: tuple[Any, ...], state: dict[str, Any]) -> AgentJobsError:
    error = cls.__new__(cls)
    error.args = args
    vars(error).update(state)
    return error


class InvalidInputError(AgentJobsError, ValueError):
    """An argument or a setting makes no sense. Raised before any I/O; the message says what would be right."""


class SessionClosedError(AgentJobsError, RuntimeError):
    """The session or tracker is closed, or belongs to another event loop or to the process that forked this one."""


class NotSentError(AgentJobsError, ConnectionError):
    """No byte of the request left: the name was not found, the connection was refused or failed, or TLS did.

    Attributes:
        reason: `dns`, `refused`, `tls`, `certificate`, `proxy` (it refused), `timeout` or `connect`.
    """

    advice = "check base_url and the network, or try again"

    def __init__(self, message: str, reason: str = "connect") -> None:
        super().__init__(message)
        self.reason = reason


class TransportError(AgentJobsError, ConnectionError):
    """The exchange broke after the first byte of the request left: reset, closed, timed out."""

    advice = "a read may be tried again"


class CreateOutcomeUnknownError(AgentJobsError):
    """An agent may have been started. The create is not sent again by itself; look at the project before doing so.

    Attributes:
        phase: `request` when no complete head of an answer arrived, `response` when one did.
        status: The answer's HTTP status; `None` in the phase `request`.
    """

    outcome = CreateOutcome.UNKNOWN
    advice = "look at the project before creating this job again"

    def __init__(self, detail: str, phase: str = "request", status: int | None = None) -> None:
        super().__init__(f"an agent may have been started: {detail}")
        self.phase = phase
        self.status = status


class ResponseError(AgentJobsError):
    """The service answered with an error status.

    Attributes:
        status: The HTTP status.
        request_id: The service's own name for the exchange, where it gave one, else `None`.
        retry_after: The seconds of its Retry-After; `None` without a valid one.
        excerpt: The beginning of what it said: one line, at most 2 KiB, the key masked.
    """

    def __init__(
        self, status: int, request_id: str | None = None, retry_after: float | None = None, excerpt: str = ""
    ) -> None:
        answer = f"HTTP {status}: {excerpt}" if excerpt else f"HTTP {status}"
        named = f"request id {request_id}" if request_id else ""
        wish = "" if retry_after is None else f"Retry-After: {retry_after:g} s"
        super().__init__("; ".join(filter(None, (answer, named, wish))))
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.excerpt = excerpt


class AuthError(ResponseError):
    """401 or 403: the key is missing, wrong, or not allowed to do this."""

    advice = "check the API key and that it may use this project"


class NotFoundError(ResponseError):
    """404 or 410: no such job or project, or no longer."""

    advice = "check base_url, the project id and the job id (a token is read by JobRef.from_token)"


class RateLimitedError(ResponseError):
    """429: too many requests. Nothing was done."""

    advice = "nothing was done; ask again later"


class RejectedError(ResponseError):
    """Any other 3xx or 4xx: refused. A redirect is never followed; the excerpt names its target's origin only."""

    advice = "the request was refused and would be again"


class ServerError(ResponseError):
    """5xx: the service, or something before it, failed."""

    advice = "the service failed; a read may be tried again"


class ProtocolError(AgentJobsError):
    """An answer came that is none: no job can be made of it.

    Attributes:
        reason: `not_json`, `too_large`, `encoding`, `bad_json`, `schema`, `wrong_id`, `http` or `unexpected_status`.
        retry_after: As in `ResponseError`.
    """

    advice = "check base_url and get_path, or your own get_job"

    def __init__(self, reason: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"unusable answer ({reason}): {detail}")
        self.reason = reason
        self.retry_after = retry_after


class WaitTimeoutError(AgentJobsError, TimeoutError):
    """The wait's own time ran out. The job goes on remotely; wait for its `ref` again to take it up.

    Attributes:
        last_job: What the last good answer showed; `None` when there was none.
        last_error: What the last poll failed with; `None` when it did not.
        polls: How many polls were made.
        elapsed: Seconds from the wait's start to its end.
    """

    def __init__(
        self, ref: "JobRef", last_job: "AgentJob | None", last_error: Exception | None, polls: int, elapsed: float
    ) -> None:
        seen = f"last seen {last_job.shown_status}" if last_job is not None else "never seen"
        trouble = f", last error: {said_by(last_error)}" if last_error is not None else ""
        super().__init__(f"it did not end within {elapsed:.1f} s ({polls} polls, {seen}{trouble})")
        self.ref: JobRef = ref
        self.advice = _AFTER_TIMEOUT if last_job is not None else _AFTER_SILENCE
        self.last_job = last_job
        self.last_error = last_error
        self.polls = polls
        self.elapsed = elapsed

    def __reduce__(self) -> "tuple[Callable[..., AgentJobsError], tuple[Any, ...]]":
        """Pickle; a foreign `last_error` that doesn't pickle becomes an `AgentJobsError` of the same words."""
        rebuild, (cls, args, state) = super().__reduce__()
        if not _survives_pickling(self.last_error):
            state["last_error"] = AgentJobsError(said_by(self.last_error))
        return rebuild, (cls, args, state)


_AFTER_TIMEOUT: Final = "it goes on remotely: wait for it again by its ref"
_AFTER_SILENCE: Final = "if it exists, it goes on remotely: check its ids, and wait for it again by its ref"


def about(error: E, ref: "JobRef") -> E:
    """Give `error`, which now names the job where it is one of ours and named none."""
    if isinstance(error, AgentJobsError) and error.ref is None:
        error.ref = ref
    return error


def said_by(error: BaseException | None) -> str:
    """Give what an error says as one line: ours without its job and advice, a foreign one with its type."""
    return error.message if isinstance(error, AgentJobsError) else f"{type(error).__name__}: {words_of(error)}"


def _survives_pickling(value: object) -> bool:
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes, made in this line
    except Exception:  # noqa: BLE001 - a foreign exception's pickling may fail in any way
        return False
    return True


class JobFailedError(AgentJobsError):
    """The agent met an unrecoverable error. Raised by `AgentJob.raise_for_status()` only.

    Attributes:
        job: The failed job.
    """

    advice = "its record may say more in job.raw"

    def __init__(self, job: "AgentJob") -> None:
        super().__init__(f"the job {job.shown_name} failed")
        self.job = job


class JournalError(AgentJobsError):
    """A batch's journal can't be used; the file is left as it is.

    Attributes:
        reason: `locked`, `corrupt`, `version`, `full`, `read_only`, or `io` for anything else that the system refused.
        lost: Jobs that were created and that the journal could not take: they are written down nowhere else.
    """

    def __init__(self, message: str, reason: str, lost: "tuple[JobRef, ...]" = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.lost = lost


BY_STATUS: Final[dict[int, type[ResponseError]]] = {
    401: AuthError,
    403: AuthError,
    404: NotFoundError,
    410: NotFoundError,
    429: RateLimitedError,
}
