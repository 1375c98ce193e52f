from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.batch import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's journal is."""
    return tmp_path / "run.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[Journal]:
    """An empty journal, open."""
    async with Journal.open(path) as opened:
        yield opened
