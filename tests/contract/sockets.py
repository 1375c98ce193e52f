"""Listeners that let nobody in or never answer, and how many sockets this process has."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from ssl import MemoryBIO, SSLContext, SSLWantReadError
from typing import Any, Self

from tests.scripted import address, loopback_socket


@asynccontextmanager
async def full_listener(scheme: str = "http") -> AsyncIterator[str]:
    """Return the address of a listener whose backlog is full: a connection to it is never made."""
    with loopback_socket() as listening:
        listening.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listening.getsockname())
        try:
            yield address(listening, scheme)
        finally:
            for filler in fillers:
                filler.close()


@asynccontextmanager
async def silent_listener(scheme: str, ssl: SSLContext | None = None) -> AsyncIterator[str]:
    """Return the address of a server that takes connections and never says a word of its own."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=ssl)
    async with server:
        yield address(server.sockets[0], scheme)


class Mute:
    """A server that shakes hands and then neither reads nor answers, not even the farewell of TLS.

    Attributes:
        accepted: How many connections it has accepted and shaken hands on.
    """

    def __init__(self, ssl: SSLContext | None = None) -> None:
        self._ssl = ssl
        self._ends: list[_MuteEnd] = []
        self._socket = loopback_socket()
        self.base_url = address(self._socket, "http" if ssl is None else "https")

    @property
    def accepted(self) -> int:
        return sum(end.accepted for end in self._ends)

    def clients(self) -> int:
        """Count the other ends of its connections that this process holds."""
        return connections(self._socket.getsockname())

    async def read_on(self) -> bytes:
        """Read what has come, to the end of each connection, and return all of it."""
        for end in self._ends:
            end.transport.resume_reading()
        await asyncio.gather(*(end.lost for end in self._ends))
        return b"".join(end.received for end in self._ends)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self._end, sock=self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for end in self._ends:
            end.transport.abort()
        await self._server.wait_closed()

    def _end(self) -> "_MuteEnd":
        self._ends.append(_MuteEnd(self._ssl))
        return self._ends[-1]


class _MuteEnd(asyncio.Protocol):
    transport: Any  # uvloop's are no asyncio.Transport

    def __init__(self, ssl: SSLContext | None) -> None:
        self._in, self._out = MemoryBIO(), MemoryBIO()
        self._tls = None if ssl is None else ssl.wrap_bio(self._in, self._out, server_side=True)
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.accepted = False
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self._tls is None:
            self._take()

    def data_received(self, data: bytes) -> None:
        if self.accepted:
            self.received += data
        elif self._tls is not None:
            self._in.write(data)
            with suppress(SSLWantReadError):
                self._tls.do_handshake()
                self._take()
            self.transport.write(self._out.read())

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.lost.set_result(None)

    def _take(self) -> None:
        self.accepted = True
        self.transport.pause_reading()


def connections(peer: tuple[str, int] | None = None) -> int:
    """Count the ends of TCP connections, made or in the making, that this process holds: all, or those to `peer`."""
    count = 0
    for name in Path("/dev/fd").iterdir():
        number = int(name.name)
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as opened:
                    listens = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    counted = opened.family == socket.AF_INET and not listens
                    count += counted and (peer is None or _peer(opened) == peer)
    return count


def _peer(opened: socket.socket) -> object:
    with suppress(OSError):
        return opened.getpeername()
    return None
