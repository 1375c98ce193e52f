"""Tenacity's strategies on our terms, and the repeating of creates."""

import asyncio
from typing import Any

import pytest
import tenacity
from attrs import evolve
from tenacity.wait import wait_base

from agentjobs_async._http.create import create_attempts, may_repeat
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async.errors import AgentJobsError, NotSentError, NotSentReason, ServerError, TransportError
from agentjobs_async.models import Seen
from agentjobs_async.policy import PollPolicy
from tests.past import ACTIVE, NOW, again, past
from tests.rows import failures, failures_at_once


class OwnWait(wait_base):
    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return retry_state.attempt_number * 2.0


def plain_wait(retry_state: tenacity.RetryCallState) -> float:
    return retry_state.attempt_number * 3.0


def delay_after_error(error: BaseException) -> float:
    return 0.5 if isinstance(error, tenacity.TryAgain) else 9.0


def test_any_strategy() -> None:
    """Any wait strategy of tenacity's, an own one and a plain function pace after answers and errors alike."""

    def check(wait: Any, least: float, most: float, after_error: float = 0.0) -> None:
        policy = PollPolicy(wait=wait)
        assert least <= again(ACTIVE, policy, past(polls=2)).due - NOW <= most
        delay = again(TransportError("reset"), policy, past(polls=2)).due - NOW - after_error
        assert least <= delay <= most

    rows: list[tuple[Any, ...]] = [
        (tenacity.wait_fixed(4), 4, 4),
        (tenacity.wait_none(), 0, 0),
        (tenacity.wait_incrementing(2, 3), 5, 5),
        (tenacity.wait_exponential(multiplier=1, max=60) + tenacity.wait_random(0, 1), 2, 3),
        (tenacity.wait_random_exponential(multiplier=1, max=60), 0, 2),
        (tenacity.wait_exponential_jitter(initial=1, max=60, jitter=1), 2, 3),
        (tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(7)), 7, 7),
        (tenacity.wait_combine(tenacity.wait_fixed(1), tenacity.wait_fixed(2)), 3, 3),
        (tenacity.wait_exception(delay_after_error), 0.5, 0.5, 8.5),
        (tenacity.wait_exception(delay_after_error) + tenacity.wait_fixed(1), 1.5, 1.5, 8.5),
        (OwnWait(), 4, 4),
        (plain_wait, 6, 6),
        (lambda _: 2, 2, 2),
    ]
    assert failures(check, *rows) == {}


def test_what_a_strategy_raises() -> None:
    """A strategy is called once for each answer, whatever it raises, and its error comes out."""

    def check(answer: Answer, error: Exception) -> None:
        states: list[tenacity.RetryCallState] = []

        def wait(retry_state: tenacity.RetryCallState) -> float:
            states.append(retry_state)
            raise error

        for parts in ((), (tenacity.wait_fixed(1),), (tenacity.wait_exception(lambda _: 1),)):
            policy = PollPolicy(wait=tenacity.wait_combine(*parts, wait))
            assert past().apply(policy, answer, NOW) is error
        assert len(states) == 3

    rows = [(answer, kind("mine")) for answer in (Seen(ACTIVE), ServerError(503)) for kind in (RuntimeError, KeyError)]
    assert failures(check, *rows) == {}


def test_another_strategy() -> None:
    """A policy that is evolved to another strategy passes what that one expects."""
    fixed, by_error = PollPolicy(wait=tenacity.wait_fixed(4)), tenacity.wait_exception(delay_after_error)
    changed = evolve(fixed, wait=by_error)
    assert again(ACTIVE, changed).due - NOW == 0.5
    assert again(ACTIVE, evolve(changed, wait=tenacity.wait_fixed(4))).due - NOW == 4


def test_call_state() -> None:
    """A strategy sees the attempt's number from 1, its outcome and loop times, and nothing slept."""
    states: list[tenacity.RetryCallState] = []

    def wait(retry_state: tenacity.RetryCallState) -> float:
        states.append(retry_state)
        return 0

    policy = PollPolicy(wait=wait)
    error = ServerError(503)
    state = again(ACTIVE, policy, now=NOW + 2)
    state.polls += 1
    again(error, policy, state, NOW + 7)
    good, bad = states
    assert (good.attempt_number, good.start_time, good.outcome_timestamp) == (1, NOW, NOW + 2)
    assert (bad.attempt_number, bad.start_time, bad.outcome_timestamp) == (2, NOW, NOW + 7)
    assert (bad.seconds_since_start, bad.idle_for, bad.args, bad.kwargs) == (7, 0, (), {})
    assert good.outcome is not None
    assert bad.outcome is not None
    assert good.outcome.done()
    assert (good.outcome.failed, good.outcome.exception(), good.outcome.result()) == (False, None, ACTIVE)
    assert (bad.outcome.failed, bad.outcome.exception(), bad.outcome.attempt_number) == (True, error, 2)
    assert "attempt 2" in repr(bad.outcome)
    with pytest.raises(ServerError) as caught:
        bad.outcome.result()
    assert caught.value is error


