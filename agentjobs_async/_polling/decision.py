"""What an answer means for a wait, and when to poll again: the pure decisions that all waits share."""

from typing import Final, TypeGuard

from attrs import define, frozen

from agentjobs_async.errors import NotSentError, ProtocolError, ResponseError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob, JobRef, JobWithRetryAfter
from agentjobs_async.policy import PollHistory, PollPolicy, accepts, delay_of

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
    "timed_out",
]

CUT: Final = "no answer until the wait ended"
"""The error text of a poll that was cut because its wait ended."""

Answer = AgentJob | JobWithRetryAfter | Exception
"""What one poll returned: errors are values."""

Refusal = ResponseError | ProtocolError
"""An answer of the server that does not show the job, and that is not a transient fault."""


@frozen
class Done:
    """The job has ended."""

    job: AgentJob


@frozen
class Failed:
    """The wait ends with `error`: polling again is of no use."""

    error: Exception


@define  # not frozen: one is made at each poll, and a frozen one takes three times as long to make
class Again:
    """Poll again. The last four attributes replace those of the `PollHistory`.

    Attributes:
        due: Loop time of the next poll.
        not_before: Loop time before which the server asked not to be polled; the time of the answer if it did not ask.
        seen: As in `PollHistory`.
        shown: As in `PollHistory`.
        bad_answers: As in `PollHistory`, the answer included.
        refused_since: As in `PollHistory`, the answer included.
    """

    due: float
    not_before: float
    seen: float
    shown: int = 0
    bad_answers: int = 0
    refused_since: float | None = None


Decision = Done | Failed | Again
"""What an answer means for a wait."""


_MISSING: Final = 404
_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})  # request timeout, too early, too many requests
_PERMANENT_SERVER_STATUSES: Final = frozenset({501, 505})  # not implemented, HTTP version not supported
_SERVER_STATUSES: Final = range(500, 600)


def decide(policy: PollPolicy, history: PollHistory, answer: Answer, now: float) -> Decision:
    """Return what `answer`, which came at the loop time `now`, means for a wait with this history.

    Raises:
        InvalidInputError: `policy.wait` returned a negative delay, NaN, infinity, or something that is not a number.
    """
    if isinstance(answer, AgentJob):
        if answer.is_terminal:
            return Done(answer)
        return Again(now + delay_of(policy.wait, history, answer, now), now, now, history.polls)
    if isinstance(answer, JobWithRetryAfter):
        job = answer.job
        if job.is_terminal:
            return Done(job)
        return _again(policy, history, job, now, answer.retry_after, now, history.polls)
    if _is_refusal(answer):
        return _after_refusal(policy, history, answer, now)
    return _after_fault(policy, history, answer, now)


def _is_refusal(answer: object) -> TypeGuard[Refusal]:
    """Return whether `answer` is an answer of the server that does not show the job, and not a transient fault."""
    return isinstance(answer, ProtocolError) or (isinstance(answer, ResponseError) and not _is_transient(answer.status))


def _is_transient(status: int) -> bool:
    return status in _TRANSIENT_STATUSES or (status in _SERVER_STATUSES and status not in _PERMANENT_SERVER_STATUSES)


def _is_missing(error: Refusal) -> bool:
    return isinstance(error, ResponseError) and error.status == _MISSING


def _after_fault(policy: PollPolicy, history: PollHistory, error: Exception, now: float) -> Decision:
    """Decide on a transient fault, or on an exception of the caller's own `get_job`, which `policy.retry` judges."""
    transient = isinstance(error, NotSentError | TransportError | ResponseError)
    if not transient and not accepts(policy.retry, history, error, now):
        return Failed(error)
    retry_after = error.retry_after if isinstance(error, ResponseError) else None
    return _again(policy, history, error, now, retry_after, history.seen, history.shown, 0, history.refused_since)


def _after_refusal(policy: PollPolicy, history: PollHistory, error: Refusal, now: float) -> Decision:
    bad_answers = history.bad_answers + 1 if isinstance(error, ProtocolError) else 0
    if history.shown:
        ends = _ends_seen(policy, history, error, now)
    elif isinstance(error, ProtocolError):
        ends = bad_answers >= policy.max_bad_answers
    else:
        ends = not _is_missing(error) or now - history.seen >= policy.not_found_grace
    if ends:
        return Failed(error)
    since = _refused_since(history, now)
    return _again(policy, history, error, now, error.retry_after, history.seen, history.shown, bad_answers, since)


def _ends_seen(policy: PollPolicy, history: PollHistory, error: Refusal, now: float) -> bool:
    """Return whether `error` ends a wait one of whose polls has shown the job: once refusals have lasted for the grace.

    A single refusal has not lasted at all, however long ago the job was shown: polls may be rare, or an outage may lie
    between.
    """
    if _is_missing(error) and now - history.seen < policy.not_found_grace:
        return False
    since = history.refused_since
    return policy.answer_grace == 0 or (since is not None and now - since >= policy.answer_grace)


def _refused_since(history: PollHistory, now: float) -> float | None:
    """Return when the refusals began: with the last answer that showed the job, or now if other faults came between."""
    if history.refused_since is not None or not history.shown:
        return history.refused_since
    return history.seen if history.shown == history.polls - 1 else now


def _again(
    policy: PollPolicy,
    history: PollHistory,
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


_LAST_POLL_LEAD_SECONDS: Final = 1.0  # time for the answer of the last poll to arrive before the deadline
_CLOCK_TOLERANCE_SECONDS: Final = 0.001  # a timer may fire this early: the last poll is not made twice


def last_poll_lead(timeout: float) -> float:
    """Return the seconds by which a wait's last poll starts before its deadline."""
    return min(_LAST_POLL_LEAD_SECONDS, timeout / 10)


def moved_to_last_poll(
    due: float, not_before: float, now: float, deadline: float | None, timeout: float | None
) -> float:
    """Return the loop time of the next poll: `due`, or an earlier one for the last poll before the deadline.

    It is never before `not_before`, for a server's Retry-After applies to the last poll too: if that ends after the
    deadline, there is no last poll.
    """
    if deadline is None or timeout is None or due <= deadline - _LAST_POLL_LEAD_SECONDS:
        return due  # most polls: the lead is computed for the last ones only
    last = deadline - last_poll_lead(timeout)
    if now + _CLOCK_TOLERANCE_SECONDS < last < due:
        return max(last, not_before)
    return due


def timed_out(
    ref: JobRef, job: AgentJob | None, error: Exception | None, polls: int, elapsed: float, *, cut: bool
) -> WaitTimeoutError:
    """Return the error of a wait that has reached its deadline after `polls` polls and `elapsed` seconds.

    `job` is the last state known, and `error` what the last poll failed with; `cut`: the deadline cut a poll in flight.
    """
    cause = TransportError(CUT) if error is None and cut else error
    return WaitTimeoutError(ref, job, cause, polls, elapsed)
