"""Every error that this package raises.

AgentJobsError                             .outcome: CreateOutcome | 'abandoned' | None, .ref, .public_message
├─ InvalidInputError (ValueError)          before any I/O                             .reason
├─ UserLimitError                          nothing was planned                        .most_open .retry_after
├─ SessionClosedError (RuntimeError)       closed, another loop, a forked child
├─ NotSentError (ConnectionError)          no byte of the request left                .reason
├─ TransportError (ConnectionError)        broke after the first byte left
├─ CreateOutcomeUnknownError               an agent may have been started             .phase .status .sent_at
├─ ResponseError                           .status .request_id .retry_after .excerpt
│  ├─ AuthError                            401 403
│  ├─ NotFoundError                        404 410
│  ├─ RateLimitedError                     429
│  ├─ RejectedError                        other 3xx and 4xx
│  └─ ServerError                          5xx
├─ ProtocolError                           the response can't be read as a job        .reason .retry_after
├─ WaitTimeoutError (TimeoutError)         .last_job .last_error .polls .elapsed
├─ JobFailedError                          .job; by AgentJob.raise_for_status(), and of a failed BatchResult
└─ JournalError                            locked, corrupt, version, full, …          .reason .unrecorded
"""

import copyreg
import pickle
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from agentjobs_async._deferred import deferred
from agentjobs_async._text import error_text, limit, local_time, one_line, shown_name, shown_status

if TYPE_CHECKING:  # models raise these errors
    from agentjobs_async.models import AgentJob, JobRef
else:
    AgentJob = deferred("agentjobs_async.models", "AgentJob")
    JobRef = deferred("agentjobs_async.models", "JobRef")

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
    "UserLimitError",
    "WaitTimeoutError",
]

CreatePhase = Literal["request", "response"]
InvalidInputReason = Literal["key_taken", "no_such_key", "wrong_state"]
JournalReason = Literal["locked", "moved", "corrupt", "version", "full", "read_only", "io"]
NotSentReason = Literal["dns", "refused", "tls", "certificate", "proxy", "timeout", "withheld", "key", "connect"]
ProtocolReason = Literal[
    "not_json", "too_large", "encoding", "bad_json", "schema", "wrong_id", "http", "unexpected_status"
]


class CreateOutcome(StrEnum):
    """How a create ended. Each create ends as exactly one of these."""

    CREATED = "created"
    """The server answered with a job."""
    REJECTED = "rejected"
    """The server refused: no agent was started."""
    NOT_SENT = "not_sent"
    """No byte of the request left this process: no agent was started."""
    UNKNOWN = "unknown"
    """An agent may have been started; the client can't know: look at the project before creating again."""


_BAD_ANSWER: Final = "The agent service did not answer as expected."
_REFUSED: Final = "The agent service refused the request."
_UNAVAILABLE: Final = "Jobs cannot be handled at the moment. Try again."


