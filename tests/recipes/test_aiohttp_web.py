"""The recipe for aiohttp.web, by its own test client."""

import asyncio
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS, RECIPES

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def served(emulator: Emulator, folder: Path) -> AsyncIterator[TestClient[Any, Any]]:
    """Return a block with a client of the service, whose requests are those of one user, with one Idempotency-Key."""
    names = runpy.run_path(str(RECIPES / "aiohttp_web.py"))
    async with (
        emulator.session(project_id="docs") as session,
        Journal.open(folder / "jobs.db") as journal,
        DurableJobs(session, journal) as jobs,
        TestClient(
            TestServer(names["application"](jobs)), headers={"X-User": "anna", "Idempotency-Key": "1"}
        ) as client,
    ):
        yield client


async def test_wait_without_an_end(tmp_path: Path) -> None:
    """A wait ends after 25 s, with a 202 and the state; the next one takes up where it ended."""
    async with Emulator(script=ENDLESS) as emulator, served(emulator, tmp_path) as client:
        await client.post("/jobs", data="Go on")
        begun = asyncio.get_running_loop().time()
        waited = await client.get("/jobs/1")
        document = await waited.json()
        assert asyncio.get_running_loop().time() - begun == pytest.approx(25, abs=1)
    assert (waited.status, waited.headers["Retry-After"]) == (202, "5")
    assert (document["error"], document["job"]["status"]) == ("not_ended", "active")


async def test_slow_body(tmp_path: Path) -> None:
    """Half a body is given up after 25 s: it must not hold up a shutdown."""

    async def half() -> AsyncIterator[bytes]:
        yield b"Go"
        await asyncio.Future()

    async with Emulator() as emulator, served(emulator, tmp_path) as client:
        begun = asyncio.get_running_loop().time()
        assert (await client.post("/jobs", data=half())).status == 408
        assert asyncio.get_running_loop().time() - begun == pytest.approx(25, abs=1)
    assert not emulator.agents_started


async def test_create_that_is_held_back(tmp_path: Path) -> None:
    """While the service asks to wait or refuses the API key, requests are answered at once; repeats start nothing."""
    async with Emulator() as emulator, served(emulator, tmp_path) as client:
        await emulator.inject("429 retry-after=30 on=create then 401 on=create", prompt="Go on")
        begun = asyncio.get_running_loop().time()
        for _ in range(2):
            planned = await client.post("/jobs", data="Go on")
            assert (planned.status, (await planned.json())["state"] in {"planned", "sending"}) == (202, True)
        assert asyncio.get_running_loop().time() - begun < 1
        waited = await client.get("/jobs/1")
        document = await waited.json()
        assert (waited.status, document["message"]) == (
            *(202, "The job waits, and is sent as soon as that is possible. Ask again later."),
        )
        health = await (await client.get("/healthz")).json()
        assert (health["planned"], health["held"], health["paused_by"]) == (1, 1, "RateLimitedError")
        await asyncio.sleep(120)  # of simulated time: the create is tried again
        ended = await client.get("/jobs/1")
        assert (ended.status, (await ended.json())["state"]) == (200, "completed")
    assert emulator.agents_started == {"Go on": 1}


async def test_job_that_was_given_up(tmp_path: Path) -> None:
    """What was lost is told as unknown, and as given up once an operator has done so; repeats start nothing."""
    async with Emulator() as emulator:
        await emulator.inject("500 agent=yes on=create")
        for state in ("unknown", "abandoned"):
            async with served(emulator, tmp_path) as client:
                assert (await client.post("/jobs", data="Go on")).status == 202
                waited = await client.get("/jobs/1")
                assert (waited.status, (await waited.json())["state"]) == (200, state)
            async with Journal.open(tmp_path / "jobs.db") as journal:
                async for row in journal.rows("unknown"):
                    await journal.abandon(row.key)
        assert emulator.agents_started == {"Go on": 1}
