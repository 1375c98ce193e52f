"""The web recipes on their real servers: what they answer, nasty users, clients that leave, SIGTERM, a new start."""

import asyncio
import json
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse, ClientSession, TCPConnector

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import (
    APPLICATIONS,
    ENDLESS,
    LONG,
    Process,
    Program,
    complete,
    connect,
    half_a_body,
    program,
)
from tests.until import until

pytestmark = pytest.mark.slow

SERVERS = ("aiohttp_web", *APPLICATIONS)
JSON_BODIES = {"fastapi_app"}
"""The recipes that take JSON; the others take the prompt as it is."""
NO_PROMPTS = (b"{", b"[]", b'{"prompt": null}', b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"[" * 60_000)
NO_KEY = {"fastapi_app": 422}
"""What a missing or unfit Idempotency-Key is answered by, where a framework does so itself."""
TERMINATED = {"aiohttp_web": 0}
"""The exit codes at SIGTERM other than that of the signal itself, which uvicorn raises again."""
LISTENERS = 100
"""Of each kind: waits and streams."""
MOST_OPEN = 20
"""Jobs of one user."""
UNKNOWN_PATHS = ("/jobs/unknown", "/jobs/unknown/events", "/jobs/%ff", "/jobs/%00", "/jobs/a%2Fb/events", "/", "/nope")
TOO_LARGE = 30_000_000
"""Bytes of a body."""


class User:
    """A user of a web recipe; each request has an id of its own."""

    def __init__(self, recipe: str, client: ClientSession, name: str = "anna") -> None:
        self._recipe = recipe
        self._client = client
        self._headers = {"X-User": name}

    def named(self, name: str) -> "User":
        """Return another user of the same service."""
        return User(self._recipe, self._client, name)

    async def post(self, prompt: str, key: str, request_id: str = "-") -> tuple[ClientResponse, Any]:
        """Ask for a job under a key; return the response with its document."""
        body = {"json": {"prompt": prompt}} if self._recipe in JSON_BODIES else {"data": prompt.encode()}
        headers = {**self._headers, "Idempotency-Key": key, "X-Request-ID": request_id}
        async with self._client.post("/jobs", headers=headers, **body) as response:
            return response, await response.json()

    async def create(self, prompt: str, key: str | None = None) -> str:
        """Submit a job, and return its key."""
        key = key or uuid.uuid4().hex
        response, document = await self.post(prompt, key)
        assert (response.status, document.get("key")) == (202, key), document
        return key

    async def wait(self, key: str) -> tuple[int, dict[str, Any]]:
        """Wait for the job, and return the answer's status and document."""
        async with self._client.get(f"/jobs/{key}", headers=self._headers) as response:
            return response.status, await response.json()

    async def end(self, key: str) -> dict[str, Any]:
        """Return what is told of a job that has ended, or may have been started."""
        status, document = await self.wait(key)
        assert status == 200, document
        return document

    async def keys(self) -> list[str]:
        """Return the keys of the last jobs."""
        async with self._client.get("/jobs", headers=self._headers) as response:
            return [document["key"] for document in await response.json()]

    @asynccontextmanager
    async def stream(self, key: str) -> AsyncIterator[ClientResponse]:
        """Return a block with the response of a stream whose first event has come."""
        async with self._client.get(f"/jobs/{key}/events", headers=self._headers) as response:
            assert response.content_type == "text/event-stream"
            assert (await response.content.readline()).startswith(b"id: ")
            yield response

    async def rest(self, key: str, begun: asyncio.Semaphore | None = None) -> bytes:
        """Read a stream to its end; return what came after the first line."""
        async with self.stream(key) as response:
            if begun is not None:
                begun.release()
            return await response.content.read()

    async def health(self) -> dict[str, Any]:
        """Return what the process says of itself."""
        async with self._client.get("/healthz") as response:
            found: dict[str, Any] = await response.json()
            return found

    async def status(self, method: str, path: str, **options: Any) -> int:
        """Return the status of the answer to any request, whose text is short."""
        headers = self._headers | options.pop("headers", {})
        async with self._client.request(method, path, headers=headers, **options) as response:
            assert len(await response.read()) < 500
            return response.status


