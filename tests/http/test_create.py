"""One create: what is sent again, what is told and logged of it, and what `before_send` may stop."""

import asyncio
import errno
import ssl
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from itertools import product
from typing import Any
from unittest.mock import DEFAULT, AsyncMock, Mock

import aiohappyeyeballs
import aiohttp
import pytest
import trustme

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    CreateFailed,
    CreateOutcome,
    CreateOutcomeUnknownError,
    CreateRetried,
    Dialect,
    JobCreated,
    NotSentError,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ServerError,
    SessionClosedError,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async._text import local_time
from tests.http.tls import CertificateServer, client_context
from tests.polled import REF, clock, gaps, let_go
from tests.rows import failures_in_turn
from tests.scripted import KEY, Reply, Scripted, address, loopback_socket, reply
from tests.until import until

CREATED = reply(201, {"id": "job_1", "status": "active"})
HEAD = b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"
PATIENT = reply(429, {"error": "slow down"}, ("Retry-After", "5"))


def failures(events: Sequence[object]) -> list[tuple[str, CreateOutcome, BaseException]]:
    return [(event.project_id, event.outcome, event.error) for event in events if isinstance(event, CreateFailed)]


def silent_tls(server: Scripted) -> str:
    """Return an address where a TLS handshake is never answered."""
    return server.base_url.replace("http", "https")


