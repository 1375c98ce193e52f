"""When to ask again, and what each answer means: policies, and the one decision that every wait follows.

The only module that knows tenacity: its wait and retry strategies are the policy's language, and its engine paces the
few repeated creates.
"""

from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Any, Final, Protocol

import tenacity
from attrs import field, frozen
from tenacity.wait import wait_base

from agentjobs_async._checks import checked_count, checked_seconds, is_async
from agentjobs_async.errors import (
    InvalidInputError,
    NotFoundError,
    NotSentError,
    ProtocolError,
    RateLimitedError,
    ResponseError,
    ServerError,
    TransportError,
)
from agentjobs_async.models import AgentJob, Paced

__all__ = [
    "Again",
    "Answer",
    "Decision",
    "Done",
    "Failed",
    "History",
    "PollBudget",
    "PollPolicy",
    "create_attempts",
    "decide",
    "last_poll_lead",
    "moved_to_last_poll",
]

WaitStrategy = wait_base | Callable[[tenacity.RetryCallState], float]
RetryStrategy = tenacity.retry_base | Callable[[tenacity.RetryCallState], bool]

DEFAULT_WAIT: Final = tenacity.wait_exponential(multiplier=1, exp_base=1.1, max=15) + tenacity.wait_random(0, 1)


def _plain_strategy(instance: object, attribute: Any, value: object) -> None:
    del instance
    if not callable(value):
        raise InvalidInputError(f"{attribute.name} must be a tenacity strategy, not {type(value).__name__}")
    if is_async(value):
        raise InvalidInputError(f"{attribute.name} must be a plain strategy: nobody awaits an async one")


def _grace(value: float) -> float:
    return checked_seconds("not_found_grace", value, zero=True)


def _answers(value: int) -> int:
    return checked_count("max_bad_answers", value)


def _patience(value: float) -> float:
    return checked_seconds("max_retry_after", value, zero=True)


@frozen(eq=False)
class PollPolicy:
    """How a wait asks again. Compared by identity; every decision of a wait follows from it and from the answers.

    Attributes:
        wait: Any tenacity wait strategy: the seconds from an answer to the next poll. It is called with a
            `RetryCallState` whose `attempt_number` (from 1), `outcome`, `start_time` and `outcome_timestamp` (loop
            time) are set. `wait_exception` sees `tenacity.TryAgain` where the job was just still active.
        retry: Any plain tenacity retry strategy: which exceptions of your own get_job are passing faults.
        not_found_grace: Seconds from the wait's start, or from the last answer that showed the job, in which a 404
            counts as "not visible yet"; 0 gives none.
        max_bad_answers: How many unusable answers in a row end a wait; at least 1.
        max_retry_after: Seconds to which a server's wish to be left alone is cut; 0 ignores wishes.

    Raises:
        InvalidInputError: A setting makes no sense. A strategy that gives anything but finite seconds from 0 on raises
            it in the wait.
    """

    wait: WaitStrategy = field(default=DEFAULT_WAIT, validator=_plain_strategy)
    retry: RetryStrategy = field(
        default=tenacity.retry_if_exception_type((OSError, TimeoutError)), validator=_plain_strategy
    )
    not_found_grace: float = field(default=30.0, converter=_grace)
    max_bad_answers: int = field(default=5, converter=_answers)
    max_retry_after: float = field(default=60.0, converter=_patience)


def _places(value: int) -> int:
    return checked_count("in_flight", value)


def _rate(value: float | None) -> float | None:
    return None if value is None else checked_seconds("per_second", value, unit="polls per second")


@frozen
class PollBudget:
    """What all polls of one session or tracker may use together.

    Attributes:
        in_flight: How many polls may be under way at once; at least 1. Waiting for a place is never taken for a slow
            server.
        per_second: How many polls may start per second; `None` sets no such limit.

    Raises:
        InvalidInputError: A setting makes no sense.
    """

    in_flight: int = field(default=100, converter=_places)
    per_second: float | None = field(default=None, converter=_rate)


Answer = AgentJob | Paced | Exception
"""What one poll gave."""


class History(Protocol):
    """What the polls of one job have shown so far.

    Attributes:
        started: Loop time of the wait's start.
        seen: Loop time from which a 404 is out of place: the start, or the last answer that showed the job.
        polls: How many polls were made, the one to be decided on included.
        bad_answers: How many unusable answers came in a row before it.
    """

    started: float
    seen: float
    polls: int
    bad_answers: int


@frozen
class Done:
    """The job has ended."""

    job: AgentJob


@frozen
class Failed:
    """Asking again is no use."""

    error: Exception


