"""What an error that comes out of the work on an item means for the item, and for the run."""

from enum import Enum, auto
from typing import Final

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    JournalError,
    NotSentError,
    RateLimitedError,
    ServerError,
    SessionClosedError,
)
from agentjobs_async.batch._store.rows import JournalRow

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0  # so that the end of an outage is noticed within a minute
_MOST_DOUBLINGS: Final = 10  # enough for the longest pause, and no overflow


class Fault(Enum):
    """What has nothing to do with the item that meets it. A session that ends is none: it ends each run by itself."""

    JOURNAL = auto()
    """The journal can't be read or written."""
    CONNECTION = auto()
    """The server's certificate is not trusted, or the proxy refuses: every other create would meet the same."""
    UNFORESEEN = auto()
    """Anything else that came out of the work on an item."""


def fault_of(error: Exception) -> Fault:
    """Return which fault an error is that came out of the work on an item."""
    match error:
        case JournalError():
            return Fault.JOURNAL
        case NotSentError(reason="certificate" | "proxy"):
            return Fault.CONNECTION
        case _:
            return Fault.UNFORESEEN


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
    OUTDATED = auto()
    """Refused with 401 under a key that the session has replaced since."""
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


NOT_SENT: Final = {Failure.INVALID, Failure.WITHHELD, Failure.NOT_SENT, Failure.FATAL}
"""Where nothing reached the server."""


def ends_the_run(error: Exception) -> bool:
    """Return whether every other item would meet the same error, however often it is tried."""
    return isinstance(error, SessionClosedError) or fault_of(error) is Fault.CONNECTION


def abandonment(row: JournalRow, message: str) -> AgentJobsError:
    """Return the error, of this message and the outcome `abandoned`, of an item that was withdrawn or given up."""
    was_sent = row.sent_at is not None or row.job_id is not None
    told = "The job was given up." if was_sent else "The job was withdrawn before it was started."
    return AgentJobsError(message, public_message=told, outcome="abandoned")


def pause_after(failures: int) -> float:
    """Return for how many seconds all creates pause after one that did not reach the server, as others before it."""
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