@asynccontextmanager
async def used(recipe: str, served: Program) -> AsyncIterator[tuple[Process, User]]:
    """Return a block with a process of the recipe, and a user."""
    async with served.serving() as process:
        async with ClientSession(process.address, connector=TCPConnector(limit=0)) as client:
            yield process, User(recipe, client)


@pytest.mark.parametrize("recipe", SERVERS)
async def test_service(recipe: str, tmp_path: Path) -> None:
    """It answers as its page says, loses no job of a client that leaves, and ends at SIGTERM; a new start continues.

    Nothing that a client does is a traceback in its log.
    """
    async with Emulator(script=JobScript(duration=0)) as emulator:
        emulator.script(JobScript(duration=0, job_id="a/b/../%2F?#é job"), prompt="Go")
        for prompt in ("Go on", "Leave", *(f"Job {number}" for number in range(MOST_OPEN + 1))):
            emulator.script(ENDLESS, prompt=prompt)
        async with program(recipe, {**emulator.environment(), "JOURNAL": str(tmp_path / "jobs.db")}) as served:
            async with used(recipe, served) as (process, user):
                await check_answers(recipe, user, emulator)
                await check_nasty_users(recipe, user, process, emulator)
                await check_clients_that_leave(user, process)
                keys = await check_shutdown(process, user, emulator)
                assert await process.end() == TERMINATED.get(recipe, -signal.SIGTERM)
            assert "Traceback" not in process.output
            async with used(recipe, served) as (_, user):
                assert [(await user.end(key))["state"] for key in keys] == ["completed"] * 3
                assert await user.create("Create 0", keys[0]) == keys[0]
    assert set(emulator.agents_started.values()) == {1}


@pytest.mark.parametrize("recipe", SERVERS)
async def test_signal_at_the_start(recipe: str, tmp_path: Path) -> None:
    """Two SIGTERMs while it starts end it without a word, and cut no create of what was planned before."""
    async with Emulator(script=ENDLESS) as emulator:
        async with program(recipe, {**emulator.environment(), "JOURNAL": str(tmp_path / "jobs.db")}) as served:
            await emulator.inject("401 on=create")
            async with used(recipe, served) as (process, user):
                for number in range(5):
                    await user.create(f"Held {number}", str(number))
                    await until(lambda: emulator.requests)
                await process.stop(code=TERMINATED.get(recipe, -signal.SIGTERM))
            async with served.running() as process:
                await until((tmp_path / "jobs.db-wal").exists)
                await process.stop(code=TERMINATED.get(recipe, -signal.SIGTERM))
            await complete(emulator)
            async with used(recipe, served) as (_, user):
                for number in range(5):
                    assert (await user.end(str(number)))["state"] == "completed"
    assert set(emulator.agents_started.values()) == {1}


@pytest.mark.parametrize("recipe", SERVERS)
async def test_kill(recipe: str, tmp_path: Path) -> None:
    """After a kill, each job is completed or told as unknown, whoever repeats its request; none is started twice."""
    async with Emulator(script=ENDLESS) as emulator:
        async with program(recipe, {**emulator.environment(), "JOURNAL": str(tmp_path / "jobs.db")}) as served:
            async with used(recipe, served) as (process, user):
                await user.create("Known", "known")
                await until(lambda: emulator.agents_started["Known"])
                await emulator.inject("hang agent=yes on=create", prompt="Lost")
                await user.create("Lost", "lost")
                await until(lambda: emulator.agents_started["Lost"])
                for number in range(5):
                    await user.create(f"Just now {number}", f"now-{number}")
                process.interrupt(signal.SIGKILL)
            await complete(emulator)
            async with used(recipe, served) as (_, user):
                assert (await user.end(await user.create("Known", "known")))["state"] == "completed"
                assert (await user.end(await user.create("Lost", "lost")))["state"] == "unknown"
                for number in range(5):
                    state = (await user.end(await user.create(f"Just now {number}", f"now-{number}")))["state"]
                    assert state in {"completed", "unknown"}
                    assert emulator.agents_started[f"Just now {number}"] == 1 or state == "unknown"
    assert (emulator.agents_started["Known"], emulator.agents_started["Lost"]) == (1, 1)
    assert max(emulator.agents_started.values()) == 1


