"""Connections and their pools: what is private of aiohttp does what it is used for; missing, a session says so."""

import asyncio
import gc
import os
import re
import socket
import weakref
from contextlib import closing, suppress
from contextvars import ContextVar, copy_context
from ssl import SSLContext, SSLError
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from agentjobs_async import AgentJobsSession, InvalidInputError, TransportError
from agentjobs_async._http import transport
from agentjobs_async._http.connections import Connection, Pool, Resolver, RunApart
from tests.polled import REF
from tests.scripted import KEY, Reply, Scripted, job, session_of


@pytest.mark.parametrize("switch", [True, False])
@pytest.mark.parametrize("then", ["fin", "reset"])
async def test_polls_are_sent_once(then: Any, monkeypatch: pytest.MonkeyPatch, *, switch: bool) -> None:
    """A poll whose reused connection breaks is not sent again: by aiohttp's switch, or without it by a middleware."""
    if not switch:
        monkeypatch.setattr(transport, "hasattr", lambda *_: False, raising=False)
    async with Scripted(job(), Reply(then=then), job()) as server, server.session() as session:
        await session.get_job("job_1")
        broken = await session._service.answer(REF, None)
        assert isinstance(broken, TransportError)
        assert re.search(r"disconnected|reset", str(broken))
        await session.get_job("job_1")
    assert [request.connection for request in server.requests] == [1, 1, 2]


NEEDED = [(aiohttp.TCPConnector, "_close"), (ResponseHandler, "abort"), (ResponseHandler, "close")]


@pytest.mark.parametrize(("part", "name"), NEEDED)
async def test_missing_parts(part: Any, name: str) -> None:
    """A session refuses to open, by name, where aiohttp lacks what keeps a create that was cut from being sent."""
    with pytest.MonkeyPatch.context() as patched:
        for kind in part.__mro__:
            if name in vars(kind):
                patched.delattr(kind, name)
        with pytest.raises(InvalidInputError, match=rf"aiohttp .* has no {part.__name__}\.{name}"):
            await session_of().create_job("x")


async def test_missing_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an object of aiohttp has only once it is made is looked for as well."""
    plain = aiohttp.TCPConnector.__init__

    def without_one(self: Any, **options: Any) -> None:
        plain(self, **options)
        del self._factory

    monkeypatch.setattr(aiohttp.TCPConnector, "__init__", without_one)
    with pytest.raises(InvalidInputError, match=r"has no TCPConnector\._factory"):
        await session_of().__aenter__()


@pytest.mark.looptime
async def test_names_that_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where aiohttp calls none of the other private names, creates and reads work as with aiohttp itself."""
    for part, name in ((Pool, "_create_connection"), (Pool, "_release"), (Connection, "resume_reading")):
        monkeypatch.delattr(part, name)
    monkeypatch.setattr(Connection, "_payload", property(lambda _: None, lambda *_: None), raising=False)
    broken = Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", later=b"zz\r\n")
    replies = (job(), job(model="a" * 300_000), job(), broken)
    async with Scripted(*replies) as server, server.session() as session:
        assert (await session.create_job("x")).id == "job_1"
        assert [len((await session.get_job("job_1")).model or "") for _ in range(2)] == [300_000, 0]
        with pytest.raises(TransportError, match="no whole answer within 30 s"):
            await session.get_job("job_1")
    assert [request.connection for request in server.requests] == [1, 2, 2, 2]


async def test_breaking_off() -> None:
    """A pool knows its connections while they are open, and breaks them off within one call."""
    async with Scripted(job()) as server:
        pool = Pool(Resolver())
        client = aiohttp.ClientSession(connector=pool)
        await (await client.get(server.base_url)).read()
        (connection,) = pool.open
        assert connection.idle
        client.detach()
        pool.abort()
        assert connection.transport is None
        lost = connection.closed
        assert lost is not None
        await lost
        assert pool.open == set()
        pool.abort()


async def test_connections_receive_into_the_buffer_of_their_pool() -> None:
    """The loop allocates no memory for what it receives, and the buffer is wiped: it may hold the key."""
    async with Scripted(job()) as server:
        pool = Pool(Resolver())
        pool.buffer[:] = b"x" * len(pool.buffer)
        async with aiohttp.ClientSession(connector=pool) as client:
            await (await client.get(server.base_url)).read()
            received = len(job().data)
            assert bytes(pool.buffer[:received]) == bytes(received)
            assert bytes(pool.buffer[received:]) == b"x" * (len(pool.buffer) - received)


