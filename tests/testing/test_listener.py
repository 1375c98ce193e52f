"""The HTTP server under the emulator."""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Self
from unittest.mock import AsyncMock

import pytest

from agentjobs_async.testing._listener import Exchange, Listener
from tests.rows import failures_in_turn
from tests.until import until

MANY: Final = 300


class Echo:
    """A listener that answers with the body of the request, and its exchanges."""

    def __init__(self, *, keep_alive: bool = True) -> None:
        self.keep_alive = keep_alive
        self.exchanges: list[Exchange] = []
        self.delay = asyncio.Event()
        self.delay.set()
        self.listener = Listener(self.answer, "127.0.0.1", 0)

    async def answer(self, exchange: Exchange) -> bool:
        self.exchanges.append(exchange)
        await self.delay.wait()
        if exchange.received.body == b"break":
            exchange.transport.abort()
        await exchange.send(b"<" + exchange.received.body + b">")
        return self.keep_alive

    async def __aenter__(self) -> Self:
        await self.listener.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.listener.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)


def post(body: bytes) -> bytes:
    return b"POST /a%%2Fb?c=d HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def test_requests_and_connections() -> None:
    """The handler gets a request as it was sent, with the number of its connection."""
    async with Echo() as echo:
        for _ in range(2):
            reader, writer = await echo.connect()
            writer.write(post(b"\xff1"))
            assert await reader.readexactly(4) == b"<\xff1>"
            writer.write(post(b"2"))
            assert await reader.readexactly(3) == b"<2>"
            writer.close()
    received = [exchange.received for exchange in echo.exchanges]
    assert [request.connection for request in received] == [1, 1, 2, 2]
    assert (received[0].method, received[0].target, received[0].headers["x-a"]) == ("POST", "/a%2Fb?c=d", "1")
    assert echo.listener.accepted == 2


async def test_connection_closed_by_the_handler() -> None:
    """The handler decides whether a connection stays open."""
    async with Echo(keep_alive=False) as echo:
        reader, writer = await echo.connect()
        writer.write(post(b""))
        assert await reader.read() == b"<>"
        writer.close()


async def test_connection_gone_amid_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """An answer to a connection that has just broken is dropped without a log line."""
    with caplog.at_level(logging.WARNING):
        async with Echo() as echo:
            reader, writer = await echo.connect()
            writer.write(post(b"break"))
            assert await reader.read() == b""
            writer.close()
    assert caplog.records == []


