"""The HTTP server under the emulator: it reads requests well, and leaves every byte of the answer to its handler."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import attrs
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError, StreamWriter

from agentjobs_async.testing.records import ReceivedRequest

__all__ = ["Exchange", "Listener"]

_LONGEST_CLOSE = 1.0


@attrs.frozen
class Exchange:
    """One request and the open connection it came on.

    Args:
        received: The request.
        transport: The connection.
        writer: Writes to it as fast as the client reads.
        spawn: Runs something beyond the exchange; it ends with the server at the latest.
    """

    received: ReceivedRequest
    transport: asyncio.Transport
    writer: StreamWriter
    spawn: Callable[[Coroutine[Any, Any, None]], None]

    async def send(self, data: bytes) -> None:
        """Write bytes as they are and wait until the connection takes more.

        Raises:
            ConnectionError: The client is gone.
        """
        await self.writer.write(data, drain=False)
        await self.writer.drain()


Handle = Callable[[Exchange], Awaitable[bool]]
"""Answers a request by writing to its exchange; tells whether the connection stays open."""


class _Sent(web.StreamResponse):
    """Tells the server that the answer is out already."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._stays_open = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._stays_open

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002 - nothing to write
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Write nothing."""


@attrs.frozen
class _Connection:
    number: int
    transport: asyncio.Transport


class _Server(web.Server):
    """Numbers the connections as they are made."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], next_number: Callable[[], int]
    ) -> None:
        super().__init__(handler, handler_cancellation=True, access_log=None)
        self._next_number = next_number
        self.open: dict[Any, _Connection] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.open[handler] = _Connection(self._next_number(), transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        del self.open[handler]


class Listener:
    """Listens on one port, counts the connections, and closes at once whatever hangs.

    Args:
        handle: Answers each request.
        host: The address to listen on.
        port: 0 takes a free one.

    Attributes:
        accepted: How many connections were accepted.
        refusing: Whether it takes no connection.
    """

    def __init__(self, handle: Handle, host: str, port: int) -> None:
        self._handle = handle
        self._host = host
        self.port = port
        self.accepted = 0
        self.refusing = True
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def open(self) -> None:
        """Start to listen."""
        self._server = _Server(self._respond, self._next_number)
        await self.listen()

    async def listen(self) -> None:
        """Take connections, on the same port as before."""
        if not self.refusing:
            return
        loop = asyncio.get_running_loop()
        self._socket = await loop.create_server(self._server, self._host, self.port, reuse_address=True)
        self.port = self._socket.sockets[0].getsockname()[1]
        self.refusing = False

    async def refuse(self, keep: asyncio.Transport | None = None) -> None:
        """Take no connection until `listen`, and break those that are open, but for one to `keep`."""
        if self.refusing:
            return
        self.refusing = True
        await self._stop_accepting()
        self._socket.close()
        for connection in self._server.open.values():
            if connection.transport is not keep:
                connection.transport.abort()

    async def close(self) -> None:
        """End every task, connection and timer of the server."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.refuse()
        await self._server.shutdown(_LONGEST_CLOSE)
        await self._socket.wait_closed()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests; it ends with the server at the latest."""
        self._track(asyncio.get_running_loop().create_task(work))

    def _track(self, task: asyncio.Task[Any]) -> None:
        if task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _stop_accepting(self) -> None:
        # Closing the socket loses a connection that is accepted and not yet handed over; two turns of the loop do that.
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):
            for listening in self._socket.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _next_number(self) -> int:
        self.accepted += 1
        return self.accepted

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self._track(request.task)
        try:
            keep_alive = await self._handle(await self._exchange(request))
        except (ConnectionError, HttpProcessingError):
            keep_alive = False
        return _Sent(keep_alive=keep_alive and request.keep_alive and not self.refusing)

    async def _exchange(self, request: web.BaseRequest) -> Exchange:
        loop = asyncio.get_running_loop()
        connection = self._server.open[request.protocol]
        received = ReceivedRequest(
            method=request.method,
            target=request.raw_path,
            headers=request.headers,
            body=await request.content.read(),
            at=loop.time(),
            connection=connection.number,
        )
        return Exchange(received, connection.transport, StreamWriter(request.protocol, loop), self.spawn)
