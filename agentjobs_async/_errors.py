"""What the rooms share about errors: what a refusal of the service says, and how an error gets its cause."""

from typing import Final, TypeVar

from agentjobs_async.errors import LASTING_SERVER_STATUSES, SERVER_STATUSES, AuthError, RejectedError

_PASSING_STATUSES: Final = frozenset({408, 425, 429})  # request timeout, too early, too many requests
_UNAUTHORIZED: Final = 401
_UNDER_WAY_STATUSES: Final = frozenset({409, 425})  # conflict, too early
E = TypeVar("E", bound=BaseException)


def may_pass(status: int) -> bool:
    """Return whether the same request may be accepted later, after a response with this status."""
    return status in _PASSING_STATUSES or (status in SERVER_STATUSES and status not in LASTING_SERVER_STATUSES)


def refuses_key(error: object) -> bool:
    """Return whether the service does not know the API key (401), rather than what it may do (403)."""
    return isinstance(error, AuthError) and error.status == _UNAUTHORIZED


def may_be_under_way(error: object) -> bool:
    """Return whether an error refuses a repeated create as services do while an earlier POST of it is under way."""
    return isinstance(error, RejectedError) and error.status in _UNDER_WAY_STATUSES


def caused_by(error: E, cause: BaseException | None) -> E:
    """Return `error` with its cause set, as `raise error from cause` would."""
    error.__cause__ = cause
    return error