@frozen
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
    if isinstance(answer, Exception):
        return _after_error(policy, history, answer, now)
    job, wish = (answer.job, answer.retry_after) if isinstance(answer, Paced) else (answer, None)
    if job.is_terminal:
        return Done(job)
    due, earliest = _next_poll(policy, history, job, now, wish)
    return Again(due, earliest, now)


def _after_error(policy: PollPolicy, history: History, error: Exception, now: float) -> Decision:
    meaning = _meaning(policy, history, error, now)
    bad_answers = history.bad_answers + 1 if meaning is _Meaning.BAD else 0
    if meaning is _Meaning.PERMANENT or bad_answers >= policy.max_bad_answers:
        return Failed(error)
    wish = error.retry_after if isinstance(error, ResponseError | ProtocolError) else None
    due, earliest = _next_poll(policy, history, error, now, wish)
    return Again(due, earliest, history.seen, bad_answers)


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
            passing = policy.retry(_CallState(history, error, now))
    return _Meaning.TRANSIENT if passing else _Meaning.PERMANENT


def _next_poll(
    policy: PollPolicy, history: History, outcome: AgentJob | Exception, now: float, wish: float | None
) -> tuple[float, float]:
    delay = _delay(policy.wait, history, outcome, now)
    if wish is None:
        return now + delay, now
    earliest = now + min(wish, policy.max_retry_after)
    return max(now + delay, earliest), earliest


def _delay(wait: WaitStrategy, history: History, outcome: AgentJob | Exception, now: float) -> float:
    delay: Any  # a user's strategy may give anything
    try:
        delay = wait(_CallState(history, outcome, now))
    except RuntimeError:
        # wait_exception() knows no good outcomes; to it, a job still active is tenacity's own "try again".
        if isinstance(outcome, Exception):
            raise
        delay = wait(_CallState(history, tenacity.TryAgain(), now))
    if type(delay) is float and 0.0 <= delay < inf:
        return delay
    return checked_seconds("the delay that policy.wait gives", delay, zero=True)


class _Outcome(tenacity.Future):
    """A finished attempt, as strategies read it, without the lock and condition of a real future."""

    def __init__(self, attempt_number: int, held: object) -> None:
        self.attempt_number = attempt_number
        self._held = held

    def __repr__(self) -> str:
        return f"<outcome of attempt {self.attempt_number}: {self._held!r}>"

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        del timeout
        if isinstance(self._held, BaseException):
            raise self._held
        return self._held

    def exception(self, timeout: float | None = None) -> BaseException | None:
        del timeout
        return self._held if isinstance(self._held, BaseException) else None


class _CallState(tenacity.RetryCallState):
    """What strategies are called with: times are the loop's, and there is no function that is called again."""

    def __init__(self, history: History, held: object, now: float) -> None:
        self.start_time = history.started
        self.retry_object = _RETRYING
        self.fn = None
        self.args = ()
        self.kwargs = {}
        self.attempt_number = history.polls
        self.outcome = _Outcome(history.polls, held)
        self.outcome_timestamp = now
        self.idle_for = 0.0
        self.next_action = None
        self.upcoming_sleep = 0.0


_RETRYING: Final = tenacity.AsyncRetrying()
_LAST_POLL: Final = 1.0
_CLOCK_TOLERANCE: Final = 0.001


def last_poll_lead(timeout: float) -> float:
    """Give the seconds by which a wait's last poll starts before its deadline."""
    return min(_LAST_POLL, timeout / 10)


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


_CREATE_WAIT: Final = tenacity.wait_exponential(multiplier=0.1, max=10) + tenacity.wait_random(0, 0.1)


def create_attempts(clock: Callable[[], float], deadline: float, max_retry_after: float) -> tenacity.AsyncRetrying:
    """Give the engine that repeats one create, until the loop time `deadline`, and only where nothing was started.

    Repeated are creates that were not sent (except for a bad certificate) and 429s whose wish is within
    `max_retry_after` and the time left; the last error comes out as it is.
    """

    def wish(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        return (error.retry_after or 0.0) if isinstance(error, RateLimitedError) else 0.0

    def worth_repeating(error: BaseException) -> bool:
        if isinstance(error, RateLimitedError):
            return (error.retry_after or 0.0) <= max_retry_after
        return isinstance(error, NotSentError) and error.reason != "certificate"

    return tenacity.AsyncRetrying(
        wait=lambda state: max(wish(state), _CREATE_WAIT(state)),
        retry=tenacity.retry_if_exception(worth_repeating),
        stop=lambda state: clock() + state.upcoming_sleep >= deadline,
        reraise=True,
    )
