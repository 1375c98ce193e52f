"""One create: at most one agent, and exactly one of four outcomes, over every fault."""

import asyncio
import errno
import json
import ssl
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import aiohappyeyeballs
import aiohttp
import pytest

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    AuthError,
    CreateFailed,
    CreateOutcome,
    CreateOutcomeUnknownError,
    CreateRetried,
    HttpTimeouts,
    InvalidInputError,
    JobCreated,
    NotFoundError,
    NotSentError,
    RateLimitedError,
    RejectedError,
    ServerError,
    SessionClosedError,
)
from agentjobs_async._version import __version__
from agentjobs_async.testing import Emulator, RateLimit
from tests.scripted import KEY, Reply, Scripted, address, http, job, loopback_socket, reply

CREATED = reply(201, {"id": "job_1", "status": "active"})
PATIENT = reply(429, {"error": "slow down"}, ("Retry-After", "5"))
HEAD = b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"


def clock() -> float:
    return asyncio.get_running_loop().time()


def failures(events: Sequence[object]) -> list[tuple[str, CreateOutcome, BaseException]]:
    return [(event.project_id, event.outcome, event.error) for event in events if isinstance(event, CreateFailed)]


def silent_tls(server: Scripted) -> str:
    """Return an address where a TLS handshake is never answered."""
    return server.base_url.replace("http", "https")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("first", "phase", "status"),
    [
        pytest.param(reply(500), "response", 500, id="500"),
        pytest.param(reply(501), "response", 501, id="501"),
        pytest.param(reply(503, None, ("Retry-After", "1")), "response", 503, id="503 with a wish"),
        pytest.param(Reply(b"HTTP/1.1 502 No\r\nContent-Length: 9\r\n\r\n{", "fin"), "response", 502, id="502 cut"),
        pytest.param(reply(408), "response", 408, id="408"),
        pytest.param(reply(303, None, ("Location", "/")), "response", 303, id="303"),
        pytest.param(reply(204), "response", 204, id="204"),
        pytest.param(reply(600), "response", 600, id="600"),
        pytest.param(reply(200, {"error": "later"}), "response", 200, id="error in a 200"),
        pytest.param(Reply(http(202, b"<html>")), "response", 202, id="html"),
        pytest.param(Reply(http(200, b'{"x": "' + b"y" * 2_000_000)), "response", 200, id="too large"),
        pytest.param(job(job_id=".."), "response", 200, id="id that can't be polled"),
        pytest.param(Reply(then="reset"), "request", None, id="reset"),
        pytest.param(Reply(then="fin"), "request", None, id="closed"),
        pytest.param(Reply(b"garbage\r\n\r\n", "fin"), "request", None, id="garbage"),
        pytest.param(Reply(endless=b"HTTP/1.1 102 Wait\r\n\r\n", pause=1), "request", None, id="endless 1xx"),
        pytest.param(Reply(endless=b"HTTP/1.1 200 OK\r\nX: y\r\n", pause=1), "request", None, id="endless headers"),
        pytest.param(Reply(then="hang"), "request", None, id="silence"),
        pytest.param(Reply(HEAD, "fin"), "response", 201, id="cut"),
        pytest.param(Reply(HEAD, "hang"), "response", 201, id="hangs in the body"),
        pytest.param(Reply(HEAD, endless=b" ", pause=1), "response", 201, id="drip"),
    ],
)
async def test_unknown(first: Reply, phase: str, status: int | None) -> None:
    """Whatever leaves it open whether an agent was started is sent once, ends as unknown, and in time."""
    events: list[object] = []
    async with Scripted(first, CREATED) as server, server.session(hooks=[events.append]) as session:
        began = clock()
        with pytest.raises(CreateOutcomeUnknownError, match="look at the project") as caught:
            await session.create_job("Fix it", timeout=20)
        assert clock() - began < 20.1
    assert len(server.requests) == 1
    assert (caught.value.outcome, caught.value.phase, caught.value.status) == (CreateOutcome.UNKNOWN, phase, status)
    assert failures(events) == [("docs", CreateOutcome.UNKNOWN, caught.value)]


