"""Databases with a journal and a queue, and workers that find out about everything quickly."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentjobs_async.batch import Journal
from agentjobs_async.engines.procrastinate import defer
from tests.engines.process import NEVER, impatient, unhurried
from tests.postgresql import Server


@pytest.fixture(scope="session")
def queue_template(postgresql: Server) -> Iterator[str]:
    """The name of a database with the tables of a journal and of a queue."""

    async def lay_out(url: str) -> None:
        async with Journal.open(url) as journal:
            await defer([], journal=journal)

    with postgresql.database() as url:
        with ThreadPoolExecutor(1) as thread:  # a loop here would take the place of the test's own
            thread.submit(asyncio.run, lay_out(url)).result()
        yield url.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def database(postgresql: Server, queue_template: str) -> Iterator[str]:
    """The URL of a database with an empty journal and an empty queue."""
    with postgresql.database(queue_template) as url:
        yield url


@pytest.fixture
def empty_database(postgresql: Server) -> Iterator[str]:
    """The URL of a database without a table."""
    with postgresql.database() as url:
        yield url


@pytest.fixture
async def journal(database: str) -> AsyncIterator[Journal]:
    async with Journal.open(database, owner_timeout=NEVER) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with impatient():
        yield


@pytest.fixture
def _unhurried() -> Iterator[None]:
    with unhurried():
        yield
