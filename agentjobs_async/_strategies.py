"""Tenacity's strategies, called on our terms: with the loop's time, one answer at a time. Its only importer."""

from collections.abc import Callable
from functools import cached_property
from math import inf
from random import uniform
from typing import Any, Final, Protocol

import tenacity
from tenacity.wait import wait_base

from agentjobs_async._checks import checked_seconds, is_async
from agentjobs_async.errors import InvalidInputError, NotSentError, RateLimitedError

__all__ = [
    "DEFAULT_RETRY",
    "DEFAULT_WAIT",
    "History",
    "RetryStrategy",
    "WaitStrategy",
    "accepts",
    "checked_strategy",
    "create_attempts",
    "delay_of",
]

WaitStrategy = wait_base | Callable[[tenacity.RetryCallState], float]
RetryStrategy = tenacity.retry_base | Callable[[tenacity.RetryCallState], bool]


class _WaitByAge(wait_base):
    """3.3 s, and 3 % of the wait's age more, up to 9 s; all that give or take a tenth.

    `benchmarks/bench_latency.py` chose the figures: of jobs that take minutes, an end is noticed at most 1.3 times as
    late as by the best fixed interval for as many requests, and of jobs of 20 s within a tenth of their duration.
    """

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        delay = 3.3 + 0.03 * (retry_state.seconds_since_start or 0.0)
        return (delay if delay < 9.0 else 9.0) * uniform(0.9, 1.1)  # noqa: S311, PLR2004, FURB136 - no secret; a hot path


DEFAULT_WAIT: Final = _WaitByAge()
DEFAULT_RETRY: Final = tenacity.retry_if_exception_type(OSError)  # TimeoutError is one of them


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


def checked_strategy(name: str, value: object) -> None:
    """Refuse what is no strategy for `name`, which is `wait` or `retry`.

    Raises:
        InvalidInputError: Not callable, async, a class instead of an instance, or a strategy of another kind.
    """
    if not callable(value):
        raise InvalidInputError(f"{name} must be a tenacity strategy, not {type(value).__name__}")
    if isinstance(value, type):
        wanted = f"retry_if_exception_type({value.__name__})" if issubclass(value, BaseException) else "an instance"
        raise InvalidInputError(f"{name} must be a strategy, not the class {value.__name__}: give {wanted}")
    if is_async(value):
        raise InvalidInputError(f"{name} must be a plain strategy: nobody awaits an async one")
    if isinstance(value, tuple(kind for of, kind in _KINDS.items() if of != name)):
        raise InvalidInputError(f"{name} must be a tenacity {name}_... strategy, not {type(value).__name__}")


_KINDS: Final[dict[str, type]] = {"wait": wait_base, "retry": tenacity.retry_base, "stop": tenacity.stop.stop_base}


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
    """What strategies are called with: times are the loop's, and there is no function that is called again.

    One is made at each poll, so what is always the same is the class's, and few ask for the outcome.
    """

    retry_object = tenacity.AsyncRetrying()
    fn = None
    args = ()
    idle_for = 0.0
    next_action = None
    upcoming_sleep = 0.0

    def __init__(self, history: History, held: object, now: float) -> None:
        self.start_time = history.started
        self.attempt_number = history.polls
        self.outcome_timestamp = now
        self._held = held

    @cached_property
    def kwargs(self) -> dict[str, Any]:
        return {}

    @cached_property
    def outcome(self) -> tenacity.Future:  # type: ignore[override]  # made when asked for, and may be set as well
        return _Outcome(self.attempt_number, self._held)


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
