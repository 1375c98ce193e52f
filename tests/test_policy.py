"""What a user says about waiting."""

from functools import partial
from math import inf, nan
from typing import Any

import pytest
import tenacity
from attrs.exceptions import FrozenInstanceError
from tenacity.wait import wait_base

from agentjobs_async.errors import InvalidInputError
from agentjobs_async.policy import PollBudget, PollPolicy
from tests.past import POLICY
from tests.rows import failures

BAD_COUNTS = [0, -1, 2.0, True, None, "5", nan]
BAD_SECONDS = [-1, nan, inf, True, None, "30", 10**400]


async def async_retry(_: BaseException) -> bool:
    return True


async def async_strategy(_: object) -> float:
    return 1.0


class AsyncWait(wait_base):
    async def __call__(self, retry_state: tenacity.RetryCallState) -> float:  # type: ignore[override]  # the mistake itself
        return float(retry_state.attempt_number)


def refuses(kind: type, name: str, value: object, words: str = "") -> None:
    """Check that a setting is refused by its name, with the words."""
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidInputError, match=rf"^{name} must be .*{words}"):
        kind(**arguments)


def test_no_policy() -> None:
    """A setting that makes no sense is refused by its name."""
    retries = (None, OSError(), async_strategy, tenacity.asyncio.retry_if_exception(async_retry))
    rows: list[tuple[str, Any]] = []
    rows += [(name, value) for name in ("not_found_grace", "answer_grace", "max_retry_after") for value in BAD_SECONDS]
    rows += [("max_bad_answers", value) for value in BAD_COUNTS]
    rows += [("wait", value) for value in (None, 5, "5", async_strategy, AsyncWait())]
    rows += [("retry", value) for value in retries]
    assert failures(partial(refuses, PollPolicy), *rows) == {}


class _LearnsLater(tenacity.wait_fixed):
    async def learn(self, *_duration: object) -> None:
        """Learn nothing."""


def test_strategy_with_an_async_method() -> None:
    """A strategy that would learn in a coroutine is refused at once, not when the first wait begins."""
    with pytest.raises(InvalidInputError, match="wait must be a plain strategy"):
        PollPolicy(wait=_LearnsLater(1))


def test_no_budget() -> None:
    """A budget that makes no sense is refused by the setting's name."""
    rows = [("in_flight", value) for value in BAD_COUNTS]
    rows += [("per_second", value) for value in (0, -1, nan, inf, True, "3")]
    assert failures(partial(refuses, PollBudget), *rows) == {}


def test_what_was_meant() -> None:
    """A class, and a strategy of another kind, are refused with what was probably meant."""
    rows: list[tuple[str, Any, str]] = [
        ("retry", ValueError, r"not the class ValueError: pass retry_if_exception_type\(ValueError\)"),
        ("wait", tenacity.wait_fixed, "not the class wait_fixed: pass an instance"),
        ("wait", tenacity.stop_after_delay(5), "tenacity wait_... strategy, not stop_after_delay"),
        ("wait", tenacity.retry_always, "tenacity wait_... strategy"),
        ("retry", tenacity.wait_fixed(5), "tenacity retry_... strategy, not wait_fixed"),
    ]
    assert failures(partial(refuses, PollPolicy), *rows) == {}


def test_auto_in_the_wrong_place() -> None:
    """The word for a limit that adapts, passed as the first argument, is refused with the setting that takes it."""
    word: Any = "auto"
    with pytest.raises(InvalidInputError, match=r'^in_flight must be a .*: write PollBudget\(per_second="auto"\)$'):
        PollBudget(word)


def test_settings() -> None:
    """Zero is legal where it means something, and what is given is what is kept."""
    policy = PollPolicy(not_found_grace=0, max_bad_answers=1, max_retry_after=0, answer_grace=0)
    assert (policy.not_found_grace, policy.max_bad_answers, policy.max_retry_after) == (0, 1, 0)
    assert policy.answer_grace == 0
    defaults = PollPolicy()
    assert (defaults.not_found_grace, defaults.max_bad_answers, defaults.max_retry_after) == (30.0, 5, 60.0)
    assert defaults.answer_grace == 60.0
    assert (PollBudget().in_flight, PollBudget().per_second) == (100, None)
    assert PollBudget(1, 0.5) == PollBudget(in_flight=1, per_second=0.5)


def test_identity() -> None:
    """A policy is frozen and compared by identity: its strategies can't be compared."""
    assert PollPolicy() != PollPolicy()
    assert len({POLICY, POLICY, PollPolicy()}) == 2
    for value, name in ((POLICY, "max_bad_answers"), (PollBudget(), "in_flight")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 1)