async def test_what_aiohttp_should_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that aiohttp is not known to raise leaves it open what was sent, and is an error of ours."""
    monkeypatch.setattr(aiohttp.ClientSession, "post", Mock(side_effect=RuntimeError(f"no {KEY}")))
    async with Scripted(CREATED) as server, server.session() as session:
        with pytest.raises(CreateOutcomeUnknownError, match=r"no \*\*\*;") as caught:
            await session.create_job("Fix it")
    assert caught.value.__context__ is None


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("then", ["fin", "reset"])
async def test_aiohttp_that_would_repeat_it(then: Any, monkeypatch: pytest.MonkeyPatch, *, refused: bool) -> None:
    """Even where aiohttp repeats a POST whose connection breaks, as it repeats a GET, a create is sent once."""
    monkeypatch.setattr("aiohttp.client.IDEMPOTENT_METHODS", {"GET", "POST"})
    connect = aiohappyeyeballs.start_connection
    second = OSError(errno.ECONNREFUSED, "refused") if refused else DEFAULT
    monkeypatch.setattr(
        aiohappyeyeballs, "start_connection", AsyncMock(side_effect=[DEFAULT, second, DEFAULT], wraps=connect)
    )
    async with Scripted(Reply(then=then), CREATED) as server, server.session() as session:
        with pytest.raises(CreateOutcomeUnknownError, match="refused" if refused else "never sent twice"):
            await session.create_job("Fix it")
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [reply(500), reply(201, ["no job"]), Reply(then="reset")])
async def test_unknown_names_where_to_look(answer: Reply) -> None:
    """An unknown create names its project and the time at which it was sent, by which a person finds its job."""
    async with Scripted(answer) as server, server.session() as session:
        began = datetime.now(UTC)
        with pytest.raises(CreateOutcomeUnknownError) as caught:
            await session.create_job("Fix it")
    assert caught.value.sent_at is not None
    assert began <= caught.value.sent_at <= datetime.now(UTC)
    assert caught.value.project_id == "docs"
    where = f"look at the project docs for a job of {local_time(caught.value.sent_at)} before creating this job again"
    assert str(caught.value).endswith(where)


async def test_a_cut_create_names_where_to_look() -> None:
    """So does a create that its timeout cuts, and the note of one that its caller cancels."""
    async with Scripted(Reply(then="hang")) as server, server.session() as session:
        with pytest.raises(CreateOutcomeUnknownError, match="look at the project docs for a job of ") as caught:
            await session.create_job("Fix it", timeout=2)
        assert caught.value.sent_at is not None
        creating = asyncio.ensure_future(session.create_job("Fix it"))
        await until(lambda: len(server.requests) == 2)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await creating
    (note,) = cancelled.value.__notes__
    assert "look at the project docs for a job of " in note


async def test_unknown_is_logged_without_the_prompt(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown create is logged, with the hash of its prompt by which to find it, and without the prompt."""
    async with Scripted(reply(500)) as server, server.session() as session:
        with pytest.raises(CreateOutcomeUnknownError):
            await session.create_job("Fix the secret thing")
    assert f"sha256 of its prompt: {sha256(b'Fix the secret thing').hexdigest()[:12]}..." in caplog.text
    assert "secret thing" not in caplog.text


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
async def test_without_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A create that could not even get a socket is sent later, once, and each repetition is told."""
    events: list[Any] = []
    connect = aiohappyeyeballs.start_connection
    start = AsyncMock(side_effect=[OSError(errno.EMFILE, "too many open files")] * 2 + [DEFAULT], wraps=connect)
    monkeypatch.setattr(aiohappyeyeballs, "start_connection", start)
    async with Scripted(CREATED) as server, server.session(hooks=[events.append]) as session:
        await session.create_job("Fix it")
    assert len(server.requests) == 1
    assert [type(event) for event in events] == [CreateRetried, CreateRetried, JobCreated]
    assert [event.tries for event in events] == [1, 2, 3]
    assert [event.error.reason for event in events[:2]] == ["connect", "connect"]


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


def created_with(*headers: tuple[str, int]) -> Reply:
    """Return a created job whose response has fields of these names and lengths."""
    return reply(201, {"id": "job_1", "status": "active"}, *((name, "x" * length) for name, length in headers))


async def test_long_headers() -> None:
    """They cost no created job its id: fields of 64 KiB, 256 of them, 256 KiB together; a read keeps to less."""

    async def check(*headers: tuple[str, int]) -> None:
        async with Scripted(created_with(*headers)) as server, server.session() as session:
            assert (await session.create_job("Fix it")).id == "job_1"
            with pytest.raises(ProtocolError) as caught:
                await session.get_job("job_1")
        assert caught.value.reason == "http"

    many = [(f"X-{number}", 900) for number in range(254)]
    rows = [(("X", 65_536),), (*(("X", 64_000) for _ in range(4)),), tuple(many)]
    assert await failures_in_turn(check, *rows) == {}


async def test_headers_without_bound() -> None:
    """A create whose response has longer fields, more of them or more in all, or trailers so long, is unknown."""

    async def check(response: bytes, endless: bytes = b"") -> None:
        scripted = Reply(response, "hang", endless=endless)
        async with Scripted(scripted) as server, server.session() as session:
            with pytest.raises(CreateOutcomeUnknownError, match="broken HTTP"):
                await session.create_job("Fix it", timeout=30)

    chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    rows = [
        (created_with(("X", 66_000)).data,),
        (created_with(*[("X", 1)] * 257).data,),
        (created_with(*[("X", 60_000)] * 5).data,),
        (HEAD.partition(b"\r\n")[0] + b"\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 102 Wait\r\n\r\n", b"HTTP/1.1 102 Wait\r\n\r\n"),
        (chunked + (b"X: " + b"x" * 60_000 + b"\r\n") * 9,),
    ]
    assert await failures_in_turn(check, *rows) == {}


async def test_document_beyond_the_bound_of_headers() -> None:
    """A document may be longer than all header fields; only what is no part of a body is counted."""
    document = {"id": "job_1", "status": "active", "log": "x" * 700_000}
    async with Scripted(reply(201, document)) as server, server.session() as session:
        assert (await session.create_job("Fix it")).id == "job_1"


async def test_client_certificate_that_is_refused() -> None:
    """A TLS alert in answer to the client's certificate shows that nothing was forwarded: not sent, and not repeated.

    Under TLS 1.3 the request has left by then. What a create is told, a read is told as well.
    """
    authority, other = trustme.CA(), trustme.CA()
    past = datetime(2020, 1, 1, tzinfo=UTC)
    made: dict[str, trustme.LeafCert | None] = {
        "ask": None,
        "authority": other.issue_cert("client.example.com"),
        "expired": authority.issue_cert("client.example.com", not_after=past),
    }

    async def check(name: str, version: ssl.TLSVersion) -> None:
        with CertificateServer(authority, version) as server:
            context = client_context(authority, made[name])
            async with AgentJobsSession(server.base_url, KEY, project_id="docs", ssl=context) as session:
                with pytest.raises(NotSentError, match=f"server .*{name}.* certificates") as create:
                    await session.create_job("Fix it")
                with pytest.raises(NotSentError, match=f"server .*{name}") as read:
                    await session.get_job("job_1")
        assert (create.value.outcome, create.value.reason, read.value.reason) == ("not_sent", *["certificate"] * 2)
        assert (server.connections, server.requests) == (2, 0)

    assert await failures_in_turn(check, *product(made, [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])) == {}


async def test_client_certificate_that_is_accepted() -> None:
    """With the certificate that the server wants, creates and reads are as without one."""
    authority = trustme.CA()
    with CertificateServer(authority, ssl.TLSVersion.TLSv1_3) as server:
        context = client_context(authority, authority.issue_cert("client.example.com"))
        async with AgentJobsSession(server.base_url, KEY, project_id="docs", ssl=context) as session:
            job = await session.create_job("Fix it")
            assert await session.get_job(job) == job
    assert server.requests == 2


async def test_connection_that_breaks_without_an_alert(client_tls: ssl.SSLContext, server_tls: ssl.SSLContext) -> None:
    """It leaves a create unknown, and its text names TLS as a likely cause where that may be one, and only there."""
    server_tls.verify_mode = ssl.CERT_REQUIRED  # asyncio's server sends no alert: it only ends the connection

    async def check(server: Scripted, *, named: bool) -> None:
        async with server, server.session(ssl=client_tls) as session:
            with pytest.raises(CreateOutcomeUnknownError) as caught:
                await session.create_job("Fix it")
        assert ("TLS is a likely cause" in str(caught.value)) is named

    await check(Scripted(CREATED, ssl=server_tls), named=True)
    await check(Scripted(Reply(then="fin")), named=False)
    server_tls.verify_mode = ssl.CERT_NONE
    await check(Scripted(Reply(HEAD, "fin"), ssl=server_tls), named=False)


@pytest.mark.looptime
async def test_429_without_patience() -> None:
    """A wish beyond `policy.max_retry_after` or the time left is raised at once, and told."""

    async def check(wish: str, patience: float) -> None:
        async with Scripted(reply(429, None, ("Retry-After", wish)), CREATED) as server, server.session() as session:
            began = clock()
            with pytest.raises(RateLimitedError) as caught:
                await session.create_job("Fix it", timeout=patience)
            assert clock() - began < 0.01
        assert caught.value.outcome is CreateOutcome.REJECTED
        assert caught.value.retry_after == (float(wish) if wish.isdigit() else None)
        assert len(server.requests) == 1

    assert await failures_in_turn(check, ("61", 120), ("1e9", 0.05), ("30", 20)) == {}


@pytest.mark.looptime
async def test_429_without_a_usable_wish() -> None:
    """It is waited out for 1 s, doubling to 60 s; a wish between two counts as it is, and is none of them."""
    wishes = [("Retry-After", wish) for wish in ("soon", "0", "-3", "7.5", "20, 20", "", "1e3", "1 h", "")]
    wishes[4:4] = [("retry-after-ms", "2500"), ("Retry-After-Ms", "soon")]
    limits = [reply(429, None, wish) for wish in wishes]
    async with Scripted(*limits, reply(429), CREATED) as server, server.session() as session:
        await session.create_job("Fix it", timeout=600)
    pauses = [1, 2, 4, 7.5, 2.5, 8, 20, 16, 32, 60, 60, 60]
    assert gaps([request.at for request in server.requests]) == pytest.approx(pauses, abs=0.11)


@pytest.mark.looptime
async def test_429_beyond_the_time_left() -> None:
    """A create whose next pause would outlast its timeout ends as rejected, before it."""
    async with Scripted(reply(429)) as server, server.session() as session:
        began = clock()
        with pytest.raises(RateLimitedError) as caught:
            await session.create_job("Fix it", timeout=10)
    assert (caught.value.outcome, len(server.requests)) == (CreateOutcome.REJECTED, 4)
    assert clock() - began == pytest.approx(7, abs=0.5)


@pytest.mark.looptime
async def test_named_refusals_are_repeated() -> None:
    """A 5xx that the user named is sent again as a 429 is; another one leaves it unknown."""
    async with (
        Scripted(reply(503, None, ("Retry-After", "5")), reply(503), CREATED, reply(502)) as server,
        server.session(dialect=Dialect(create_refusals=[503, HTTPStatus.GATEWAY_TIMEOUT])) as session,
    ):
        assert (await session.create_job("Fix it")).id == "job_1"
        with pytest.raises(CreateOutcomeUnknownError):
            await session.create_job("Fix that")
    first, second, third, _ = server.requests
    assert [second.at - first.at, third.at - second.at] == pytest.approx([5, 1], abs=0.11)


@pytest.mark.looptime
async def test_named_refusals_without_patience() -> None:
    """A refusal whose wish is beyond the cap or the time left, or that shall not be repeated, is raised as rejected."""

    async def check(wish: str, settings: dict[str, Any]) -> None:
        async with (
            Scripted(reply(503, None, ("Retry-After", wish))) as server,
            server.session(dialect=Dialect(create_refusals={503})) as session,
        ):
            with pytest.raises(ServerError) as caught:
                await session.create_job("Fix it", **settings)
        assert (caught.value.outcome, caught.value.retry_after) == (CreateOutcome.REJECTED, float(wish))
        assert len(server.requests) == 1

    assert await failures_in_turn(check, ("61", {}), ("30", {"retry": False}), ("30", {"timeout": 20})) == {}


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
    (event,) = events
    assert (event.outcome, type(event.error)) == (CreateOutcome.REJECTED, asyncio.CancelledError)


@pytest.mark.looptime
async def test_time_out_of_the_callers_own(caplog: pytest.LogCaptureFixture) -> None:
    """An `asyncio.timeout` around a create says in its traceback and in the log that an agent may have been started."""
    async with Scripted(Reply(then="hang")) as server, server.session() as session:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(5):
                await session.create_job("Fix it")
    words = "the caller of the create was cancelled; an agent may have been started: "
    assert any(line.startswith(words) for line in traceback.format_exception(caught.value))
    assert caplog.messages[-1].startswith("the outcome of a create is unknown (sha256 of its prompt: ")
    assert caplog.messages[-1].endswith("...): the caller of the create was cancelled")


@pytest.mark.looptime
async def test_cancelled_when_it_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    """A create that is cancelled in an iteration of the loop from its answer on loses no id.

    It returns the job; or the log and the cancellation name its token, and hooks are told of it and of the end.
    """

    async def check(iterations: int) -> None:
        caplog.clear()
        events: list[Any] = []
        answered = asyncio.Event()
        answer = Reply(CREATED.data, after=answered.set)
        async with Scripted(answer) as server, server.session(hooks=[events.append]) as session:
            creating = asyncio.ensure_future(session.create_job("Fix it", label="order-17"))
            await answered.wait()
            await let_go(iterations)
            if creating.cancel():
                with pytest.raises(asyncio.CancelledError) as caught:
                    await creating
                (note,) = caught.value.__notes__
                assert note == caplog.messages[-1]
                assert note.startswith("job docs~.job_1 was created, and its caller was cut off")
                created, *wait = events
                assert wait == [
                    WaitStarted(REF, label="order-17"),
                    WaitEnded(*(REF, None, caught.value, 0, 0.0), server_address="127.0.0.1", label="order-17"),
                ]
                outcomes.append("cancelled")
            else:
                (created,) = events
                assert (await creating).id == "job_1"
                outcomes.append("returned")
            assert (type(created), created.job.label) == (JobCreated, "order-17")

    outcomes: list[str] = []
    assert await failures_in_turn(check, *range(14)) == {}
    assert {*outcomes} == {"cancelled", "returned"}


@pytest.mark.looptime
async def test_closed_when_it_is_answered() -> None:
    """A session that is closed in an iteration of the loop from a create's answer on returns the job."""

    async def check(iterations: int) -> None:
        answered = asyncio.Event()
        async with Scripted(Reply(CREATED.data, after=answered.set)) as server, server.session() as session:
            creating = asyncio.ensure_future(session.create_job("Fix it"))
            await answered.wait()
            await let_go(iterations)
            await session.aclose()
            assert creating.done()
            assert (await creating).id == "job_1"

    assert await failures_in_turn(check, *range(14)) == {}