@pytest.mark.looptime
async def test_unknown_time() -> None:
    """A create that hangs ends when its own timeout says so, whatever `timeouts.request` is."""
    async with Scripted(Reply(then="hang")) as server, server.session(timeouts=HttpTimeouts(request=3)) as session:
        began = clock()
        with pytest.raises(CreateOutcomeUnknownError, match="no usable answer within 90 s"):
            await session.create_job("Fix it", timeout=90)
        assert clock() - began == pytest.approx(90)


async def test_what_aiohttp_should_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that aiohttp is not known to raise leaves it open what was sent, and is an error of ours."""
    monkeypatch.setattr(aiohttp.ClientSession, "post", Mock(side_effect=RuntimeError(f"no {KEY}")))
    async with Scripted(CREATED) as server, server.session() as session:
        with pytest.raises(CreateOutcomeUnknownError, match=r"no \*\*\*;") as caught:
            await session.create_job("Fix it")
    assert caught.value.__context__ is None


async def test_unknown_is_logged_without_the_prompt(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown create is logged, with the hash of its prompt by which to find it, and without the prompt."""
    async with Scripted(reply(500)) as server, server.session() as session:
        with pytest.raises(CreateOutcomeUnknownError):
            await session.create_job("Fix the secret thing")
    assert f"sha256 of its prompt: {sha256(b'Fix the secret thing').hexdigest()[:12]}..." in caplog.text
    assert "secret thing" not in caplog.text


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, RejectedError) for status in (300, 301, 302, 304, 307, 308, 400, 402, 405, 409, 413, 422, 425, 499)),
        *((status, AuthError) for status in (401, 403)),
        *((status, NotFoundError) for status in (404, 410)),
    ],
)
async def test_rejected(status: int, kind: type[RejectedError]) -> None:
    """A refusal starts nothing, is not repeated, and says why."""
    events: list[object] = []
    async with (
        Scripted(reply(status, {"error": "no"}), CREATED) as server,
        server.session(hooks=[events.append]) as session,
    ):
        with pytest.raises(kind) as caught:
            await session.create_job("Fix it")
    assert type(caught.value) is kind
    assert (caught.value.outcome, caught.value.status) == (CreateOutcome.REJECTED, status)
    assert len(server.requests) == 1
    assert failures(events) == [("docs", CreateOutcome.REJECTED, caught.value)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    """Neither the prompt nor the key goes where a redirect points to, for creates and for reads."""
    async with Scripted(CREATED) as foreign:
        redirect = reply(status, None, ("Location", foreign.base_url + "/v2/agent/docs/job?token=hidden"))
        async with Scripted(redirect) as server, server.session() as session:
            for call in (session.create_job("Fix it"), session.get_job("job_1")):
                with pytest.raises(AgentJobsError, match=f"a redirect to {foreign.base_url}") as caught:
                    await call
                assert "hidden" not in str(caught.value)
    assert (len(server.requests), len(foreign.requests), foreign.connections) == (2, 0, 0)


@pytest.mark.looptime
async def test_refused_until_it_comes_up() -> None:
    """A service that comes up while the create is still trying gets it, once."""
    events: list[object] = []
    sock = loopback_socket()
    async with AgentJobsSession(address(sock), KEY, project_id="docs", hooks=[events.append]) as session:
        creating = asyncio.ensure_future(session.create_job("Fix it", timeout=60))
        await asyncio.sleep(30)
        async with Scripted(CREATED, sock=sock) as server:
            created = await creating
    assert len(server.requests) == 1
    *retried, event = events
    assert isinstance(event, JobCreated)
    assert event.job is created
    assert 30 <= event.elapsed <= 41
    assert [one.tries for one in retried if isinstance(one, CreateRetried)] == [*range(1, event.tries)]


@pytest.mark.looptime
async def test_refused_for_ever() -> None:
    """A service that never comes up ends the create within its time, as not sent."""
    events: list[object] = []
    with loopback_socket() as sock:
        async with AgentJobsSession(address(sock), KEY, project_id="docs", hooks=[events.append]) as session:
            began = clock()
            with pytest.raises(NotSentError) as caught:
                await session.create_job("Fix it", timeout=60)
            assert 40 < clock() - began <= 60
    assert (caught.value.outcome, caught.value.reason) == (CreateOutcome.NOT_SENT, "refused")
    assert failures(events) == [("docs", CreateOutcome.NOT_SENT, caught.value)]


async def test_without_retry() -> None:
    """Whoever paces creates himself gets what would be tried again at once, with its outcome."""
    async with Scripted(PATIENT, CREATED) as server, server.session() as session:
        with pytest.raises(RateLimitedError) as refused:
            await session.create_job("Fix it", retry=False)
    assert (refused.value.outcome, refused.value.retry_after, len(server.requests)) == (CreateOutcome.REJECTED, 5, 1)
    with loopback_socket() as sock:
        async with AgentJobsSession(address(sock), KEY, project_id="docs") as session:
            with pytest.raises(NotSentError) as unsent:
                await session.create_job("Fix it", retry=False)
    assert (unsent.value.outcome, unsent.value.reason) == (CreateOutcome.NOT_SENT, "refused")


@pytest.mark.looptime
@pytest.mark.parametrize(("connect", "words"), [(10.0, "within 7 s"), (2.0, "no connection within 2 s")])
async def test_never_connected(connect: float, words: str) -> None:
    """A create whose time ends in the middle of connecting was not sent."""
    async with Scripted(Reply()) as silent:
        settings = {"base_url": silent_tls(silent), "timeouts": HttpTimeouts(connect=connect)}
        async with silent.session(**settings) as session:
            began = clock()
            with pytest.raises(NotSentError, match=words) as caught:
                await session.create_job("Fix it", timeout=7)
            assert clock() - began <= 7.1
    assert (caught.value.outcome, caught.value.reason) == (CreateOutcome.NOT_SENT, "timeout")


@pytest.mark.looptime
async def test_without_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A create that could not even get a socket is sent later, once."""
    connect, tries = aiohappyeyeballs.start_connection, list[float]()

    async def start(*arguments: Any, **options: Any) -> object:
        tries.append(clock())
        if len(tries) < 3:
            raise OSError(errno.EMFILE, "too many open files")
        return await connect(*arguments, **options)

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", start)
    async with Scripted(CREATED) as server, server.session() as session:
        await session.create_job("Fix it")
    assert (len(tries), len(server.requests)) == (3, 1)


@pytest.mark.looptime
async def test_bad_certificate_is_not_repeated(server_tls: ssl.SSLContext) -> None:
    """A certificate of an unknown authority ends the create at once: trying again would not mend it."""
    hellos: list[object] = []
    server_tls.sni_callback = lambda *hello: hellos.append(hello)
    async with Scripted(CREATED, ssl=server_tls) as server, server.session() as session:
        with pytest.raises(NotSentError) as caught:
            await session.create_job("Fix it")
    assert (caught.value.outcome, caught.value.reason) == (CreateOutcome.NOT_SENT, "certificate")
    assert (len(hellos), len(server.requests)) == (1, 0)


async def test_trusted_certificate(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """With a context that trusts the service's authority, jobs are created and read over TLS."""
    async with Scripted(CREATED, ssl=server_tls) as server, server.session(ssl=client_tls) as session:
        assert (await session.get_job(await session.create_job("Fix it"))).id == "job_1"


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("wish", "not_before", "latest"),
    [("5", 5, 5), ("60", 60, 60), ("0", 0.1, 0.2), ("soon", 0.1, 0.2), (None, 0.1, 0.2)],
)
async def test_429_is_repeated(wish: str | None, not_before: float, latest: float) -> None:
    """A 429 is sent again, on a fresh connection, not before the patience it asked for nor much after it."""
    refusal = reply(429, None, *([] if wish is None else [("Retry-After", wish)]))
    async with Scripted(refusal, CREATED) as server, server.session() as session:
        assert (await session.create_job("Fix it")).id == "job_1"
    first, second = server.requests
    assert not_before <= second.at - first.at <= latest + 0.01
    assert (first.connection, second.connection) == (1, 2)


