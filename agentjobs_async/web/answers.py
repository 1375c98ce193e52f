"""What each error means to the end users of a web backend."""

from math import ceil, isfinite
from typing import Any, Final

from attrs import frozen

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcomeUnknownError,
    InvalidInputError,
    JobFailedError,
    JournalError,
    NotFoundError,
    NotSentError,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ResponseError,
    ServerError,
    SessionClosedError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.errors import is_busy

__all__ = ["HttpAnswer", "http_answer"]

_RETRY_SECONDS: Final = 5  # where the service named no time: a restart or a short outage is often over by then


@frozen
class HttpAnswer:
    """What to answer an end user with; see `http_answer`.

    Attributes:
        status: The HTTP status.
        body: Plain JSON types.
        headers: The headers to add, by name.
    """

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


@frozen
class _Meaning:
    """What one kind of error means; `retry` says whether the same request may succeed later."""

    status: int
    code: str
    retry: bool = False


_FAILED: Final = _Meaning(500, "internal")
_BAD_ANSWER: Final = _Meaning(502, "service_failed")
_REFUSED: Final = _Meaning(502, "service_refused")
_UNAVAILABLE: Final = _Meaning(503, "unavailable", retry=True)
_KEY_TAKEN: Final = _Meaning(409, "key_taken")
_ABANDONED: Final = _Meaning(410, "abandoned")

_MEANINGS: Final[dict[type[BaseException], _Meaning]] = {
    InvalidInputError: _Meaning(400, "invalid_request"),
    WaitTimeoutError: _Meaning(202, "not_ended", retry=True),
    JobFailedError: _Meaning(200, "job_failed"),
    SessionClosedError: _Meaning(503, "restarting", retry=True),
    NotFoundError: _Meaning(404, "not_found"),
    RateLimitedError: _Meaning(429, "too_many_requests", retry=True),
    NotSentError: _Meaning(503, "service_unreachable", retry=True),
    CreateOutcomeUnknownError: _Meaning(502, "unknown"),
    TransportError: _BAD_ANSWER,
    ProtocolError: _BAD_ANSWER,
    ServerError: _BAD_ANSWER,
    ResponseError: _BAD_ANSWER,
    AuthError: _REFUSED,
    RejectedError: _REFUSED,
    JournalError: _UNAVAILABLE,
    AgentJobsError: _FAILED,
}


def http_answer(error: BaseException) -> HttpAnswer:
    """Return what to answer an end user with whose request ended with `error`.

    ===========================  ======  ========================================================
    error                        status  `error` in the body
    ===========================  ======  ========================================================
    `WaitTimeoutError`           202     `not_ended`; the last known state in `job`, or `null`; a
                                         Retry-After header
    `JobFailedError`             200     `job_failed`; the job in `job`: a failed job is a result
    `InvalidInputError`          400     `invalid_request`; 409, `key_taken` if that is its reason
    `NotFoundError`              404     `not_found`
    `RateLimitedError`           429     `too_many_requests`; a Retry-After header
    `CreateOutcomeUnknownError`  502     `unknown`: an agent may have been started
    `AuthError`                  502     `service_refused`: not the end user's fault
    `RejectedError`              502     `service_refused`
    `TransportError`             502     `service_failed`
    `ProtocolError`              502     `service_failed`
    `ServerError`                502     `service_failed`; 503, `unavailable` and a Retry-After header
                                         if it refused a create, or was a 503 with a Retry-After
    `ResponseError`              502     `service_failed`
    `NotSentError`               503     `service_unreachable`; `unavailable` if its reason is `key` or
                                         `withheld`; a Retry-After header
    `SessionClosedError`         503     `restarting`; a Retry-After header
    `JournalError`               503     `unavailable`; a Retry-After header
    `AgentJobsError`             500     `internal`, as any error that is not listed; 410, `abandoned` if
                                         that is its outcome: the job was withdrawn or given up
    ===========================  ======  ========================================================

    The body has the keys `error` and `message`, which is the error's `public_message`; `outcome` if a create raised the
    error; and `job`, as by `to_dict`, where the table says so. No other text of the error is in it: no advice for
    operators, no address, no key. A subclass of your own means what its base does. Retry-After holds whole seconds: the
    service's own, or 5. After a wait that timed out it is 5: the next one takes up where that ended.
    """
    meaning = _meaning_of(error)
    message = error.public_message if isinstance(error, AgentJobsError) else AgentJobsError().public_message
    body: dict[str, Any] = {"error": meaning.code, "message": message}
    if isinstance(error, AgentJobsError) and error.outcome is not None:
        body["outcome"] = str(error.outcome)
    if isinstance(error, WaitTimeoutError):
        body["job"] = None if error.last_job is None else error.last_job.to_dict()
    elif isinstance(error, JobFailedError):
        body["job"] = error.job.to_dict()
    return HttpAnswer(meaning.status, body, _headers(error) if meaning.retry else {})


def _meaning_of(error: BaseException) -> _Meaning:
    if isinstance(error, InvalidInputError) and error.reason == "key_taken":
        return _KEY_TAKEN
    if isinstance(error, AgentJobsError) and error.outcome == "abandoned":
        return _ABANDONED
    if is_busy(error) or (isinstance(error, NotSentError) and error.reason in {"withheld", "key"}):
        return _UNAVAILABLE
    return next((_MEANINGS[kind] for kind in type(error).__mro__ if kind in _MEANINGS), _FAILED)


def _headers(error: BaseException) -> dict[str, str]:
    seconds = error.retry_after if isinstance(error, ResponseError) else None
    if seconds is None or not isfinite(seconds):
        return {"Retry-After": str(_RETRY_SECONDS)}
    return {"Retry-After": str(max(ceil(seconds), 1))}
