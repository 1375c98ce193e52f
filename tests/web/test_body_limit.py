"""What BodyLimit passes on, and what it answers by itself."""

import asyncio
from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.web import BodyLimit
from tests.web.asgi import Message, exchanged

pytestmark = pytest.mark.looptime

LEFT: Message = {"type": "http.disconnect"}


def piece(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def repeat(_scope: object, receive: Any, send: Any) -> None:
    """Send back the body and what comes after it."""
    for _ in range(2):
        await send({"type": "received", "received": await receive()})


def head(length: bytes, version: str = "1.1") -> dict[str, Any]:
    return {"headers": [(b"host", b"x"), (b"content-length", length)], "http_version": version}


def refusal(text: bytes, status: int) -> list[Message]:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    return [
        {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]},
        {"type": "http.response.body", "body": text},
    ]


TOO_LARGE = refusal(b"The body is too large.", 413)


async def test_body_that_fits() -> None:
    """A body of exactly the limit reaches the application in one piece, and after it what the server sends."""
    app = BodyLimit(repeat, max_bytes=5)
    pieces = [piece(b"ab"), piece(b""), {"type": "http.request", "more_body": True}, piece(b"cde", more=False)]
    received = [message["received"] for message in await exchanged(app, *pieces, LEFT, scope=head(b"5"))]
    assert received == [piece(b"abcde", more=False), LEFT]


async def test_request_without_a_body() -> None:
    """A request without a body is passed on, whether its message names a body or not."""
    for message in (piece(b"", more=False), {"type": "http.request"}):
        received = await exchanged(BodyLimit(repeat, max_bytes=0), message, LEFT)
        assert received[0]["received"] == piece(b"", more=False)


async def test_announced_body() -> None:
    """A body whose Content-Length is too large is refused before any of it is read."""
    for length in (b"65537", b"9" * 5_000):
        assert await exchanged(BodyLimit(repeat), scope=head(length)) == TOO_LARGE


async def test_body_that_grows() -> None:
    """A body that is larger than it said, or says nothing that is a number, is refused once too much has come."""
    for length in (b"3", b"-1", b"many", b""):
        app = BodyLimit(repeat, max_bytes=5)
        assert await exchanged(app, piece(b"abc"), piece(b"def"), scope=head(length)) == TOO_LARGE


async def test_slow_body() -> None:
    """Half a body is refused when its time is over, however often a byte of it comes."""
    begun = asyncio.get_running_loop().time()
    assert await exchanged(BodyLimit(repeat), piece(b"ab")) == refusal(b"The body came too slowly.", 408)
    assert asyncio.get_running_loop().time() - begun == pytest.approx(25)

    async def drip() -> Message:
        await asyncio.sleep(1)
        return piece(b"a")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    begun = asyncio.get_running_loop().time()
    await BodyLimit(repeat, timeout=3.5)({"type": "http", "headers": []}, drip, send)
    assert sent[0]["status"] == 408
    assert asyncio.get_running_loop().time() - begun == pytest.approx(3.5)


async def test_application_takes_its_time() -> None:
    """The time is for the body alone: the application may take longer, and its own TimeoutError is its own."""

    async def slow(_scope: object, receive: Any, send: Any) -> None:
        await asyncio.sleep(50)
        await repeat(_scope, receive, send)
        raise TimeoutError("of the application")

    with pytest.raises(TimeoutError, match="of the application"):
        await exchanged(BodyLimit(slow), piece(b"", more=False), LEFT)


async def test_error_of_the_server() -> None:
    """A TimeoutError that the server raises while a body is read is not taken for a slow body."""

    async def receive() -> Message:
        raise TimeoutError("of the server")

    async def send(_message: Message) -> None:
        pytest.fail("nothing is answered")

    with pytest.raises(TimeoutError, match="of the server"):
        await BodyLimit(repeat)({"type": "http", "headers": []}, receive, send)


async def test_client_that_leaves() -> None:
    """A request whose client leaves amid its body is neither handed to the application nor answered."""
    assert await exchanged(BodyLimit(repeat), piece(b"ab"), LEFT) == []


async def test_http_2() -> None:
    """In HTTP/2, where that header is an error, no answer says `connection: close`."""
    start, _ = await exchanged(BodyLimit(repeat), scope=head(b"65537", "2"))
    assert dict(start["headers"]).keys() == {b"content-type", b"content-length"}


async def test_other_scopes() -> None:
    """Web sockets and lifespans pass untouched."""
    for kind in ("websocket", "lifespan"):
        messages: list[Message] = [{"type": "first"}, {"type": "second"}]
        received = await exchanged(BodyLimit(repeat), *messages, scope={"type": kind})
        assert [message["received"] for message in received] == messages


def test_arguments() -> None:
    """Bounds that make no sense are refused when the application is made."""
    for arguments in ({"max_bytes": -1}, {"max_bytes": 1.5}, {"max_bytes": True}, {"timeout": 0}, {"timeout": None}):
        (name,) = arguments
        with pytest.raises(InvalidInputError, match=name):
            BodyLimit(repeat, **arguments)
