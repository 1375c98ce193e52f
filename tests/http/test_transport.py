"""One request over a socket: what each fault means, and what aiohttp must not do by itself."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
from yarl import URL

from agentjobs_async import (
    AgentJobsError,
    HttpTimeouts,
    InvalidInputError,
    NotSentError,
    ProtocolError,
    ServerError,
    TransportError,
)
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.progress import Progress
from agentjobs_async._http.responses import Response
from agentjobs_async._http.transport import Transport
from tests.scripted import KEY, Reply, Scripted, address, http, job, loopback_socket, reply

JOB = b'{"id": "job_1", "status": "active"}'


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Transport]:
    defaults = {
        "timeouts": HttpTimeouts(connect=5, request=20),
        "ssl": None,
        "proxy": None,
        "user_agent": "tests",
        "max_document_bytes": 1000,
        "trace_reads": False,
    }
    transport = Transport(ApiKey(KEY), **(defaults | settings))
    transport.open()
    try:
        yield transport
    finally:
        await transport.aclose()


def progress_of_one() -> Progress:
    return Progress(lambda response: ServerError(response.status))


async def read(server: Scripted, **settings: Any) -> Response | AgentJobsError:
    async with opened(**settings) as transport:
        return await transport.read(URL(server.base_url))


async def body_of(transport: Transport, server: Scripted) -> bytes:
    answer = await transport.read(URL(server.base_url))
    assert isinstance(answer, Response)
    return answer.body


@pytest.mark.parametrize("name", ["connect", "request"])
@pytest.mark.parametrize("value", [0, -1, True, float("nan"), float("inf"), "5", None])
def test_timeouts_that_make_no_sense(name: str, value: Any) -> None:
    """A timeout is a finite number of seconds above 0; anything else is refused by name."""
    with pytest.raises(InvalidInputError, match=name):
        HttpTimeouts(**{name: value})


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("first", "kind", "words"),
    [
        pytest.param(Reply(then="reset"), TransportError, "reset", id="reset"),
        pytest.param(Reply(then="fin"), TransportError, "disconnected", id="closed"),
        pytest.param(Reply(then="hang"), TransportError, "no whole answer within", id="silence"),
        pytest.param(
            Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "hang"), TransportError, "no whole", id="hang"
        ),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "fin"), TransportError, "", id="cut"),
        pytest.param(
            Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "fin"),
            ProtocolError,
            "chunk",
            id="chunk",
        ),
        pytest.param(
            Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", later=b"zz\r\n"),
            ProtocolError,
            "chunk",
            id="later chunk",
        ),
        pytest.param(
            Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", endless=b"{", pause=1),
            TransportError,
            "no whole answer within",
            id="drip",
        ),
        pytest.param(
            Reply(endless=b"HTTP/1.1 102 Wait\r\n\r\n", pause=1),
            TransportError,
            "no whole answer within",
            id="endless 1xx",
        ),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\n", endless=b"X: y\r\n"), ProtocolError, "http", id="endless headers"),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999), ProtocolError, "http", id="huge header"),
        pytest.param(Reply(b"garbage\r\n\r\n", "fin"), ProtocolError, "http", id="garbage"),
        pytest.param(Reply(b"HTTP/1.1 2x OK\r\n\r\n", "fin"), ProtocolError, "http", id="bad status"),
    ],
)
async def test_faults_of_a_read(first: Reply, kind: type[AgentJobsError], words: str) -> None:
    """Each break of an exchange is one error of ours, given and not raised, and the request went out once."""
    async with Scripted(first, job()) as server:
        answer = await read(server)
    assert type(answer) is kind
    assert words in str(answer)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(b"HTTP/1.1 403 No\r\nX: Bearer " + KEY.encode() + b"x" * 9000 + b"\r\n\r\n", id="long header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX" + KEY[:-1].encode() + b"\r\n\r\n", id="header without a colon"),
        pytest.param(b"HTTP/1.1 2" + KEY[:-1].encode() + b" OK\r\n\r\n", id="bad status"),
        pytest.param(KEY[:-1].encode() + b"\r\n\r\n", id="garbage"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz" + KEY[:-1].encode() + b"\r\n", id="chunk"
        ),
    ],
)
async def test_broken_http_is_not_quoted(response: bytes) -> None:
    """The error of broken HTTP has no part of a key that the server echoes: what is cut off can't be masked."""
    async with Scripted(Reply(response, "fin")) as server:
        answer = await read(server)
    assert type(answer) is ProtocolError
    assert KEY[:4] not in str(answer)
    assert str(answer).startswith("unusable answer (http): broken HTTP: ")


