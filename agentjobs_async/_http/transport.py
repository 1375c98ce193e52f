"""One request over a socket, and what each of its faults means.

This module and `connections` are the only ones that import aiohttp's client. A response or a fault is returned as a
value: aiohttp's exceptions, and the frames that they came through, hold the request's headers and with them the key.
"""

import asyncio
import errno
import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from math import inf
from ssl import SSLCertVerificationError, SSLContext
from typing import Any, Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from attrs import field, frozen
from yarl import URL

from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.connections import Pool, Resolver, UnansweredError, alert_of, create_under_way, send_once
from agentjobs_async._http.credentials import Credentials
from agentjobs_async._http.progress import Progress
from agentjobs_async._http.proxy import Proxy
from agentjobs_async._http.responses import Response
from agentjobs_async._loop.cancel_scope import wait_until_left
from agentjobs_async._text import limit, one_line
from agentjobs_async._validation import checked_instance, checked_seconds, validator
from agentjobs_async._version import __version__
from agentjobs_async.errors import (
    AgentJobsError,
    InvalidInputError,
    NotSentError,
    NotSentReason,
    ProtocolError,
    TransportError,
)


@frozen
class HttpTimeouts:
    """How long one exchange may take, in seconds.

    Attributes:
        connect: For one connection: name lookup, TCP and TLS together.
        request: For one read of a job as a whole. A create is bounded by its own timeout instead.

    Raises:
        InvalidInputError: A setting is not a finite number above 0.
    """

    connect: float = field(default=10.0, validator=validator(checked_seconds))
    request: float = field(default=30.0, validator=validator(checked_seconds))


OF_A_BODY: Final = {"Content-Type": "application/json"}
"""The header fields of a request that has a body."""

