"""The one decision that every wait follows: what an answer means, and when to ask again. Pure."""

from typing import Final, TypeGuard

from attrs import define, frozen

from agentjobs_async.errors import NotSentError, ProtocolError, ResponseError, TransportError
from agentjobs_async.models import AgentJob, JobWithRetryAfter
from agentjobs_async.policy import History, PollPolicy, accepts, delay_of

__all__ = [
    "CUT",
    "Again",
    "Answer",
    "Decision",
    "Done",
    "Failed",
    "Refusal",
    "decide",
    "ends_unseen",
    "is_refusal",
    "last_poll_lead",
    "moved_to_last_poll",
]

CUT: Final = "no answer until the wait ended"
"""What is said of a poll that the end of its wait cuts."""

Answer = AgentJob | JobWithRetryAfter | Exception
"""What one poll gave."""

Refusal = ResponseError | ProtocolError
"""An answer of the service's that is not the job, and that is no passing fault."""


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
        not_before: Loop time before which the server does not wish it; the answer's own time without a wish.
        seen: What it makes of the history's `seen`.
        shown: What it makes of the history's `shown`.
        bad_answers: What it makes of the history's `bad_answers`.
        refused_since: What it makes of the history's `refused_since`.
    """

    due: float
    not_before: float
    seen: float
    shown: int = 0
    bad_answers: int = 0
    refused_since: float | None = None


Decision = Done | Failed | Again


_MISSING: Final = 404
_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
_PERMANENT_SERVER_STATUSES: Final = frozenset({501, 505})
_SERVER_STATUSES: Final = range(500, 600)


def decide(policy: PollPolicy, history: History, answer: Answer, now: float) -> Decision:
    """Return what `answer`, which came at the loop time `now`, means for the wait.

    Raises:
        InvalidInputError: The wait strategy gave a negative delay, NaN, infinity, or no number.
    """
    if isinstance(answer, AgentJob):
        return Done(answer) if answer.is_terminal else _again(policy, history, answer, now, None, now, history.polls)
    if isinstance(answer, JobWithRetryAfter):
        job = answer.job
        if job.is_terminal:
            return Done(job)
        return _again(policy, history, job, now, answer.retry_after, now, history.polls)
    if is_refusal(answer):
        return _after_refusal(policy, history, answer, now)
    return _after_fault(policy, history, answer, now)


def is_refusal(answer: object) -> TypeGuard[Refusal]:
    """Return whether `answer` is one of the service's that is not the job, and that is no passing fault."""
    return isinstance(answer, ProtocolError) or (isinstance(answer, ResponseError) and not _passes(answer.status))


def ends_unseen(policy: PollPolicy, refusal: Refusal, waited: float, bad_answers: int) -> bool:
    """Return whether `refusal`, `waited` seconds from its start, ends a wait that no poll has shown its job yet.

    `bad_answers` counts the unusable answers in a row, `refusal` included.
    """
    if isinstance(refusal, ProtocolError):
        return bad_answers >= policy.max_bad_answers
    return not _is_missing(refusal) or waited >= policy.not_found_grace


def _passes(status: int) -> bool:
    return status in _TRANSIENT_STATUSES or (status in _SERVER_STATUSES and status not in _PERMANENT_SERVER_STATUSES)


def _is_missing(error: Refusal) -> bool:
    return isinstance(error, ResponseError) and error.status == _MISSING


def _after_fault(policy: PollPolicy, history: History, error: Exception, now: float) -> Decision:
    """Decide about a fault that is no answer about the job: it passes, or it is an exception of the user's own."""
    passes = isinstance(error, NotSentError | TransportError | ResponseError)
    if not passes and not accepts(policy.retry, history, error, now):
        return Failed(error)
    retry_after = error.retry_after if isinstance(error, ResponseError) else None
    return _again(policy, history, error, now, retry_after, history.seen, history.shown, 0, history.refused_since)


def _after_refusal(policy: PollPolicy, history: History, error: Refusal, now: float) -> Decision:
    bad_answers = history.bad_answers + 1 if isinstance(error, ProtocolError) else 0
    if history.shown:
        ends = _ends_seen(policy, history, error, now)
    else:
        ends = ends_unseen(policy, error, now - history.seen, bad_answers)
    if ends:
        return Failed(error)
    since = _refused_since(history, now)
    return _again(policy, history, error, now, error.retry_after, history.seen, history.shown, bad_answers, since)


def _ends_seen(policy: PollPolicy, history: History, error: Refusal, now: float) -> bool:
    """Return whether a refusal ends a wait that has seen its job: when refusals have lasted for the whole grace.

    A single one has not lasted at all, however long ago the job was seen: polls may be rare, or an outage lay between.
    """
    if _is_missing(error) and now - history.seen < policy.not_found_grace:
        return False
    since = history.refused_since
    return policy.answer_grace == 0 or (since is not None and now - since >= policy.answer_grace)


def _refused_since(history: History, now: float) -> float | None:
    """Return when the refusals began: with the last answer that showed the job, or after the faults that followed."""
    if history.refused_since is not None or not history.shown:
        return history.refused_since
    return history.seen if history.shown == history.polls - 1 else now


def _again(
    policy: PollPolicy,
    history: History,
    outcome: AgentJob | Exception,
    now: float,
    retry_after: float | None,
    seen: float,
    shown: int,
    bad_answers: int = 0,
    refused_since: float | None = None,
) -> Again:
    due = now + delay_of(policy.wait, history, outcome, now)
    if retry_after is None or not retry_after > 0:  # "not >" holds for the NaN of a user's own error, too
        return Again(due, now, seen, shown, bad_answers, refused_since)
    not_before = now + min(retry_after, policy.max_retry_after)
    return Again(max(due, not_before), not_before, seen, shown, bad_answers, refused_since)


_LAST_POLL: Final = 1.0
_CLOCK_TOLERANCE: Final = 0.001


def last_poll_lead(timeout: float) -> float:
    """Return the seconds by which a wait's last poll starts before its deadline."""
    return _LAST_POLL if timeout > 10 * _LAST_POLL else timeout / 10


def moved_to_last_poll(again: Again, now: float, deadline: float | None, timeout: float | None) -> float:
    """Return the loop time of the next poll: when it is due, or for the last poll before the deadline.

    A server's wish is kept even then: what it does not wish before the deadline is not asked.
    """
    if deadline is None or timeout is None:
        return again.due
    last = deadline - last_poll_lead(timeout)
    if now + _CLOCK_TOLERANCE < last < again.due:
        return max(last, again.not_before)
    return again.due
