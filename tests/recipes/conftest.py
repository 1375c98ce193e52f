from collections.abc import AsyncIterator

import pytest

from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS


@pytest.fixture
async def service() -> AsyncIterator[Emulator]:
    """An emulated service whose jobs do not end by themselves."""
    async with Emulator(script=ENDLESS) as service:
        yield service