async def check_answers(recipe: str, user: User, emulator: Emulator) -> None:
    """It plans, awaits, streams and lists jobs, and answers each error by a status."""
    key = await user.create("Go")
    ended = await user.end(key)
    assert (ended["key"], ended["state"], ended["job"]["id"]) == (key, "completed", "a/b/../%2F?#é job")
    assert b"event: job_end\n" in await user.rest(key)
    assert await user.keys() == [key]
    assert await user.named("ben").keys() == []
    assert (await user.post(" ", "blank"))[0].status == 400
    for body in NO_PROMPTS if recipe in JSON_BODIES else (b"", b"\xff", b"\xed\xa0\x80"):
        headers = {"Idempotency-Key": "x", "Content-Type": "application/json"}
        assert await user.status("POST", "/jobs", data=body, headers=headers) in {400, 422}, body[:99]
    for unfit in ({}, {"Idempotency-Key": "a/b"}, {"Idempotency-Key": "k" * 101}, {"Idempotency-Key": ".."}):
        assert await user.status("POST", "/jobs", json={"prompt": "x"}, headers=unfit) == NO_KEY.get(recipe, 400)
    for path in ("/jobs", f"/jobs/{key}", f"/jobs/{key}/events"):
        assert await user.status("GET", path, headers={"X-User": ""}) == 401
    assert await user.status("POST", "/jobs", headers={"X-User": "", "Idempotency-Key": "x"}) in {401, 422}
    assert [await user.status("GET", path) for path in UNKNOWN_PATHS] == [404] * len(UNKNOWN_PATHS)
    await emulator.inject("500 on=create", prompt="Perhaps")
    for _ in range(2):
        told = await user.end(await user.create("Perhaps", "perhaps"))
        assert (told["state"], told["message"].split(".")[0]) == ("unknown", "The job may have been started")

    async def is_counted() -> bool:
        return bool((await user.health())["unknown"] == 1)

    await until(is_counted)
    health = await user.health()
    assert (health["planned"], health["held"], health["paused_by"]) == (0, 0, None)
    await emulator.inject("422 on=create", prompt="Never")
    for _ in range(2):
        assert (await user.end(await user.create("Never", "never")))["state"] == "rejected"


async def check_nasty_users(recipe: str, user: User, process: Process, emulator: Emulator) -> None:
    """No user gets another's job, a second agent, too many jobs, or too large a body through."""
    await asyncio.gather(*(user.create(LONG, "1") for _ in range(8)))
    await user.end("1")
    assert emulator.agents_started[LONG] == 1
    taken, document = await user.post("Another prompt", "1", "x" * 500)
    assert (taken.status, document["error"]) == (422, "key_taken")
    assert await process.read_until(r"request '(x+)': 422 key_taken: ") == "x" * 64
    other = user.named("anna/1")
    assert (await other.wait("1"))[0] == 404
    assert await other.status("GET", "/jobs/1/events") == 404
    assert await user.named("ann").status("GET", "/jobs/a/1") == 404
    await other.create("Of another user", "1")
    assert (await other.end("1"))["job"]["id"] != (await user.end("1"))["job"]["id"]
    assert await status_of_bytes(process, "\xff", "1") == 202
    assert await status_of_bytes(process, "anna", "\xff") == NO_KEY.get(recipe, 400)
    assert await user.status("PUT", "/jobs", data=b"x") == 405
    assert await user.status("POST", "/jobs/1", data=b"x") == 405
    for body in (BytesIO(bytes(TOO_LARGE)), pieces()):
        assert await refused_status(user, body) == 413
    assert await status_of_a_broken_body(process) == 400
    assert await status_of_a_web_socket(process) in {403, 404}
    ben = user.named("ben")
    answers = [(await ben.post(f"Job {number}", str(number)))[0] for number in range(MOST_OPEN + 1)]
    assert [answer.status for answer in answers] == [202] * MOST_OPEN + [429]
    assert answers[-1].headers["Retry-After"] == "60"
    await ben.create("Job 0", "0")
    assert await ben.keys() == [str(number) for number in range(MOST_OPEN)][-10:]