@pytest.mark.looptime
@pytest.mark.parametrize(("wish", "patience"), [("61", 120), ("1e9", 0.05), ("30", 20), ("0", 0.05)])
async def test_429_without_patience(wish: str, patience: float) -> None:
    """A wish beyond `policy.max_retry_after` or the time left is raised at once, and told."""
    async with Scripted(reply(429, None, ("Retry-After", wish)), CREATED) as server, server.session() as session:
        began = clock()
        with pytest.raises(RateLimitedError) as caught:
            await session.create_job("Fix it", timeout=patience)
        assert clock() - began < 0.01
    assert caught.value.outcome is CreateOutcome.REJECTED
    assert caught.value.retry_after == (float(wish) if wish.isdigit() else None)
    assert len(server.requests) == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("second", "outcome"), [(PATIENT, CreateOutcome.REJECTED), (Reply(then="hang"), CreateOutcome.UNKNOWN)]
)
async def test_429_then(second: Reply, outcome: CreateOutcome) -> None:
    """What the last try met is what counts: refused again, or nobody knows."""
    async with Scripted(PATIENT, second) as server, server.session() as session:
        began = clock()
        with pytest.raises(AgentJobsError) as caught:
            await session.create_job("Fix it", timeout=14)
        assert clock() - began <= 14.1
    assert caught.value.outcome is outcome


