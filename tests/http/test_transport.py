"""One request over a socket: what each fault means, and what aiohttp must not do by itself."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
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
    TransportError,
)
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.progress import Progress
from agentjobs_async._http.proxy import DIRECT, Proxy
from agentjobs_async._http.responses import Response
from agentjobs_async._http.transport import Transport
from tests.decoders import credentials_of, decoder_of
from tests.polled import clock
from tests.rows import failures, failures_in_turn
from tests.scripted import KEY, Reply, Scripted, address, http, job, loopback_socket, reply

API_KEY = ApiKey(KEY)
CREDENTIALS = credentials_of(KEY)
JOB = b'{"id": "job_1", "status": "active"}'


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Transport]:
    defaults = {
        "timeouts": HttpTimeouts(connect=5, request=20),
        "ssl": None,
        "proxy": DIRECT,
        "user_agent": "tests",
        "max_document_bytes": 1000,
    }
    transport = Transport(CREDENTIALS, **(defaults | settings))
    transport.open()
    try:
        yield transport
    finally:
        await transport.aclose()


def progress_of_one() -> Progress:
    return Progress("docs", decoder_of(KEY, 1_000))


async def read(server: Scripted, **settings: Any) -> Response | AgentJobsError:
    async with opened(**settings) as transport:
        return await transport.read(URL(server.base_url), API_KEY)


async def body_of(transport: Transport, server: Scripted) -> bytes:
    answer = await transport.read(URL(server.base_url), API_KEY)
    assert isinstance(answer, Response)
    return answer.body


def test_timeouts_that_make_no_sense() -> None:
    """A timeout is a finite number of seconds above 0; anything else is refused by name."""

    def check(name: str, value: object) -> None:
        with pytest.raises(InvalidInputError, match=f"^{name} must be "):
            HttpTimeouts(**{name: value})  # type: ignore[arg-type]  # what is refused

    assert failures(check, *product(["connect", "request"], [0, True, float("inf"), "5", None])) == {}


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CUT = b"Content-Length: 9\r\n\r\n{"
FAULTS: list[tuple[Reply, type[AgentJobsError], str]] = [
    (Reply(then="reset"), TransportError, "reset"),
    (Reply(then="fin"), TransportError, "disconnected"),
    (Reply(then="hang"), TransportError, "no whole answer within"),
    (Reply(OK + CUT, "hang"), TransportError, "no whole answer within"),
    (Reply(OK + CUT, "fin"), TransportError, ""),
    (Reply(CHUNKED + b"zz\r\n", "fin"), ProtocolError, "chunk"),
    (Reply(CHUNKED + b"1\r\n{\r\n", later=b"zz\r\n"), ProtocolError, "chunk"),
    (Reply(OK + b"Content-Length: 900\r\n\r\n", endless=b"{", pause=1), TransportError, "no whole answer within"),
    (Reply(endless=b"HTTP/1.1 102 Wait\r\n\r\n", pause=1), TransportError, "no whole answer within"),
    (Reply(OK, endless=b"X: y\r\n"), ProtocolError, "http"),
    (Reply(OK + b"X: " + b"y" * 99_999), ProtocolError, "http"),
    (Reply(b"garbage\r\n\r\n", "fin"), ProtocolError, "http"),
    (Reply(b"HTTP/1.1 2x OK\r\n\r\n", "fin"), ProtocolError, "http"),
]


@pytest.mark.looptime
async def test_faults_of_a_read() -> None:
    """Each break of an exchange is one error of ours, given and not raised, and the request went out once."""

    async def check(first: Reply, kind: type[AgentJobsError], words: str) -> None:
        async with Scripted(first, job()) as server:
            answer = await read(server)
        assert type(answer) is kind
        assert words in str(answer)
        assert len(server.requests) == 1

    assert await failures_in_turn(check, *FAULTS) == {}


STAYS = job()


@pytest.mark.looptime
@pytest.mark.parametrize("repeats", [True, False])
async def test_repeated_read(*, repeats: bool) -> None:
    """A read is sent once more, on a fresh connection, only where a reused one broke before a byte of its answer.

    It ends within the time of one read.
    """

    async def check(replies: list[Reply], connections: list[int], error: str = "") -> None:
        async with Scripted(*replies) as server, opened() as transport:
            for _ in range(connections.count(1) - 1):
                assert isinstance(await transport.read(URL(server.base_url), API_KEY), Response)
            began = clock()
            answer = await transport.read(URL(server.base_url), API_KEY, repeats=repeats)
            assert clock() - began == pytest.approx(20 if "answer" in error else 0, abs=0.5)
        assert (error or "job_1") in (str(answer) if isinstance(answer, AgentJobsError) else answer.body.decode())
        assert [request.connection for request in server.requests] == connections

    closed, reset, hangs, begun = Reply(then="fin"), Reply(then="reset"), Reply(then="hang"), Reply(OK[:1], "fin")
    rows: list[tuple[Any, ...]] = [
        ([closed, STAYS], [1], "disconnected"),  # a fresh connection
        ([STAYS, begun, STAYS], [1, 1], "disconnected"),  # a byte of the answer
        ([STAYS, hangs, STAYS], [1, 1], "no whole answer within 20 s"),
    ]
    if repeats:
        rows += [([STAYS, broken, STAYS], [1, 1, 2]) for broken in (closed, reset)]
        rows += [([STAYS, reset, closed, STAYS], [1, 1, 2], "disconnected")]
        rows += [([STAYS, closed, hangs], [1, 1, 2], "no whole answer within 20 s")]
    else:
        rows += [([STAYS, closed, STAYS], [1, 1], "disconnected"), ([STAYS, reset, STAYS], [1, 1], "reset")]
    assert await failures_in_turn(check, *rows) == {}


async def test_broken_http_is_not_quoted() -> None:
    """The error of broken HTTP has no part of a key that the server echoes: what is cut off can't be masked."""

    async def check(response: bytes, words: str) -> None:
        async with Scripted(Reply(response, "fin")) as server:
            answer = await read(server)
        assert KEY[:4] not in str(answer)
        assert str(answer).startswith(words)

    echo, broken = KEY[:-1].encode(), "unusable answer (http): broken HTTP: "
    rows = [
        (b"HTTP/1.1 403 No\r\nX: Bearer " + KEY.encode() + b"x" * 9000 + b"\r\n\r\n", broken),
        (OK + b"X" + echo + b"\r\n\r\n", broken),
        (b"HTTP/1.1 2" + echo + b" OK\r\n\r\n", broken),
        (echo + b"\r\n\r\n", broken),
        (CHUNKED + b"zz" + echo + b"\r\n", broken),
        (b"HTTP/1.1 403 No\r\nX: Bearer " + echo, "the exchange broke: the server disconnected"),
    ]
    assert await failures_in_turn(check, *rows) == {}


