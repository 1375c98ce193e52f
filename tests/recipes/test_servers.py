"""The web recipes on their real servers: many listeners, clients that leave, the end by SIGTERM, and a new start."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector

from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS, SERVERS, Process, code_at_sigterm, serving, until

pytestmark = pytest.mark.slow

JSON_BODIES = {"fastapi_app", "litestar_app"}
LISTENERS = 100
"""Of each kind: waits and streams."""

each_server = pytest.mark.parametrize("recipe", SERVERS)


class Visitor:
    """A client of a web recipe; each request has an id of its own."""

    def __init__(self, recipe: str, client: ClientSession) -> None:
        self._recipe = recipe
        self._client = client

    async def create(self, prompt: str, request_id: str) -> str:
        """Create a job, and return its token."""
        body = {"json": {"prompt": prompt}} if self._recipe in JSON_BODIES else {"data": prompt}
        async with self._client.post("/jobs", headers={"X-Request-ID": request_id}, **body) as response:
            assert response.status == 202, await response.text()
            return str((await response.json())["token"])

    async def wait(self, token: str, request_id: str) -> tuple[int, dict[str, str]]:
        """Wait for the job, and return the answer's status and document."""
        async with self._client.get(f"/jobs/{token}", headers={"X-Request-ID": request_id}) as response:
            return response.status, await response.json()

    @asynccontextmanager
    async def stream(self, token: str, request_id: str) -> AsyncIterator[ClientResponse]:
        """Return a block with the response of a stream whose first event has come."""
        async with self._client.get(f"/jobs/{token}/events", headers={"X-Request-ID": request_id}) as response:
            assert (await response.content.readline()).startswith(b"id: ")
            yield response

    async def rest(self, token: str, request_id: str) -> bytes:
        """Read a stream to its end; return what came after the first line."""
        async with self.stream(token, request_id) as response:
            return await response.content.read()


@asynccontextmanager
async def visited(recipe: str, emulator: Emulator) -> AsyncIterator[tuple[Process, Visitor]]:
    async with serving(recipe, emulator.environment()) as process:
        async with ClientSession(process.address, connector=TCPConnector(limit=0)) as client:
            yield process, Visitor(recipe, client)


def request_ids(output: str, event: str) -> list[str]:
    """Return the ids of the requests in which an event was logged."""
    return re.findall(rf"request (\S+): {event}\(", output)


@each_server
async def test_shutdown_and_restart(recipe: str) -> None:
    """Listeners share one series of polls; SIGTERM ends them, but no create; tokens outlive the process."""
    async with Emulator() as emulator:
        emulator.script(ENDLESS, prompt="Go on")
        async with visited(recipe, emulator) as (process, visitor):
            token = await visitor.create("Go on", "first")
            streams = [asyncio.create_task(visitor.rest(token, f"s{n}")) for n in range(LISTENERS)]
            await process.read_until("WaitStarted", times=LISTENERS)
            # Last, as a wait ends by itself after 25 s.
            waits = [asyncio.create_task(visitor.wait(token, f"w{n}")) for n in range(LISTENERS)]
            await process.read_until("WaitStarted", times=2 * LISTENERS)
            polls = sum(request.method == "GET" for request in emulator.requests)
            await emulator.inject("hang for=0.5 agent=yes on=create x3")
            creates = [asyncio.create_task(visitor.create(f"Create {n}", f"c{n}")) for n in range(3)]
            await until(lambda: emulator.agents_started.total() == 4)
            process.interrupt(signal.SIGTERM)
            assert await process.end() == code_at_sigterm(recipe)
            answers, frames, tokens = [await asyncio.gather(*calls) for calls in (waits, streams, creates)]
        assert polls < LISTENERS / 4  # one every 3 s, however long the listeners take to come
        assert {(status, answer["error"]) for status, answer in answers} == {(503, "restarting")}
        assert all(b"event: job_error\n" in text for text in frames)
        assert "Traceback" not in process.output
        started = request_ids(process.output, "WaitStarted")
        assert sorted(started) == sorted([f"{kind}{n}" for kind in "ws" for n in range(LISTENERS)])
        assert sorted(request_ids(process.output, "JobCreated")) == ["c0", "c1", "c2", "first"]
        assert set(request_ids(process.output, "JobPolled")) == {"-"}
        async with visited(recipe, emulator) as (process, visitor):
            assert [(await visitor.wait(token, "again"))[1]["status"] for token in tokens] == ["completed"] * 3


@each_server
async def test_clients_leave(recipe: str) -> None:
    """A client that leaves ends its stream, and orphans no agent: the job of its create is in the log."""
    async with Emulator(script=ENDLESS) as emulator, visited(recipe, emulator) as (process, visitor):
        token = await visitor.create("Go on", "first")
        async with visitor.stream(token, "stream"):
            pass
        await process.read_until(r"request stream: WaitEnded\(")
        waiting = asyncio.create_task(visitor.wait(token, "wait"))
        await process.read_until(r"request wait: WaitStarted\(")
        await emulator.inject("hang for=0.2 agent=yes on=create")
        creating = asyncio.create_task(visitor.create("Orphan", "create"))
        await until(lambda: emulator.agents_started["Orphan"])
        for task in (waiting, creating):
            task.cancel()
        await asyncio.wait([waiting, creating])
        await process.read_until(r"request create: JobCreated\(")
        process.interrupt(signal.SIGTERM)
        assert await process.end() == code_at_sigterm(recipe)
    assert emulator.agents_started == {"Go on": 1, "Orphan": 1}
    assert "Traceback" not in process.output
