"""The one decision that every wait follows: what an answer means, and when to ask again. Pure."""

from enum import Enum, auto
from typing import Final

from attrs import define, frozen

from agentjobs_async._strategies import History, accepts, delay_of
from agentjobs_async.errors import (
    NotFoundError,
    NotSentError,
    ProtocolError,
    ResponseError,
    ServerError,
    TransportError,
)
from agentjobs_async.models import AgentJob, Paced
from agentjobs_async.policy import PollPolicy

__all__ = [
    "CUT",
    "Again",
    "Answer",
    "Decision",
    "Done",
    "Failed",
    "decide",
    "last_poll_lead",
    "moved_to_last_poll",
]

CUT: Final = "no answer until the wait ended"
"""What is said of a poll that the end of its wait cuts."""

Answer = AgentJob | Paced | Exception
"""What one poll gave."""


@frozen
class Done:
    """The job has ended."""

    job: AgentJob


@frozen
class Failed:
    """Asking again is no use."""

    error: Exception


@define  # not frozen: one is made at each poll, and a frozen one takes three times as long to make
class Again:
    """Ask again.

    Attributes:
        due: Loop time of the next poll.
        earliest: Loop time before which the server does not wish it; the answer's own time without a wish.
        seen: What it makes of the history's `seen`.
        bad_answers: What it makes of the history's `bad_answers`.
    """

    due: float
    earliest: float
    seen: float
    bad_answers: int = 0


Decision = Done | Failed | Again


class _Meaning(Enum):
    TRANSIENT = auto()
    BAD = auto()
    PERMANENT = auto()


_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
_PERMANENT_SERVER_STATUSES: Final = frozenset({501, 505})


def decide(policy: PollPolicy, history: History, answer: Answer, now: float) -> Decision:
    """Give what `answer`, which came at the loop time `now`, means for the wait.

    Raises:
        InvalidInputError: The wait strategy gave a negative delay, NaN, infinity, or no number.
    """
    if isinstance(answer, AgentJob):
        return Done(answer) if answer.is_terminal else _again(policy, history, answer, now, None, now)
    if isinstance(answer, Paced):
        job = answer.job
        return Done(job) if job.is_terminal else _again(policy, history, job, now, answer.retry_after, now)
    return _after_error(policy, history, answer, now)


def _after_error(policy: PollPolicy, history: History, error: Exception, now: float) -> Decision:
    meaning = _meaning(policy, history, error, now)
    bad_answers = history.bad_answers + 1 if meaning is _Meaning.BAD else 0
    if meaning is _Meaning.PERMANENT or bad_answers >= policy.max_bad_answers:
        return Failed(error)
    wish = error.retry_after if isinstance(error, ResponseError | ProtocolError) else None
    return _again(policy, history, error, now, wish, history.seen, bad_answers)


def _meaning(policy: PollPolicy, history: History, error: Exception, now: float) -> _Meaning:
    match error:
        case ProtocolError():
            return _Meaning.BAD
        case NotSentError() | TransportError():
            passing = True
        case NotFoundError(status=404):
            passing = now - history.seen < policy.not_found_grace
        case ServerError(status=status):
            passing = status not in _PERMANENT_SERVER_STATUSES
        case ResponseError(status=status):
            passing = status in _TRANSIENT_STATUSES
        case _:
            passing = accepts(policy.retry, history, error, now)
    return _Meaning.TRANSIENT if passing else _Meaning.PERMANENT


def _again(
    policy: PollPolicy,
    history: History,
    outcome: AgentJob | Exception,
    now: float,
    wish: float | None,
    seen: float,
    bad_answers: int = 0,
) -> Again:
    due = now + delay_of(policy.wait, history, outcome, now)
    if wish is None:
        return Again(due, now, seen, bad_answers)
    earliest = now + min(wish, policy.max_retry_after)
    return Again(max(due, earliest), earliest, seen, bad_answers)


_LAST_POLL: Final = 1.0
_CLOCK_TOLERANCE: Final = 0.001


def last_poll_lead(timeout: float) -> float:
    """Give the seconds by which a wait's last poll starts before its deadline."""
    return _LAST_POLL if timeout > 10 * _LAST_POLL else timeout / 10


def moved_to_last_poll(again: Again, now: float, deadline: float | None, timeout: float | None) -> float:
    """Give the loop time of the next poll: when it is due, or for the last poll before the deadline.

    A server's wish is kept even then: what it does not wish before the deadline is not asked.
    """
    if deadline is None or timeout is None:
        return again.due
    last = deadline - last_poll_lead(timeout)
    if now + _CLOCK_TOLERANCE < last < again.due:
        return max(last, again.earliest)
    return again.due