class AgentJobsError(Exception):
    """The base of all errors of this package. The text is one line: which job, what happened, what to do.

    Args:
        args: The message.
        public_message: What `public_message` is to be; `None` for that of the class.
    """

    outcome: CreateOutcome | Literal["abandoned"] | None = None
    """How the create that raised this ended; `abandoned` where a person withdrew the job or gave it up; else `None`."""
    ref: "JobRef | None" = None
    """The job that was read or waited for; `None` when neither a read nor a wait raised this."""
    advice: str = ""
    """What to do about it; empty where the message says so itself."""
    _public_message: str = "Something went wrong."

    def __init__(
        self, *args: object, public_message: str | None = None, outcome: Literal["abandoned"] | None = None
    ) -> None:
        super().__init__(*args)
        if outcome is not None:
            self.outcome = outcome
        if public_message is not None:
            self._public_message = public_message

    @property
    def public_message(self) -> str:
        """What to tell an end user, in English: no text of the service, no prompt, key, id or address is in it."""
        return self._public_message

    @property
    def message(self) -> str:
        """What happened, without the job's token and the advice, which `str` adds."""
        return super().__str__()

    def __str__(self) -> str:
        named = self.message if self.ref is None else f"job {self.ref.to_token()}: {self.message}"
        return f"{named}; {self.advice}" if self.advice else named

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields: the default would call `__init__` with the finished message."""
        make = copyreg.__newobj__  # type: ignore[attr-defined]  # of PEP 307; missing in typeshed
        return make, (type(self),), {"args": self.args} | vars(self)


class InvalidInputError(AgentJobsError, ValueError):
    """An argument or a setting is invalid. Raised before any I/O; the message says what is valid.

    Attributes:
        reason: `key_taken` where a key is that of another prompt, project or extra, in the journal or the same input;
            `no_such_key` where the journal has no row of a key; `wrong_state` where the row's state does not allow what
            was asked for; `None` for everything else.
    """

    _public_message = "The request is not valid."

    def __init__(self, message: str, *, reason: InvalidInputReason | None = None) -> None:
        super().__init__(message)
        self.reason: InvalidInputReason | None = reason
        self._public_message = _PUBLIC_MESSAGES.get(reason, self._public_message)


_PUBLIC_MESSAGES: Final[dict[InvalidInputReason | None, str]] = {
    "key_taken": "Another job has this key already.",
    "no_such_key": "There is no such job.",
    "wrong_state": "The job's state does not allow this.",
}


class UserLimitError(AgentJobsError):
    """A user has as many jobs under way as `DurableJobs.submit` allows. Nothing was planned.

    Attributes:
        most_open: How many jobs a user may have under way.
        retry_after: Seconds after which it makes sense to try again.
    """

    _public_message = "You have as many jobs under way as you may. Try again when one has ended."

    def __init__(self, most_open: int, retry_after: float = 60.0) -> None:
        jobs = "1 job" if most_open == 1 else f"{most_open} jobs"
        super().__init__(f"the user has {jobs} under way, and may have no more")
        self.most_open = most_open
        self.retry_after = retry_after


class SessionClosedError(AgentJobsError, RuntimeError):
    """The session or tracker is closed, or belongs to another event loop or to the process that forked this one."""

    _public_message = "The service is restarting. A job continues: wait for it again by its token or key."


class NotSentError(AgentJobsError, ConnectionError):
    """The server read no byte of the request: the name lookup, the connection or the TLS handshake failed.

    Attributes:
        reason: `dns`, `refused`, `tls`, `certificate` (the server's is not trusted, or the server refused the client's
            or misses one), `proxy` (the proxy refused, but for a 5xx: it could not connect either), `timeout`,
            `withheld` (the caller's `before_send` returned false or raised), `key` (the callable `api_key` raised), or
            `connect` for any other failure.
    """

    advice: str = "check base_url and the network, or try again"
    _public_message = "The agent service cannot be reached. Try again."

    def __init__(self, message: str, reason: NotSentReason = "connect") -> None:
        super().__init__(message)
        self.reason: NotSentReason = reason
        if reason in {"withheld", "key"}:
            self.advice = ""  # neither the address nor the network is at fault
            self._public_message = _UNAVAILABLE
        elif reason == "certificate":
            self.advice = "check the certificates of both sides"
            self._public_message = "The agent service cannot be reached."  # nor at the next try


class TransportError(AgentJobsError, ConnectionError):
    """The exchange failed after the first byte of the request left: it was reset, closed or timed out."""

    advice = "a read may be tried again"
    _public_message = _BAD_ANSWER


class CreateOutcomeUnknownError(AgentJobsError):
    """An agent may have been started. The client does not send such a create again; look at the project first.

    Attributes:
        phase: `request` when no complete response head arrived, `response` when one did.
        status: The HTTP status of the response; `None` in the phase `request`.
        retry_after: The seconds of the response's Retry-After; `None` without a valid one.
        excerpt: What the message quotes of the server's text; empty for nothing.
        project_id: The project to look at; `None` where that is not known.
        sent_at: When the create was sent, in UTC: about when its job was created, if it was; `None` where that is not
            known. The text shows it in this machine's time zone.
    """

    outcome: CreateOutcome | None = CreateOutcome.UNKNOWN
    _public_message = "The job may have been started. Look for it before you start it again."

    def __init__(
        self,
        detail: str,
        phase: CreatePhase = "request",
        status: int | None = None,
        retry_after: float | None = None,
        excerpt: str = "",
        *,
        project_id: str | None = None,
        sent_at: datetime | None = None,
    ) -> None:
        super().__init__(detail)
        where = "the project" if project_id is None else f"the project {one_line(project_id, 200)}"
        moment = "" if sent_at is None else f" for a job of {local_time(sent_at)}"
        self.advice: str = f"an agent may have been started: look at {where}{moment} before creating this job again"
        self.project_id = project_id
        self.sent_at = sent_at
        self.phase: CreatePhase = phase
        self.status = status
        self.retry_after = retry_after
        self.excerpt = excerpt


_SERVICE_UNAVAILABLE: Final = 503
LASTING_SERVER_STATUSES: Final = frozenset({501, 505})  # not implemented, HTTP version not supported
SERVER_STATUSES: Final = range(500, 600)
_ADVICE: Final = (
    dict.fromkeys((408, 425), "the request was refused for now; it may be accepted later")
    | {407: "the proxy wants a user and a password: give its address with both, by HTTP_PROXY or the session's proxy="}
    | dict.fromkeys(LASTING_SERVER_STATUSES, "the service does not support the request, and would refuse it again")
)
"""What to do about a status that differs in that from its class."""


class ResponseError(AgentJobsError):
    """The server answered with an error status.

    Attributes:
        status: The HTTP status.
        request_id: The id that the server gave the exchange; `None` when it gave none.
        retry_after: The seconds of the Retry-After header; `None` without a valid one.
        excerpt: The beginning of the error text: one line of at most 2 KiB, the key masked.
    """

    _public_message = _BAD_ANSWER

    def __init__(
        self, status: int, request_id: str | None = None, retry_after: float | None = None, excerpt: str = ""
    ) -> None:
        parts = [f"HTTP {status}: {excerpt}" if excerpt else f"HTTP {status}"]
        parts += [f"request id {request_id}"] if request_id else []
        parts += [f"Retry-After: {limit(retry_after)}"] if retry_after is not None else []
        super().__init__("; ".join(parts))
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.excerpt = excerpt
        self.advice: str = _ADVICE.get(status, self.advice)

    @staticmethod
    def of_status(
        status: int, request_id: str | None = None, retry_after: float | None = None, excerpt: str = ""
    ) -> "ResponseError":
        """Return the error that a wait makes of a response: for a `get_job` of your own, which raises it.

        Raises:
            InvalidInputError: `status` is not from 300 to 599, or `retry_after` is no number of at least 0.
        """
        if status not in _ERROR_STATUSES:
            raise InvalidInputError(f"status must be that of an error, from 300 to 599, not {status}")
        wish: object = retry_after  # a header's text is no number, and may be a date
        if wish is not None and not (isinstance(wish, int | float) and wish >= 0):
            raise InvalidInputError(f"retry_after must be seconds, a number of at least 0, not {wish!r:.100}")
        kind = _BY_STATUS.get(status, ServerError if status in SERVER_STATUSES else RejectedError)
        return kind(status, request_id, retry_after, excerpt)


class AuthError(ResponseError):
    """401 or 403: the key is wrong, or not allowed to do this."""

    advice = "check the API key and that it may use this project"
    _public_message = _REFUSED


class NotFoundError(ResponseError):
    """404 or 410: the job or project does not exist, or no longer exists."""

    advice = "check base_url, the paths and the project id; of a job, also its id (for a token, use JobRef.from_token)"
    _public_message = "There is no such job or project."


class RateLimitedError(ResponseError):
    """429: too many requests. Nothing was done."""

    advice = "nothing was done; ask again later"
    _public_message = "Too many requests. Try again later."


class RejectedError(ResponseError):
    """Any other 3xx or 4xx. A redirect is never followed; the excerpt names the origin of its target only."""

    advice = "the request was refused; the same request would be refused again"
    _public_message = _REFUSED


class ServerError(ResponseError):
    """5xx: the service, or a gateway before it, failed."""

    advice = "the service failed; a read may be tried again"

    @property
    def public_message(self) -> str:
        """What to tell an end user; see `AgentJobsError`."""
        return _UNAVAILABLE if is_busy(self) else self._public_message


_ERROR_STATUSES: Final = range(300, 600)
_BY_STATUS: Final[dict[int, type[ResponseError]]] = {
    **dict.fromkeys((401, 403), AuthError),
    **dict.fromkeys((404, 410), NotFoundError),
    429: RateLimitedError,
}
"""Any other 3xx or 4xx is a `RejectedError`, a 5xx a `ServerError`."""


class ProtocolError(AgentJobsError):
    """The response could not be read as a job.

    Attributes:
        reason: `not_json`, `too_large`, `encoding`, `bad_json`, `schema`, `wrong_id`, `http` or `unexpected_status`.
        retry_after: The seconds of the Retry-After header; `None` without a valid one.
        excerpt: What the message quotes of the server's text; empty for nothing.
    """

    advice = "check base_url and get_path, or your own get_job"
    _public_message = _BAD_ANSWER

    def __init__(
        self, reason: ProtocolReason, detail: str, retry_after: float | None = None, excerpt: str = ""
    ) -> None:
        super().__init__(f"unusable answer ({reason}): {detail}")
        self.reason: ProtocolReason = reason
        self.retry_after = retry_after
        self.excerpt = excerpt


class WaitTimeoutError(AgentJobsError, TimeoutError):
    """The timeout of the wait passed. The job continues remotely; wait for its `ref` again to resume.

    Attributes:
        last_job: The job as it was last seen; `None` when no poll showed it. Its `raw` is empty when the service's
            document had more than about 16 KiB: no more is kept between polls. What your own get_job returned is kept.
        last_error: The error of the last poll; `None` when that poll showed the job. When the timeout cut the last
            poll: the error of the poll before it, or, if that one did not fail, an error that says so.
        polls: The number of polls made.
        elapsed: Seconds from the wait's start to its end.
    """

    __slots__ = ("elapsed", "last_error", "last_job", "polls", "ref")  # one object less for each of very many

    advice: str = "it continues remotely: wait for it again by its ref"
    _public_message = "The job continues. Ask again later."

    def __init__(
        self, ref: "JobRef", last_job: "AgentJob | None", last_error: Exception | None, polls: int, elapsed: float
    ) -> None:
        # The text is made when it is read: very many waits may time out in one moment.
        self.ref: JobRef = ref
        if last_job is None:
            self.advice = _AFTER_SILENCE
        self.last_job: AgentJob | None = last_job
        self.last_error: Exception | None = last_error
        self.polls: int = polls
        self.elapsed: float = elapsed

    @property
    def public_message(self) -> str:
        """What to tell an end user; see `AgentJobsError`."""
        return _NOT_SEEN if self.last_job is None else self._public_message

    @property
    def message(self) -> str:
        """What happened, without the job's token and the advice, which `str` adds."""
        seen = f"last seen {shown_status(self.last_job.status)}" if self.last_job is not None else "never seen"
        trouble = f", last error: {describe(self.last_error)}" if self.last_error is not None else ""
        elapsed = f"{self.elapsed:.1f}".removesuffix(".0")
        return f"it did not end within {elapsed} s ({self.polls} polls, {seen}{trouble})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields; a `last_error` that can't be pickled becomes an `AgentJobsError` of the same text."""
        *how, state = super().__reduce__()
        state |= {name: getattr(self, name) for name in self.__slots__}
        if not _survives_pickling(self.last_error):
            state["last_error"] = AgentJobsError(describe(self.last_error))
        return *how, state


# Such a job may not exist: for a while, a 404 counts as "not visible yet".
_NOT_SEEN: Final = "Nothing is known of the job yet. Ask again later."
_AFTER_SILENCE: Final = "if it exists, it continues remotely: check its ids, and wait for it again by its ref"


def is_busy(error: object) -> bool:
    """Return whether the service failed for now: it refused a create for sure, or said by a 503 when to ask again."""
    if not isinstance(error, ServerError):
        return False
    names_a_time = error.retry_after is not None and error.status == _SERVICE_UNAVAILABLE
    return names_a_time or error.outcome is CreateOutcome.REJECTED


def describe(error: BaseException | None, max_bytes: int = 2048) -> str:
    """Return an error as one line of text: ours without job and advice, others with their type, up to `max_bytes`."""
    if isinstance(error, AgentJobsError):
        return error.message
    return f"{type(error).__name__}: {error_text(error, max_bytes)}"


def log_text(error: object) -> str:
    """Return the text of an error for a log: without the server's own words, since these may quote the prompt."""
    return _without_excerpt(str(error), error)


def log_description(error: BaseException | None) -> str:
    """Return what `describe` returns, for a log, as `log_text` does."""
    return _without_excerpt(describe(error), error)


def _without_excerpt(text: str, error: object) -> str:
    if isinstance(error, WaitTimeoutError):
        return _without_excerpt(text, error.last_error)
    excerpt = error.excerpt if isinstance(error, ResponseError | ProtocolError | CreateOutcomeUnknownError) else ""
    return text.replace(f": {excerpt}", "", 1) if excerpt else text


def _survives_pickling(value: object) -> bool:
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes, made in this line
    except Exception:  # noqa: BLE001 - a foreign exception's pickling may fail in any way
        return False
    return True


class JobFailedError(AgentJobsError):
    """The job's status is failed: the agent met an unrecoverable error.

    Raised by `AgentJob.raise_for_status()` only; the `BatchResult` of such a job has it as its `error`.

    Attributes:
        job: The failed job.
    """

    advice = "the service's document may say why: job.raw"
    _public_message = "The agent could not complete the job."

    def __init__(self, job: "AgentJob") -> None:
        super().__init__(f"the job {shown_name(job.project_id, job.id)} failed")
        self.job = job


class JournalError(AgentJobsError):
    """The journal of a batch can't be used. Its file is left as it is.

    Attributes:
        reason: `locked`, `moved`, `corrupt`, `version`, `full`, `read_only`, or `io` for any other fault of file or
            database.
        unrecorded: Jobs that were created and that could not be recorded: no other record of them exists.
    """

    _public_message = _UNAVAILABLE

    def __init__(self, message: str, reason: JournalReason, unrecorded: "tuple[JobRef, ...]" = ()) -> None:
        super().__init__(message)
        self.reason: JournalReason = reason
        self.unrecorded = unrecorded
