"""What a user says about waiting: when to ask again, what to put up with, and how much polls may use."""

from typing import Any

from attrs import field, frozen

from agentjobs_async._checks import checked_count, checked_seconds
from agentjobs_async._strategies import DEFAULT_RETRY, DEFAULT_WAIT, RetryStrategy, WaitStrategy, checked_strategy

__all__ = ["HttpTimeouts", "PollBudget", "PollPolicy"]


def _plain_strategy(instance: object, attribute: Any, value: object) -> None:
    del instance
    checked_strategy(attribute.name, value)


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
            time) are set. By default 3.3 s, and 3 % of the wait's age more, up to 9 s (from an age of 190 s on), all
            that give or take a tenth at random. `wait_exception` sees `tenacity.TryAgain` where the job was just still
            active.
        retry: Any plain tenacity retry strategy: which exceptions of your own get_job are passing faults; by default
            every `OSError`, of which `TimeoutError` is one.
        not_found_grace: Seconds from the wait's start, or from the last answer that showed the job, in which a 404
            counts as "not visible yet"; 0 gives none.
        max_bad_answers: How many unusable answers in a row end a wait; at least 1.
        max_retry_after: The longest Retry-After that is obeyed, in seconds: a poll's longer one is cut to it (0 ignores
            it), a create's longer one raises `RateLimitedError`.

    Raises:
        InvalidInputError: A setting makes no sense. A strategy that gives anything but finite seconds from 0 on raises
            it in the wait.
    """

    wait: WaitStrategy = field(default=DEFAULT_WAIT, validator=_plain_strategy)
    retry: RetryStrategy = field(default=DEFAULT_RETRY, validator=_plain_strategy)
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


def _connect(value: float) -> float:
    return checked_seconds("connect", value)


def _request(value: float) -> float:
    return checked_seconds("request", value)


@frozen
class HttpTimeouts:
    """How long one exchange may take, in seconds.

    Attributes:
        connect: From the start to a ready connection: name lookup, TCP and TLS together.
        request: One read of a job as a whole. A create is bounded by its own timeout instead.

    Raises:
        InvalidInputError: Not a finite number above 0.
    """

    connect: float = field(default=10.0, converter=_connect)
    request: float = field(default=30.0, converter=_request)