@pytest.mark.looptime
@pytest.mark.parametrize("together", [False, True])
async def test_finished_without_its_caller(caplog: pytest.LogCaptureFixture, *, together: bool) -> None:
    """A create that finishes after its caller was cancelled, or at that moment, names its job in the log."""
    events: list[Any] = []
    answered = asyncio.Event()
    async with Scripted(Reply(CREATED.data, after=answered.set)) as server:
        async with server.session(hooks=[events.append]) as session:
            creating = asyncio.ensure_future(session.create_job("Fix it", on_cancel="finish"))
            await (answered.wait() if together else let_go(1))
            creating.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await creating
            await session.drain()
    assert [type(event) for event in events] == [JobCreated]
    (message,) = caplog.messages
    assert message.startswith("job docs~.job_1 was created, and its caller was cut off")
    assert getattr(caught.value, "__notes__", [message]) == [message]


INTERRUPTED = [
    (silent_tls, Reply(), CreateOutcome.NOT_SENT, 0),
    (None, Reply(then="hang"), CreateOutcome.UNKNOWN, 1),
    (None, Reply(HEAD, "hang"), CreateOutcome.UNKNOWN, 1),
    (None, PATIENT, CreateOutcome.REJECTED, 1),
    (None, reply(599, None, ("Retry-After", "5")), CreateOutcome.REJECTED, 1),
]
"""Creates that are under way after 2 s: how to find the server, what it does, the outcome then, what it has got."""


