"""A user's settings for waits: when to poll again, which faults to tolerate, how much all polls may use."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import inf
from random import uniform
from time import time
from typing import Any, Final, Literal, Protocol, runtime_checkable

import tenacity
from attrs import Factory, field, frozen
from tenacity.wait import wait_base

from agentjobs_async._validation import checked_count, checked_instance, checked_seconds, is_async, validator
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob, JobRef

__all__ = [
    "DEFAULT_RETRY",
    "DEFAULT_WAIT",
    "CallState",
    "KnownDurations",
    "LearningWait",
    "PollBudget",
    "PollHistory",
    "PollPolicy",
    "RetryStrategy",
    "WaitStrategy",
    "accepts",
    "checked_policy",
    "checked_strategy",
    "created_by",
    "default_gap",
    "delay_of",
    "learn_methods",
    "learning_part",
]


WaitStrategy = wait_base | Callable[[tenacity.RetryCallState], float]
"""Returns the seconds from a response to the next poll."""

RetryStrategy = tenacity.retry_base | Callable[[tenacity.RetryCallState], bool]
"""Returns whether an exception of the caller's own `get_job` is transient."""


def default_gap(age: float) -> float:
    """Return the seconds from a poll at `age` seconds to the next one of the default wait, without its jitter."""
    return min(3.3 + 0.03 * age, 9.0)


class _WaitByAge(wait_base):
    """min(3.3 s + 3 % of the wait's age, 9 s), with ±10 % jitter.

    The figures come from `benchmarks/bench_latency.py`: the end of a job that takes minutes is noticed at most 1.3
    times as late as with the best fixed interval for as many requests; of a job of 20 s, within 10 % of its duration.
    """

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return default_gap(retry_state.seconds_since_start or 0.0) * uniform(0.9, 1.1)  # noqa: S311 - no secret


DEFAULT_WAIT: Final = _WaitByAge()
_CONNECTION_FAULTS: Final = {
    *(("aiohttp", "ClientConnectionError"), ("aiohttp", "ClientPayloadError"), ("httpx", "TransportError"))
}
"""Faults of a connection that are no `OSError`, by package and class: none of these packages is imported for them."""
_LASTING_FAULTS: Final = {("httpx", "LocalProtocolError"), ("httpx", "UnsupportedProtocol")}
"""What a program does wrong, though its class is one of those above."""


def _is_connection_fault(error: BaseException) -> bool:
    """Return whether an exception says that an exchange failed: not that there was an answer, or that none can be."""
    kinds = {(str(kind.__module__).partition(".")[0], kind.__name__) for kind in type(error).__mro__}
    if kinds & _LASTING_FAULTS:
        return False
    return isinstance(error, OSError) or bool(kinds & _CONNECTION_FAULTS)  # a TimeoutError is an OSError


DEFAULT_RETRY: Final = tenacity.retry_if_exception(_is_connection_fault)
"""Accepts faults of the connection: each `OSError`, `TimeoutError` included, and those of aiohttp and httpx.

It is the default of `PollPolicy.retry`. Join it to a strategy of your own by `|`.
"""


class PollHistory(Protocol):
    """What strategies may know of the polls of one job. Times are loop times, in seconds.

    Attributes:
        started: When the wait started.
        created: When the job was created, by its `created_at` and the local clock; the wait's start where the document
            does not say, or says a later time.
        polls: The number of polls made, including the one to decide on.
        ref: The job's ref.
    """

    started: float
    created: float
    polls: int
    ref: JobRef

    @property
    def job(self) -> AgentJob | None:
        """The job as it was shown last, or given; `None` before."""


class KnownDurations(Protocol):
    """The durations of jobs of one kind, as estimates read them: what a `History` is."""

    def quantile(self, p: float, age: float = 0.0) -> float:
        """Return the seconds, from `age` on, within which a share `p` of the jobs ends that are active at `age`."""
        ...


@runtime_checkable
class LearningWait(Protocol):
    """What waits ask of a wait strategy that learns, as `wait_learned` does; it may be a part of a sum or a chain.

    A user's own may have `learn` alone: then durations are passed on to it, and nothing is estimated.
    """

    def learn(self, project_id: str, model: str | None, earliest: float, latest: float) -> object:
        """Add the duration of a job of this project and model.

        It took longer than `earliest` seconds and at most `latest`, which is infinite if the wait ended before the job.
        """
        ...

    def history_of(self, project_id: str, model: str | None) -> KnownDurations | None:
        """Return the durations by which such jobs are estimated; `None` while too few are known."""
        ...


def learn_methods(wait: object) -> list[Callable[..., object]]:
    """Return the methods `learn` of a wait strategy and of its parts."""
    methods = (getattr(part, "learn", None) for part in _parts_of(wait))
    return [learn for learn in methods if callable(learn)]


