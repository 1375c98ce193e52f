"""A server that answers byte for byte as a test scripts it: for all that the emulator is too well-behaved for."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Literal, Self

from attrs import field, frozen

from agentjobs_async import AgentJobsSession

SERVICE: Final = "https://api.example.com"
KEY: Final = "sk/live+0123456789=abcdef"
"""The key of every scripted session; it has characters that percent, base64 and JSON forms change."""

Then = Literal["keep", "fin", "reset", "hang"]


@frozen
class Reply:
    """What a server does to one request.

    Attributes:
        data: Sent at once.
        then: Keeps the connection for the next request, ends it, resets it, or falls silent.
        endless: Sent for ever after `data`, every `pause` seconds.
        later: Sent a second later, unasked.
        after: Called when `data` is out.
    """

    data: bytes = field(default=b"", repr=False)
    then: Then = "keep"
    endless: bytes = b""
    pause: float = 0.0
    later: bytes = b""
    after: Callable[[], object] | None = None


def http(status: int, body: bytes = b"", *headers: tuple[str, str]) -> bytes:
    """Write a whole response."""
    lines = [f"HTTP/1.1 {status} Reason", *(f"{name}: {value}" for name, value in headers)]
    if status in {204, 304}:
        body = b""
    else:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def reply(status: int, document: object = None, *headers: tuple[str, str]) -> Reply:
    """Answer with a document; without one with an empty body."""
    return Reply(http(status, b"" if document is None else json.dumps(document).encode(), *headers))


def job(status: str = "active", job_id: str = "job_1", *headers: tuple[str, str], **fields: Any) -> Reply:
    """Answer with a job."""
    return reply(200, {"id": job_id, "status": status, **fields}, *headers)


@frozen
class Received:
    """A request as it arrived, on the connection of that number (from 1), at that loop time."""

    line: str
    headers: dict[str, str] = field(repr=False)
    body: bytes
    connection: int
    at: float


class Scripted:
    """Answers the first request with the first reply and so on; the last reply stands for all further requests."""

    def __init__(
        self, *replies: Reply, ssl: SSLContext | None = None, sock: socket.socket | None = None, greeting: bytes = b""
    ) -> None:
        self._replies = replies
        self._ssl = ssl
        self._socket = sock or loopback_socket()
        self.base_url = address(self._socket, "http" if ssl is None else "https")
        self._greeting = greeting
        self._tasks: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self.requests: list[Received] = []
        self.connections = 0

    def session(self, **settings: Any) -> AgentJobsSession:
        return AgentJobsSession(**{"base_url": self.base_url, "api_key": KEY, "project_id": "docs"} | settings)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, ssl=self._ssl)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for task, writer in tuple(self._tasks.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = writer
        task.add_done_callback(self._tasks.pop)
        self.connections += 1
        number = self.connections
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.write(self._greeting)
            open_ = True
            while open_:
                self.requests.append(await _received(reader, number))
                open_ = await self._answer(reader, writer)
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
        writer.write(reply.data)
        if reply.after is not None:
            reply.after()
        while reply.endless:
            writer.write(reply.endless)
            await writer.drain()
            await asyncio.sleep(reply.pause)
        if reply.later:
            await asyncio.sleep(1)
            writer.write(reply.later)
        await writer.drain()
        if reply.then == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif reply.then == "hang":
            await reader.read()
        elif reply.then == "fin":
            writer.close()
            await writer.wait_closed()
        return reply.then == "keep"


async def _received(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(head[0], headers, body, connection, asyncio.get_running_loop().time())


def loopback_socket() -> socket.socket:
    """Return a socket of a free port of this machine. Until it listens, connections to it are refused."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def address(sock: socket.socket, scheme: str = "http") -> str:
    """Return the base address of a server on `sock`."""
    return f"{scheme}://127.0.0.1:{sock.getsockname()[1]}"


def session_of(**settings: Any) -> AgentJobsSession:
    return AgentJobsSession(**{"base_url": SERVICE, "api_key": KEY, "project_id": "docs"} | settings)
