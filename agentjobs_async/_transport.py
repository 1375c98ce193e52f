"""One request over a socket, and what each of its faults means.

The only module that knows aiohttp's client. An answer or a fault is given as a value: aiohttp's exceptions, and the
frames they came through, hold the request's headers and with them the key.
"""

import asyncio
import errno
import io
from functools import partial
from math import inf
from ssl import SSLContext
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from agentjobs_async._secrets import ApiKey
from agentjobs_async._text import one_line
from agentjobs_async._wire import Response
from agentjobs_async.errors import AgentJobsError, NotSentError, ProtocolError, TransportError
from agentjobs_async.policy import HttpTimeouts

__all__ = ["Progress", "Transport"]

_SHOWN: Final = 300
_ERROR_STATUS: Final = 300
_EXPLANATION: Final = 1.0


class Progress:
    """How far one create has come: what it can be blamed for when it breaks.

    Attributes:
        may_have_left: Whether a byte of the request may have left. True unless aiohttp says otherwise.
        status: The answer's status, once its head was here.
    """

    __slots__ = ("may_have_left", "status")

    def __init__(self) -> None:
        self.may_have_left = False
        self.status: int | None = None

    def start(self) -> None:
        """Begin a try."""
        self.may_have_left = True
        self.status = None


class Transport:
    """The sockets of one session: a pool for reads, and a fresh connection for each create."""

    def __init__(
        self,
        key: ApiKey,
        *,
        timeouts: HttpTimeouts,
        ssl: SSLContext | None,
        proxy: URL | None,
        user_agent: str,
        max_document_bytes: int,
    ) -> None:
        self._key = key
        self._max_document_bytes = max_document_bytes
        self._read_timeout = aiohttp.ClientTimeout(total=timeouts.request, connect=timeouts.connect, ceil_threshold=inf)
        self._create_timeout = aiohttp.ClientTimeout(connect=timeouts.connect, ceil_threshold=inf)
        self._options: dict[str, Any] = {"allow_redirects": False, "proxy": proxy}
        if ssl is not None:
            self._options["ssl"] = ssl
        self._headers = {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": user_agent}
        self._reads: aiohttp.ClientSession
        self._creates: aiohttp.ClientSession
        self._opened = False

    def open(self) -> None:
        """Make the pools, in the running loop; no I/O yet. Idempotent; comes before `read` and `create`."""
        if not self._opened:
            self._opened = True
            self._reads = self._client(_PoolOfQuietConnections())
            fresh = aiohttp.TCPConnector(limit=0, force_close=True, use_dns_cache=False)
            self._creates = self._client(fresh, [_told_progress()])

    def _client(
        self, connector: aiohttp.TCPConnector, traces: list[aiohttp.TraceConfig] | None = None
    ) -> aiohttp.ClientSession:
        client = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            auto_decompress=False,
            trace_configs=traces,
        )
        # No public switch keeps aiohttp from sending a GET a second time by itself (test_transport pins this one).
        client._retry_connection = False  # noqa: SLF001 - see the line above
        return client

    async def read(self, url: URL) -> Response | AgentJobsError:
        """Give the answer to one GET."""
        try:
            return await self._received(
                await self._reads.get(
                    url,
                    headers={"Authorization": self._key.authorization()},
                    timeout=self._read_timeout,
                    **self._options,
                )
            )
        except asyncio.CancelledError as error:
            interrupted = error
        except Exception as error:  # noqa: BLE001 - whatever a foreign library raises is a fault of the exchange
            return self._fault(error, url, may_have_left=True)
        raise _bare(interrupted)

    async def create(self, url: URL, body: bytes, progress: Progress) -> Response | AgentJobsError:
        """Give the answer to one POST of JSON over a fresh connection; the caller bounds its time."""
        progress.start()
        try:
            return await self._received(
                await self._creates.post(
                    url,
                    data=io.BytesIO(body),
                    headers={"Authorization": self._key.authorization(), "Content-Type": "application/json"},
                    timeout=self._create_timeout,
                    trace_request_ctx=progress,
                    **self._options,
                ),
                progress,
            )
        except asyncio.CancelledError as error:
            interrupted = error
        except Exception as error:  # noqa: BLE001 - whatever a foreign library raises is a fault of the exchange
            return self._fault(error, url, may_have_left=progress.may_have_left)
        raise _bare(interrupted)

    async def _received(self, response: aiohttp.ClientResponse, progress: Progress | None = None) -> Response:
        if progress is not None:
            progress.status = response.status
        explains = response.status >= _ERROR_STATUS
        try:
            if explains:
                # The status line and the headers already say what an error is; its body only explains.
                async with asyncio.timeout(_EXPLANATION):
                    body, whole = await _bounded(response.content, self._max_document_bytes)
            else:
                body, whole = await _bounded(response.content, self._max_document_bytes)
        except Exception:
            response.close()
            if not explains:
                raise
            body, whole = b"", True
        except BaseException:
            response.close()
            raise
        if not whole:
            response.close()
        return Response(response.status, response.headers, body, whole)

    def _fault(self, error: Exception, url: URL, *, may_have_left: bool) -> AgentJobsError:
        words = one_line(self._key.mask(self._words(error)), _SHOWN)
        reason = _not_sent_reason(error)
        if reason is not None or not may_have_left:
            return NotSentError(f"nothing was sent to {url.host}: {words}", reason or "connect")
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            return ProtocolError("http", words)
        return TransportError(f"the exchange broke: {words}")

    def _words(self, error: Exception) -> str:
        """Say what happened, without what aiohttp knows of the request."""
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            return f"broken HTTP: {error.message}"
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {self._read_timeout.connect:g} s (timeouts.connect)"
        if isinstance(error, TimeoutError):
            return f"no whole answer within {self._read_timeout.total:g} s (timeouts.request)"
        cause = error.__cause__ if isinstance(error, aiohttp.ClientError) and error.__cause__ is not None else error
        return str(cause) or type(cause).__name__

    async def aclose(self) -> None:
        """Close all connections; idempotent."""
        if self._opened:
            await self._reads.close()
            await self._creates.close()