@pytest.mark.looptime
@pytest.mark.parametrize(("wish", "pause"), [("5", 5.0), (None, 0.1)])
async def test_named_refusals_are_repeated(wish: str | None, pause: float) -> None:
    """A 5xx that the user named is sent again as a 429 is; another one leaves it unknown."""
    refusal = reply(503, None, *([] if wish is None else [("Retry-After", wish)]))
    async with (
        Scripted(refusal, CREATED, reply(502)) as server,
        server.session(create_refusals=[503, HTTPStatus.GATEWAY_TIMEOUT]) as session,
    ):
        assert (await session.create_job("Fix it")).id == "job_1"
        with pytest.raises(CreateOutcomeUnknownError):
            await session.create_job("Fix that")
    first, second, _ = server.requests
    assert second.at - first.at == pytest.approx(pause, abs=0.11)


@pytest.mark.looptime
@pytest.mark.parametrize("settings", [{"timeout": 120}, {"timeout": 120, "retry": False}, {"timeout": 20}])
async def test_named_refusals_without_patience(settings: dict[str, Any]) -> None:
    """A refusal whose wish is beyond the cap or the time left, or that shall not be repeated, is raised as rejected."""
    wish = "61" if settings == {"timeout": 120} else "30"
    async with (
        Scripted(reply(503, None, ("Retry-After", wish))) as server,
        server.session(create_refusals={503}) as session,
    ):
        with pytest.raises(ServerError) as caught:
            await session.create_job("Fix it", **settings)
    assert (caught.value.outcome, caught.value.retry_after) == (CreateOutcome.REJECTED, float(wish))
    assert len(server.requests) == 1


@pytest.mark.looptime
async def test_rate_limited_service() -> None:
    """Over a service's hourly limit, as the service's own documents tell it, the create says how long to wait."""
    async with (
        Emulator(rate_limit=RateLimit(creates=1, per=3600)) as emulator,
        emulator.session(project_id="docs") as session,
    ):
        await session.create_job("Fix it")
        with pytest.raises(RateLimitedError) as caught:
            await session.create_job("Fix that")
    assert caught.value.retry_after == 3600
    assert emulator.agents_started == {"Fix it": 1}


