"""The emulator as a whole, over real sockets, and its foreign origin."""

import asyncio
import json
import logging
import math
import sys
import threading
from http.client import HTTPConnection

import aiohttp
import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.testing import Emulator, ForeignOrigin, JobScript, RateLimit
from agentjobs_async.testing._faults.fault import FAULTS
from agentjobs_async.testing._messages import without_shown_credentials
from tests.rows import failures, failures_in_turn
from tests.testing.wire import JOBS, ask, connected, create, read, read_reply, request, start

EVERY_FAULT = [*FAULTS, "missing:id", "103", "204", "206", "302", "429 retry-after=1", "500", "600", "999"]

UNSHARED_HOST = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Where no other process takes a port that was given up for a moment: the others have theirs on 127.0.0.1."""


async def test_record_of_requests() -> None:
    """Requests are recorded in order, with all that was sent."""
    async with Emulator(faults="500 on=get") as emulator:
        await ask(emulator, create(emulator, "write", "/v2/agent/a%2Fb/job?x=1"))
        (job_id,) = emulator.jobs
        await ask(emulator, request(emulator, "GET", f"/v2/agent/a%2Fb/job/{job_id}"))
        await ask(emulator, request(emulator, "DELETE", "/elsewhere"))
    first, second, third = emulator.requests
    assert (first.method, first.target, first.body) == ("POST", "/v2/agent/a%2Fb/job?x=1", b'{"prompt": "write"}')
    assert (first.project_id, first.job_id, first.prompt, first.connection) == ("a/b", None, "write", 1)
    assert first.headers["authorization"] == f"Bearer {emulator.api_key}"
    assert (second.project_id, second.job_id, second.prompt, second.fault) == (
        "a/b",
        job_id,
        "write",
        "500 on=get",
    )
    assert (third.project_id, third.job_id, third.prompt, third.fault) == (None, None, None, None)
    assert first.at <= second.at <= third.at


async def test_counters() -> None:
    """Agents are counted by prompt, up to the rate limit; connections and keys are recorded."""
    async with Emulator(api_key="emk_1", rate_limit=RateLimit(3)) as emulator:
        for prompt in ("a", "b", "a"):
            await start(emulator, prompt)
        assert (await ask(emulator, create(emulator, "a"))).status == 429
        await ask(emulator, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert emulator.agents_started == {"a": 2, "b": 1}
    assert [job.prompt for job in emulator.jobs.values()] == ["a", "b", "a"]
    assert (emulator.connections, emulator.keys_seen) == (5, frozenset({"Bearer emk_1"}))


@pytest.mark.looptime
async def test_scripts() -> None:
    """A script can be set for a prompt or a project; the newest counts."""
    async with Emulator(script=JobScript(duration=1000), speed=10) as emulator:
        emulator.script(JobScript(duration=10, outcome="failed"), project_id="web")
        emulator.script(JobScript(duration=10, outcome="archived"), prompt="b")
        ids = [
            await start(emulator, prompt, f"/v2/agent/{project}/job")
            for project, prompt in ["aa", ("web", "a"), ("web", "b")]
        ]
        await asyncio.sleep(1)
        paths = [f"/v2/agent/{project}/job" for project in ("a", "web", "web")]
        replies = [await read(emulator, job_id, path) for job_id, path in zip(ids, paths, strict=True)]
    assert [reply.document["status"] for reply in replies] == ["active", "failed", "archived"]


async def test_injected_faults() -> None:
    """A plan applies to its prompt, project or job, and to reads of the jobs of its prompt."""
    async with Emulator() as emulator:
        await emulator.inject("500 x2", prompt="a")
        await emulator.inject("501", project_id="web")
        first = (await ask(emulator, create(emulator, "a"))).status
        job_id = next(iter(emulator.jobs))
        statuses = [(await read(emulator, job_id)).status for _ in range(2)]
        other = (await ask(emulator, create(emulator, "b"))).status
        web = (await ask(emulator, create(emulator, "b", "/v2/agent/web/job"))).status
        await emulator.inject("502", job_id=job_id)
        job = (await read(emulator, job_id)).status
    assert [first, *statuses, other, web, job] == [500, 500, 200, 201, 501, 502]


async def test_placeholders_are_for_faults() -> None:
    """An answer without a fault never has the key, whatever the name of the project."""
    async with Emulator() as emulator:
        reply = await ask(emulator, create(emulator, "write", "/v2/agent/%7Bkey%7D/job"))
    assert reply.document["source"]["repository"] == "acme/{key}"


@pytest.mark.looptime
async def test_refusal_from_the_start() -> None:
    """A plan that begins with refusals closes the listener for the sum of their times."""
    async with Emulator(faults="refuse for=2 x2 then 500") as emulator:
        await asyncio.sleep(3.9)
        with pytest.raises(ConnectionRefusedError):
            await start(emulator)
        await asyncio.sleep(0.2)
        assert (await ask(emulator, create(emulator))).status == 500


@pytest.mark.looptime
async def test_refusal_after_an_answer() -> None:
    """A refusal begins with the answer before it, and breaks the other connections."""
    async with Emulator(faults="hang then 500 then refuse for=2") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator, "a"))
        await asyncio.sleep(0.1)
        assert (await ask(emulator, create(emulator, "b"))).status == 500
        with pytest.raises(ConnectionRefusedError):
            await start(emulator)
        assert await reader.read() == b""
        await asyncio.sleep(2.1)
        assert (await ask(emulator, create(emulator, "c"))).status == 201


@pytest.mark.looptime
async def test_every_fault_ends_with_the_emulator() -> None:
    """Under any fault, with the client still waiting, closing leaves no task behind."""

    async def check(text: str) -> None:
        async with Emulator() as emulator, connected(emulator) as (reader, writer):
            writer.write(create(emulator))
            await read_reply(reader)
            await emulator.inject(text.replace("gzip:bomb", "gzip:bomb bytes=1048576"))
            writer.write(create(emulator, "again"))
            waiting = asyncio.create_task(reader.read(1))
            await asyncio.wait({waiting}, timeout=0.01)
            await emulator.__aexit__(None, None, None)
            await asyncio.gather(waiting, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    assert await failures_in_turn(check, *EVERY_FAULT) == {}


async def test_restart() -> None:
    """Entered again, an emulator listens on the same port and still has its jobs."""
    emulator = Emulator(script=JobScript(duration=0), host=UNSHARED_HOST)
    async with emulator:
        url, job_id = emulator.base_url, await start(emulator)
    with pytest.raises(ConnectionRefusedError):
        await start(emulator)
    async with emulator:
        assert (await read(emulator, job_id)).document["status"] == "completed"
        assert emulator.base_url == url


def test_session_before_the_emulator_runs() -> None:
    """An emulator that does not run has no address; the error says so."""
    with pytest.raises(RuntimeError, match="does not run yet: make the session within async with"):
        Emulator().session()


def test_settings_out_of_bounds() -> None:
    """A speed that is not above 0, and a negative latency, are refused."""

    def check(name: str, value: object) -> None:
        with pytest.raises(ValueError, match=f"{name} must be a"):
            Emulator(**{name: value})  # type: ignore[arg-type]  # what is refused

    speeds, latencies = (0, -1, math.inf, math.nan, True, "2", None), (-0.1, math.inf, math.nan, False, "0")
    rows = [*(("speed", value) for value in speeds), *(("latency", value) for value in latencies)]
    assert failures(check, *rows) == {}


async def test_head() -> None:
    """The answer to HEAD has no body, and the connection's next answer is whole."""
    async with Emulator(faults="ok then 503 then ok forever") as emulator, connected(emulator) as (reader, writer):
        for status in (405, 503):
            writer.write(request(emulator, "HEAD"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"Content-Length: 0" not in head
        writer.write(create(emulator))
        assert (await read_reply(reader)).status == 201
        async with asyncio.timeout(60), aiohttp.ClientSession() as client:
            for _ in range(2):
                answer = await client.head(emulator.foreign.url)
                assert (answer.status, await answer.read()) == (200, b"")


async def test_absolute_target() -> None:
    """A target in absolute form, as proxies get it, is served like its path and recorded as sent."""
    for origin in ("http://127.0.0.1", "HTTPS://other.example:99"):
        async with Emulator() as emulator:
            reply = await ask(emulator, create(emulator, "write", f"{origin}{JOBS}"))
            assert reply.status == 201
            reply = await ask(emulator, request(emulator, "GET", f"{origin}{JOBS}/{reply.document['id']}?a=b"))
            assert reply.status == 200
            assert (await ask(emulator, request(emulator, "GET", f"{origin}?a=/v2"))).status == 404
            first = emulator.requests[0]
            assert (first.target, first.project_id, first.prompt) == (f"{origin}{JOBS}", "docs", "write")


async def test_close_while_a_client_does_not_read() -> None:
    """Closing breaks a connection whose client does not read its answer, whatever that is."""

    async def check(fault: str) -> None:
        async with asyncio.timeout(60), Emulator(faults=fault) as emulator:
            reader, writer = await asyncio.open_connection(emulator.host, emulator.port)
            writer.write(create(emulator))
            await reader.readexactly(10)
        writer.transport.abort()

    padded = "padded bytes=8388608"
    rows = ("endless:body", "endless:headers", "endless:continues", padded, f"{padded} then refuse for=60")
    assert await failures_in_turn(check, *rows) == {}


async def test_ids() -> None:
    """No two emulators give the same id; those of one sort in the order of creation."""
    ids = list[list[str]]()
    for _ in range(2):
        async with Emulator() as emulator:
            ids.append([await start(emulator) for _ in range(11)])
    assert ids == [sorted(of_one) for of_one in ids]
    assert len({job_id for of_one in ids for job_id in of_one}) == 22


async def test_log_of_requests(caplog: pytest.LogCaptureFixture) -> None:
    """Each request is one log line: its target, the status, the fault, the job of a started agent; never the key."""
    caplog.set_level(logging.INFO, "agentjobs_async.testing")
    async with Emulator(faults="ok x2 then hang:body for=0 then ok x2 then 422 then 500 agent=yes") as emulator:
        job_id = await start(emulator)
        await read(emulator, job_id)
        await read(emulator, job_id)
        await ask(emulator, request(emulator, "GET", f"/?{emulator.api_key}"))
        emulator.script(JobScript(job_id="two\nlines"))
        await start(emulator)
        emulator.script(JobScript(job_id="three"))
        await ask(emulator, create(emulator))
        await ask(emulator, create(emulator))
    assert [record.getMessage() for record in caplog.records] == [
        f"POST {JOBS} 201 {job_id}",
        f"GET {JOBS}/{job_id} 200",
        f"GET {JOBS}/{job_id} 200 by hang:body for=0",
        "GET /?*** 404",
        f"POST {JOBS} 201 two\\nlines",
        f"POST {JOBS} 422 by 422",
        f"POST {JOBS} 500 by 500 agent=yes three",
    ]


def test_headers_are_shown_without_credentials() -> None:
    """No repr of headers, or of a part of them, has a credential; the values are whole."""
    headers = without_shown_credentials(
        [("Host", "x"), ("AUTHORIZATION", "Bearer k"), ("Cookie", "k"), ("X-A", "a"), ("X-KEY", "k")], "X-Key"
    )
    assert "'k'" not in repr(headers) + repr(dict(headers)) + repr([*headers.values()])
    assert repr(headers["X-A"]) == "'a'"
    assert (headers["authorization"], headers.getall("cookie")) == ("Bearer k", ["k"])


def test_in_thread() -> None:
    """In a thread of its own it serves clients that block, and takes faults from them; then the thread has ended."""
    before = set(threading.enumerate())
    with Emulator.in_thread(script=JobScript(outcome="failed")) as emulator:
        emulator.call(emulator.inject("429"))
        assert [_status(emulator) for _ in range(2)] == [429, 201]
        assert [request.fault for request in emulator.requests] == ["429", None]
        assert [job.script.outcome for job in emulator.jobs.values()] == ["failed"]
    assert set(threading.enumerate()) <= before


def _status(emulator: Emulator) -> int:
    """Create a job with a client that blocks."""
    connection = HTTPConnection(emulator.host, emulator.port, timeout=30)
    headers = {"Authorization": f"Bearer {emulator.api_key}"}
    connection.request("POST", "/v2/agent/docs/job", '{"prompt": "write"}', headers)
    status = connection.getresponse().status
    connection.close()
    return status


async def test_call_on_its_own_loop() -> None:
    """A call from the thread of its own loop, which would wait for itself, is refused."""
    async with Emulator() as emulator:
        with pytest.raises(RuntimeError, match="await the coroutine instead"):
            emulator.call(emulator.inject("503"))


async def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment variables lead a session without arguments to it and to the project."""
    async with Emulator() as emulator:
        for name, value in emulator.environment("api").items():
            monkeypatch.setenv(name, value)
        async with AgentJobsSession() as session:
            job = await session.create_job("write")
        assert emulator.jobs[job.id].project_id == "api"


async def test_counts_and_forges() -> None:
    """It records every request, and answers it with a forged job."""
    async with ForeignOrigin() as origin:
        host, port = origin.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /any HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(body)["status"] == "completed"
    assert [(request.method, request.target) for request in origin.requests] == [("GET", "/any")]
    assert origin.connections == 1
