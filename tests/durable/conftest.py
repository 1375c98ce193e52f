from collections.abc import AsyncIterator

import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.conftest import _time_waits_for_the_disk, file_journal, location
from tests.batch.silence import NEVER
from tests.durable.listener import Listener

__all__ = ["_time_waits_for_the_disk", "file_journal", "location"]


@pytest.fixture(autouse=True)
def _frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice soon what was resolved, retried or abandoned, whose owner is dead, and what is held back."""
    monkeypatch.setattr("agentjobs_async.durable._noticing._SWEEP_SECONDS", 0.1)
    monkeypatch.setattr("agentjobs_async.durable._held._LOOK_SECONDS", 0.1)


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand the readers of keys soon what has changed."""
    monkeypatch.setattr("agentjobs_async.durable._updates._LOOK_SECONDS", 0.02)


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    """A service whose jobs end soon, and whose prompt `long` has a job without end."""
    async with Emulator(script=JobScript(duration=0.2), speed=20) as emulator:
        emulator.script(JobScript(duration=1e6), prompt="long")
        yield emulator


@pytest.fixture
async def session(emulator: Emulator) -> AsyncIterator[AgentJobsSession]:
    """A session of that service."""
    async with emulator.session(project_id="docs") as session:
        yield session


@pytest.fixture
def listener() -> Listener:
    """Callbacks that keep what they are told."""
    return Listener()


@pytest.fixture
async def journal(location: str) -> AsyncIterator[Journal]:
    """An empty journal, open: in a file, and on PostgreSQL."""
    async with Journal.open(location, owner_timeout=NEVER) as opened:
        yield opened