STALLED = Reply(b"HTTP/1.1 429 No\r\nRetry-After: 500\r\nContent-Length: 99\r\n\r\n{", "hang")


@pytest.mark.looptime
async def test_refusal_whose_body_stalls() -> None:
    """A refusal is rejected as soon as its head is here, even when the time ends before the body that explains it."""
    async with Scripted(STALLED) as server, server.session() as session:
        with pytest.raises(RateLimitedError) as caught:
            await session.create_job("Fix it", timeout=0.5)
    assert (caught.value.outcome, caught.value.retry_after) == (CreateOutcome.REJECTED, 500)


@pytest.mark.looptime
async def test_cancelled_while_a_refusal_stalls() -> None:
    """A create that is cancelled after the head of a refusal came is reported as rejected."""
    events: list[Any] = []
    async with Scripted(STALLED) as server, server.session(hooks=[events.append]) as session:
        creating = asyncio.ensure_future(session.create_job("Fix it"))
        await asyncio.sleep(0.5)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
    assert [event.outcome for event in events] == [CreateOutcome.REJECTED]


INTERRUPTED = [
    pytest.param(silent_tls, Reply(), CreateOutcome.NOT_SENT, 0, id="connecting"),
    pytest.param(None, Reply(then="hang"), CreateOutcome.UNKNOWN, 1, id="waiting for the answer"),
    pytest.param(None, Reply(HEAD, "hang"), CreateOutcome.UNKNOWN, 1, id="in the body"),
    pytest.param(None, PATIENT, CreateOutcome.REJECTED, 1, id="backing off"),
    pytest.param(None, reply(599, None, ("Retry-After", "5")), CreateOutcome.REJECTED, 1, id="refused by a gateway"),
]


@pytest.mark.looptime
@pytest.mark.parametrize(("url", "first", "outcome", "sent"), INTERRUPTED)
async def test_cancelled(
    url: Callable[[Scripted], str] | None, first: Reply, outcome: CreateOutcome, sent: int
) -> None:
    """Cancelling leaves at once and sends nothing more; a hook sees what may have become of the create."""
    events: list[CreateFailed] = []
    async with Scripted(first, CREATED) as server:
        base_url = url(server) if url else server.base_url
        async with server.session(base_url=base_url, hooks=[events.append], create_refusals={599}) as session:
            creating = asyncio.ensure_future(session.create_job("Fix it"))
            await asyncio.sleep(2)
            creating.cancel()
            began = clock()
            with pytest.raises(asyncio.CancelledError):
                await creating
            assert clock() == began
            await asyncio.sleep(60)
    assert len(server.requests) == sent
    (event,) = failures(events)
    assert (event[1], type(event[2])) == (outcome, asyncio.CancelledError)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.looptime
async def test_time_out_of_the_callers_own(caplog: pytest.LogCaptureFixture) -> None:
    """An `asyncio.timeout` around a create says in its traceback and in the log that an agent may have been started."""
    async with Scripted(Reply(then="hang")) as server, server.session() as session:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(5):
                await session.create_job("Fix it")
    words = "an agent may have been started: the caller of the create was cancelled"
    assert any(line.startswith(words) for line in traceback.format_exception(caught.value))
    assert caplog.messages[-1].startswith("the outcome of a create is unknown (sha256 of its prompt: ")
    assert caplog.messages[-1].endswith("...): the caller of the create was cancelled")


