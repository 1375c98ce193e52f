from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest
import tenacity
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from attrs import evolve

from agentjobs_async import (
    AgentJobsSession,
    AuthError,
    GetJob,
    JobRef,
    PollPolicy,
    ProtocolError,
    RateLimitedError,
    ResponseError,
    wait_for_job,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page


async def test_pull_request(emulator: Emulator) -> None:
    """The first sample returns the link of the job's pull request."""
    async with emulator.session(project_id="docs") as session:
        link = await run_page("waiting")["pull_request"](session, "Wait for me")
    assert link.startswith("http")


async def test_wait_and_show(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample with `on_update` shows each change and returns at the end."""
    async with emulator.session(project_id="docs") as session:
        job = await session.create_job("Wait for me")
        assert (await run_page("waiting")["wait_and_show"](session, job)).succeeded
    assert capsys.readouterr().out.splitlines() == [f"{job.id} active", f"{job.id} completed"]


@pytest.mark.looptime
async def test_wait_an_hour(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample returns a job that ends within an hour, and else says how to wait for it again."""
    async with emulator.session(project_id="docs") as session:
        wait_an_hour = run_page("waiting")["wait_an_hour"]
        emulator.script(JobScript(duration=3000))
        assert (await wait_an_hour(session, await session.create_job("Take your time"))).succeeded
        emulator.script(JobScript(duration=4000))
        job = await session.create_job("Take more time")
        assert await wait_an_hour(session, job) is None
    assert capsys.readouterr().out == f"the job continues; wait for it again with {job.ref.to_token()}\n"


async def test_restart(emulator: Emulator) -> None:
    """A wait is continued from its token, in another session."""
    async with emulator.session(project_id="docs") as session:
        token = (await session.create_job("Continue")).ref.to_token()
    async with emulator.session() as session:
        job = await run_page("waiting")["continue_waiting"](session, token)
    assert job.succeeded


@pytest.mark.usefixtures("emulator")
async def test_policy() -> None:
    """The sample of a policy makes a session."""
    assert isinstance(run_page("waiting")["session"], AgentJobsSession)


@pytest.mark.usefixtures("emulator")
async def test_own_get_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of a get-job of one's own waits without a session."""
    await run_page("waiting")["main"]()
    assert capsys.readouterr().out == "True\n"


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def reading(how: str, *answers: Answer) -> AsyncIterator[tuple[GetJob, list[str]]]:
    """Serve the answers in turn, the last one again and again; give the page's get-job by a client, and the paths."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.raw_path)
        return await answers[min(len(asked), len(answers)) - 1](request)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    async with TestServer(app) as server:
        base = str(server.make_url("/"))
        if how == "by_aiohttp":
            async with ClientSession(base) as aiohttp_client:
                yield partial(run_page("waiting")[how], aiohttp_client), asked
        else:
            async with httpx.AsyncClient(base_url=base) as httpx_client:
                yield partial(run_page("waiting")[how], httpx_client), asked


async def ended(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"id": "a/b", "status": "completed"})


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b"{")
    return await reset(request)


async def no_http(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    request.transport.close()
    return web.Response()


async def broken_text(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=b'"\xff\xfe"', content_type="application/json")


def refusal(status: int, **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    return answer


async def page(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="<p>Sign in</p>", content_type="text/html")


SOON = PollPolicy(wait=tenacity.wait_fixed(0))
BY = pytest.mark.parametrize("how", ["by_aiohttp", "by_httpx"])


@pytest.mark.usefixtures("emulator")
@BY
async def test_faults_of_a_get_job(how: str) -> None:
    """The page's ways to read a job ride out whatever breaks the connection, and responses that may pass."""
    faults = (reset, cut, no_http, refusal(404), refusal(503), refusal(429, **{"Retry-After": "0"}))
    async with reading(how, *faults, ended) as (get_job, asked):
        job = await wait_for_job(JobRef("docs", "a/b"), get_job=get_job, policy=SOON, timeout=30)
    assert job.succeeded
    assert set(asked) == {"/jobs/a%2Fb"}
    assert len(asked) >= 7


@pytest.mark.usefixtures("emulator")
@BY
async def test_refusals_of_a_get_job(how: str) -> None:
    """A refusal ends the wait with the error of its status, which has its Retry-After."""
    async with reading(how, refusal(403)) as (get_job, asked):
        with pytest.raises(AuthError):
            await wait_for_job(JobRef("docs", "a/b"), get_job=get_job, policy=SOON, timeout=30)
    assert len(asked) == 1
    async with reading(how, refusal(429, **{"Retry-After": "7"})) as (get_job, asked):
        with pytest.raises(ResponseError) as raised:
            await get_job(JobRef("docs", "a/b"))
    assert (type(raised.value), raised.value.retry_after) == (RateLimitedError, 7.0)


@pytest.mark.usefixtures("emulator")
async def test_page_of_a_proxy() -> None:
    """A body that is no JSON, or a status that HTTP has not, is unusable, or what the page's policy accepts."""
    async with reading("by_aiohttp", page) as (get_job, asked):
        with pytest.raises(ProtocolError, match="no JSON"):
            await wait_for_job(JobRef("docs", "a/b"), get_job=get_job, policy=SOON, timeout=30)
    assert len(asked) == 5
    async with reading("by_aiohttp", broken_text, refusal(600), page, ended) as (get_job, _):
        job = await wait_for_job(JobRef("docs", "a/b"), get_job=get_job, policy=SOON, timeout=30)
    assert job.succeeded
    policy = evolve(run_page("waiting")["policy"], wait=tenacity.wait_fixed(0))
    async with reading("by_httpx", page, reset, ended) as (get_job, asked):
        job = await wait_for_job(JobRef("docs", "a/b"), get_job=get_job, policy=policy, timeout=30)
    assert job.succeeded


@pytest.mark.looptime
async def test_figures() -> None:
    """A job of three minutes costs 34 requests, one of eight minutes 68, up to the jitter."""
    for minutes, requests in ((3, 34), (8, 68)):
        async with Emulator(script=JobScript(duration=60 * minutes)) as emulator:
            async with emulator.session(project_id="docs") as session:
                await session.run_job("Count", timeout=None)
            reads = sum(request.method == "GET" for request in emulator.requests)
        assert reads == pytest.approx(requests, abs=4)
