"""Tenacity's strategies, called on our terms: with the loop's time, one answer at a time. Its only importer."""

from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

import tenacity
from tenacity.wait import wait_base

from agentjobs_async._checks import checked_seconds
from agentjobs_async.errors import NotSentError, RateLimitedError

__all__ = [
    "DEFAULT_RETRY",
    "DEFAULT_WAIT",
    "History",
    "RetryStrategy",
    "WaitStrategy",
    "accepts",
    "create_attempts",
    "delay_of",
]

WaitStrategy = wait_base | Callable[[tenacity.RetryCallState], float]
RetryStrategy = tenacity.retry_base | Callable[[tenacity.RetryCallState], bool]

DEFAULT_WAIT: Final = tenacity.wait_exponential(multiplier=1, exp_base=1.1, max=15) + tenacity.wait_random(0, 1)
DEFAULT_RETRY: Final = tenacity.retry_if_exception_type((OSError, TimeoutError))


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


def delay_of(wait: WaitStrategy, history: History, outcome: object, now: float) -> float:
    """Give the seconds that `wait` wishes between `outcome`, which came at the loop time `now`, and the next poll.

    Raises:
        InvalidInputError: It gave a negative delay, NaN, infinity, or no number.
    """
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


def accepts(retry: RetryStrategy, history: History, error: Exception, now: float) -> bool:
    """Tell whether `retry` takes `error` for a passing fault."""
    return bool(retry(_CallState(history, error, now)))


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
        return isinstance(error, NotSentError) and error.reason not in {"certificate", "proxy"}

    return tenacity.AsyncRetrying(
        wait=lambda state: max(wish(state), _CREATE_WAIT(state)),
        retry=tenacity.retry_if_exception(worth_repeating),
        stop=lambda state: clock() + state.upcoming_sleep >= deadline,
        reraise=True,
    )