@pytest.mark.looptime
@pytest.mark.parametrize(("url", "first", "outcome", "sent"), INTERRUPTED)
async def test_session_closed_meanwhile(
    url: Callable[[Scripted], str] | None, first: Reply, outcome: CreateOutcome, sent: int
) -> None:
    """Closing the session ends a create at once, as unknown after its first byte, else as what it is."""
    events: list[CreateFailed] = []
    async with Scripted(first, CREATED) as server:
        base_url = url(server) if url else server.base_url
        session = server.session(base_url=base_url, hooks=[events.append], create_refusals={599})
        creating = asyncio.ensure_future(session.create_job("Fix it"))
        await asyncio.sleep(2)
        began = clock()
        await session.aclose()
        assert creating.done()
        with pytest.raises(AgentJobsError, match="closed meanwhile") as caught:
            await creating
        assert clock() == began
        await asyncio.sleep(60)
    assert len(server.requests) == sent
    assert caught.value.outcome is outcome
    assert type(caught.value) is (CreateOutcomeUnknownError if outcome is CreateOutcome.UNKNOWN else SessionClosedError)
    assert failures(events) == [("docs", outcome, caught.value)]


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("Fix it", id="plain"),
        pytest.param(" \tnäh ÷ 日本語 🎉 \u2028\x00\x1b\\\"' \r\n", id="unicode"),
        pytest.param("é" * (3 * 512 * 1024), id="3 MiB"),
    ],
)
async def test_prompt_arrives_as_it_is(prompt: str) -> None:
    """The prompt arrives character for character, as UTF-8 in one JSON object of one field; one agent is started."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        await session.create_job(prompt)
    (request,) = emulator.requests
    assert json.loads(request.body.decode("utf-8")) == {"prompt": prompt}
    assert emulator.agents_started == {prompt: 1}


async def test_headers_of_a_create() -> None:
    """A create bears the key, says that it sends JSON, takes JSON, and names this package."""
    async with Scripted(CREATED) as server, server.session() as session:
        await session.create_job("Fix it")
    (request,) = server.requests
    assert request.line == "POST /v2/agent/docs/job HTTP/1.1"
    assert request.body == b'{"prompt": "Fix it"}'
    expected = {
        "host": server.base_url.removeprefix("http://"),
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "content-length": "20",
        "accept": "application/json",
        "accept-encoding": "gzip, deflate",
        "user-agent": f"agentjobs-async/{__version__}",
        "connection": "close",
    }
    assert request.headers == expected


@pytest.mark.parametrize(
    "name",
    ["a/b", "../x", "..%2f", "%2e%2e", "?q=1", "#f", "//host", "@", "a b", "ü", "日本", "\u202e", "+&=;:", "x" * 512],
)
async def test_ids_are_one_segment(name: str) -> None:
    """Whatever an id holds, it is one segment of the request's path, and the service reads it as it was given."""
    async with Emulator() as emulator, emulator.session() as session:
        created = await session.create_job("Fix it", project_id=name)
        assert created.project_id == name
        await session.get_job(created)
    create, read = emulator.requests
    assert create.target == f"/v2/agent/{quote(name, safe='')}/job"
    assert read.target == f"/v2/agent/{quote(name, safe='')}/job/{created.id}"
    assert (create.project_id, read.project_id) == (name, name)


@pytest.mark.parametrize("status", ["active", "completed", "archived", "failed", "hibernating"])
async def test_any_job_is_created(status: str) -> None:
    """A good job is a created one, whatever its status, and the hook gets it with the time it took."""
    events: list[Any] = []
    async with Scripted(job(status)) as server, server.session(hooks=[events.append]) as session:
        created = await session.create_job("Fix it")
    assert (created.id, created.project_id, created.status) == ("job_1", "docs", status)
    assert events == [JobCreated(created, events[-1].elapsed)]


