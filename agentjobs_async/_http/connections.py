"""aiohttp's connections as this package needs them. The only module that uses private names of aiohttp.

By four of them a create that was cut is never sent: with a version of aiohttp that lacks one, a session must not
open. Without the others it works as aiohttp does by itself: `_create_connection` and `_release` of the connector,
`resume_reading`, `set_exception`, `_payload` and `_reading_paused` of a connection.
"""

import asyncio
import socket
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar
from ssl import SSLError
from typing import Any, Final, Generic, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from agentjobs_async._http.name_lookup import Names
from agentjobs_async._http.progress import Progress
from agentjobs_async.errors import InvalidInputError

T = TypeVar("T")
_MOST_HEADER_BYTES: Final = 262_144  # far more than servers and proxies send, and little memory
_TLS_1_3: Final = "TLSv1.3"
_RECEIVED_BYTES: Final = 65_536  # at a time at most: a whole response, nearly always


class UnansweredError(aiohttp.ClientConnectionError):
    """A connection broke before a byte of the answer came. aiohttp does not send the request again after this error.

    Attributes:
        reused: Whether it had served an earlier request: most often the server had closed it by then.
        alert: The TLS alert with which the server broke it, such as `CERTIFICATE_REQUIRED`; `None` without one.
    """

    def __init__(self, error: BaseException, *, reused: bool, alert: str | None) -> None:
        super().__init__(*error.args)
        self.reused = reused
        self.alert = alert


def alert_of(error: BaseException | None = None) -> str | None:
    """Return the name of the TLS alert that the server sent, as OpenSSL has it; `None` if `error` tells of none."""
    reason = error.reason if isinstance(error, SSLError) else None
    return reason.rpartition("ALERT_")[2] if reason is not None and "ALERT_" in reason else None


def _is_broken_record(error: BaseException | None = None) -> bool:
    """Return whether TLS broke by anything but an alert: an answer that had come may be lost with the record."""
    return isinstance(error, SSLError) and alert_of(error) is None


class Connection(ResponseHandler, asyncio.BufferedProtocol):
    """A connection that is aborted whenever aiohttp would close it.

    A graceful close waits for a silent server: TLS for its close_notify, for 30 s; plain TCP without limit, until it
    has sent its buffer. So the rest of a cancelled create would still be sent, and might start an agent.

    It is aborted as well when the server sends data while no request is under way. Such data would be read as the
    response to the next request, and a flood of it would fill the memory.

    Data is received into the buffer of the pool and copied. Without a buffer, the loop would allocate 256 KiB for each
    chunk and give them back: system calls that take a fifth of a read's CPU (`benchmarks/bench_requests.py`). uvloop,
    which has a buffer of its own, calls `data_received` instead, as for every `asyncio.Protocol`.

    Attributes:
        use: What gives the connection to a request, now or the last time.
    """

    def __init__(self, pool: "Pool") -> None:
        super().__init__(asyncio.get_running_loop())
        self._pool = pool
        self._unanswered = False  # whether no byte has come yet since the last use began
        self._is_reused = False
        self._tls: str | None = None  # its version
        self.use: aiohttp.connector.Connection | None = None

    @property
    def idle(self) -> bool:
        """Whether the connection is in the pool."""
        return self.use is not None and self.use.closed

    def record_use(self, use: aiohttp.connector.Connection) -> None:
        """Record that the next request has the connection."""
        self._unanswered, self._is_reused = True, self.use is not None
        self.use = use

    def connection_made(self, transport: Any) -> None:
        self._pool.open.add(self)
        tls = transport.get_extra_info("ssl_object")
        self._tls = None if tls is None else tls.version()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._pool.open.discard(self)
        if exc is not None:
            # Where a TLS record is broken, asyncio never calls `buffer_updated` for the ones that it decrypted before.
            self._pool.buffer[:] = bytes(len(self._pool.buffer))
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the base class names it
        # All connections share it: the loop fills it and calls `buffer_updated` in one go.
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        received = self._pool.buffer[:nbytes]
        data = bytes(received)
        received[:] = bytes(nbytes)  # wiped: the server may have echoed the key
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if data and self.idle:
            self.abort()
        else:
            self._unanswered = False
            super().data_received(data)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        if self.exception() is not None:
            return  # the first error is the cause, such as an alert of TLS: a write that fails after it tells less
        if self._unanswered and (self._is_reused or (self._tls is not None and not _is_broken_record(*cause))):
            # Before TLS 1.3, a handshake that has ended is answered by no alert: it would be about the request.
            alert = alert_of(*cause) if self._tls == _TLS_1_3 else None
            exc, cause = UnansweredError(exc, reused=self._is_reused, alert=alert), (exc,)
        super().set_exception(exc, *cause)
        # aiohttp tells the reader of a body nothing of a chunk that breaks it: the reader would wait for the timeout.
        payload = getattr(self, "_payload", None)
        if isinstance(exc, HttpProcessingError) and payload is not None:
            payload.set_exception(exc, *cause)

    def resume_reading(self, *arguments: bool, **options: bool) -> None:
        if getattr(self, "_reading_paused", True):
            # The loop keeps the context in which a socket is watched for as long as the connection is open.
            Context().run(super().resume_reading, *arguments, **options)
        else:  # nearly always: aiohttp calls this for each response
            super().resume_reading(*arguments, **options)

    def close(self) -> None:
        self.abort()


