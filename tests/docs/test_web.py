import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer, make_mocked_request

from agentjobs_async import AgentJob, AgentJobsSession, JobRef, WaitTimeoutError
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, run_page
from tests.until import until
from tests.web.asgi import Message, exchanged

STARTUP: Message = {"type": "lifespan.startup"}
SHUTDOWN: Message = {"type": "lifespan.shutdown"}


@pytest.fixture
async def jobs(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DurableJobs]:
    monkeypatch.chdir(tmp_path)
    async with emulator.session(project_id="docs") as session, Journal.open("web.db") as journal:
        async with DurableJobs(session, journal) as jobs:
            yield jobs


@asynccontextmanager
async def served(names: dict[str, Any], jobs: DurableJobs) -> AsyncIterator[ClientSession]:
    """Serve the application of the page; return a block with a client whose base address it is."""

    @web.middleware
    async def signed_in(request: web.Request, handler: Callable[..., Any]) -> Any:
        request[names["USER"]] = request.headers.get("X-User", "anna")
        return await handler(request)

    app = names["application"](jobs)
    app.middlewares.append(signed_in)
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as client:
        yield client


async def test_web_backend(emulator: Emulator, jobs: DurableJobs) -> None:
    """A request plans a job under its user's key, and is answered at once; another one waits for the end."""
    async with served(run_page("web"), jobs) as client:

        async def call(method: str, path: str, user: str = "anna", **options: Any) -> tuple[int, Any]:
            headers = {"X-User": user, "Idempotency-Key": options.pop("key", "1")}
            async with client.request(method, path, headers=headers, **options) as response:
                return response.status, await response.json()

        for _ in range(2):
            status, document = await call("POST", "/jobs", data="From a request")
            assert (status, document["key"]) == (202, "1")
        status, document = await call("GET", "/jobs/1")
        assert (status, document["state"], document["key"]) == (200, "completed", "1")
        assert emulator.agents_started["From a request"] == 1
        assert [document["key"] for document in (await call("GET", "/jobs"))[1]] == ["1"]
        assert (await call("GET", "/jobs/1", "ben"))[0] == 404
        assert (await call("POST", "/jobs", data="Another prompt"))[0] == 422
        for unfit in (b" ", b"\xff"):
            assert (await call("POST", "/jobs", data=unfit, key="2"))[0] == 400
        assert (await call("POST", "/jobs", data="x", key=""))[0] == 400
        await emulator.inject("500", prompt="Unlucky")
        await call("POST", "/jobs", data="Unlucky", key="3")
        status, document = await call("GET", "/jobs/3")
        assert (status, document["state"]) == (200, "unknown")


async def test_stream(jobs: DurableJobs) -> None:
    """The stream and the socket have the states of a job as events, and end with it."""
    async with served(run_page("web"), jobs) as client:
        await client.post("/jobs", data="Stream me", headers={"Idempotency-Key": "order-17"})
        async with client.get("/jobs/order-17/events") as response:
            assert response.content_type == "text/event-stream"
            text = await response.text()
        async with client.ws_connect("/jobs/order-17/socket") as socket:
            events = [message.json() async for message in socket]
    assert text.endswith("\n\n")
    assert "event: job_end\n" in text.split("\n\n")[-2] + "\n"
    assert events[-1]["event"] == "job_end"
    assert {event["data"]["key"] for event in events} == {"order-17"}