async def test_each_create_has_its_own_connection() -> None:
    """No create goes out on a connection that was used before, nor lends its own to a later read."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        created = await asyncio.gather(*(session.create_job(f"Fix {n}") for n in range(5)))
        for one in created:
            await session.get_job(one)
    assert sorted(request.connection for request in emulator.requests) == [1, 2, 3, 4, 5, 6, 6, 6, 6, 6]


def no() -> bool:
    return False


def fault() -> bool:
    raise LookupError("before_send is broken")


def cancellation() -> bool:
    raise asyncio.CancelledError


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("before_send", [no, fault, cancellation])
async def test_withheld(
    before_send: Callable[[], bool], server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, *, secure: bool
) -> None:
    """A create whose before_send says no, or raises, sends no byte of the request, and is not tried again."""
    arrived: list[bytes] = []
    ended = asyncio.Event()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # it may be reset
            while piece := await reader.read(1_000):
                arrived.append(piece)
        writer.transport.abort()
        ended.set()

    server = await asyncio.start_server(receive, "127.0.0.1", 0, ssl=server_tls if secure else None)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"{'https' if secure else 'http'}://127.0.0.1:{port}"
        async with AgentJobsSession(url, KEY, project_id="docs", ssl=client_tls if secure else None) as session:
            with pytest.raises(NotSentError) as caught:
                await session.create_job("x" * 300_000, before_send=before_send)
            await ended.wait()
    assert (caught.value.reason, caught.value.outcome) == ("withheld", CreateOutcome.NOT_SENT)
    assert arrived == []
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_before_send_is_called_in_time() -> None:
    """before_send is called once the connection is there and before the first byte, again for each repetition."""
    calls: list[tuple[int, int]] = []
    async with Scripted(reply(429, None, ("Retry-After", "0")), CREATED) as server, server.session() as session:

        def before_send() -> bool:
            calls.append((server.connections, len(server.requests)))
            return True

        await session.create_job("x", before_send=before_send)
        assert [len(calls), len(server.requests)] == [2, 2]
        assert [requests for _, requests in calls] == [0, 1]


@pytest.mark.looptime
async def test_events_of_a_repeated_create() -> None:
    """Each repetition is told before its pause, with why and for how long; the end says how many tries it took."""
    events: list[Any] = []
    async with (
        Scripted(PATIENT, PATIENT, reply(400)) as server,
        server.session(hooks=[events.append]) as session,
    ):
        with pytest.raises(RejectedError) as caught:
            await session.create_job("Fix it", label="order-17")
    named = {"project_id": "docs", "prompt_sha256": sha256(b"Fix it").hexdigest(), "label": "order-17"}
    first, second, failed = events
    for tries, event in enumerate((first, second), 1):
        assert event == CreateRetried(**named, error=event.error, tries=tries, delay=5.0)
        assert (type(event.error), event.error.outcome) == (RateLimitedError, CreateOutcome.REJECTED)
    outcome = CreateOutcome.REJECTED
    assert failed == CreateFailed(**named, outcome=outcome, error=caught.value, elapsed=failed.elapsed, tries=3)
    assert failed.elapsed == pytest.approx(10, abs=0.1)
    assert "Fix it" not in repr(events)


async def test_label_of_a_job() -> None:
    """A created job bears the label of its create, which is not sent; one without a label has none."""
    events: list[Any] = []
    async with Scripted(CREATED) as server, server.session(hooks=[events.append]) as session:
        labelled = await session.create_job("Fix it", label="order-17")
        bare = await session.create_job("Fix it")
    assert (labelled.label, bare.label) == ("order-17", None)
    assert labelled == bare
    assert [event.label for event in events] == ["order-17", None]
    assert [event.job.label for event in events] == ["order-17", None]
    assert [event.tries for event in events] == [1, 1]
    assert "order-17" not in repr(server.requests)


@pytest.mark.parametrize("label", ["", "two\nlines", "x" * 513, 17])
async def test_no_label(label: Any) -> None:
    """A label that is no short line of text is refused before anything is sent."""
    async with Scripted(CREATED) as server, server.session() as session:
        with pytest.raises(InvalidInputError, match=r"^label must") as caught:
            await session.create_job("Fix it", label=label)
    assert (caught.value.outcome, server.requests) == (CreateOutcome.NOT_SENT, [])