async def test_client_gone_amid_its_request(caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaves amid its request does not disturb the next one."""
    with caplog.at_level(logging.WARNING):
        async with Echo() as echo:
            _, writer = await echo.connect()
            writer.write(post(b"1234")[:-2])
            await until(lambda: echo.listener._tasks)
            writer.transport.abort()
            reader, writer = await echo.connect()
            writer.write(post(b"1"))
            assert await reader.readexactly(3) == b"<1>"
            writer.close()
    assert len(echo.exchanges) == 1
    assert caplog.records == []


async def test_half_closed_client() -> None:
    """A client that closes its side after whole requests gets every answer, then the connection ends."""
    data = post(b"1") + post(b"2")
    for pieces in ([data], [data[: len(data) // 2], data[len(data) // 2 :]]):
        async with Echo() as echo:
            reader, writer = await echo.connect()
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
            assert await reader.read() == b"<1><2>"
            await until(lambda: not echo.listener._server.connections)
            writer.close()


async def test_half_closed_client_later() -> None:
    """A client that closes its side before its answer still gets it."""
    async with Echo() as echo:
        echo.delay = asyncio.Event()
        reader, writer = await echo.connect()
        writer.write(post(b"1"))
        await until(lambda: echo.exchanges)
        writer.write_eof()
        await echo.exchanges[0].ended.wait()
        echo.delay.set()
        assert await reader.read() == b"<1>"
        writer.close()


async def test_half_closed_amid_a_request() -> None:
    """A client that closes its side before its request is whole gets no answer."""
    async with Echo() as echo:
        for sent in (b"", b"POST", post(b"1234")[:-2]):
            reader, writer = await echo.connect()
            writer.write(sent)
            writer.write_eof()
            assert await reader.read() == b""
            await until(lambda: not echo.listener._server.connections)
            writer.close()
    assert echo.exchanges == []


async def test_expect_continue() -> None:
    """A client that expects 100 Continue before its body gets it."""
    async with Echo() as echo:
        reader, writer = await echo.connect()
        head, body = post(b"1234").replace(b"X-A: 1", b"Expect: 100-Continue").split(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert await reader.readexactly(6) == b"<1234>"
        writer.close()


BROKEN = [
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"hello\r\n\r\n",
    b"GET / HTTP/9\r\n\r\n",
    b"GET / HTTP/1.1\r\nAuthorization: Bearer emk_secret\r\nno header\r\n\r\n",
    b"GET / HTTP/1.1\r\nAuthorization: Bearer emk_secret\x00\r\n\r\n",
    b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * 10_000),
    post(b"")[:-2] + b"Content-Length: 7\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n",
]


async def test_broken_request(caplog: pytest.LogCaptureFixture) -> None:
    """A request that is not HTTP is answered with 400, and one log line that quotes nothing of it."""
    caplog.set_level(logging.DEBUG, "agentjobs_async")
    caplog.set_level(logging.DEBUG, "aiohttp")

    async def check(sent: bytes) -> None:
        caplog.clear()
        async with Echo() as echo:
            reader, writer = await echo.connect()
            writer.write(sent)
            assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
            writer.close()
        assert echo.exchanges == []
        (record,) = [record for record in caplog.records if record.levelno >= logging.INFO]
        assert record.getMessage().startswith("a request from 127.0.0.1 is not HTTP: ")
        assert all(record.exc_info is None for record in caplog.records)
        assert "emk_secret" not in caplog.text

    assert await failures_in_turn(check, *BROKEN) == {}


async def test_good_request_before_a_broken_one(caplog: pytest.LogCaptureFixture) -> None:
    """A broken request does not affect the good one before it."""
    async with Echo() as echo:
        echo.delay = asyncio.Event()
        reader, writer = await echo.connect()
        writer.write(post(b"1234"))
        await until(lambda: echo.exchanges)
        writer.write(b"nonsense\r\n\r\n")
        await until(lambda: [handler for handler in echo.listener._server.connections if handler._messages])
        echo.delay.set()
        assert (await reader.read()).startswith(b"<1234>HTTP/1.0 400 ")
        writer.close()
    assert len(caplog.records) == 1


async def test_body_that_is_no_http() -> None:
    """A request whose body is broken does not reach the handler."""
    async with Echo() as echo:
        _, writer = await echo.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        await until(lambda: echo.listener._tasks)
        writer.write(b"nonsense\r\n\r\n")
        writer.close()
        await until(lambda: not echo.listener._server.connections)
    assert echo.exchanges == []


async def test_refuse_and_listen() -> None:
    """Refusing breaks open connections, accepts none, and keeps the port until it listens again."""
    async with Echo() as echo:
        port = echo.listener.port
        reader, writer = await echo.connect()
        writer.write(post(b""))
        await reader.readexactly(2)
        await echo.listener.refuse()
        await echo.listener.refuse()
        with pytest.raises(ConnectionError):
            await echo.connect()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        assert await reader.read() == b""
        writer.close()
        await echo.listener.listen()
        await echo.listener.listen()
        assert echo.listener.port == port
        _, writer = await echo.connect()
        writer.close()


async def test_port_is_never_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first connection that it refuses to the first that it accepts again, no other program gets its port."""

    def try_to_share() -> None:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", echo.listener.port))
            other.listen()

    async with Echo() as echo:
        server = echo.listener._listening[0]
        close = server.close

        def closed() -> None:
            close()
            try_to_share()

        monkeypatch.setattr(server, "close", closed)
        await echo.listener.refuse()
        reserved = echo.listener._reserved[0].fileno()
        await echo.listener.listen()
        assert reserved == echo.listener._sockets[0].fileno()
        try_to_share()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Have the system refuse every new file descriptor."""
    next_one = os.dup(0)
    os.close(next_one)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_without_descriptors() -> None:
    """Where no file descriptor is left, refusing and closing end connections as ever, and it can listen again later."""
    async with Echo() as echo:
        port = echo.listener.port
        for end in (echo.listener.refuse, echo.listener.close):
            reader, writer = await echo.connect()
            with no_descriptors():
                await end()
            assert await reader.read() == b""
            writer.close()
            with pytest.raises(ConnectionError):
                await echo.connect()
            await echo.listener.listen()
            assert echo.listener.port == port


async def test_each_address_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with two addresses is refused and accepted again at both, as `localhost` may be."""
    addresses = {"127.0.0.1", "127.0.0.2"}
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", AsyncMock(return_value=found))
    listener = Listener(Echo().answer, "two.example", 0)
    await listener.open()
    names = {listening.getsockname() for listening in listener._sockets}
    await listener.refuse()
    await listener.listen()
    assert {listening.getsockname() for listening in listener._sockets} == names
    assert {address for address, _ in names} == addresses
    await listener.close()


async def test_close_with_open_connections() -> None:
    """Closing does not wait for an idle connection, an unfinished request, or a connection just made."""
    async with Echo() as echo:
        streams = [await echo.connect() for _ in range(3)]
        streams[0][1].write(post(b""))
        streams[1][1].write(post(b"1234")[:-2])
        assert await streams[0][0].readexactly(2) == b"<>"
        waiting = asyncio.create_task(echo.connect())
        await asyncio.sleep(0)
    for _, writer in [
        *streams,
        *[pair for pair in await asyncio.gather(waiting, return_exceptions=True) if isinstance(pair, tuple)],
    ]:
        writer.transport.abort()
    assert len(asyncio.all_tasks()) == 1


async def test_close_with_an_unread_answer() -> None:
    """Closing breaks a connection whose client does not read, and drops what is still to be sent."""
    sent = b"x" * 8_388_608
    async with Echo() as echo:
        reader, writer = await echo.connect()
        writer.write(post(sent))
        assert await reader.readexactly(1) == b"<"
    assert len(await reader.read()) < len(sent)
    writer.close()


@pytest.mark.skipif(socket.SOMAXCONN < MANY, reason="the system keeps fewer connections waiting")
async def test_many_connections_at_once() -> None:
    """Each of many connections is made at once, though the server has not accepted the first one yet."""
    async with Echo() as echo:
        with ExitStack() as clients:
            for _ in range(MANY):
                clients.enter_context(socket.create_connection(("127.0.0.1", echo.listener.port), timeout=60))
            assert echo.listener.accepted == 0
            await until(lambda: echo.listener.accepted == MANY)


async def test_spawned_work_ends_with_the_server() -> None:
    """Work beside the requests is cancelled when the server closes."""
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with Echo() as echo:
        echo.listener.spawn(work())
        await asyncio.sleep(0)
    assert ended.is_set()


def test_address_of_version_six() -> None:
    """An IPv6 address is in brackets in the URL."""
    assert Listener(Echo().answer, "::1", 80).url == "http://[::1]:80"
