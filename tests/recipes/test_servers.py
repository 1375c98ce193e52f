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

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import APPLICATIONS, ENDLESS, Process, Program, complete, connect, half_a_body, program
from tests.until import until

pytestmark = pytest.mark.slow

SERVERS = ("aiohttp_web", *APPLICATIONS)
JSON_BODIES = {"fastapi_app", "litestar_app"}
"""The recipes that take JSON."""
NO_PROMPTS = (b"{", b"[]", b'{"prompt": null}', b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"[" * 60_000)
NO_KEY = {"fastapi_app": 422}
"""What a missing Idempotency-Key is answered by, where a framework does so itself."""
TERMINATED = {"aiohttp_web": 0}
"""The exit codes at SIGTERM other than that of the signal itself, which uvicorn raises again."""
LISTENERS = 100
"""Of each kind: waits and streams."""
MOST_CREATES = 20
"""Of one user in an hour."""
LONG_PROMPT = "\n".join(
    f"{number}. Fix https://docs.example/?a=1&b=2 <b>so</b> &amp; “quoted”\t" for number in range(50)
)
GARBAGE = ("/jobs/not.a.token", "/jobs/not.a.token/events", "/jobs/%ff")
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

    async def post(self, prompt: str, key: str | None = None, request_id: str = "-") -> tuple[ClientResponse, Any]:
        """Ask for a job, under a key of its own unless one is given; return the response with its document."""
        body = {"json": {"prompt": prompt}} if self._recipe in JSON_BODIES else {"data": prompt.encode()}
        headers = {**self._headers, "Idempotency-Key": key or uuid.uuid4().hex, "X-Request-ID": request_id}
        async with self._client.post("/jobs", headers=headers, **body) as response:
            return response, await response.json()

    async def create(self, prompt: str, key: str | None = None, request_id: str = "-") -> str:
        """Create a job, and return its token."""
        response, document = await self.post(prompt, key, request_id)
        assert response.status == 202, document
        return str(document["token"])

    async def wait(self, token: str, request_id: str = "-") -> tuple[int, dict[str, str]]:
        """Wait for the job, and return the answer's status and document."""
        headers = {**self._headers, "X-Request-ID": request_id}
        async with self._client.get(f"/jobs/{token}", headers=headers) as response:
            return response.status, await response.json()

    @asynccontextmanager
    async def stream(self, token: str) -> AsyncIterator[ClientResponse]:
        """Return a block with the response of a stream whose first event has come."""
        async with self._client.get(f"/jobs/{token}/events", headers=self._headers) as response:
            assert response.content_type == "text/event-stream"
            assert (await response.content.readline()).startswith(b"id: ")
            yield response

    async def rest(self, token: str, begun: asyncio.Semaphore | None = None) -> bytes:
        """Read a stream to its end; return what came after the first line."""
        async with self.stream(token) as response:
            if begun is not None:
                begun.release()
            return await response.content.read()

    async def health(self) -> dict[str, Any]:
        """Return what the process says of itself."""
        async with self._client.get("/healthz") as response:
            found: dict[str, Any] = await response.json()
            return found

    async def status(self, method: str, path: str, **options: Any) -> int:
        """Return the status of the answer to any request."""
        headers = self._headers | options.pop("headers", {})
        async with self._client.request(method, path, headers=headers, **options) as response:
            return response.status


@asynccontextmanager
async def used(recipe: str, served: Program) -> AsyncIterator[tuple[Process, User]]:
    """Return a block with a process of the recipe, and a user."""
    async with served.serving() as process:
        async with ClientSession(process.address, connector=TCPConnector(limit=0)) as client:
            yield process, User(recipe, client)


