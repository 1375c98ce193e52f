"""The HTTP server of the emulator: it reads requests, and its handler writes every byte of the answers."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import attrs
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpProcessingError, RawRequestMessage, StreamWriter

from agentjobs_async.testing._messages import ReceivedRequest, without_shown_credentials

_LOGGER = logging.getLogger("agentjobs_async.testing")
_CLOSE_SECONDS = 1.0  # the longest wait for handlers, which are cancelled before it
_SHARING = (socket.SO_REUSEADDR, getattr(socket, "SO_REUSEPORT", socket.SO_REUSEADDR))  # Windows has only the first
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@attrs.frozen
class Exchange:
    """One request and its open connection.

    Args:
        received: The request.
        transport: The connection.
        writer: Writes to the connection at the speed of the client's reads.
        spawn: Runs work that may outlast the exchange; the server cancels it when it closes.
        ended: Set when the client has closed its side; it may still read.
    """

    received: ReceivedRequest
    transport: asyncio.Transport
    writer: StreamWriter
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    ended: asyncio.Event

    async def stay_silent(self) -> None:
        """Wait until the client closes its side.

        Raises:
            ConnectionError: The client has closed its side.
        """
        await self.ended.wait()
        raise ConnectionAbortedError("the client has closed its side")

    async def send(self, data: bytes) -> None:
        """Write bytes unchanged, and wait until the connection accepts more.

        Raises:
            ConnectionError: The client is gone.
        """
        await self.writer.write(data, drain=False)
        await self.writer.drain()


Handle = Callable[[Exchange], Awaitable[bool]]
"""Answers a request by writing to its exchange; returns whether the connection stays open."""


class _Sent(web.StreamResponse):
    """Stands for a response that the handler has written already, so that aiohttp writes none."""

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


class _Handler(web.RequestHandler):
    """Speaks HTTP on one connection, the one of this number."""

    def __init__(self, manager: web.Server, number: int) -> None:
        # No lingering: by then each body has been read as a whole, and a broken one never ends.
        settings: dict[str, Any] = {"access_log": None, "lingering_time": 0}
        super().__init__(manager, loop=asyncio.get_running_loop(), **settings)
        self.number = number
        self.ended = asyncio.Event()
        self._answered = 0
        self._last_body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the connection: the base class forgets one that it closes, which may still have bytes to send."""
        super().connection_made(transport)
        self._connection = cast("asyncio.Transport", transport)

    def break_unless(self, spared: asyncio.Transport | None) -> None:
        """Break the connection, unless it is `spared`; what its client has not read is dropped."""
        if self._connection is not spared:
            self._connection.abort()

    def eof_received(self) -> bool:  # type: ignore[override]  # the base always closes, and returns nothing
        """Keep a connection that the client has closed on its side while whole requests are still unanswered."""
        self.ended.set()
        whole = self._last_body is not None and self._last_body.is_eof()
        return whole and self._request_count > self._answered

    def data_received(self, data: bytes) -> None:
        """Fail a body that is not valid HTTP; the base class would leave its reader waiting for ever."""
        super().data_received(data)
        # The parser queues its error as a further message, behind the body that it broke.
        if self._messages:
            message, body = self._messages[-1]
            before, self._last_body = self._last_body, body
            if before is not None and not before.is_eof() and not isinstance(message, RawRequestMessage):
                before.set_exception(message.exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Count the answer."""
        self._answered += 1
        return await super().finish_response(request, resp, start_time)

    @property
    def expects_more(self) -> bool:
        """Whether another request has arrived or may arrive."""
        return bool(self._messages) or not self.ended.is_set()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer invalid HTTP with 400 and one log line, without the error's text: it quotes headers, also the key."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        _LOGGER.warning("a request from %s is not HTTP: %s", request.remote, type(exc).__name__)
        answer = web.json_response({"error": "this is not an HTTP request"}, status=status)
        answer.force_close()
        return answer


class Listener:
    """Listens on one port and counts the connections; closing waits for no hanging exchange.

    Args:
        handle: Answers a request.
        host: The address to listen on.
        port: 0 for a free one.
        key_header: The name of the header of the key.

    Attributes:
        accepted: The number of connections accepted.
        refusing: Whether it accepts no connections.
    """

    def __init__(self, handle: Handle, host: str, port: int, key_header: str = "Authorization") -> None:
        self._handle = handle
        self._key_header = key_header
        self._host = host
        self.port = port
        self.accepted = 0
        self.refusing = True
        self._listening: list[asyncio.Server] = []
        self._reserved: list[socket.socket] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def open(self) -> None:
        """Start the server."""
        self._server = web.Server(self._respond, handler_cancellation=True)
        await self.listen()

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        if not self.refusing:
            return
        addresses: list[dict[str, Any]] = [{"sock": reserved} for reserved in self._reserved]
        for reserved in self._reserved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # beside the connection that `refuse` spared
        loop = asyncio.get_running_loop()
        # As many waiting connections as the system allows: it drops the first packets of those beyond, so that a client
        # gets through a second later, or has a connection that the server never sees.
        self._listening = [
            await loop.create_server(self._new_handler, **address, backlog=socket.SOMAXCONN, reuse_address=True)
            for address in addresses or [{"host": self._host, "port": self.port}]
        ]
        self._reserved = []
        self.port = self._sockets[0].getsockname()[1]
        self.refusing = False

    async def refuse(self, spared: asyncio.Transport | None = None) -> None:
        """Accept no connections until `listen`, and break the open ones except `spared`."""
        if self.refusing:
            return
        self.refusing = True
        await self._stop_accepting()
        try:
            self._reserve_ports()
        except OSError:  # no file descriptor is left: the ports are free until `listen`
            self._free_ports()
        for server in self._listening:
            server.close()
        self._break_connections(spared)

    async def close(self) -> None:
        """Cancel every task of the server, and close its connections and its socket."""
        # Tasks first: one of them may be about to `listen` again.
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.refuse()
        self._break_connections()  # the one that a refusal under way has spared, too
        self._free_ports()
        await self._server.shutdown(_CLOSE_SECONDS)
        await asyncio.gather(*(server.wait_closed() for server in self._listening))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work beside the requests; `close` cancels it."""
        self._track(asyncio.get_running_loop().create_task(work))

    def _track(self, task: asyncio.Task[Any]) -> None:
        if task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @property
    def _sockets(self) -> list[Any]:
        """Those that accept connections, one for each address of the host."""
        return [listening for server in self._listening for listening in server.sockets]

    def _reserve_ports(self) -> None:
        """Reserve the ports for `listen` by sockets that are only bound: those refuse connections.

        They are bound before the others close: only a process of this user that sets SO_REUSEPORT could take a port.
        """
        for listening in self._sockets:
            reserved = socket.socket(listening.family, listening.type)
            self._reserved.append(reserved)
            if listening.family == socket.AF_INET6:
                reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as `create_server` does
            for option in _SHARING:
                listening.setsockopt(socket.SOL_SOCKET, option, 1)
                reserved.setsockopt(socket.SOL_SOCKET, option, 1)
            reserved.bind(listening.getsockname())
            for option in _SHARING:
                reserved.setsockopt(socket.SOL_SOCKET, option, 0)  # from here on, it is shared with none

    def _break_connections(self, spared: asyncio.Transport | None = None) -> None:
        for handler in self._server.connections:
            assert isinstance(handler, _Handler)  # noqa: S101 - as `_new_handler` makes them
            handler.break_unless(spared)

    def _free_ports(self) -> None:
        while self._reserved:
            self._reserved.pop().close()

    async def _stop_accepting(self) -> None:
        # Two iterations of the loop hand over connections that are already accepted: closing the socket loses them.
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):
            for listening in self._sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _new_handler(self) -> _Handler:
        self.accepted += 1
        return _Handler(self._server, self.accepted)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self._track(request.task)
        protocol = request.protocol
        assert isinstance(protocol, _Handler)  # noqa: S101 - as `_new_handler` makes them
        try:
            keep_alive = await self._handle(await self._exchange(request, protocol))
        except HttpProcessingError as error:
            return protocol.handle_error(request, 400, error)
        except ConnectionError:
            keep_alive = False
        return _Sent(keep_alive=keep_alive and request.keep_alive and protocol.expects_more and not self.refusing)

    async def _exchange(self, request: web.BaseRequest, handler: _Handler) -> Exchange:
        loop, transport = asyncio.get_running_loop(), handler.transport
        if transport is None:
            raise ConnectionAbortedError("the client is gone")
        writer = StreamWriter(handler, loop)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await writer.write(_CONTINUE)
        received = ReceivedRequest(
            method=request.method,
            target=request.raw_path,
            headers=without_shown_credentials(request.headers.items(), self._key_header),
            body=await request.content.read(),
            at=loop.time(),
            connection=handler.number,
        )
        return Exchange(received, transport, writer, self.spawn, handler.ended)
