"""The recipe for aiohttp.web, by its own test client."""

from collections.abc import Callable
from types import ModuleType

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import RECIPES, SERVERS


async def test_service(load: Callable[[str], ModuleType], emulator: Emulator) -> None:
    """It creates, awaits and streams jobs, and answers each error by a status."""
    async with TestClient(TestServer(load("aiohttp_web").app)) as client:
        created = await client.post("/jobs", data="Go")
        assert created.status == 202
        path = f"/jobs/{(await created.json())['token']}"
        waited = await client.get(path)
        assert (waited.status, (await waited.json())["status"]) == (200, "completed")
        streamed = await client.get(f"{path}/events")
        assert streamed.content_type == "text/event-stream"
        assert "event: job_end\n" in await streamed.text()
        assert (await client.get("/jobs/not.a.token")).status == 400
        assert (await client.post("/jobs", data="")).status == 400
        emulator.call(emulator.inject("429 retry-after=3600 on=create"))
        refused = await client.post("/jobs", data="Try")
        assert (refused.status, refused.headers["Retry-After"]) == (429, "3600")


@pytest.mark.looptime
async def test_wait_without_an_end(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends after 25 s, with a 202 and the state."""
    async with Emulator(script=JobScript(duration=float("inf"))) as emulator:
        for name, value in emulator.environment().items():
            monkeypatch.setenv(name, value)
        async with TestClient(TestServer(load("aiohttp_web").app)) as client:
            token = (await (await client.post("/jobs", data="Go on")).json())["token"]
            waited = await client.get(f"/jobs/{token}")
            document = await waited.json()
    assert (waited.status, document["error"], document["job"]["status"]) == (202, "not_ended", "active")
    assert emulator.requests[-1].at - emulator.requests[0].at == pytest.approx(25, abs=1)


@pytest.mark.parametrize("recipe", SERVERS)
def test_same_wait_everywhere(recipe: str) -> None:
    """All services wait as long."""
    assert "timeout=25)" in (RECIPES / f"{recipe}.py").read_text(encoding="utf-8")
