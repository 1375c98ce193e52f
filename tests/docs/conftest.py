from collections.abc import AsyncIterator

import pytest

from agentjobs_async.testing import Emulator, JobScript


@pytest.fixture
async def emulator(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Emulator]:
    """An emulator that the environment leads to."""
    async with Emulator(script=JobScript(duration=0.05)) as emulator:
        monkeypatch.setenv("AGENTJOBS_BASE_URL", emulator.base_url)
        monkeypatch.setenv("AGENTJOBS_API_KEY", emulator.api_key)
        monkeypatch.setenv("AGENTJOBS_PROJECT_ID", "docs")
        yield emulator
