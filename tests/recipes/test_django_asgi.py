"""The recipe for Django, by its own test client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from django.test import AsyncClient  # type: ignore[import-untyped]  # Django has no types

from agentjobs_async.testing import Emulator


class Client(AsyncClient):  # type: ignore[misc]  # Django has no types
    """A test client whose requests have the state of the lifespan."""

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.state = state

    def _base_scope(self, **request: Any) -> dict[str, Any]:
        return {**super()._base_scope(**request), "state": self.state}


@asynccontextmanager
async def lifespan(application: Callable[..., Any]) -> AsyncIterator[dict[str, Any]]:
    """Run the lifespan of an ASGI application, as a server does; return its state."""
    state: dict[str, Any] = {}
    received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    task = asyncio.create_task(application({"type": "lifespan", "state": state}, received.get, sent.put))
    received.put_nowait({"type": "lifespan.startup"})
    assert await sent.get() == {"type": "lifespan.startup.complete"}
    yield state
    received.put_nowait({"type": "lifespan.shutdown"})
    assert await sent.get() == {"type": "lifespan.shutdown.complete"}
    await task


async def test_service(load: Callable[[str], ModuleType], emulator: Emulator) -> None:
    """It creates, awaits and streams jobs, and answers each error by a status."""
    async with lifespan(load("django_asgi").application) as state:
        client = Client(state)
        created = await client.post("/jobs", "Go", content_type="text/plain")
        assert created.status_code == 202
        path = f"/jobs/{created.json()['token']}"
        waited = await client.get(path)
        assert (waited.status_code, waited.json()["status"]) == (200, "completed")
        streamed = await client.get(f"{path}/events")
        assert streamed["Content-Type"] == "text/event-stream"
        assert b"event: job_end\n" in b"".join([frame async for frame in streamed])
        assert (await client.get("/jobs/not.a.token")).status_code == 400
        assert (await client.post("/jobs", "", content_type="text/plain")).status_code == 400
        emulator.call(emulator.inject("429 retry-after=3600 on=create"))
        refused = await client.post("/jobs", "Try", content_type="text/plain")
        assert (refused.status_code, refused["Retry-After"]) == (429, "3600")
