"""aiohttp's connections as this package needs them. The only module that uses private names of aiohttp.

Their presence is checked when a session opens: with a version of aiohttp that lacks one, it must not open.
"""

import asyncio
import socket
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from agentjobs_async._http.name_lookup import Names
from agentjobs_async._http.progress import Progress
from agentjobs_async._http.run_apart import RunApart
from agentjobs_async.errors import InvalidInputError

__all__ = ["Pool", "Resolver", "create_under_way", "without_resending"]

_PRIVATE: Final = {
    aiohttp.TCPConnector: ("_close", "_create_connection", "_release"),
    ResponseHandler: (
        "abort",
        "close",
        "connection_lost",
        "connection_made",
        "data_received",
        "resume_reading",
        "set_exception",
        "set_response_params",
    ),
}


_RECEIVED_BYTES: Final = 65_536  # at a time at most: a whole response, nearly always


class Connection(ResponseHandler, asyncio.BufferedProtocol):
    """A connection that is aborted whenever aiohttp would close it.

    A graceful close waits for a silent server: TLS for its close_notify, for 30 s; plain TCP without limit, until it
    has sent its buffer. So the rest of a cancelled create would still be sent, and might start an agent.

    It is aborted as well when the server sends data while no request is under way. Such data would be read as the
    response to the next request, and a flood of it would fill the memory.

    Data is received into the buffer of the pool and copied. Without a buffer, the loop would allocate 256 KiB for each
    chunk and give them back: system calls that take a fifth of a read's CPU (`benchmarks/bench_get.py`). uvloop, which
    has a buffer of its own, calls `data_received` instead, as for every `asyncio.Protocol`.

    Attributes:
        idle: Whether the connection is in the pool.
    """

    def __init__(self, pool: "Pool") -> None:
        super().__init__(loop=pool._loop)  # noqa: SLF001 - the connector has no public name for its loop
        self._pool = pool
        self.idle = False

    def connection_made(self, transport: Any) -> None:
        self._pool.open.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._pool.open.discard(self)
        if exc is not None:
            # Where a TLS record is broken, asyncio never calls `buffer_updated` for the ones that it decrypted before.
            self._pool.buffer[:] = bytes(len(self._pool.buffer))
        super().connection_lost(exc)

    def set_response_params(self, **parameters: Any) -> None:
        self.idle = False  # the first call by aiohttp after it took a connection out of the pool
        super().set_response_params(**parameters)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the base class names it
        # All connections share it: the loop fills it and calls `buffer_updated` in one go.
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        received = self._pool.buffer[:nbytes]
        data = bytes(received)
        received[:] = bytes(nbytes)  # wiped: the server may have echoed the key
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.idle and data:
            self.abort()
        else:
            super().data_received(data)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        # aiohttp tells the reader of a body nothing of a chunk that breaks it: the reader would wait for the timeout.
        if isinstance(exc, HttpProcessingError) and self._payload is not None:
            self._payload.set_exception(exc, *cause)

    def resume_reading(self, *arguments: bool, **options: bool) -> None:
        # The loop keeps the context in which a socket is watched for as long as the connection is kept.
        Context().run(super().resume_reading, *arguments, **options)

    def close(self) -> None:
        self.abort()


create_under_way: Final[ContextVar[Progress | None]] = ContextVar("create under way", default=None)
"""The create whose request is being sent. Traces, aiohttp's public way to learn of connections, cost it 20 µs more."""
_MADE: ContextVar[list[Connection]] = ContextVar("connections made for the request under way")


class Pool(aiohttp.TCPConnector):
    """A pool of `Connection`s.

    It has no limit: the time that a request waits for a free connection would count as a slow server. Callers limit
    themselves. Connections, and the timer that closes idle ones, outlive the request that makes them: they are made in
    an empty context.

    Raises:
        InvalidInputError: This version of aiohttp lacks a name that is needed.

    Attributes:
        open: All open connections, in use or idle.
        buffer: Where the loop puts what it receives, until the connection has copied it.
    """

    def __init__(self, resolver: "Resolver", *, force_close: bool = False) -> None:
        _check(_PRIVATE)
        # With its own DNS cache, aiohttp shields look-ups from cancellation in tasks that outlive the call.
        super().__init__(limit=0, use_dns_cache=False, resolver=resolver, force_close=force_close)
        _check({self: ("_factory", "_loop")})
        self.open: set[Connection] = set()
        self.buffer = memoryview(bytearray(_RECEIVED_BYTES))
        _check({Connection(self): ("_payload",)})
        self._factory: Any = self._made

    def abort(self) -> None:
        """Close the pool and abort all of its connections, within this call; each learns of it within a few turns."""
        self._close()
        for connection in tuple(self.open):
            connection.abort()

    def _made(self) -> Connection:
        connection = Connection(self)
        _MADE.get().append(connection)
        return connection

    async def _create_connection(self, *arguments: Any) -> ResponseHandler:
        progress = create_under_way.get()
        if progress is None:
            return await RunApart(self._create_apart(*arguments))
        progress.connecting()
        connection = await RunApart(self._create_apart(*arguments))
        progress.connected()
        return connection

    async def _create_apart(self, *arguments: Any) -> ResponseHandler:
        made: list[Connection] = []
        token = _MADE.set(made)
        try:
            try:
                return await super()._create_connection(*arguments)
            finally:
                self.open.difference_update([one for one in made if _is_wrapped(one)])
        except BaseException:
            # When cancelled right after the handshake, asyncio closes gracefully; so does aiohttp when a proxy refuses.
            for connection in made:
                connection.abort()
            raise
        finally:
            _MADE.reset(token)

    def _release(self, key: Any, protocol: Any, **options: Any) -> None:
        protocol.idle = True
        Context().run(partial(super()._release, key, protocol, **options))


def _is_wrapped(connection: Connection) -> bool:
    """Return whether TLS through a proxy has taken over the transport: then it never calls `connection_lost` here."""
    transport: Any = connection.transport
    return transport is not None and transport.get_protocol() is not connection


class Resolver(AbstractResolver):
    """The interface through which aiohttp looks names up in `Names`."""

    def __init__(self) -> None:
        self._names = Names()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._names.addresses(host, family)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in found
        ]

    async def close(self) -> None:
        """Do nothing: look-ups run in daemon threads, which end by themselves."""


def without_resending(client: aiohttp.ClientSession) -> dict[str, Any]:
    """Keep aiohttp from sending a GET a second time by itself when a connection breaks.

    Returns:
        Arguments for each request of the client: none if aiohttp's private switch exists; else a middleware, the public
        way, at a small cost for each request.
    """
    if getattr(client, "_retry_connection", None) is True:
        client._retry_connection = False  # noqa: SLF001 - there is no public switch (test_connections pins this one)
        return {}
    return {"middlewares": (_send_once,)}


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Replace the errors after which aiohttp sends the request again by one after which it does not."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(*error.args) from error


def _check(needed: dict[Any, tuple[str, ...]]) -> None:
    for owner, names in needed.items():
        missing = [name for name in names if not hasattr(owner, name)]
        if missing:
            kind = owner if isinstance(owner, type) else type(owner).__bases__[0]
            raise InvalidInputError(
                f"aiohttp {aiohttp.__version__} has no {kind.__name__}.{missing[0]}, without which sockets would"
                " stay open: install a version that agentjobs-async was tested with, such as 3.14"
            )
