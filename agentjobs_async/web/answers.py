"""What each error means to the end users of a web backend."""

from http import HTTPStatus
from math import ceil, isfinite
from typing import Any, Final

from attrs import frozen

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
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
    message: str
    retry: bool = False


_FAILED: Final = _Meaning(500, "internal", "Something went wrong.")
_BAD_ANSWER: Final = _Meaning(502, "service_failed", "The agent service did not answer as expected.")
_REFUSED: Final = _Meaning(502, "service_refused", "The agent service refused the request.")
_UNREACHABLE: Final = _Meaning(
    503, "service_unreachable", "The agent service cannot be reached. Try again.", retry=True
)
_UNAVAILABLE: Final = _Meaning(503, "unavailable", "Jobs cannot be handled at the moment. Try again.", retry=True)

_NOT_SEEN: Final = _Meaning(202, "not_ended", "Nothing is known of the job yet. Ask again later.")

_MEANINGS: Final[dict[type[BaseException], _Meaning]] = {
    InvalidInputError: _Meaning(400, "invalid_request", "The request is not valid."),
    WaitTimeoutError: _Meaning(202, "not_ended", "The job continues. Ask again later."),
    JobFailedError: _Meaning(200, "job_failed", "The agent could not complete the job."),
    SessionClosedError: _Meaning(
        503, "restarting", "The service is restarting. A job continues: wait for it again by its token.", retry=True
    ),
    NotFoundError: _Meaning(404, "not_found", "There is no such job or project."),
    RateLimitedError: _Meaning(429, "too_many_requests", "Too many requests. Try again later.", retry=True),
    NotSentError: _UNREACHABLE,
    CreateOutcomeUnknownError: _Meaning(
        502, "unknown", "The job may have been started. Look for it before you start it again."
    ),
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
    `WaitTimeoutError`           202     `not_ended`; the last known state in `job`, or `null`
    `JobFailedError`             200     `job_failed`; the job in `job`: a failed job is a result
    `InvalidInputError`          400     `invalid_request`
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
    `NotSentError`               503     `service_unreachable`; a Retry-After header
    `SessionClosedError`         503     `restarting`; a Retry-After header
    `JournalError`               503     `unavailable`; a Retry-After header
    `AgentJobsError`             500     `internal`; so is any error that is not listed
    ===========================  ======  ========================================================

    The body has the keys `error` and `message`; `outcome` if a create raised the error; and `job`, as by `to_dict`,
    where the table says so. No text of the error itself is in it: no advice for operators, no address, no key. A
    subclass of your own means what its base does. Retry-After holds whole seconds: the service's own, or 5.
    """
    meaning = next((_MEANINGS[kind] for kind in type(error).__mro__ if kind in _MEANINGS), _FAILED)
    if isinstance(error, WaitTimeoutError) and error.last_job is None:
        meaning = _NOT_SEEN  # it may not exist: for a while, a 404 counts as "not visible yet"
    retry_after = getattr(error, "retry_after", None)
    if isinstance(error, ServerError):
        busy = retry_after is not None and error.status == HTTPStatus.SERVICE_UNAVAILABLE
        meaning = _UNAVAILABLE if busy or error.outcome is CreateOutcome.REJECTED else meaning
    body: dict[str, Any] = {"error": meaning.code, "message": meaning.message}
    if isinstance(error, AgentJobsError) and error.outcome is not None:
        body["outcome"] = str(error.outcome)
    if isinstance(error, WaitTimeoutError):
        body["job"] = None if error.last_job is None else error.last_job.to_dict()
    elif isinstance(error, JobFailedError):
        body["job"] = error.job.to_dict()
    return HttpAnswer(meaning.status, body, _headers(retry_after) if meaning.retry else {})


def _headers(seconds: float | None) -> dict[str, str]:
    if seconds is None or not isfinite(seconds):
        return {"Retry-After": str(_RETRY_SECONDS)}
    return {"Retry-After": str(max(ceil(seconds), 1))}