def learning_part(wait: object) -> LearningWait | None:
    """Return what gives estimates: the first of a wait strategy and its parts that does; `None` if none does."""
    return next((part for part in _parts_of(wait) if isinstance(part, LearningWait)), None)


def _parts_of(wait: Any) -> Iterator[Any]:
    """Yield a wait strategy and, if it is a sum or a chain, its parts."""
    yield wait
    parts: Iterable[Any] = ()
    if isinstance(wait, tenacity.wait_combine):
        parts = wait.wait_funcs
    elif isinstance(wait, tenacity.wait_chain):
        parts = wait.strategies
    for part in parts:
        yield from _parts_of(part)


def created_by(job: AgentJob, now: float) -> float:
    """Return the loop time, `now` at present, at which a job was created; infinite where its document does not say."""
    return inf if job.created_at is None else now - (time() - job.created_at.timestamp())


def checked_strategy(name: str, value: object) -> None:
    """Check a strategy for the setting `name`, which is `wait` or `retry`.

    Raises:
        InvalidInputError: `value` is not callable, is async or learns by an async method, is a class instead of an
            instance, or is a strategy of another kind.
    """
    if not callable(value):
        example = "wait_fixed(5)" if name == "wait" else "retry_if_exception_type(OSError)"
        raise InvalidInputError(f"{name} must be a tenacity strategy such as {example}, not {type(value).__name__}")
    if isinstance(value, type):
        wanted = f"retry_if_exception_type({value.__name__})" if issubclass(value, BaseException) else "an instance"
        raise InvalidInputError(f"{name} must be a strategy, not the class {value.__name__}: pass {wanted}")
    if any(map(is_async, (*_parts_of(value), *learn_methods(value)))):
        raise InvalidInputError(f"{name} must be a plain strategy: an async one would never be awaited")
    if isinstance(value, tuple(kind for of, kind in _BASES.items() if of != name)):
        raise InvalidInputError(f"{name} must be a tenacity {name}_... strategy, not {type(value).__name__}")


_BASES: Final[dict[str, type]] = {"wait": wait_base, "retry": tenacity.retry_base, "stop": tenacity.stop.stop_base}


def delay_of(policy: "PollPolicy", history: PollHistory, outcome: AgentJob | Exception, now: float) -> float:
    """Return the seconds from `outcome`, which came at the loop time `now`, to the next poll, as the policy says.

    Raises:
        InvalidInputError: `policy.wait` returned a negative delay, NaN, infinity, or something that is not a number.
        Exception: What `policy.wait` raised, unchanged.
    """
    value = tenacity.TryAgain() if policy._expects_errors and isinstance(outcome, AgentJob) else outcome  # noqa: SLF001 - private to users
    delay: Any = policy.wait(CallState(history, value, now))  # a user's own may return anything
    if type(delay) is float and 0.0 <= delay < inf:
        return delay
    return checked_seconds("the delay that policy.wait gives", delay, zero=True)


def accepts(retry: RetryStrategy, history: PollHistory, error: Exception, now: float) -> bool:
    """Return whether `retry` regards `error` as transient."""
    return bool(retry(CallState(history, error, now)))


class _Outcome(tenacity.Future):
    """A finished attempt, as strategies read it; without the lock and condition of a real future, to be cheap."""

    def __init__(self, attempt_number: int, value: object) -> None:
        self.attempt_number = attempt_number
        self._value = value

    def __repr__(self) -> str:
        return f"<outcome of attempt {self.attempt_number}: {self._value!r}>"

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        del timeout
        if isinstance(self._value, BaseException):
            raise self._value
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        del timeout
        return self._value if isinstance(self._value, BaseException) else None


class CallState(tenacity.RetryCallState):
    """The argument of strategies. Times are loop times; there is no function to be called again.

    One is made at each poll: constant values are class attributes, and the outcome is made when first read.

    Attributes:
        value: What the outcome is: a job that has not ended, or an error.
        project_id: That of the job; `None` where a user of tenacity calls the strategy.
        job: The job as it was shown last, or given; `None` before.
        created: As in `PollHistory`.
    """

    retry_object: tenacity.BaseRetrying = tenacity.AsyncRetrying()
    fn = None
    args: Any = ()
    idle_for: float = 0.0
    next_action: tenacity.RetryAction | None = None
    upcoming_sleep: float = 0.0
    outcome_timestamp: float

    def __init__(self, history: PollHistory, value: object, now: float) -> None:
        self.start_time: float = history.started
        self.attempt_number: int = history.polls
        self.outcome_timestamp: float = now
        self.value: object = value
        self.project_id: str | None = history.ref.project_id
        self.job: AgentJob | None = history.job
        self.created: float = history.created

    @cached_property
    def kwargs(self) -> dict[str, Any]:
        """Empty: there is no function."""
        return {}

    @cached_property
    def outcome(self) -> tenacity.Future:  # type: ignore[override]  # made when first read; tenacity may set it
        """The last attempt, finished."""
        return _Outcome(self.attempt_number, self.value)