async def test_head_that_is_cut_off_is_not_quoted() -> None:
    """Nor has the error of a connection that was closed within the head of a response, which may cut off the key."""
    async with Scripted(Reply(b"HTTP/1.1 403 No\r\nX: Bearer " + KEY[:-1].encode(), "fin")) as server:
        answer = await read(server)
    assert str(answer).startswith("the exchange broke: the server disconnected")


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("scripted", "body", "whole"),
    [
        pytest.param(Reply(http(200, b"x" * 1000)), b"x" * 1000, True, id="just fits"),
        pytest.param(Reply(http(200, b"x" * 1001)), b"x" * 1000, False, id="too large"),
        pytest.param(
            Reply(b"HTTP/1.1 200 OK\r\n\r\n", endless=b"x" * 300), b"x" * 1000, False, id="endless, no length told"
        ),
        pytest.param(Reply(http(503, b"x" * 1001)), b"x" * 1000, False, id="too large an error"),
        pytest.param(Reply(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n{", "fin"), b"", True, id="error cut"),
        pytest.param(Reply(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n{", "hang"), b"", True, id="error hangs"),
        pytest.param(
            Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
            b"{}",
            True,
            id="chunked",
        ),
    ],
)
async def test_bodies_are_bounded(scripted: Reply, body: bytes, *, whole: bool) -> None:
    """No more of a body is kept than was asked for, and the status of an error counts even when its body breaks."""
    async with Scripted(scripted) as server:
        answer = await read(server)
    assert isinstance(answer, Response)
    assert (answer.body, answer.whole) == (body, whole)


async def test_cancelled_in_the_body() -> None:
    """Cancelling a read closes its connection; the exception has no context and no frames that know the request."""
    asked = asyncio.Event()
    first = Reply(b"HTTP/1.1 200 OK\r\n\r\n{", "hang", after=asked.set)
    async with opened() as transport, Scripted(first, job()) as server:
        reading = asyncio.ensure_future(transport.read(URL(server.base_url)))
        await asked.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await reading
        assert caught.value.__context__ is None
        assert (await body_of(transport, server), server.connections) == (JOB, 2)


@pytest.mark.parametrize("then", ["fin", "reset"])
async def test_a_dropped_connection_is_not_used_twice_for_one_read(then: Any) -> None:
    """A read whose kept-alive connection breaks went out once: aiohttp repeats it unless `_retry_connection` is off."""
    async with Scripted(job(), Reply(then=then), job()) as server, opened() as transport:
        assert await body_of(transport, server) == JOB
        assert isinstance(await transport.read(URL(server.base_url)), TransportError)
    assert [request.connection for request in server.requests] == [1, 1]


@pytest.mark.looptime
async def test_unasked_answers_are_not_taken() -> None:
    """An idle connection on which something arrived unasked is dropped: the next read gets its own answer."""
    forged = http(200, b'{"id": "job_1", "status": "completed"}')
    async with Scripted(Reply(http(200, JOB), later=forged), job()) as server, opened() as transport:
        assert await body_of(transport, server) == JOB
        await asyncio.sleep(2)
        assert await body_of(transport, server) == JOB
        assert await body_of(transport, server) == JOB
    assert [request.connection for request in server.requests] == [1, 2, 2]


async def test_reads_share_connections_and_creates_do_not() -> None:
    """Reads reuse a connection; every create has its own, which no other request ever uses."""
    async with Scripted(job()) as server, opened() as transport:
        url = URL(server.base_url)
        for _ in range(2):
            await transport.read(url)
            await transport.create(url, b"{}", progress_of_one())
    reads = [request.connection for request in server.requests if request.line.startswith("GET")]
    creates = [request.connection for request in server.requests if request.line.startswith("POST")]
    assert (reads, creates) == ([1, 1], [2, 3])


async def test_progress_of_a_create() -> None:
    """A create that was answered may have left, and its status is known."""
    progress = progress_of_one()
    async with Scripted(reply(503)) as server, opened() as transport:
        await transport.create(URL(server.base_url), b"{}", progress)
    assert (progress.may_have_left, progress.status) == (True, 503)
    progress.start_try()
    assert (progress.may_have_left, progress.status) == (True, None)


async def _failure(transport: Transport, url: str, progress: Progress | None = None) -> NotSentError:
    read = await transport.read(URL(url))
    created = await transport.create(URL(url), b"{}", progress or progress_of_one())
    assert isinstance(read, NotSentError)
    assert isinstance(created, NotSentError)
    assert read.reason == created.reason
    return created


async def test_refused() -> None:
    """A port without a listener: nothing was sent."""
    progress = progress_of_one()
    with loopback_socket() as sock:
        async with opened() as transport:
            assert (await _failure(transport, address(sock), progress)).reason == "refused"
    assert not progress.may_have_left


async def test_name_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without an address: nothing was sent."""

    def fail(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    async with opened() as transport:
        assert (await _failure(transport, "http://service.example")).reason == "dns"


async def test_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file descriptor left: nothing was sent."""
    fail = AsyncMock(side_effect=OSError(errno.EMFILE, "too many open files"))
    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", fail)
    async with opened() as transport:
        assert (await _failure(transport, "http://127.0.0.1:9")).reason == "connect"


async def test_surprise_while_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised before there is a connection: nothing of a create was sent."""
    fail = AsyncMock(side_effect=UnicodeError("label too long"))
    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", fail)
    async with opened() as transport:
        answer = await transport.create(URL("http://127.0.0.1:9"), b"{}", progress_of_one())
    assert isinstance(answer, NotSentError)
    assert (answer.reason, answer.message) == ("connect", "nothing was sent to 127.0.0.1: label too long")


@pytest.mark.looptime
async def test_connection_that_hangs() -> None:
    """A TLS handshake that gets no answer ends with `timeouts.connect`: nothing was sent."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with Scripted(Reply()) as silent, opened() as transport:
        assert (await _failure(transport, silent.base_url.replace("http", "https"))).reason == "timeout"
    assert clock() - began == pytest.approx(10)


async def test_no_tls_there() -> None:
    """A server that speaks no TLS: nothing was sent."""
    async with Scripted(Reply(), greeting=http(400)) as server, opened() as transport:
        assert (await _failure(transport, server.base_url.replace("http", "https"))).reason == "tls"


async def test_certificates(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """A certificate of an unknown authority is not talked to; a context that trusts its authority makes it good."""
    async with Scripted(job(), ssl=server_tls) as server:
        async with opened() as transport:
            assert (await _failure(transport, server.base_url)).reason == "certificate"
        async with opened(ssl=client_tls) as transport:
            assert await body_of(transport, server) == JOB
    assert len(server.requests) == 1


async def test_proxy_is_used() -> None:
    """A request to plain http goes to the proxy, in absolute form."""
    async with Scripted(job()) as proxy, opened(proxy=URL(proxy.base_url)) as transport:
        await transport.read(URL("http://service.example/jobs"))
    assert proxy.requests[0].line == "GET http://service.example/jobs HTTP/1.1"


async def test_proxy_that_refuses() -> None:
    """A proxy that makes no tunnel: nothing was sent, and the proxy did not see the key."""
    async with Scripted(reply(407)) as proxy, opened(proxy=URL(proxy.base_url)) as transport:
        assert (await _failure(transport, "https://service.example")).reason == "proxy"
    assert not any(KEY in str(request.headers) for request in proxy.requests)


async def test_closing() -> None:
    """Closing is idempotent, and legal before anything was opened."""
    transport = Transport(ApiKey(KEY), HttpTimeouts(), None, None, "tests", 1, trace_reads=False)
    await transport.aclose()
    transport.open()
    reads = transport._reads
    transport.open()
    assert transport._reads is reads
    await transport.aclose()
    await transport.aclose()
    assert reads.closed
