"""The emulator as a pytest fixture: `pytest_plugins = ["agentjobs_async.testing.pytest_plugin"]`.

`agentjobs_emulator` is an `Emulator` of its own for each test, `agentjobs_session` a session for it with the project
"docs". The marker `@pytest.mark.agentjobs(...)` takes what `Emulator` takes.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from agentjobs_async.testing.emulator import Emulator

if TYPE_CHECKING:
    from agentjobs_async import AgentJobsSession


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "agentjobs(**settings): the settings of the test's Emulator")


@pytest_asyncio.fixture
async def agentjobs_emulator(request: pytest.FixtureRequest) -> AsyncIterator[Emulator]:
    """Run an emulator for the test."""
    marker = request.node.get_closest_marker("agentjobs")
    async with Emulator(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as emulator:
        yield emulator


@pytest_asyncio.fixture
async def agentjobs_session(agentjobs_emulator: Emulator) -> AsyncIterator["AgentJobsSession"]:
    """Open a session for the test's emulator."""
    async with agentjobs_emulator.session(project_id="docs") as session:
        yield session
