"""The recipe for webhooks, as a process: forged, broken, large and repeated ones, signals and kills."""

import asyncio
import hashlib
import hmac
import json
import runpy
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator
from tests.recipes.processes import LONG, RECIPES, Process, Program, complete, connect, half_a_body, program
from tests.until import until

pytestmark = pytest.mark.slow

SECRET = "a-secret-of-the-sender"
TOO_LARGE = bytes(65_537)
"""The beginning of a body that is longer than it may be."""

Receivers = Callable[..., AbstractAsyncContextManager[Program]]


@pytest.fixture
def settings(service: Emulator, tmp_path: Path) -> dict[str, str]:
    """Return the environment, in which all runs have the same journal."""
    return {**service.environment(), "WEBHOOK_SECRET": SECRET, "JOURNAL": str(tmp_path / "jobs.db")}


@pytest.fixture
def receiver(settings: dict[str, str]) -> Receivers:
    """Return the program of some prompts."""
    return lambda *prompts: program("webhook_receiver", settings, *prompts)


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with ClientSession() as client:
        yield client


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """Return the header with a body's signature."""
    return {"X-Signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def event(job_id: str) -> bytes:
    """Return the body of a webhook."""
    return json.dumps({"project_id": "docs", "job_id": job_id}).encode()


async def status(
    client: ClientSession, process: Process, body: bytes, headers: dict[str, str], method: str = "POST"
) -> int:
    """Return the status of the answer to a webhook."""
    async with client.request(method, f"{process.address}/webhook", data=body, headers=headers) as response:
        return response.status


def polls(service: Emulator) -> int:
    """Return how often jobs were polled."""
    return sum(request.method == "GET" for request in service.requests)


async def test_webhook(receiver: Receivers, service: Emulator, client: ClientSession) -> None:
    """A signed webhook is followed by a poll at once, which sees the end; sent again, it changes nothing."""
    async with receiver(LONG) as program, program.serving() as process:
        await process.watch(until(lambda: polls(service) == 1))
        (job_id,) = service.jobs
        body = event(job_id)
        await complete(service)
        assert await status(client, process, body, signed(body)) == 204
        await process.read_until(" completed: https://")
        before = polls(service)
        for _ in range(3):
            assert await status(client, process, body, signed(body)) == 204
        await process.stop()
    assert polls(service) == before
    assert process.output.count(" completed: ") == 1
    assert service.agents_started == {LONG: 1}


async def test_webhook_of_another_process(
    settings: dict[str, str], database: str, service: Emulator, client: ClientSession
) -> None:
    """A signed webhook that reaches another process than the one that follows the job causes a poll there."""
    settings["JOURNAL"] = database
    async with program("webhook_receiver", settings, LONG) as one, program("webhook_receiver", settings) as other:
        async with one.serving() as following, other.serving() as asked:
            await following.watch(until(lambda: polls(service) == 1))
            body = event(*service.jobs)
            await complete(service)
            assert await status(client, asked, body, signed(body)) == 204
            await following.read_until(" completed: https://")
            await asked.stop()
            await following.stop()
    assert polls(service) == 2
    assert service.agents_started == {LONG: 1}


async def test_refusals(receiver: Receivers, service: Emulator, client: ClientSession) -> None:
    """What is not signed, not a webhook, or too large is refused; none of it causes a poll."""
    async with receiver("Go on") as program, program.serving() as process:
        await process.watch(until(lambda: polls(service) == 1))
        (job_id,) = service.jobs
        body = event(job_id)
        forged = [{}, {"X-Signature": "0" * 64}, signed(body, "another"), signed(b"replayed")]
        assert [await status(client, process, body, headers) for headers in forged] == [401] * 4
        reader, writer = await connect(process, "POST /webhook HTTP/1.1", "X-Signature: \xff", "Content-Length: 0")
        assert b" 401 " in await reader.readline()
        writer.close()
        wrong = [b"", b"[]", b"\xff", b"7", b'{"project_id": 7, "job_id": 7}', b'{"project_id": "docs"}', event("..")]
        wrong += [b"[" * 60_000]
        assert [await status(client, process, text, signed(text)) for text in wrong] == [400] * 8
        for method in ("GET", "PUT", "HEAD"):
            assert await status(client, process, body, signed(body), method) == 405
        for length, piece in (
            ("Content-Length: 30000000", TOO_LARGE),
            ("Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (len(TOO_LARGE), TOO_LARGE)),
        ):
            reader, writer = await connect(process, "POST /webhook HTTP/1.1", length, body=piece)
            assert b" 413 " in await reader.readline()
            writer.close()
        for headers, piece in (
            (["Transfer-Encoding: chunked"], b"1\r\na\r\nZZ\r\n"),
            (["Content-Encoding: gzip", "Content-Length: 2"], b"xx"),  # it is not signed, and never unpacked
        ):
            reader, writer = await connect(process, "POST /webhook HTTP/1.1", *headers, body=piece)
            assert (await reader.readline()).split()[1] in {b"400", b"401"}
            writer.close()
        unknown = event("no such job")
        assert await status(client, process, unknown, signed(unknown)) == 204
        _, leaving = await half_a_body(process, "/webhook")
        leaving.close()
        reader, waiting = await half_a_body(process, "/webhook")
        await process.stop()
        assert await reader.read() == b""
        waiting.close()
    assert polls(service) == 1


@pytest.mark.looptime
async def test_slow_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a body is given up after 25 s."""
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("PORT", "0")
    serving = runpy.run_path(str(RECIPES / "webhook_receiver.py"))["serving"]

    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Future()

    async with (
        Emulator() as emulator,
        emulator.session(project_id="docs") as session,
        Journal.open(tmp_path / "jobs.db") as journal,
        DurableJobs(session, journal) as jobs,
        serving(journal, jobs),
        ClientSession(capsys.readouterr().out.split()[-1]) as client,
    ):
        begun = asyncio.get_running_loop().time()
        async with client.post("/webhook", data=half()) as response:
            assert response.status == 408
        assert asyncio.get_running_loop().time() - begun == pytest.approx(25, abs=1)


async def test_too_many_requests(receiver: Receivers, service: Emulator, client: ClientSession) -> None:
    """However many webhooks come, no poll comes before the time after a 429."""
    await service.inject("429 retry-after=2 on=get")
    async with receiver("Go on") as program, program.serving() as process:
        await process.watch(until(lambda: polls(service) == 1))
        (job_id,) = service.jobs
        body = event(job_id)
        await complete(service)
        while polls(service) == 1:
            assert await status(client, process, body, signed(body)) == 204
        await process.read_until(" completed: https://")
        await process.stop()
    first, second = [request.at for request in service.requests if request.method == "GET"]
    assert second - first >= 2


async def test_kills(receiver: Receivers, service: Emulator, client: ClientSession) -> None:
    """After a kill at any step, the next start tells each end, and what may have been started, and starts nothing."""
    await service.inject("hang agent=yes on=create", prompt="Lost")
    async with receiver("Go on", "Lost") as program:
        async with program.serving() as process:
            await process.watch(until(lambda: service.agents_started.total() == 2 and polls(service) == 1))
            await service.inject("hang on=get")
            body = event(next(job_id for job_id, job in service.jobs.items() if job.prompt == "Go on"))
            assert await status(client, process, body, signed(body)) == 204
            await process.watch(until(lambda: polls(service) == 2))
            process.interrupt(signal.SIGKILL)  # after the webhook was acknowledged, before the end is known
            await process.end()
            assert " completed: " not in process.output
        await complete(service)
        async with program.serving() as process:
            await process.read_until(" completed: https://")
            await process.read_until(" unknown: ")
            await process.stop()
    assert service.agents_started == {"Go on": 1, "Lost": 1}


async def test_signals(receiver: Receivers, service: Emulator) -> None:
    """Two signals cut no create, whose job is followed by the next start."""
    await service.inject("hang for=0.5 agent=yes on=create")
    async with receiver("Go on") as program:
        async with program.serving() as process:
            await process.watch(until(lambda: service.agents_started["Go on"]))
            await process.stop()
        await complete(service)
        async with program.serving() as process:
            await process.read_until(" completed: https://")
            await process.stop()
    assert service.agents_started == {"Go on": 1}


@pytest.mark.parametrize(
    ("prompt", "secret", "reason"),
    [(" ", SECRET, "prompt is blank"), ("Go on", "", "16 characters or more"), ("Go on", "short", "16 characters")],
)
async def test_settings(
    prompt: str, secret: str, reason: str, receiver: Receivers, service: Emulator, settings: dict[str, str]
) -> None:
    """Without a prompt that says something, or with a secret that could be found by trying, it ends with the reason."""
    settings["WEBHOOK_SECRET"] = secret
    async with receiver(prompt) as program, program.running() as process:
        assert await process.end() == 1
    assert reason in process.output
    assert "Traceback" not in process.output
    assert not service.requests
