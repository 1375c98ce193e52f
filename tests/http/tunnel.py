"""A proxy that makes tunnels, in front of one server: whatever host a client asks for, it gets that server."""

import asyncio
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Self

from tests.scripted import address, loopback_socket

GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class TunnelProxy:
    """Answers each CONNECT; after `GRANTED` it passes on what either side sends.

    Args:
        server: The base address of the server; `None` for a proxy that grants no tunnel.
        answer: What it answers; without any byte it closes the connection.
        ssl: Settings of a proxy that is spoken to over TLS.

    Attributes:
        base_url: Its address.
        name: Its host and port.
        heads: What it was asked, each with its headers.
    """

    def __init__(self, server: str | None = None, answer: bytes = GRANTED, *, ssl: SSLContext | None = None) -> None:
        self._server_port = None if server is None else int(server.rpartition(":")[2])
        self._answer = answer
        self._ssl = ssl
        self._socket = loopback_socket()
        self.base_url = address(self._socket, "http" if ssl is None else "https")
        self.name = self.base_url.partition("//")[2]
        self.heads: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def with_password(self, userinfo: str) -> str:
        """Return the address with a user and a password."""
        return self.base_url.replace("//", f"//{userinfo}@")

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, sock=self._socket, ssl=self._ssl)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listening.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self._answer)
            await writer.drain()
            if self._answer == GRANTED:
                await self._join(reader, writer)
        writer.transport.abort() if self._answer == GRANTED else writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        directions = [asyncio.ensure_future(_pass(reader, server_writer))]
        directions.append(asyncio.ensure_future(_pass(server_reader, writer)))
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            server_writer.transport.abort()
            await asyncio.gather(*directions, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
