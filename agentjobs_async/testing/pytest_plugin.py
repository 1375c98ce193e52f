"""The emulator as a pytest fixture: `pytest_plugins = ["agentjobs_async.testing.pytest_plugin"]`.

Each test has its own emulator. `agentjobs_emulator` is the `Emulator`, `agentjobs_session` a session for it with the
project "docs", and `agentjobs_env` sets the three environment variables for the duration of the test, so that an
application's own `AgentJobsSession()` reaches it. The marker `@pytest.mark.agentjobs(...)` has the arguments of
`Emulator`. Unless it sets `speed`, jobs run and are polled 100 times as fast as in reality, so that the test of a job
of minutes takes about a second.

In an async test, emulator and session run on the event loop of the test, that of the function or of the whole session;
a call that blocks this loop for 2 s is reported in the log. In any other test the emulator runs in a thread, for test
clients that block.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest
import pytest_asyncio

from agentjobs_async._deferred import deferred
from agentjobs_async.testing._emulator import Emulator
from agentjobs_async.testing._threads import blocked_loop_reported, entered_in_thread

if TYPE_CHECKING:
    from agentjobs_async import AgentJobsSession
else:
    AgentJobsSession = deferred("agentjobs_async", "AgentJobsSession")

LoopScope = Literal["function", "session"]

_SPEED = 100.0  # a job of JobScript's default 0.1 s has ended by the first poll, after 33 ms


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "agentjobs(**settings): the settings of the test's Emulator")


@pytest.fixture
def agentjobs_emulator(request: pytest.FixtureRequest) -> Emulator:
    """Return the running emulator of the test."""
    runs_on = _loop_scope(request) if iscoroutinefunction(request.function) else "thread"
    emulator: Emulator = request.getfixturevalue(f"_agentjobs_emulator_{runs_on}")
    return emulator


@pytest.fixture
def agentjobs_env(agentjobs_emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Set the environment variables of the emulator of the test and the project "docs"; return the emulator."""
    for name, value in agentjobs_emulator.environment("docs").items():
        monkeypatch.setenv(name, value)
    return agentjobs_emulator


@pytest.fixture
def agentjobs_session(request: pytest.FixtureRequest) -> "AgentJobsSession":
    """Return an open session for the emulator of the test."""
    session: AgentJobsSession = request.getfixturevalue(f"_agentjobs_session_{_loop_scope(request)}")
    return session


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """Return the scope of the test's event loop, by the rules of pytest-asyncio; fail the test if it is another one."""
    marker = request.node.get_closest_marker("asyncio")
    default: str = request.config.getini("asyncio_default_test_loop_scope")
    scope = default if marker is None else str(marker.kwargs.get("loop_scope") or default)
    if scope not in get_args(LoopScope):
        pytest.fail(f"the fixtures of agentjobs need a loop_scope of function or session, not {scope}", pytrace=False)
    return scope


def _emulator(request: pytest.FixtureRequest) -> Emulator:
    """Return an emulator with the settings of the test's marker."""
    marker = request.node.get_closest_marker("agentjobs") or pytest.mark.agentjobs().mark
    try:
        return Emulator(*marker.args, **{"speed": _SPEED, **marker.kwargs})
    except (TypeError, ValueError) as error:
        defect = str(error)
    path, line, name = request.node.location
    pytest.fail(f"{path}:{(line or 0) + 1}: {name}: @pytest.mark.agentjobs: {defect}", pytrace=False)


@pytest.fixture
def _agentjobs_emulator_thread(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    with entered_in_thread(_emulator(request)) as emulator:
        yield emulator


def _emulator_on(scope: LoopScope) -> Callable[..., Any]:
    """Return the fixture of an emulator on the event loop of a scope."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_agentjobs_emulator_{scope}")
    async def run(request: pytest.FixtureRequest) -> AsyncIterator[Emulator]:
        async with _emulator(request) as emulator:
            with blocked_loop_reported(asyncio.get_running_loop()):
                yield emulator

    return run


def _session_on(scope: LoopScope) -> Callable[..., Any]:
    """Return the fixture of a session on the event loop of a scope."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_agentjobs_session_{scope}")
    async def run(agentjobs_emulator: Emulator) -> AsyncIterator["AgentJobsSession"]:
        async with agentjobs_emulator.session(project_id="docs") as session:
            yield session

    return run


# A fixture is bound to one loop scope when it is defined, and pytest finds it as an attribute of this module.
_emulator_function, _session_function = _emulator_on("function"), _session_on("function")
_emulator_session, _session_session = _emulator_on("session"), _session_on("session")
