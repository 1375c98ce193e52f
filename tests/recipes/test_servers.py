"""The web recipes on their real servers: what they answer, clients that leave, SIGTERM, and a new start."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import APPLICATIONS, ENDLESS, RECIPES, Process, Program, program
from tests.until import until

pytestmark = pytest.mark.slow

SERVERS = ("aiohttp_web", *APPLICATIONS)
JSON_BODIES = {"fastapi_app": 422, "litestar_app": 400}
"""The recipes that take JSON, and what their frameworks answer to what is none."""
TERMINATED = {"aiohttp_web": 0}
"""The exit codes at SIGTERM other than that of the signal itself, which uvicorn raises again."""
LISTENERS = 100
"""Of each kind: waits and streams."""
GARBAGE = "/jobs/not.a.token"


class Visitor:
    """A client of a web recipe; each request has an id of its own."""

    def __init__(self, recipe: str, client: ClientSession) -> None:
        self._recipe = recipe
        self._client = client

    async def post(self, prompt: str, request_id: str = "-") -> tuple[ClientResponse, Any]:
        """Ask for a job, and return the response with its document."""
        body = {"json": {"prompt": prompt}} if self._recipe in JSON_BODIES else {"data": prompt}
        async with self._client.post("/jobs", headers={"X-Request-ID": request_id}, **body) as response:
            return response, await response.json()

    async def create(self, prompt: str, request_id: str = "-") -> str:
        """Create a job, and return its token."""
        response, document = await self.post(prompt, request_id)
        assert response.status == 202, document
        return str(document["token"])

    async def wait(self, token: str, request_id: str = "-") -> tuple[int, dict[str, str]]:
        """Wait for the job, and return the answer's status and document."""
        async with self._client.get(f"/jobs/{token}", headers={"X-Request-ID": request_id}) as response:
            return response.status, await response.json()

    @asynccontextmanager
    async def stream(self, token: str, request_id: str) -> AsyncIterator[ClientResponse]:
        """Return a block with the response of a stream whose first event has come."""
        async with self._client.get(f"/jobs/{token}/events", headers={"X-Request-ID": request_id}) as response:
            assert response.content_type == "text/event-stream"
            assert (await response.content.readline()).startswith(b"id: ")
            yield response

    async def rest(self, token: str, request_id: str = "-") -> bytes:
        """Read a stream to its end; return what came after the first line."""
        async with self.stream(token, request_id) as response:
            return await response.content.read()

    async def status(self, method: str, path: str, **options: Any) -> int:
        """Return the status of the answer to any request."""
        async with self._client.request(method, path, **options) as response:
            return response.status


@asynccontextmanager
async def visited(recipe: str, served: Program) -> AsyncIterator[tuple[Process, Visitor]]:
    async with served.serving() as process:
        async with ClientSession(process.address, connector=TCPConnector(limit=0)) as client:
            yield process, Visitor(recipe, client)


@pytest.mark.parametrize("recipe", SERVERS)
async def test_service(recipe: str) -> None:
    """It answers as its page says, loses no job of a client that leaves, and ends at SIGTERM; tokens outlive it."""
    async with Emulator(script=JobScript(duration=0)) as emulator:
        # An id that a token must carry through every framework's routes.
        emulator.script(JobScript(duration=0, job_id="a/b/../%2F?#é job"), prompt="Go")
        for prompt in ("Go on", "Leave", "Orphan"):
            emulator.script(ENDLESS, prompt=prompt)
        async with program(recipe, emulator.environment()) as served:
            async with visited(recipe, served) as (process, visitor):
                await check_answers(recipe, visitor, emulator)
                await check_clients_that_leave(process, visitor, emulator)
                tokens = await check_shutdown(process, visitor, emulator)
                assert await process.end() == TERMINATED.get(recipe, -signal.SIGTERM)
            assert "Traceback" not in process.output
            async with visited(recipe, served) as (_, visitor):
                assert [(await visitor.wait(token))[1]["status"] for token in tokens] == ["completed"] * 3
    assert set(emulator.agents_started.values()) == {1}