def _checked_in_flight(name: str, value: object) -> None:
    if isinstance(value, str) and value == "auto":
        raise InvalidInputError(f'{name} must be a whole number: write PollBudget(per_second="auto")')
    checked_count(name, value)


def _checked_rate(name: str, value: object) -> None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, str):
        raise InvalidInputError(f'{name} must be a number of polls per second, "auto" or None, not {value!r:.100}')
    checked_seconds(name, value, unit="polls per second")


_seconds_or_zero: Final = validator(checked_seconds, zero=True)
_strategy: Final = validator(checked_strategy)


def _has_wait_exception(policy: "PollPolicy") -> bool:
    """Return whether a part of the policy's wait raises a RuntimeError for an outcome that is no error."""
    return any(isinstance(part, tenacity.wait_exception) for part in _parts_of(policy.wait))


@frozen(eq=False)
class PollPolicy:
    """When a wait polls again, and which faults end it. Compared by identity.

    Every decision of a wait follows from its policy and the responses alone.

    Attributes:
        wait: When to poll again: any tenacity wait strategy. It returns the seconds from a response to the next poll,
            finite and at least 0. The default is 3.3 s + 3 % of the wait's age, at most 9 s (from age 190 s on), with
            ±10 % jitter. A strategy of your own is called with a `RetryCallState` whose `attempt_number` (from 1),
            `outcome`, `start_time` and `outcome_timestamp` (loop time, in seconds) are set. A `wait_exception`, and a
            sum or chain with one in it, gets `tenacity.TryAgain` for a job that has not ended.
        retry: Which exceptions of your own get_job are transient: any synchronous tenacity retry strategy. The default,
            `DEFAULT_RETRY`, accepts faults of the connection; `DEFAULT_RETRY | strategy` accepts more. An
            `InvalidInputError` is never transient.
        not_found_grace: Seconds for which a 404 counts as "not visible yet"; 0 for not at all. They count from the
            start of the first wait under way for the job, or from the last response that showed it.
        max_bad_answers: How many unusable responses in a row end the waits for a job, at least 1. It applies until a
            poll has shown the job to one of these waits.
        max_retry_after: The longest Retry-After that is obeyed, in seconds. A longer one after a poll is cut to this; 0
            ignores all of them. A longer one after a create raises `RateLimitedError`. After a 429 without a
            Retry-After above 0, the polls of the project wait for 1 s, doubling to 60 s until a good response; so does
            each create.
        answer_grace: Seconds for which waits tolerate responses that do not show the job (404, refused, unusable), once
            a poll has shown it to one of them; then they raise the last such response. 0 raises each at once; otherwise
            a single one is always tolerated, however rare the polls are. The seconds count from the last response that
            showed the job; when transient faults came between, from the first response that did not. For a 404, the
            longer of this and `not_found_grace` counts.

    Raises:
        InvalidInputError: A setting is invalid. If `wait` returns an invalid delay, the wait raises it.
    """

    wait: WaitStrategy = field(default=DEFAULT_WAIT, validator=_strategy)
    retry: RetryStrategy = field(default=DEFAULT_RETRY, validator=_strategy)
    not_found_grace: float = field(default=30.0, validator=_seconds_or_zero)
    max_bad_answers: int = field(default=5, validator=validator(checked_count))
    max_retry_after: float = field(default=60.0, validator=_seconds_or_zero)
    answer_grace: float = field(default=60.0, validator=_seconds_or_zero)
    _expects_errors: bool = field(init=False, repr=False, default=Factory(_has_wait_exception, takes_self=True))


@frozen
class PollBudget:
    """What all polls of one session or tracker may use together.

    Attributes:
        in_flight: How many polls may be in flight at once; at least 1. The time that a poll waits for its turn does not
            count towards its timeout.
        per_second: How many polls may start per second, above 0; `None` sets no such limit. `"auto"` finds it: there is
            no limit until the server refuses a poll with a 429, and each refusal cuts it to 80 % of the polls per
            second that were answered in the last minute, unless it is lower already. Between refusals it grows, in each
            minute by a quarter of what the cut left, so that a higher quota is found. It is never below 0.2. Refusals
            with no good answer in between cut it once, and so do those of one project while others are answered. The
            limit is for all projects together: use `"auto"` if the quota belongs to the API key.

    Raises:
        InvalidInputError: A setting is invalid.
    """

    in_flight: int = field(default=100, validator=validator(_checked_in_flight))
    per_second: float | Literal["auto"] | None = field(default=None, validator=validator(_checked_rate))


def checked_policy(policy: object) -> PollPolicy:
    """Return `policy`, or the default for `None`.

    Raises:
        InvalidInputError: It is no `PollPolicy`.
    """
    return checked_instance("policy", policy, PollPolicy) or _DEFAULT_POLICY


_DEFAULT_POLICY: Final = PollPolicy()