@pytest.mark.parametrize("recipe", SERVERS)
async def test_service(recipe: str, tmp_path: Path) -> None:
    """It answers as its page says, loses no job of a client that leaves, and ends at SIGTERM; tokens outlive it."""
    async with Emulator(script=JobScript(duration=0)) as emulator:
        # An id that a token must carry through every framework's routes.
        emulator.script(JobScript(duration=0, job_id="a/b/../%2F?#é job"), prompt="Go")
        for prompt in ("Go on", "Leave", "Orphan"):
            emulator.script(ENDLESS, prompt=prompt)
        async with program(recipe, {**emulator.environment(), "JOURNAL": str(tmp_path / "jobs.db")}) as served:
            async with used(recipe, served) as (process, user):
                await check_answers(recipe, user, emulator)
                await check_nasty_users(user, process, emulator)
                await check_clients_that_leave(user, process, emulator)
                tokens = await check_shutdown(process, user, emulator)
                assert await process.end() == TERMINATED.get(recipe, -signal.SIGTERM)
            assert "Traceback" not in process.output
            async with used(recipe, served) as (_, user):
                assert [(await user.wait(token))[1]["status"] for token in tokens] == ["completed"] * 3
                assert (await user.post("Create 0", "c0"))[0].status == 202
    assert set(emulator.agents_started.values()) == {1}


@pytest.mark.parametrize("recipe", SERVERS)
async def test_kill(recipe: str, tmp_path: Path) -> None:
    """After a kill, a repeated request gets its job, or learns that it may have been started; none starts another."""
    async with Emulator(script=ENDLESS) as emulator:
        async with program(recipe, {**emulator.environment(), "JOURNAL": str(tmp_path / "jobs.db")}) as served:
            async with used(recipe, served) as (process, user):
                token = await user.create("Known", "known")
                await emulator.inject("hang agent=yes on=create", prompt="Lost")
                lost = asyncio.create_task(user.post("Lost", "lost"))
                await until(lambda: emulator.agents_started["Lost"])
                process.interrupt(signal.SIGKILL)
                await asyncio.wait([lost])
                assert isinstance(lost.exception(), ClientError)
            await complete(emulator)
            async with used(recipe, served) as (_, user):
                ids = [(await user.wait(each))[1]["id"] for each in (token, await user.create("Known", "known"))]
                assert ids[0] == ids[1]
                unknown, document = await user.post("Lost", "lost")
                assert (unknown.status, document["outcome"]) == (502, "unknown")
    assert emulator.agents_started == {"Known": 1, "Lost": 1}


async def check_answers(recipe: str, user: User, emulator: Emulator) -> None:
    """It creates, awaits and streams jobs, and answers each error by a status."""
    token = await user.create("Go")
    status, document = await user.wait(token)
    assert (status, document["status"]) == (200, "completed")
    assert b"event: job_end\n" in await user.rest(token)
    with pytest.raises(InvalidInputError, match="not a job token"):
        JobRef.from_token(token)
    assert (await user.post(" "))[0].status == 400
    for body in NO_PROMPTS if recipe in JSON_BODIES else (b"\xff",):
        headers = {"Idempotency-Key": "x", "Content-Type": "application/json"}
        assert await user.status("POST", "/jobs", data=body, headers=headers) in {400, 422}, body[:99]
    assert await user.status("POST", "/jobs", json={"prompt": "x"}) == NO_KEY.get(recipe, 400)
    assert await user.status("GET", f"/jobs/{token}", headers={"X-User": ""}) == 401
    await emulator.inject("500 on=create", prompt="Perhaps")
    for _ in range(2):
        unknown, document = await user.post("Perhaps", "perhaps")
        assert (unknown.status, document["outcome"]) == (502, "unknown")

    async def is_counted() -> bool:
        return bool((await user.health())["unknown"] == 1)

    await until(is_counted)
    health = await user.health()
    assert (health["planned"], health["held"], health["paused_by"]) == (0, 0, None)
    await emulator.inject("422 on=create", prompt="Never")
    for _ in range(2):
        refused, document = await user.post("Never", "never")
        assert (refused.status, document["error"]) == (502, "service_refused")


