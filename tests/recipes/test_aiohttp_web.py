"""The recipe for aiohttp.web, by its own test client."""

from collections.abc import Callable
from types import ModuleType

from aiohttp.test_utils import TestClient, TestServer

from agentjobs_async.testing import Emulator


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
