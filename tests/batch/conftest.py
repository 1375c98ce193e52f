from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.batch import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file's journal is."""
    return tmp_path / "run.db"


@pytest.fixture(params=["file", "postgresql"])
def place(request: pytest.FixtureRequest) -> str:
    """Where a journal is: a file, and a database."""
    if request.param == "file":
        return str(request.getfixturevalue("path"))
    return str(request.getfixturevalue("database"))


@pytest.fixture
async def journal(place: str) -> AsyncIterator[Journal]:
    """An empty journal, open: in a file, and on PostgreSQL."""
    async with Journal.open(place) as opened:
        yield opened


@pytest.fixture
async def file_journal(path: Path) -> AsyncIterator[Journal]:
    """An empty journal in a file, open."""
    async with Journal.open(path) as opened:
        yield opened