async def check_nasty_users(user: User, process: Process, emulator: Emulator) -> None:
    """No user gets another's job, a second agent, too many creates, or too large a body through."""
    tokens = await asyncio.gather(*(user.create(LONG_PROMPT, "anna/1") for _ in range(3)))
    assert emulator.agents_started[LONG_PROMPT] == 1
    assert (await user.post("Another prompt", "anna/1"))[0].status == 409
    other = user.named("anna/1")
    assert (await other.wait(tokens[0]))[0] == 404
    assert [await user.status("GET", path) for path in GARBAGE] == [404] * 3
    assert await other.create("Of another user", "anna/1") not in tokens
    assert await user.create("Of anna", "1/x") != await other.create("Of anna/1", "x")
    assert await status_of_bytes(process, "\xff", "1") == 202
    assert await status_of_bytes(process, "anna", "\xff") == 202
    assert await status_of_bytes(process, "anna", "k" * 600) == 400
    assert await user.status("PUT", "/jobs", data=b"x") == 405
    assert await user.status("POST", f"/jobs/{tokens[0]}", data=b"x") == 405
    for body in (BytesIO(bytes(TOO_LARGE)), pieces()):
        assert await refused_status(user, body) == 413
    ben = user.named("ben")
    first = await ben.create("Job 0", "0")
    answers = [(await ben.post(f"Job {number}", str(number)))[0] for number in range(1, MOST_CREATES + 1)]
    assert [answer.status for answer in answers] == [202] * (MOST_CREATES - 1) + [429]
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 3600
    assert (await ben.wait(await ben.create("Job 0", "0")))[1]["id"] == (await ben.wait(first))[1]["id"]
    await user.post("Perhaps", "perhaps", "x" * 500)
    assert await process.read_until(r"request '(x+): ") == "x" * 63


async def status_of_bytes(process: Process, user: str, key: str) -> int:
    """Return the status of the answer to a request whose headers may have any bytes."""
    body = json.dumps({"prompt": f"Of {user!a} {key!a}"})
    head = ["POST /jobs HTTP/1.1", f"X-User: {user}", f"Idempotency-Key: {key}", "Content-Type: application/json"]
    reader, writer = await connect(process, *head, f"Content-Length: {len(body)}")
    writer.write(body.encode())
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


async def check_clients_that_leave(user: User, process: Process, emulator: Emulator) -> None:
    """A client that leaves orphans no agent: whoever repeats its request gets the job."""
    token = await user.create("Leave")
    async with user.stream(token):
        pass
    _, half = await half_a_body(process, "/jobs", "X-User: anna")
    half.close()
    await emulator.inject("hang for=0.2 agent=yes on=create", prompt="Orphan")
    leaving = asyncio.create_task(user.create("Orphan", "orphan"))
    await until(lambda: emulator.agents_started["Orphan"])
    leaving.cancel()
    await asyncio.wait([leaving])
    assert await user.create("Orphan", "orphan")


async def check_shutdown(process: Process, user: User, emulator: Emulator) -> list[str]:
    """Listeners share one series of polls; two SIGTERMs end them, but no create, whose tokens are returned."""
    token = await user.create("Go on")
    before = len(emulator.requests)
    begun = asyncio.Semaphore(0)
    waits = [asyncio.create_task(user.wait(token)) for _ in range(LISTENERS)]
    streams = [asyncio.create_task(user.rest(token, begun)) for _ in range(LISTENERS)]
    for _ in range(LISTENERS):
        await begun.acquire()
    polls = len(emulator.requests) - before
    await emulator.inject("hang for=0.5 agent=yes on=create x3")
    creates = [asyncio.create_task(user.create(f"Create {n}", f"c{n}")) for n in range(3)]
    await until(lambda: sum(emulator.agents_started[f"Create {n}"] for n in range(3)) == 3)
    process.interrupt(signal.SIGTERM)
    process.interrupt(signal.SIGTERM)
    await process.end()
    answers, frames, tokens = [await asyncio.gather(*calls) for calls in (waits, streams, creates)]
    assert polls < LISTENERS  # one every 3 s, while the listeners come; polls of their own would be twice as many
    assert {(status, answer["error"]) for status, answer in answers} == {(503, "restarting")}
    assert all(b"event: job_error\n" in text for text in frames)
    return tokens