class _QuietConnection(ResponseHandler):
    """A connection that is broken off when the server sends something on it while nobody asks.

    Such an answer would be taken for that to the next request, and a flood of them would fill the memory.
    """

    idle = False

    def data_received(self, data: bytes) -> None:
        if self.idle and data:
            self.abort()
        else:
            super().data_received(data)


class _PoolOfQuietConnections(aiohttp.TCPConnector):
    """Tells its connections when they are idle: taken out of the pool, and put back, by aiohttp's private methods.

    No public means does (test_transport pins that a surplus answer is not used).
    """

    def __init__(self) -> None:
        # Limits are the caller's: a wait for a place in aiohttp's own pool counts as a slow server. Without its cache
        # of names, no look-up goes on after its request was cancelled.
        super().__init__(limit=0, use_dns_cache=False)
        self._factory: Any = partial(_QuietConnection, loop=self._loop)

    async def _get(self, *arguments: Any) -> Any:
        connection = await super()._get(*arguments)
        if connection is not None and isinstance(connection.protocol, _QuietConnection):
            connection.protocol.idle = False
        return connection

    def _release(self, key: Any, protocol: Any, **options: Any) -> None:
        protocol.idle = True
        super()._release(key, protocol, **options)


async def _bounded(content: aiohttp.StreamReader, limit: int) -> tuple[bytes, bool]:
    """Read up to `limit` bytes; tell whether that was all."""
    body = await content.readany()
    if content.at_eof() and len(body) <= limit:
        return body, True
    parts, size = [body], len(body)
    while size <= limit and not content.at_eof():
        parts.append(await content.readany())
        size += len(parts[-1])
    return b"".join(parts)[:limit], size <= limit


def _told_progress() -> aiohttp.TraceConfig:
    """Learn of the moments before which nothing has left: a connection is being made, and not there yet."""

    async def connecting(_client: aiohttp.ClientSession, context: Any, _event: object) -> None:
        context.trace_request_ctx.may_have_left = False

    async def connected(_client: aiohttp.ClientSession, context: Any, _event: object) -> None:
        context.trace_request_ctx.may_have_left = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(connecting)
    trace.on_connection_create_end.append(connected)
    return trace


_NOT_SENT: Final[tuple[tuple[type[Exception], str], ...]] = (
    (aiohttp.ClientConnectorCertificateError, "certificate"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ClientConnectorDNSError, "dns"),
    (aiohttp.ConnectionTimeoutError, "timeout"),
    (aiohttp.ClientConnectorError, "connect"),
    (aiohttp.ClientHttpProxyError, "proxy"),
)


def _not_sent_reason(error: Exception) -> str | None:
    """Name what kept the connection from being made; `None` when that is not what happened."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno == errno.ECONNREFUSED:
        return "refused"
    return next((reason for kind, reason in _NOT_SENT if isinstance(error, kind)), None)


def _bare(interrupted: asyncio.CancelledError) -> asyncio.CancelledError:
    """Take off the frames that a cancellation came through: they hold the request's headers."""
    interrupted.__cause__ = interrupted.__context__ = None
    return interrupted.with_traceback(None)
