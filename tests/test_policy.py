"""What a user says about waiting."""

from functools import partial
from math import inf, nan
from types import ModuleType
from typing import Any, cast

import aiohttp
import httpx
import pytest
import tenacity
from aiohttp import client_exceptions
from attrs.exceptions import FrozenInstanceError
from tenacity.wait import wait_base

from agentjobs_async._polling.wait_state import WaitState
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.policy import DEFAULT_RETRY, PollBudget, PollPolicy, accepts
from tests.past import POLICY
from tests.polled import REF
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


def classes(*modules: ModuleType) -> list[type[Exception]]:
    """Return the exceptions that modules of a client have."""
    values = [value for module in modules for value in vars(module).values()]
    return [kind for kind in values if isinstance(kind, type) and issubclass(kind, Exception)]


def accepted(strategy: Any, *kinds: type[BaseException]) -> set[str]:
    """Return the names of the classes of whose exceptions a retry strategy says that they are transient."""
    history = WaitState(REF, None, 0.0)
    return {kind.__name__ for kind in kinds if accepts(strategy, history, cast("Exception", kind.__new__(kind)), 1.0)}


def test_connection_faults() -> None:
    """By default, faults of a connection are transient, of aiohttp and httpx too; what a program or server says is not.

    A user's own class counts as its bases do.
    """

    class OwnError(httpx.ReadError):
        pass

    of_aiohttp = {kind for kind in classes(client_exceptions) if kind.__module__.startswith("aiohttp")}
    transient = {
        *(kind for kind in of_aiohttp if issubclass(kind, aiohttp.ClientConnectionError)),
        aiohttp.ClientPayloadError,
    }
    assert accepted(DEFAULT_RETRY, *of_aiohttp) == {kind.__name__ for kind in transient}
    assert {"ClientResponseError", "ContentTypeError", "InvalidURL"} <= {
        kind.__name__ for kind in of_aiohttp - transient
    }
    faults = "ConnectError ReadError WriteError CloseError RemoteProtocolError ProxyError PoolTimeout ReadTimeout"
    bases = "TransportError NetworkError ProtocolError TimeoutException ConnectTimeout WriteTimeout"
    assert accepted(DEFAULT_RETRY, *classes(httpx)) == {*faults.split(), *bases.split()}
    builtin = (OSError, TimeoutError, ConnectionResetError, ValueError, LookupError, RuntimeError, OwnError)
    assert accepted(DEFAULT_RETRY, *builtin) == {"OSError", "TimeoutError", "ConnectionResetError", "OwnError"}


def test_more_than_the_default() -> None:
    """The default is a strategy of tenacity that a user joins to another, or replaces as a whole."""
    kinds = (LookupError, httpx.ReadError, ValueError)
    assert PollPolicy().retry is DEFAULT_RETRY
    lookups = tenacity.retry_if_exception_type(LookupError)
    assert accepted(PollPolicy(retry=DEFAULT_RETRY | lookups).retry, *kinds) == {"LookupError", "ReadError"}
    assert accepted(PollPolicy(retry=lookups | DEFAULT_RETRY).retry, *kinds) == {"LookupError", "ReadError"}
    assert accepted(PollPolicy(retry=lookups).retry, *kinds) == {"LookupError"}