def test_own_faults() -> None:
    """Which exceptions of a user's own get-job pass is any plain retry strategy's to say."""

    def check(retry: Any, error: Exception, result: Exception | None) -> None:
        policy = PollPolicy(wait=tenacity.wait_none(), retry=retry)
        assert past(polls=2).apply(policy, error, NOW) is result

    value_errors = tenacity.retry_if_exception_type(ValueError)
    key_errors = tenacity.retry_if_exception_type(KeyError)
    busy = tenacity.retry_if_exception_message(match="busy.*")
    rides = [
        (value_errors, ValueError()),
        (tenacity.retry_if_exception(lambda error: "busy" in str(error)), ValueError("busy")),
        (busy, ValueError("busy now")),
        (value_errors & busy, ValueError("busy now")),
        (tenacity.retry_if_not_exception_type(ValueError), KeyError()),
        (tenacity.retry_any(key_errors, tenacity.retry_never), KeyError()),
        (tenacity.retry_always, ValueError()),
        (lambda state: state.attempt_number < 3, ValueError()),
    ]
    passes = [
        (value_errors, KeyError()),
        (value_errors, OSError()),
        (tenacity.retry_all(key_errors, tenacity.retry_never), KeyError()),
        (tenacity.retry_never, OSError()),
        (lambda state: state.attempt_number < 2, ValueError()),
    ]
    assert failures(check, *((*row, None) for row in rides), *((*row, row[1]) for row in passes)) == {}


def test_default_pace() -> None:
    """By default polls are 3.3 s apart and 3 % of the wait's age more, up to 9 s, give or take a tenth."""
    policy = PollPolicy()
    for age, delay in ((0, 3.3), (100, 6.3), (190, 9), (1_000_000, 9)):
        delays = {again(ACTIVE, policy, past(started=NOW - age)).due - NOW for _ in range(200)}
        assert 0.9 * delay - 1e-6 <= min(delays) < 0.95 * delay < 1.05 * delay < max(delays) <= 1.1 * delay + 1e-6


class Creates:
    """Runs a create's engine over scripted errors on a clock that only its own sleeping moves."""

    def __init__(self, *errors: AgentJobsError, deadline: float = 120.0) -> None:
        self.now = 0.0
        self.tries: list[float] = []
        self._errors = list(errors)
        self._attempts = create_attempts(lambda: self.now, deadline, lambda result: may_repeat(result, 60.0))
        self._attempts.sleep = self._sleep  # type: ignore[assignment]  # tenacity awaits it; its type says otherwise

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def run(self) -> object:
        result: object = None
        async for attempt in self._attempts:
            self.tries.append(self.now)
            result = self._errors.pop(0) if self._errors else "created"
            attempt.retry_state.set_result(result)
        return result


async def test_create_backs_off() -> None:
    """What was not sent goes again with a growing pause, from a tenth of a second up to ten."""
    creates = Creates(*[NotSentError("refused", "refused")] * 12)
    assert await creates.run() == "created"
    gaps = [after - before for before, after in zip(creates.tries, creates.tries[1:], strict=False)]
    assert len(gaps) == 12
    assert 0.1 <= gaps[0] <= 0.2
    assert 0.2 <= gaps[1] <= 0.3
    assert 10 <= gaps[-1] <= 10.1


async def test_create_until_its_time() -> None:
    """It goes on until its time is up; the last error comes out as it is, and nothing starts after the deadline."""

    async def check(reason: NotSentReason) -> None:
        errors = [NotSentError(str(number), reason) for number in range(1000)]
        creates = Creates(*errors, deadline=50.0)
        assert await creates.run() is errors[len(creates.tries) - 1]
        assert 35 < creates.tries[-1] < 50

    assert await failures_at_once(check, "dns", "refused", "tls", "timeout", "connect") == {}
