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
from agentjobs_async.testing import Emulator
from tests.extras import need_recipes
from tests.recipes.processes import ENDLESS, RECIPES, SETTINGS

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def served(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> AsyncIterator[TestClient[Any, Any]]:
    """Return a block with a client of the service, whose requests are those of one user, with one Idempotency-Key."""
    need_recipes()
    settings = {**SETTINGS, **emulator.environment(), "JOURNAL": str(folder / "jobs.db")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(RECIPES)
    app = runpy.run_path(str(RECIPES / "aiohttp_web.py"))["app"]
    async with TestClient(TestServer(app), headers={"X-User": "anna", "Idempotency-Key": "1"}) as client:
        yield client


async def test_wait_without_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wait ends after 25 s, with a 202 and the state."""
    async with Emulator(script=ENDLESS) as emulator, served(emulator, monkeypatch, tmp_path) as client:
        token = (await (await client.post("/jobs", data="Go on")).json())["token"]
        waited = await client.get(f"/jobs/{token}")
        document = await waited.json()
        assert emulator.requests[-1].at - emulator.requests[0].at == pytest.approx(25, abs=1)
    assert (waited.status, document["error"], document["job"]["status"]) == (202, "not_ended", "active")


async def test_slow_body(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half a body is given up after 25 s: it must not hold up a shutdown."""

    async def half() -> AsyncIterator[bytes]:
        yield b"Go"
        await asyncio.Future()

    async with Emulator() as emulator, served(emulator, monkeypatch, tmp_path) as client:
        begun = asyncio.get_running_loop().time()
        assert (await client.post("/jobs", data=half())).status == 408
        assert asyncio.get_running_loop().time() - begun == pytest.approx(25, abs=1)
    assert not emulator.agents_started


async def test_create_that_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A request is answered while the service asks to wait or refuses the API key; repeats start nothing."""
    async with Emulator() as emulator, served(emulator, monkeypatch, tmp_path) as client:
        await emulator.inject("429 retry-after=30 on=create then 401 on=create", prompt="Go on")
        begun = asyncio.get_running_loop().time()
        documents = [await (await client.post("/jobs", data="Go on")).json() for _ in range(2)]
        assert asyncio.get_running_loop().time() - begun == pytest.approx(30, abs=1)
        assert [document["error"] for document in documents] == ["not_started"] * 2
        await asyncio.sleep(120)  # of simulated time: the create is tried again
        assert "token" in await (await client.post("/jobs", data="Go on")).json()
    assert emulator.agents_started == {"Go on": 1}


async def test_create_that_was_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an operator gave up may have started an agent: a repeat says that, and starts nothing."""
    async with Emulator() as emulator:
        await emulator.inject("500 agent=yes on=create")
        for _ in range(2):
            async with served(emulator, monkeypatch, tmp_path) as client:
                answer = await client.post("/jobs", data="Go on")
                assert (answer.status, (await answer.json())["outcome"]) == (502, "unknown")
            async with Journal.open(tmp_path / "jobs.db") as journal:
                async for row in journal.rows("unknown"):
                    await journal.abandon(row.key)
        assert emulator.agents_started == {"Go on": 1}
