"""What each error means to the end users of a web backend."""

import logging
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
    UserLimitError,
    WaitTimeoutError,
)
from agentjobs_async._text import one_line
from agentjobs_async.errors import is_busy, log_text

__all__ = ["HttpAnswer", "http_answer"]

_RETRY_SECONDS: Final = 5  # where the service named no time: a restart or a short outage is often over by then
_SERVER_ERROR: Final = 500  # the first of the statuses that are no fault of the client
_LONGEST_REQUEST_ID: Final = 64  # characters that are logged


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
_RESTARTING: Final = _Meaning(503, "restarting", retry=True)
_ABANDONED: Final = _Meaning(410, "abandoned")

_REASONS: Final[dict[str | None, _Meaning]] = {
    "key_taken": _Meaning(422, "key_taken"),
    "no_such_key": _Meaning(404, "not_found"),
    "wrong_state": _Meaning(409, "wrong_state"),
}
"""What an `InvalidInputError` means that has a reason, by that."""
_MEANINGS: Final[dict[type[BaseException], _Meaning]] = {
    InvalidInputError: _Meaning(400, "invalid_request"),
    WaitTimeoutError: _Meaning(202, "not_ended", retry=True),
    JobFailedError: _Meaning(200, "job_failed"),
    SessionClosedError: _RESTARTING,
    NotFoundError: _Meaning(404, "not_found"),
    RateLimitedError: _Meaning(429, "too_many_requests", retry=True),
    UserLimitError: _Meaning(429, "too_many_jobs", retry=True),
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
"""What every other error means, by its type or that of its next base."""


def http_answer(
    error: BaseException, *, log: logging.Logger | None = None, request_id: str | None = None
) -> HttpAnswer:
    """Return what to answer an end user with whose request ended with `error`.

    ===========================  ======  ========================================================
    error                        status  `error` in the body
    ===========================  ======  ========================================================
    `WaitTimeoutError`           202     `not_ended`; the last known state in `job`, or `null`; a
                                         Retry-After header
    `JobFailedError`             200     `job_failed`; the job in `job`: a failed job is a result
    `InvalidInputError`          400     `invalid_request`; by its reason 422, `key_taken`; 404,
                                         `not_found` for a key that no job has; or 409, `wrong_state`
    `UserLimitError`             429     `too_many_jobs`; a Retry-After header
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

    Args:
        error: What the request ended with.
        log: Gets one line for operators, without the service's own words: at ERROR where the status is 500 or more,
            unless the process restarts, else at INFO. An error that is not of this package comes with its traceback: it
            is a fault of the program. There the errors before it, and those of a group, stand with all of their words,
            also the service's. `None` logs nothing.
        request_id: Names the request in that line: its first 64 characters, escaped. `None` or an empty one is `-`.
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
    if log is not None:
        _log(error, meaning, log, request_id)
    return HttpAnswer(meaning.status, body, _headers(error) if meaning.retry else {})


def _meaning_of(error: BaseException) -> _Meaning:
    if isinstance(error, InvalidInputError) and error.reason in _REASONS:
        return _REASONS[error.reason]
    if isinstance(error, AgentJobsError) and error.outcome == "abandoned":
        return _ABANDONED
    if is_busy(error) or (isinstance(error, NotSentError) and error.reason in {"withheld", "key"}):
        return _UNAVAILABLE
    return next((_MEANINGS[kind] for kind in type(error).__mro__ if kind in _MEANINGS), _FAILED)


def _log(error: BaseException, meaning: _Meaning, log: logging.Logger, request_id: str | None) -> None:
    level = logging.INFO
    if meaning.status >= _SERVER_ERROR and meaning is not _RESTARTING:
        level = logging.ERROR
    name = ascii(request_id[:_LONGEST_REQUEST_ID]) if request_id else "-"
    if isinstance(error, AgentJobsError):
        text = one_line(log_text(error))  # a subclass of the user's may have line breaks
        log.log(level, "request %s: %d %s: %s", name, meaning.status, meaning.code, text)
    else:
        log.log(level, "request %s: %d %s", name, meaning.status, meaning.code, exc_info=error)


def _headers(error: BaseException) -> dict[str, str]:
    seconds = error.retry_after if isinstance(error, ResponseError | UserLimitError) else None
    if seconds is None or not isfinite(seconds):
        return {"Retry-After": str(_RETRY_SECONDS)}
    return {"Retry-After": str(max(ceil(seconds), 1))}
