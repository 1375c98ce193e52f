import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer, make_mocked_request

from agentjobs_async import AgentJob, JobRef, SessionClosedError, WaitTimeoutError
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, run_page
from tests.until import until


@asynccontextmanager
async def served(names: dict[str, Any]) -> AsyncIterator[tuple[Any, ClientSession]]:
    """Serve the application of the page; its session, and a client whose base address it is."""
    app = names["application"]()
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as client:
        yield app[names["SESSION"]], client


async def test_web_backend(emulator: Emulator) -> None:
    """The web backend answers 202 with a token, and continues the wait from the token after a restart."""
    names = run_page("web")

    async def call(method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        async with served(names) as (_, client), client.request(method, path, **options) as response:
            return response.status, await response.json()

    status, document = await call("POST", "/jobs", data="From a request")
    assert status == web.HTTPAccepted.status_code
    status, document = await call("GET", "/jobs", params={"token": document["token"]})
    assert (status, document["status"]) == (web.HTTPOk.status_code, "completed")
    assert emulator.agents_started["From a request"] == 1
    assert (await call("POST", "/jobs", data=""))[0] == web.HTTPBadRequest.status_code
    assert (await call("GET", "/jobs", params={"token": "garbage"}))[0] == web.HTTPBadRequest.status_code
    assert (await call("GET", "/jobs"))[0] == web.HTTPBadRequest.status_code
    await emulator.inject("500", prompt="Unlucky")
    status, document = await call("POST", "/jobs", data="Unlucky")
    assert (status, document["outcome"]) == (web.HTTPBadGateway.status_code, "unknown")


@pytest.mark.usefixtures("emulator")
async def test_stream() -> None:
    """The stream and the socket have the states of a job as events, and end with it."""
    async with served(run_page("web")) as (session, client):
        token = (await session.create_job("Stream me")).ref.to_token()
        async with client.get("/events", params={"token": token}) as response:
            assert response.content_type == "text/event-stream"
            text = await response.text()
        async with client.ws_connect("/socket", params={"token": token}) as socket:
            events = [message.json()["event"] async for message in socket]
    assert text.endswith("\n\n")
    assert "event: job_end\n" in text.split("\n\n")[-2] + "\n"
    assert events[-1] == "job_end"


async def test_stream_by_key(emulator: Emulator, tmp_path: Path) -> None:
    """A job is planned under its key at once; the stream of the key has its states as events, and ends with it."""
    names = run_page("web")
    app = web.Application()
    app.add_routes([web.get("/jobs/{key}/events", names["stream_of_key"])])
    async with emulator.session(project_id="docs") as session, Journal.open(tmp_path / "web.db") as journal:
        async with DurableJobs(session, journal) as app[names["JOBS"]]:
            planned = await names["submitted"](app[names["JOBS"]], "order-17", "Stream me")
            assert (planned.status, planned.headers["Retry-After"]) == (202, "5")
            async with TestServer(app) as server, ClientSession(server.make_url("/")) as client:
                async with client.get("/jobs/order-17/events") as response:
                    text = await response.text()
    assert "event: job_end\n" in text.split("\n\n")[-2] + "\n"


async def test_clients_that_leave(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaves ends its wait, on a socket though the job does not change, and is no error in the log."""
    emulator.script(JobScript(duration=float("inf")))
    async with served(run_page("web")) as (session, client):
        token = (await session.create_job("Go on")).ref.to_token()
        async with client.ws_connect("/socket", params={"token": token}) as socket:
            assert (await socket.receive_json())["event"] == "job"
        await until(lambda: not session.stats().jobs)
        async with client.get("/events", params={"token": token}) as response:
            await response.content.readline()
            response.close()
        await emulator.inject("document status=paused forever on=get")
        session.notify(JobRef.from_token(token))
        await until(lambda: not session.stats().jobs)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_shutdown(emulator: Emulator) -> None:
    """Draining ends the waits of an application; a lifespan that drains at signals comes and goes."""
    emulator.script(JobScript(duration=float("inf")))
    names = run_page("web")
    app = names["application"]()
    runner = web.AppRunner(app)
    await runner.setup()
    session = app[names["SESSION"]]
    wait = session.watch(await session.create_job("Go on"))
    await runner.cleanup()
    assert isinstance(wait.exception(), SessionClosedError)
    assert [state async for state in names["lifespan_of_uvicorn"](None)] == [None]


async def test_json(emulator: Emulator) -> None:
    """A job that was stored as JSON is restored as it was."""
    names = run_page("web")
    async with emulator.session(project_id="docs") as session:
        job = await session.run_job("Store me")
    assert names["restored"](names["stored"](job)) == job
    order = msgspec.json.decode(names["written"](job), type=names["Order"])
    assert names["read"](order) == (job.ref, job)


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


async def test_recording_one_s_own_way(emulator: Emulator) -> None:
    """A job that is created in a recording block is stored before the draining ends."""
    stored: list[str] = []

    async def store(token: str) -> None:
        stored.append(token)

    async with emulator.session(project_id="docs") as session:
        await run_page("web")["created"](session, "Fix it", store)
        assert await session.drain() == ()
    assert [JobRef.from_token(token).job_id for token in stored] == list(emulator.jobs)
