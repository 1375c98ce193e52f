"""What a failed create means: for its row, and for the creates after it."""

from enum import Enum, auto
from typing import Final

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    NotSentError,
    RateLimitedError,
    ResponseError,
    ServerError,
    SessionClosedError,
)
from agentjobs_async.batch._throttles import LONGEST_RETRY_AFTER_SECONDS

_FIRST_PAUSE_SECONDS: Final = 1.0  # also the shortest one, whatever the server asks for
_LONGEST_PAUSE_SECONDS: Final = 60.0  # so that the end of an outage is noticed within a minute
_MOST_DOUBLINGS: Final = 10  # enough for the longest pause, and no overflow


class Failure(Enum):
    """Why a create gave no job. All but `REJECTED` and `UNKNOWN` leave the item planned."""

    INVALID = auto()
    """Refused before any I/O: no later try would help."""
    WITHHELD = auto()
    """Not sent, since its claim could have been lost by then."""
    NOT_SENT = auto()
    """The create did not reach the server."""
    FATAL = auto()
    """The create did not reach the server, and no other one would."""
    LIMITED = auto()
    """Refused for now: by a 429, or by a 5xx that the user's gateway gives by itself."""
    UNAUTHORIZED = auto()
    """Refused with 401 or 403."""
    REJECTED = auto()
    """Refused for good."""
    UNKNOWN = auto()
    """An agent may have been started."""


def classify(error: Exception) -> Failure:
    """Return what the error of a create means."""
    outcome = error.outcome if isinstance(error, AgentJobsError) else None
    match outcome, error:
        case CreateOutcome.REJECTED, AuthError():
            failure = Failure.UNAUTHORIZED
        case CreateOutcome.REJECTED, RateLimitedError() | ServerError():
            failure = Failure.LIMITED
        case CreateOutcome.REJECTED, _:
            failure = Failure.REJECTED
        case CreateOutcome.NOT_SENT, InvalidInputError():
            failure = Failure.INVALID
        case CreateOutcome.NOT_SENT, NotSentError(reason="withheld"):
            failure = Failure.WITHHELD
        case CreateOutcome.NOT_SENT, _:
            failure = Failure.FATAL if ends_the_run(error) else Failure.NOT_SENT
        case _:
            failure = Failure.UNKNOWN
    return failure


def ends_the_run(error: Exception) -> bool:
    """Return whether every other item would meet the same error, however often it is tried."""
    match error:
        case SessionClosedError() | NotSentError(reason="certificate" | "proxy"):
            return True
        case _:
            return False


def pause_after(error: Exception, failures: int) -> float:
    """Return for how many seconds creates are held back: as the server asks, else doubling with each of `failures`."""
    if isinstance(error, ResponseError) and error.retry_after is not None:
        return min(max(error.retry_after, _FIRST_PAUSE_SECONDS), LONGEST_RETRY_AFTER_SECONDS)
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