class FreshConnection(Connection):
    """A connection of one request, whose response may have long headers: up to 256 KiB in a row that are no body.

    More end it. So the fields are bounded before they are decoded, whether they come before the body or, as trailers,
    after it.
    """

    def __init__(self, pool: "Pool") -> None:
        super().__init__(pool)
        self._left_bytes = _MOST_HEADER_BYTES

    def data_received(self, data: bytes) -> None:
        head, rest = data[: self._left_bytes], data[self._left_bytes :]
        before = self._body_bytes()
        super().data_received(head)
        self._left_bytes = self._left_bytes - len(head) if self._body_bytes() == before else _MOST_HEADER_BYTES
        if rest and self._left_bytes:
            super().data_received(rest)
        elif rest:
            self.set_exception(HttpProcessingError(message=f"more than {_MOST_HEADER_BYTES} bytes of header fields"))
            if self.transport is not None:
                self.transport.abort()  # not `self.abort`, which forgets the error, though nobody may have read it yet

    def _body_bytes(self) -> int:
        """Return how many bytes of a body have come, as aiohttp counts them in a private part; 0 without a body."""
        return int(getattr(getattr(self, "_payload", None), "total_bytes", 0))


create_under_way: Final[ContextVar[Progress | None]] = ContextVar("create under way", default=None)
"""The create whose request is being sent. Traces, aiohttp's other public way to learn of connections, cost it 20 µs."""


class Pool(aiohttp.TCPConnector):
    """A pool of `Connection`s.

    It has no limit: the time that a request waits for a free connection would count as a slow server. Callers limit
    themselves. Connections, and the timer that closes idle ones, outlive the request that makes them: they are made in
    an empty context, as long as aiohttp makes them in `_create_connection` and `_release`.

    Raises:
        InvalidInputError: This version of aiohttp lacks a name that is needed.

    Attributes:
        open: All open connections, in use or idle.
        buffer: Where the loop puts what it receives, until the connection has copied it.
    """

    def __init__(self, resolver: "Resolver", *, force_close: bool = False) -> None:
        # With its own DNS cache, aiohttp shields look-ups from cancellation in tasks that outlive the call.
        super().__init__(limit=0, use_dns_cache=False, resolver=resolver, force_close=force_close)
        _check(self, "TCPConnector", "_close", "_factory")
        _check(ResponseHandler, "ResponseHandler", "abort", "close")
        self.open: set[Connection] = set()
        self.buffer = memoryview(bytearray(_RECEIVED_BYTES))
        self._made: dict[asyncio.Task[Any] | None, list[Connection]] = {}
        self._factory: Any = self._make
        self._kind = FreshConnection if force_close else Connection

    def abort(self) -> None:
        """Close the pool and abort all of its connections, within this call; each learns of it soon after."""
        self._close()
        for connection in tuple(self.open):
            connection.abort()

    async def connect(self, *arguments: Any, **options: Any) -> aiohttp.connector.Connection:
        """Return the use of an idle connection, or of a new one."""
        progress = create_under_way.get()
        if progress is not None:
            progress.connecting()
        use = None
        try:
            use = await super().connect(*arguments, **options)
        finally:
            if self._made:  # nearly never: else an idle connection is used
                self._settle(used=use is not None)
        if progress is not None:
            progress.connected()
        connection: Any = use.protocol
        connection.record_use(use)
        return use

    def _settle(self, *, used: bool) -> None:
        """Forget which connections this task has made, or abort them where none is used."""
        made = self._made.pop(asyncio.current_task(), ())
        self.open.difference_update([one for one in made if _is_wrapped(one)])
        if not used:
            # Cancelled right after the handshake, asyncio closes gracefully; so does aiohttp when a proxy refuses.
            for one in made:
                one.abort()

    def _make(self) -> Connection:
        connection = self._kind(self)
        self._made.setdefault(asyncio.current_task(), []).append(connection)
        return connection

    async def _create_connection(self, *arguments: Any, **options: Any) -> ResponseHandler:
        return await RunApart(super()._create_connection(*arguments, **options))

    def _release(self, *arguments: Any, **options: Any) -> None:
        # The timer that closes idle connections, which may be started here, is renewed as long as there are any.
        Context().run(super()._release, *arguments, **options)


def _is_wrapped(connection: Connection) -> bool:
    """Return whether TLS through a proxy has replaced the transport: then it never calls `connection_lost` here."""
    transport: Any = connection.transport
    return transport is not None and transport.get_protocol() is not connection


class RunApart(Generic[T]):
    """Awaits a coroutine in an empty context, in the task that awaits it: no other task, which could outlive it.

    Whatever the coroutine makes that lasts (sockets, timers) keeps no variable of its caller alive.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the coroutine step by step."""
        context, coroutine = Context(), self._coroutine
        try:
            awaited = context.run(coroutine.send, None)
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    context.run(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - a cancellation, say: it is the coroutine's
                    awaited = context.run(coroutine.throw, error)
                else:
                    awaited = context.run(coroutine.send, value)
        except StopIteration as end:
            result: T = end.value
            return result


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


async def send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Replace the errors after which aiohttp sends a GET again by itself by one after which it does not."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(*error.args) from error


def _check(part: object, kind: str, *names: str) -> None:
    for name in names:
        if not hasattr(part, name):
            raise InvalidInputError(
                f"aiohttp {aiohttp.__version__} has no {kind}.{name}, without which sockets would stay open:"
                " install a version that agentjobs-async was tested with, such as 3.14"
            )
