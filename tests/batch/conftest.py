import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async.batch import Journal
from agentjobs_async.batch._database.connections import Connector

QUICK_ITERATIONS = 20
"""In which a thread has read or written, if the disk is quick."""


@pytest.fixture(autouse=True)
def _time_waits_for_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep virtual time from running on to the next timer while a thread or a server reads or writes."""
    if request.node.get_closest_marker("looptime") is None:
        return
    real = Connector.run

    async def run(self: Connector, work: Callable[[], Coroutine[Any, Any, Any]], *rest: Any, **settings: Any) -> Any:
        return await real(self, lambda: _awake(work), *rest, **settings)

    monkeypatch.setattr(Connector, "run", run)


async def _awake(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    working = asyncio.ensure_future(work())
    iterations = 0
    try:
        while not working.done():  # the loop must not be idle, or time would run on
            await asyncio.sleep(0)
            iterations += 1
            if iterations > QUICK_ITERATIONS:
                time.sleep(0.0005)  # noqa: ASYNC251 - real time, which the disk needs, and not the processor
    finally:
        working.cancel()
    return working.result()


@pytest.fixture(params=["file", pytest.param("postgresql", marks=pytest.mark.slow)])
def location(request: pytest.FixtureRequest) -> str:
    """Where a journal is: a file, and a database."""
    return str(request.getfixturevalue("path" if request.param == "file" else "laid_out"))


@pytest.fixture
async def journal(location: str) -> AsyncIterator[Journal]:
    """An empty journal, open: in a file, and on PostgreSQL."""
    async with Journal.open(location) as opened:
        yield opened


@pytest.fixture
async def file_journal(path: Path) -> AsyncIterator[Journal]:
    """An empty journal in a file, open."""
    async with Journal.open(path) as opened:
        yield opened


@pytest.fixture
async def virtual_journal(path: Path) -> AsyncIterator[Journal]:
    """An empty journal in a file, open, whose clock is the loop's."""
    async with Journal.open(path, clock=asyncio.get_running_loop().time) as opened:
        yield opened