async def check_answers(recipe: str, visitor: Visitor, emulator: Emulator) -> None:
    """It creates, awaits and streams jobs, and answers each error by a status."""
    token = await visitor.create("Go")
    status, document = await visitor.wait(token)
    assert (status, document["status"]) == (200, "completed")
    assert b"event: job_end\n" in await visitor.rest(token)
    assert [await visitor.status("GET", path) for path in (GARBAGE, f"{GARBAGE}/events")] == [400, 400]
    assert (await visitor.post(" "))[0].status == 400
    if recipe in JSON_BODIES:
        assert await visitor.status("POST", "/jobs", data=b"{") == JSON_BODIES[recipe]
    await emulator.inject("429 retry-after=3600 on=create then 500 on=create then 401 on=create", prompt="Try")
    refused, unknown, denied = [await visitor.post("Try") for _ in range(3)]
    assert (refused[0].status, refused[0].headers["Retry-After"]) == (429, "3600")
    assert (unknown[0].status, unknown[1]["outcome"]) == (502, "unknown")
    assert (denied[0].status, denied[1]["error"]) == (502, "service_refused")


async def check_clients_that_leave(process: Process, visitor: Visitor, emulator: Emulator) -> None:
    """A client that leaves ends its stream, and orphans no agent: the job of its create is in the log."""
    token = await visitor.create("Leave")
    async with visitor.stream(token, "left-stream"):
        pass
    await process.read_until(r"request left-stream: WaitEnded\(")
    waiting = asyncio.create_task(visitor.wait(token, "left-wait"))
    await process.read_until(r"request left-wait: WaitStarted\(")
    await emulator.inject("hang for=0.2 agent=yes on=create", prompt="Orphan")
    creating = asyncio.create_task(visitor.create("Orphan", "left-create"))
    await until(lambda: emulator.agents_started["Orphan"])
    for task in (waiting, creating):
        task.cancel()
    await asyncio.wait([waiting, creating])
    await process.read_until(r"request left-create: JobCreated\(")


async def check_shutdown(process: Process, visitor: Visitor, emulator: Emulator) -> list[str]:
    """Listeners share one series of polls; SIGTERM ends them, but no create, whose tokens are returned."""
    token = await visitor.create("Go on", "first")
    before = len(emulator.requests)
    streams = [asyncio.create_task(visitor.rest(token, f"s{n}")) for n in range(LISTENERS)]
    await process.read_until(r"request s\d+: WaitStarted", times=LISTENERS)
    # Last, as a wait ends by itself after 25 s.
    waits = [asyncio.create_task(visitor.wait(token, f"w{n}")) for n in range(LISTENERS)]
    await process.read_until(r"request w\d+: WaitStarted", times=LISTENERS)
    polls = len(emulator.requests) - before
    await emulator.inject("hang for=0.5 agent=yes on=create x3")
    creates = [asyncio.create_task(visitor.create(f"Create {n}", f"c{n}")) for n in range(3)]
    await until(lambda: sum(emulator.agents_started[f"Create {n}"] for n in range(3)) == 3)
    process.interrupt(signal.SIGTERM)
    await process.end()
    answers, frames, tokens = [await asyncio.gather(*calls) for calls in (waits, streams, creates)]
    assert polls < LISTENERS  # one every 3 s, while the listeners come; polls of their own would be twice as many
    assert {(status, answer["error"]) for status, answer in answers} == {(503, "restarting")}
    assert all(b"event: job_error\n" in text for text in frames)
    assert sorted(request_ids(process.output, "JobCreated", r"c\d|first")) == ["c0", "c1", "c2", "first"]
    assert set(request_ids(process.output, "JobPolled", r"\S+")) == {"-"}
    return tokens


def request_ids(output: str, event: str, ids: str) -> list[str]:
    """Return the ids of the requests in which an event was logged."""
    return re.findall(rf"request ({ids}): {event}\(", output)


def test_same_wait_everywhere() -> None:
    """All services wait as long."""
    texts = {recipe: (RECIPES / f"{recipe}.py").read_text(encoding="utf-8") for recipe in SERVERS}
    assert [recipe for recipe, text in texts.items() if "timeout=25)" not in text] == []