async def test_broken_tls_leaves_nothing_in_the_buffer(server_tls: SSLContext, client_tls: SSLContext) -> None:
    """A record that cannot be decrypted ends the connection; the response before it, with the key, is wiped."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connection = os.dup(writer.get_extra_info("socket").fileno())
        with closing(writer), socket.socket(fileno=connection) as raw:
            writer.write(job(note=KEY).data)
            raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))  # in the same segment: the client decrypts both in one go

    async with await asyncio.start_server(serve, "127.0.0.1", ssl=server_tls) as server:
        pool = Pool(Resolver())
        async with aiohttp.ClientSession(connector=pool) as client:
            with pytest.raises(aiohttp.ClientOSError, match="RECORD_"):  # the rest is OpenSSL's, and changes
                await client.get(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", ssl=client_tls)
        assert bytes(pool.buffer) == bytes(len(pool.buffer))


async def test_tls_through_a_proxy(server_tls: SSLContext, client_tls: SSLContext) -> None:
    """A connection whose transport TLS has replaced is not counted as open for ever; the one over TLS is open."""

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, SSLError):  # a client that does not trust the server goes
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.start_tls(server_tls)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(job().data)
            await reader.read()

    async with await asyncio.start_server(tunnel, "127.0.0.1") as proxy:
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        pool = Pool(Resolver())
        async with aiohttp.ClientSession(connector=pool, proxy=url) as client:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await client.get("https://127.0.0.1")
            assert pool.open == set()
            await (await client.get("https://127.0.0.1", ssl=client_tls)).read()
            (connection,) = pool.open
            assert connection.idle


@pytest.mark.looptime
async def test_responses_that_arrive_by_turns() -> None:
    """Connections whose responses arrive by turns, each larger than the buffer that they share, keep them apart."""
    asked = asyncio.Event()
    data = job(model="a" * 200_000).data
    halves = Reply(data[:100_000], later=data[100_000:], after=asked.set)
    async with Scripted(halves, job(job_id="job_2", model="b" * 200_000)) as server, server.session() as session:
        first = asyncio.create_task(session.get_job("job_1"))
        await asked.wait()
        second = await session.get_job("job_2")
        assert (await first).model == "a" * 200_000
        assert second.model == "b" * 200_000


async def test_names_serve_creates_and_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up serves the creates and the reads of a session."""
    asked: list[str] = []
    plain = socket.getaddrinfo

    def counted(host: str, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return plain(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    async with Scripted(job()) as server:
        base_url = server.base_url.replace("127.0.0.1", "localhost")
        async with AgentJobsSession(base_url, "0123456789", project_id="docs") as session:
            for _ in range(3):
                await session.get_job(await session.create_job("x"))
    assert asked == ["localhost"]


class Held:
    """What only the context of a request holds."""


@pytest.mark.looptime
async def test_connections_outlive_their_requests() -> None:
    """A connection that stays open, and the pool's timer, hold nothing of the requests that made or used it."""
    variable = ContextVar[object]("variable")

    async def request() -> "weakref.ref[Held]":
        variable.set(held := Held())
        await session.get_job("job_1")
        return weakref.ref(held)

    document = b'{"id": "job_1", "status": "active", "padding": "%s"}' % (b"x" * 100_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in document)  # so many that reading pauses, and goes on
    chunked = Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    async with Scripted(job(), chunked, job()) as server, server.session() as session:
        held = [await asyncio.create_task(request()) for _ in range(2)]
        await asyncio.sleep(40)  # the loop keeps the cancelled timers of a request until their time has come
        gc.collect()
        assert [one() for one in held] == [None, None]
        await session.get_job("job_1")
    assert [request.connection for request in server.requests] == [1, 1, 1]


NAME: ContextVar[str] = ContextVar("NAME")


@pytest.mark.looptime
async def test_run_apart() -> None:
    """A coroutine runs in an empty context, in the task that awaits it; values, faults and cancellations pass."""
    NAME.set("mine")
    seen = list[object]()

    async def works(fault: Exception | None) -> str:
        seen.append(len(copy_context()))
        NAME.set("theirs")
        try:
            await asyncio.sleep(0)
            seen.append((NAME.get(), asyncio.current_task() is task))
            if fault is not None:
                raise fault
            await asyncio.Event().wait()
        finally:
            seen.append("left")
        return "never"

    for fault, raised in ((ZeroDivisionError(), ZeroDivisionError), (None, TimeoutError)):
        task = asyncio.current_task()
        with pytest.raises(raised):
            async with asyncio.timeout(0.01):
                await RunApart(works(fault))
        assert (seen, NAME.get()) == ([0, ("theirs", True), "left"], "mine")
        seen.clear()


async def test_run_apart_given_up() -> None:
    """A coroutine that is given up in the middle is closed."""
    left = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            left.set()

    steps = RunApart(works()).__await__()
    next(steps)
    steps.close()
    assert left.is_set()
