"""The emulator as a pytest fixture: `pytest_plugins = ["agentjobs_async.testing.pytest_plugin"]`.

Each test has its own `Emulator` as `agentjobs_emulator`, and as `agentjobs_session` a session for it with the project
"docs". Both run on the event loop of the test, whatever its scope. The marker `@pytest.mark.agentjobs(...)` has the
arguments of `Emulator`. Unless it sets `speed`, jobs run and are polled 100 times as fast as in reality, so that the
test of a job of minutes takes about a second.
"""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal

import pytest
import pytest_asyncio

from agentjobs_async.testing.emulator import Emulator

if TYPE_CHECKING:
    from agentjobs_async import AgentJobsSession

ScopeName = Literal["function", "class", "module", "package", "session"]

_SPEED = 100.0  # a job of JobScript's default 0.1 s has ended by the first poll, after 33 ms


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "agentjobs(**settings): the settings of the test's Emulator")


@pytest.fixture
def agentjobs_emulator(request: pytest.FixtureRequest) -> Emulator:
    """Return the emulator of the test, which runs."""
    emulator: Emulator = request.getfixturevalue(f"_agentjobs_emulator_{_loop_scope(request)}")
    return emulator


@pytest.fixture
def agentjobs_session(request: pytest.FixtureRequest) -> "AgentJobsSession":
    """Return an open session for the emulator of the test."""
    session: AgentJobsSession = request.getfixturevalue(f"_agentjobs_session_{_loop_scope(request)}")
    return session


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """Return the scope of the test's event loop, by the rules of pytest-asyncio."""
    marker = request.node.get_closest_marker("asyncio")
    default: str = request.config.getini("asyncio_default_test_loop_scope")
    return default if marker is None else str(marker.kwargs.get("loop_scope") or default)


def _emulator(request: pytest.FixtureRequest) -> Emulator:
    """Return an emulator with the settings of the test's marker."""
    marker = request.node.get_closest_marker("agentjobs") or pytest.mark.agentjobs().mark
    try:
        return Emulator(*marker.args, **{"speed": _SPEED, **marker.kwargs})
    except (TypeError, ValueError) as error:
        defect = str(error)
    path, line, name = request.node.location
    pytest.fail(f"{path}:{(line or 0) + 1}: {name}: @pytest.mark.agentjobs: {defect}", pytrace=False)


def _emulator_on(scope: ScopeName) -> Callable[..., Any]:
    """Return the fixture of an emulator on the event loop of a scope."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_agentjobs_emulator_{scope}")
    async def run(request: pytest.FixtureRequest) -> AsyncIterator[Emulator]:
        async with _emulator(request) as emulator:
            yield emulator

    return run


def _session_on(scope: ScopeName) -> Callable[..., Any]:
    """Return the fixture of a session on the event loop of a scope."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_agentjobs_session_{scope}")
    async def run(agentjobs_emulator: Emulator) -> AsyncIterator["AgentJobsSession"]:
        async with agentjobs_emulator.session(project_id="docs") as session:
            yield session

    return run


# A fixture is bound to one loop scope when it is defined, and pytest finds it as an attribute of this module.
_emulator_function, _session_function = _emulator_on("function"), _session_on("function")
_emulator_class, _session_class = _emulator_on("class"), _session_on("class")
_emulator_module, _session_module = _emulator_on("module"), _session_on("module")
_emulator_package, _session_package = _emulator_on("package"), _session_on("package")
_emulator_session, _session_session = _emulator_on("session"), _session_on("session")