@pytest.mark.looptime
async def test_bodies_are_bounded() -> None:
    """No more of a body is kept than was asked for, and the status of an error counts even when its body breaks."""

    async def check(scripted: Reply, body: bytes, whole: bool) -> None:  # noqa: FBT001 - a table's column
        async with Scripted(scripted) as server:
            answer = await read(server)
        assert isinstance(answer, Response)
        assert (answer.body, answer.whole) == (body, whole)

    full, error = b"x" * 1000, b"HTTP/1.1 503 No\r\n"
    rows = [
        (Reply(http(200, full)), full, True),
        (Reply(http(200, full + b"x")), full, False),
        (Reply(OK + b"\r\n", endless=b"x" * 300), full, False),
        (Reply(http(503, full + b"x")), full, False),
        (Reply(error + CUT, "fin"), b"", False),
        (Reply(error + CUT, "hang"), b"", False),
        (Reply(CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"), b"{}", True),
    ]
    assert await failures_in_turn(check, *rows) == {}


async def test_cancelled_in_the_body() -> None:
    """Cancelling a read closes its connection; the exception has no context and no frames that know the request."""
    asked = asyncio.Event()
    first = Reply(b"HTTP/1.1 200 OK\r\n\r\n{", "hang", after=asked.set)
    async with opened() as transport, Scripted(first, job()) as server:
        reading = asyncio.ensure_future(transport.read(URL(server.base_url), API_KEY))
        await asked.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await reading
        assert caught.value.__context__ is None
        assert (await body_of(transport, server), server.connections) == (JOB, 2)


@pytest.mark.looptime
async def test_unasked_answers_do_not_count() -> None:
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
            await transport.read(url, API_KEY)
            await transport.create(url, b"{}", progress_of_one(), API_KEY)
    reads = [request.connection for request in server.requests if request.line.startswith("GET")]
    creates = [request.connection for request in server.requests if request.line.startswith("POST")]
    assert (reads, creates) == ([1, 1], [2, 3])


async def _failure(transport: Transport, url: str, progress: Progress | None = None) -> NotSentError:
    read = await transport.read(URL(url), API_KEY)
    created = await transport.create(URL(url), b"{}", progress or progress_of_one(), API_KEY)
    assert isinstance(read, NotSentError)
    assert isinstance(created, NotSentError)
    assert read.reason == created.reason
    return created


async def test_refused() -> None:
    """A port without a listener: nothing was sent."""
    progress = progress_of_one()
    with loopback_socket() as sock:
        port = sock.getsockname()[1]
        async with opened() as transport:
            failure = await _failure(transport, address(sock), progress)
    words = f"nothing was sent: port {port} of 127.0.0.1 refused the connection"
    assert (failure.reason, failure.message) == ("refused", words)
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
        answer = await transport.create(URL("http://127.0.0.1:9"), b"{}", progress_of_one(), API_KEY)
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


async def test_proxy_that_refuses() -> None:
    """A proxy that makes no tunnel: nothing was sent, and the proxy did not see the key."""
    async with Scripted(reply(407)) as proxy, opened(proxy=Proxy(URL(proxy.base_url))) as transport:
        assert (await _failure(transport, "https://service.example")).reason == "proxy"
    assert not any(KEY in str(request.headers) for request in proxy.requests)


async def test_closing() -> None:
    """Closing is idempotent, and legal before anything was opened."""
    transport = Transport(CREDENTIALS, HttpTimeouts(), None, DIRECT, "tests", 1)
    await transport.aclose()
    transport.open()
    reads = transport._reads
    transport.open()
    assert transport._reads is reads
    await transport.aclose()
    await transport.aclose()
    assert reads.closed