_SHOWN_BYTES: Final = 300  # of a foreign error's text
_QUOTED: Final = re.compile(r"[\s:]+b?['\"].*", re.DOTALL)
"""What a message of aiohttp quotes of a response: cut by aiohttp, and so with a part of a key that can't be masked."""
_SENT_BYTES: Final = 262_144  # of a body at once: the loop is not blocked for long
_LEAST_SECONDS: Final = 0.001  # of a time limit: to aiohttp, 0 is none
# What aiohttp accepts by itself, 8 KiB and 128 fields, is enough for reads, which are repeated. A longer response to a
# create would lose the job's id.
_MOST_FIELD_BYTES: Final = 65_792  # of a header field of the response, name and value
_MOST_FIELDS: Final = 256
_FailedConnection = aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError
_NO_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes (X509_V_ERR_*) of certificates without a trusted authority: of an unknown issuer, self-signed."""
_TRUST: Final = "trust its authority by SSL_CERT_FILE or the session's ssl= (at the command line, by --ca-file)"
_LOSING_ITERATIONS: Final = 4  # of the loop, from the closing of a transport to the call of `connection_lost`
_NO_HEADERS: Final[Mapping[str, str]] = {}
_EXPLANATION_SECONDS: Final = 1.0  # for the body of an error, whose head has said what it is


def usual_headers(user_agent: str) -> dict[str, str]:
    """Return the header fields of every request, which the user's own ones may replace."""
    return {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": user_agent}


class Transport:
    """The sockets of one session: a pool for reads, and a fresh connection for each create and each repeated read."""

    def __init__(
        self,
        credentials: Credentials,
        timeouts: HttpTimeouts | None,
        ssl: SSLContext | None,
        proxy: Proxy,
        user_agent: str,
        max_document_bytes: int,
    ) -> None:
        timeouts = checked_instance("timeouts", timeouts, HttpTimeouts) or HttpTimeouts()
        self._credentials = credentials
        self._max_document_bytes = max_document_bytes
        self.read_seconds = timeouts.request  # that a read may take at most
        self._read_timeout = aiohttp.ClientTimeout(total=timeouts.request, connect=timeouts.connect, ceil_threshold=inf)
        self._create_timeout = aiohttp.ClientTimeout(connect=timeouts.connect, ceil_threshold=inf)
        self._proxy = proxy
        self._options: dict[str, Any] = {"allow_redirects": False, "proxy": proxy.url}
        if checked_instance("ssl", ssl, SSLContext) is not None:
            self._options["ssl"] = ssl
        self._read_options = dict(self._options)
        self._options |= {"max_field_size": _MOST_FIELD_BYTES, "max_line_size": _MOST_FIELD_BYTES}
        self._options["max_headers"] = _MOST_FIELDS
        self._headers = usual_headers(user_agent)
        self._reads: aiohttp.ClientSession
        self._fresh: aiohttp.ClientSession
        self._opened: dict[aiohttp.ClientSession, Pool] = {}

    @property
    def is_open(self) -> bool:
        """Whether `open` has made the pools; also after they were closed."""
        return bool(self._opened)

    def open(self) -> None:
        """Make the pools in the running loop, without any I/O. Idempotent; must be called before `read` and `create`.

        Raises:
            InvalidInputError: This version of aiohttp lacks a private name that is needed.
        """
        if not self._opened:
            names = Resolver()
            self._reads = self._client(Pool(names))
            if hasattr(self._reads, "_retry_connection"):
                self._reads._retry_connection = False  # noqa: SLF001 - a middleware costs a poll a twentieth of its CPU
            else:
                self._read_options["middlewares"] = (send_once,)
            self._reads.trace_configs.clear()  # instrumentation adds its own to every client: a span for each poll
            self._fresh = self._client(Pool(names, force_close=True))

    def _client(self, pool: Pool) -> aiohttp.ClientSession:
        client = aiohttp.ClientSession(
            connector=pool,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            auto_decompress=False,
        )
        self._opened[client] = pool
        return client

    async def read(self, url: URL, key: ApiKey, *, repeats: bool = False) -> Response | AgentJobsError:
        """Return the response to one GET under a key, or the error of the exchange.

        With `repeats` it is sent once more, on a fresh connection and within the same time, where a reused connection
        broke before a byte of the answer.
        """
        client, timeout, options = self._reads, self._read_timeout, self._read_options
        began = asyncio.get_running_loop().time() if repeats else 0.0
        while True:
            try:
                return await self._received(
                    await client.get(
                        url,
                        headers=self._credentials.headers(key, **self._proxy.request_headers()),
                        proxy_headers=self._proxy.tunnel_headers() if self._proxy.url is not None else None,
                        timeout=timeout,
                        **options,
                    )
                )
            except asyncio.CancelledError as error:
                interrupted = error
                break
            except Exception as error:  # noqa: BLE001 - whatever a foreign library raises is a fault of the exchange
                if not repeats or client is self._fresh or not _broke_unanswered(error, reused=True):
                    return self._fault(error, url)
            client, timeout = self._fresh, self._timeout_of_read(began + self.read_seconds)
            options = {**options, "middlewares": (send_once,)}
        raise _without_frames(interrupted)

    def _timeout_of_read(self, deadline: float) -> aiohttp.ClientTimeout:
        left = max(deadline - asyncio.get_running_loop().time(), _LEAST_SECONDS)
        return aiohttp.ClientTimeout(total=left, connect=self._read_timeout.connect, ceil_threshold=inf)

    async def create(
        self, url: URL, body: bytes, progress: Progress, key: ApiKey, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Response | AgentJobsError:
        """Return the response to one POST of JSON over a fresh connection, or the error; the caller bounds its time.

        `headers` are further fields of this one request.
        """
        progress.start_try()
        token = create_under_way.set(progress)
        try:
            return await self._received(
                await self._fresh.post(
                    url,
                    data=_Body(body, progress),
                    headers=self._credentials.headers(key, **OF_A_BODY, **headers, **self._proxy.request_headers()),
                    proxy_headers=self._proxy.tunnel_headers(),
                    timeout=self._create_timeout,
                    **self._options,
                ),
                progress,
            )
        except asyncio.CancelledError as error:
            interrupted = error
        except Exception as error:  # noqa: BLE001 - whatever a foreign library raises is a fault of the exchange
            return progress.decision or self._fault(error, url, progress)
        finally:
            create_under_way.reset(token)
        raise _without_frames(interrupted)

    async def _received(self, response: aiohttp.ClientResponse, progress: Progress | None = None) -> Response:
        received = Response(response.status, response.headers, whole=False)
        if progress is not None:
            progress.on_head(received)
        try:
            if received.is_error:
                await self._explained(received, response)
            else:
                received.body, received.whole = await _bounded(response.content, self._max_document_bytes)
        finally:
            if not received.whole:
                response.close()
        return received

    async def _explained(self, received: Response, response: aiohttp.ClientResponse) -> None:
        """Add the body of an error, if it comes soon: the status line and the headers have said what it is."""
        with suppress(Exception):
            async with asyncio.timeout(_EXPLANATION_SECONDS):
                received.body, received.whole = await _bounded(response.content, self._max_document_bytes)

    def _fault(self, error: Exception, url: URL, progress: Progress | None = None) -> AgentJobsError:
        alert = _refused_certificate(error)
        description = self._description(error) if alert is None else _CERTIFICATE_ALERTS[alert]
        text = one_line(self._credentials.mask(description), _SHOWN_BYTES)
        reason = _not_sent_reason(error)
        # Of a create, the steps decide, not the error: that of a second connection says nothing of the first one.
        nothing_left = reason is not None if progress is None else not progress.may_have_left
        if alert is not None and (progress is None or progress.connections <= 1):
            nothing_left = True  # the request was sent, but the server ended the handshake, and read nothing of it
        if nothing_left:
            target = "" if reason == "refused" else f" to {self._target(error, url)}"
            return NotSentError(f"nothing was sent{target}: {text}", reason or "connect")
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            return ProtocolError("http", text)
        if _broke_unanswered(error, reused=False):
            text += " before any answer; TLS is a likely cause: a client certificate that the server refuses, or misses"
        return TransportError(f"the exchange{self._through} broke: {text}")

    @property
    def _through(self) -> str:
        return f" through the proxy {self._proxy.name}" if self._proxy.name else ""

    def _is_of_proxy(self, error: Exception) -> bool:
        """Return whether no connection to the proxy could be made."""
        if self._proxy.url is None or not isinstance(error, _FailedConnection):
            return False
        return (error.host, error.port) == (self._proxy.url.raw_host, self._proxy.url.port)

    def _target(self, error: Exception, url: URL) -> str:
        """Return what could not be connected to."""
        if self._is_of_proxy(error):
            return f"the proxy {self._proxy.name}"
        return f"{url.host}{'' if isinstance(error, aiohttp.ClientHttpProxyError) else self._through}"

    def _description(self, error: Exception) -> str:
        """Return what happened as text, without what aiohttp knows of the request."""
        if isinstance(error, aiohttp.ClientHttpProxyError | _FailedConnection):
            return self._failed_connection(error)
        cause = error.__cause__ if isinstance(error, aiohttp.ClientError) and error.__cause__ is not None else error
        if isinstance(cause, aiohttp.ClientResponseError | HttpProcessingError):
            return f"broken HTTP: {_QUOTED.sub('', cause.message)}"
        if isinstance(cause, aiohttp.ServerDisconnectedError):
            return "the server disconnected"  # its own text may quote the head of the response as far as it came
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {limit(self._read_timeout.connect or 0.0)} (timeouts.connect)"
        if isinstance(error, TimeoutError):
            return f"no whole answer within {limit(self._read_timeout.total or 0.0)} (timeouts.request)"
        return str(cause) or type(cause).__name__

    def _failed_connection(self, error: aiohttp.ClientHttpProxyError | _FailedConnection) -> str:
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._refusal_of_proxy(error.status)
        if isinstance(error, aiohttp.ClientConnectorError) and error.errno == errno.ECONNREFUSED:
            port = f"port {error.port} of {error.host}"
            return f"{f'the proxy {self._proxy.name}' if self._is_of_proxy(error) else port} refused the connection"
        cause = error.__cause__ or error
        if isinstance(cause, SSLCertVerificationError) and cause.verify_code in _NO_AUTHORITY:
            return f"{cause}: {_TRUST}"
        return str(cause) or type(cause).__name__

    def _refusal_of_proxy(self, status: int) -> str:
        """Return how the proxy refused a tunnel, without its own words, which may echo the password."""
        if status != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return f"the proxy {self._proxy.name} refused to connect, with status {status}"
        defect = "it refuses the user and password" if self._proxy.has_credentials else "it wants a user and a password"
        return f"the proxy {self._proxy.name} answered with status {status}: {defect} in its address"

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Abort all connections of a transport that is deleted without `aclose`, from whichever thread deletes it.

        aiohttp then issues no warnings of its own.
        """
        for client, pool in self._opened.items():
            client.detach()
            with suppress(RuntimeError):  # the loop is closed: its sockets can no longer be closed in order
                pool.abort() if loop.is_closed() else loop.call_soon_threadsafe(pool.abort)

    async def aclose(self) -> None:
        """Abort all connections. Idempotent. They are aborted before the first await, so that cancelling is safe."""
        for client, pool in self._opened.items():
            client.detach()
            pool.abort()
        await wait_until_left(lambda: any(pool.open for pool in self._opened.values()))


class _Body(aiohttp.Payload):
    """The body of one try. aiohttp sends the headers together with the first of it, so that to write it is to send."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        super().__init__(content)
        self._content = content
        self._progress = progress

    @property
    def size(self) -> int:
        return len(self._content)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._content.decode(encoding, errors)

    async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
        self._progress.sending()
        try:
            for start in range(0, len(self._content), _SENT_BYTES):
                await writer.write(self._content[start : start + _SENT_BYTES])
        except ConnectionError:
            for _ in range(_LOSING_ITERATIONS):  # the connection learns of its end, and why, later than of being closed
                await asyncio.sleep(0)
            raise
        self._progress.sent()


async def _bounded(content: aiohttp.StreamReader, limit: int) -> tuple[bytes, bool]:
    """Return at most `limit` bytes of the body, and whether that is all of it."""
    body = await content.readany()
    if content.at_eof() and len(body) <= limit:
        return body, True
    parts, size = [body], len(body)
    while size <= limit and not content.at_eof():
        parts.append(await content.readany())
        size += len(parts[-1])
    return b"".join(parts)[:limit], size <= limit


_NOT_SENT: Final[tuple[tuple[type[Exception], NotSentReason], ...]] = (
    (aiohttp.ClientConnectorCertificateError, "certificate"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ClientConnectorDNSError, "dns"),
    (aiohttp.ConnectionTimeoutError, "timeout"),
    (aiohttp.ClientConnectorError, "connect"),
    (aiohttp.ClientHttpProxyError, "proxy"),
)


_REFUSED: Final = "the server refused the client certificate"
_CERTIFICATE_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "the server asks for a client certificate, and the session's `ssl` has none",
    "BAD_CERTIFICATE": f"{_REFUSED}: it is bad, or missing",
    "UNSUPPORTED_CERTIFICATE": f"{_REFUSED}: it does not support its kind",
    "CERTIFICATE_REVOKED": f"{_REFUSED}: it is revoked",
    "CERTIFICATE_EXPIRED": f"{_REFUSED}: it has expired, or is not valid yet",
    "CERTIFICATE_UNKNOWN": f"{_REFUSED}: it does not accept it",
    "UNKNOWN_CA": f"{_REFUSED}: it does not know the authority that signed it",
    "ACCESS_DENIED": f"{_REFUSED}: it denies it access",
    "HANDSHAKE_FAILURE": "the server ended the TLS handshake: it may ask for a client certificate that it did not get",
}
"""What the TLS alerts (RFC 8446, 6.2) mean with which a server answers the certificate of a client, or its absence.

Under TLS 1.3 the client has sent its request when they come. They end the handshake of the server, which therefore has
read no byte of the request.
"""


def _refused_certificate(error: Exception) -> str | None:
    """Return the alert by which the server refused the session's own certificate; `None` if `error` tells of none."""
    if isinstance(error, UnansweredError):
        alert = None if error.reused else error.alert
    else:
        alert = alert_of(error.os_error) if isinstance(error, aiohttp.ClientConnectorError) else None
    return alert if alert in _CERTIFICATE_ALERTS else None


def _broke_unanswered(error: Exception, *, reused: bool) -> bool:
    """Return whether a reused connection, or one of TLS that was made for the request, broke before any answer."""
    return isinstance(error, UnansweredError) and error.reused is reused


def _not_sent_reason(error: Exception) -> NotSentReason | None:
    """Return the `NotSentError.reason` why there was no connection; `None` if `error` has another cause."""
    if _refused_certificate(error) is not None:
        return "certificate"
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno == errno.ECONNREFUSED:
        return "refused"
    if isinstance(error, aiohttp.ClientHttpProxyError) and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "connect"  # the proxy could not reach the server, which may pass
    return next((reason for kind, reason in _NOT_SENT if isinstance(error, kind)), None)


def _without_frames(interrupted: asyncio.CancelledError) -> asyncio.CancelledError:
    """Return a cancellation without the frames that it came through: they hold the request's headers."""
    interrupted.__cause__ = interrupted.__context__ = None
    return interrupted.with_traceback(None)


def checked_user_agent(value: object) -> str:
    """Return the value of the User-Agent header; `None` names this package and its version.

    Raises:
        InvalidInputError: `value` is not printable ASCII on one line, or is blank.
    """
    if value is None:
        return f"agentjobs-async/{__version__}"
    if not isinstance(value, str) or not value.strip() or not (value.isascii() and value.isprintable()):
        raise InvalidInputError("user_agent must be printable ASCII on one line")
    return value
