"""The bodies of requests, within bounds: read before an application is called."""

import asyncio
from typing import Any, Final

from attrs import define, frozen

from agentjobs_async._validation import checked_count, checked_seconds
from agentjobs_async.web._asgi import Application, Receive, Send

__all__ = ["BodyLimit"]


@frozen
class _Refusal:
    """What a client is answered whose body is not passed on."""

    status: int
    text: str


_TOO_LARGE: Final = _Refusal(413, "The body is too large.")
_TOO_SLOW: Final = _Refusal(408, "The body came too slowly.")
_MOST_DIGITS: Final = 20  # of a Content-Length: Python refuses thousands of them


class BodyLimit:
    """An ASGI application that reads the body of each request for another one, unless it is too large or too slow.

    It answers 413 to a body of more than `max_bytes`: at once if its Content-Length says so, else as soon as that many
    have come. It answers 408 to one that is not complete after `timeout` seconds: half a body must not hold up a
    shutdown. Either answer is a sentence in plain text, and closes the connection. A request whose client leaves amid
    its body is dropped. The application gets a complete body in one piece, and everything else as the server sends it.

    It goes around any ASGI application: `app.add_middleware(BodyLimit)` in FastAPI and Starlette,
    `middleware=[BodyLimit]` in Litestar, `BodyLimit(get_asgi_application())` in Django.

    Args:
        app: The application.
        max_bytes: The most bytes of a body, from 0 on; a request's body is kept in memory as a whole.
        timeout: Seconds above 0 from the call to the last byte of the body.

    Raises:
        InvalidInputError: `max_bytes` is not a whole number from 0 on, or `timeout` not a finite number above 0.
    """

    def __init__(self, app: Application, max_bytes: int = 65_536, timeout: float = 25.0) -> None:
        self._app = app
        self._max_bytes = checked_count("max_bytes", max_bytes, least=0)
        self._timeout = checked_seconds("timeout", timeout)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a request, or whatever else the server has for the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await self._body_in_time(scope, receive)
        if body is None:  # the client has left: nobody reads an answer
            return
        if isinstance(body, _Refusal):
            await _refuse(body, scope, send)
        else:
            await self._app(scope, _BodyFirst(body, receive), send)

    async def _body_in_time(self, scope: Any, receive: Receive) -> bytes | _Refusal | None:
        """Return the whole body; why it is refused; or `None` if its client has left."""
        if _announced_bytes(scope) > self._max_bytes:
            return _TOO_LARGE
        try:
            async with asyncio.timeout(self._timeout) as patience:
                return await self._body(receive)
        except TimeoutError:
            if not patience.expired():
                raise  # of the server's own
            return _TOO_SLOW

    async def _body(self, receive: Receive) -> bytes | _Refusal | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return _TOO_LARGE
            if not message.get("more_body", False):
                return bytes(body)


@define
class _BodyFirst:
    """Receives the body that was read, and then what the server has: that the client has left."""

    _body: bytes | None
    _receive: Receive

    async def __call__(self) -> Any:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _announced_bytes(scope: Any) -> int:
    """Return the Content-Length of a request; 0 where it has none, or none that is a number."""
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value[:_MOST_DIGITS])
    return 0


async def _refuse(refusal: _Refusal, scope: Any, send: Send) -> None:
    text = refusal.text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    if scope.get("http_version", "1.1").startswith("1"):  # in HTTP/2, it is an error
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