async def test_clients_that_leave(emulator: Emulator, jobs: DurableJobs, caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaves ends its stream, on a socket though the job does not change, and is no error in the log."""
    emulator.script(JobScript(duration=float("inf")))
    async with served(run_page("web"), jobs) as client:
        await client.post("/jobs", data="Go on", headers={"Idempotency-Key": "1"})
        async with client.ws_connect("/jobs/1/socket") as socket:
            assert (await socket.receive_json())["event"] == "job"
        await until(lambda: not jobs._updates._readers)
        async with client.get("/jobs/1/events") as response:
            await response.content.readline()
            response.close()
        await emulator.inject("document status=completed forever on=get")
        await jobs.notify("anna/1")
        await until(lambda: not jobs._updates._readers)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.usefixtures("emulator")
async def test_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program serves until a signal comes, and ends by itself then; a second signal changes nothing."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.create_task(run_page("web")["main"](0))
    await until(lambda: signal.getsignal(signal.SIGTERM) is not before)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    await running
    assert signal.getsignal(signal.SIGTERM) is before
    assert (tmp_path / "jobs.db").exists()


@pytest.mark.usefixtures("emulator")
async def test_lifespans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs are open within a lifespan, and in the state of the requests of an application that has none."""
    monkeypatch.chdir(tmp_path)
    names = run_page("web")
    async with names["lifespan"](None) as state:
        assert state["jobs"].stats().held == 0

    async def app(scope: Any, _receive: object, send: Any) -> None:
        await send({"type": "state", "state": scope["state"]})

    django = names["with_lifespan"](app)
    phases = await exchanged(django, STARTUP, SHUTDOWN, scope={"type": "lifespan"})
    assert [message["type"] for message in phases] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    (shown,) = await exchanged(django, {"type": "http.request"})
    assert isinstance(shown["state"]["jobs"], DurableJobs)
    limited = names["bounded"](app)
    start, _ = await exchanged(limited, scope={"headers": [(b"content-length", b"65537")]})
    assert start["status"] == 413


async def test_json(emulator: Emulator) -> None:
    """A job that was stored as JSON is restored as it was."""
    names = run_page("web")
    async with emulator.session(project_id="docs") as session:
        job = await session.run_job("Store me")
    assert names["restored"](names["stored"](job)) == job
    text = json.dumps({"token": job.ref.to_token(), "job": job.to_dict()})
    assert names["read"](msgspec.json.decode(text, type=names["Order"])) == (job.ref, job)


async def test_answer_to_a_long_wait() -> None:
    """The middleware answers 202 again to a wait that did not end in time."""

    async def handler(_request: object) -> web.Response:
        raise WaitTimeoutError(JobRef("docs", "job_1"), AgentJob("job_1", "docs", "active"), None, 1, 25.0)

    response = await run_page("web")["answered"](make_mocked_request("GET", "/jobs"), handler)
    assert response.status == web.HTTPAccepted.status_code
    assert isinstance(response, web.Response)
    assert response.text is not None
    (shown,) = blocks("web", "http")
    head, _, body = shown.partition("\n\n")
    assert head.splitlines()[1:] == [f"{name}: {response.headers[name]}" for name in ("Content-Type", "Retry-After")]
    assert json.loads(response.text) == json.loads(body)


@pytest.mark.usefixtures("emulator")
async def test_create_in_a_request() -> None:
    """Without a journal, a create is answered with a token, and the token has the job in the next process."""
    names = run_page("web")

    async def call(method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        app = web.Application(middlewares=[names["answered"]])
        app.add_routes([web.post("/jobs", names["created"]), web.get("/jobs", names["result"])])
        async with AgentJobsSession() as app[names["SESSION"]], TestServer(app) as server:
            async with ClientSession(server.make_url("/")) as client, client.request(method, path, **options) as answer:
                return answer.status, await answer.json()

    status, document = await call("POST", "/jobs", data="From a request")
    assert status == 202
    status, document = await call("GET", "/jobs", params={"token": document["token"]})
    assert (status, document["status"]) == (200, "completed")
    assert (await call("GET", "/jobs", params={"token": "garbage"}))[0] == 400


async def test_recording_one_s_own_way(emulator: Emulator) -> None:
    """A job that is created in a recording block is stored before the draining ends."""
    stored: list[str] = []

    async def store(token: str) -> None:
        stored.append(token)

    async with emulator.session(project_id="docs") as session:
        await run_page("web")["recorded"](session, "Fix it", store)
        assert await session.drain() == ()
    assert [JobRef.from_token(token).job_id for token in stored] == list(emulator.jobs)
