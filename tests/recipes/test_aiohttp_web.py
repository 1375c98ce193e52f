"""The recipe for aiohttp.web, by its own test client."""

import runpy

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS, RECIPES, SETTINGS


@pytest.mark.looptime
async def test_wait_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends after 25 s, with a 202 and the state."""
    async with Emulator(script=ENDLESS) as emulator:
        for name, value in {**SETTINGS, **emulator.environment()}.items():
            monkeypatch.setenv(name, value)
        app = runpy.run_path(str(RECIPES / "aiohttp_web.py"))["app"]
        async with TestClient(TestServer(app)) as client:
            token = (await (await client.post("/jobs", data="Go on")).json())["token"]
            waited = await client.get(f"/jobs/{token}")
            document = await waited.json()
    assert (waited.status, document["error"], document["job"]["status"]) == (202, "not_ended", "active")
    assert emulator.requests[-1].at - emulator.requests[0].at == pytest.approx(25, abs=1)