async def status_of_bytes(process: Process, user: str, key: str) -> int:
    """Return the status of the answer to a request whose headers may have any bytes."""
    body = json.dumps({"prompt": f"Of {user!a} {key!a}"})
    head = ["POST /jobs HTTP/1.1", f"X-User: {user}", f"Idempotency-Key: {key}", "Content-Type: application/json"]
    reader, writer = await connect(process, *head, f"Content-Length: {len(body)}", body=body.encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def status_of_a_broken_body(process: Process) -> int:
    """Return the status of the answer to a body whose second chunk has no length."""
    head = ["POST /jobs HTTP/1.1", "X-User: anna", "Idempotency-Key: x", "Transfer-Encoding: chunked"]
    # At once: where a broken chunk comes later, aiohttp's server says nothing of it, and the body is too slow (408).
    reader, writer = await connect(process, *head, body=b"1\r\na\r\nZZ\r\n")
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def status_of_a_web_socket(process: Process) -> int:
    """Return the status of the answer to a request for a web socket, which no recipe serves."""
    head = ["GET / HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    reader, writer = await connect(process, *head, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def pieces() -> AsyncIterator[bytes]:
    """Return a body whose length is not announced."""
    for _ in range(TOO_LARGE // 100_000):
        yield bytes(100_000)


async def refused_status(user: User, body: Any) -> int:
    """Return the status of the answer to a body that the server need not read to its end."""
    try:
        return await user.status("POST", "/jobs", data=body, headers={"Idempotency-Key": "x"})
    except ClientError:  # it closed the connection while the body was on its way
        return 413


async def check_clients_that_leave(user: User, process: Process) -> None:
    """A client that leaves a stream, a wait or its own body ends nothing but these."""
    key = await user.create("Leave")
    async with user.stream(key):
        pass
    waiting = asyncio.create_task(user.wait(key))
    _, half = await half_a_body(process, "/jobs", "X-User: anna", "Idempotency-Key: half")
    half.close()
    waiting.cancel()
    await asyncio.wait([waiting])
    async with user.stream(key):
        pass


async def check_shutdown(process: Process, user: User, emulator: Emulator) -> list[str]:
    """Listeners cause no polls; two SIGTERMs end them, but no create under way, and return the keys of these."""
    key = await user.create("Go on")
    await until(lambda: emulator.agents_started["Go on"])
    before = len(emulator.requests)
    begun = asyncio.Semaphore(0)
    waits = [asyncio.create_task(user.wait(key)) for _ in range(LISTENERS)]
    streams = [asyncio.create_task(user.rest(key, begun)) for _ in range(LISTENERS)]
    for _ in range(LISTENERS):
        await begun.acquire()
    polls = len(emulator.requests) - before
    await emulator.inject("hang for=0.5 agent=yes on=create x3")
    keys = [await user.create(f"Create {number}", f"c{number}") for number in range(3)]
    await until(lambda: sum(emulator.agents_started[f"Create {number}"] for number in range(3)) == 3)
    process.interrupt(signal.SIGTERM)
    process.interrupt(signal.SIGTERM)
    await process.end()
    answers, frames = [await asyncio.gather(*calls) for calls in (waits, streams)]
    assert polls < LISTENERS  # those of the jobs that are followed anyway
    assert {(status, answer["error"]) for status, answer in answers} == {(503, "restarting")}
    assert all(b"event: job_error\n" in text for text in frames)
    return keys
