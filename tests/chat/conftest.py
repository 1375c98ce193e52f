from collections.abc import AsyncIterator, Callable

import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.chat import ChatJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.conftest import file_journal, location
from tests.chat.said import Said
from tests.durable.conftest import _frequent_sweeps, session

__all__ = ["_frequent_sweeps", "file_journal", "location", "session"]

OPERATOR = 9


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    """A service whose jobs are at work until a test ends them."""
    async with Emulator(script=JobScript(duration=float("inf")), speed=20) as emulator:
        yield emulator


@pytest.fixture
def said() -> Said:
    """What the bot has said."""
    return Said()


@pytest.fixture
def bot(session: AgentJobsSession, said: Said, location: str) -> Callable[..., ChatJobs]:
    """What makes the jobs of a bot, each time on the same journal: in a file, and on PostgreSQL."""
    settings = {"send": said.send, "journal": location, "session": session, "operators": {OPERATOR}}
    return lambda **others: ChatJobs(**{**settings, **others})