@pytest.mark.looptime
async def test_session_closed_meanwhile() -> None:
    """Closing the session ends a create at once, as unknown after its first byte, else as what it is."""

    async def check(url: Callable[[Scripted], str] | None, first: Reply, outcome: CreateOutcome, sent: int) -> None:
        events: list[CreateFailed] = []
        async with Scripted(first, CREATED) as server:
            base_url = url(server) if url else server.base_url
            session = server.session(base_url=base_url, hooks=[events.append], dialect=Dialect(create_refusals={599}))
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
        kind = CreateOutcomeUnknownError if outcome is CreateOutcome.UNKNOWN else SessionClosedError
        assert type(caught.value) is kind
        assert failures(events) == [("docs", outcome, caught.value)]

    assert await failures_in_turn(check, *INTERRUPTED) == {}


def no() -> bool:
    return False


def fault() -> bool:
    raise LookupError("before_send is broken")


def cancellation() -> bool:
    raise asyncio.CancelledError


async def test_withheld(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """A create whose before_send says no, or raises, sends no byte of the request, and is not tried again."""

    async def check(before_send: Callable[[], bool], secure: bool) -> None:  # noqa: FBT001 - a table's column
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
        reason = "before_send raised LookupError: before_send is broken" if before_send is fault else "before_send "
        assert str(caught.value).startswith(f"nothing was sent: {reason}")
        assert "network" not in str(caught.value)
        assert KEY not in "".join(traceback.format_exception(caught.value))

    assert await failures_in_turn(check, *product([no, fault, cancellation], [False, True])) == {}


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
    async with Scripted(PATIENT, PATIENT, reply(400)) as server, server.session(hooks=[events.append]) as session:
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
