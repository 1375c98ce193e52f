"""Ways to send a response, byte by byte, whole or broken.

Each takes the exchange, the response, and the `where` and `amount` of a `Fault`. Each returns whether the connection
stays open, and raises `ConnectionError` when the client is gone.
"""

import asyncio
import contextlib
import itertools
import math
import socket
import struct
import sys
from collections.abc import Callable, Iterator

from agentjobs_async.testing._listener import Exchange
from agentjobs_async.testing._messages import Message

_PIECE = b" " * 16_384  # bytes of one chunk of an endless body
_GARBAGE = b"\x16\x03\x01 surplus bytes \r\n\r\n"  # begins like a TLS record, and is not HTTP
_NO_LINGER = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)  # closing then sends a RST


async def whole(exchange: Exchange, message: Message, _where: str, _amount: float) -> bool:
    """Send the whole response."""
    await exchange.send(message.to_bytes())
    return True


async def reset(exchange: Exchange, message: Message, where: str, _amount: float) -> bool:
    """Send the response up to `where`, then break the connection with a RST."""
    await exchange.send(_before(message, where))
    exchange.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    exchange.transport.abort()
    return False


async def close(exchange: Exchange, message: Message, where: str, _amount: float) -> bool:
    """Send the response up to `where`, then close the connection with a FIN."""
    await exchange.send(_before(message, where))
    exchange.transport.close()
    return False


async def hang(exchange: Exchange, message: Message, where: str, seconds: float) -> bool:
    """Send the response up to `where`, and the rest `seconds` later."""
    sent = _before(message, where)
    await exchange.send(sent)
    await (exchange.stay_silent() if seconds == math.inf else pause(seconds))
    await exchange.send(message.to_bytes()[len(sent) :])
    return True


async def drip(exchange: Exchange, message: Message, _where: str, seconds: float) -> bool:
    """Send one byte every `seconds`."""
    for byte in message.to_bytes():
        await exchange.send(bytes([byte]))
        await pause(seconds)
    return True


async def short(exchange: Exchange, message: Message, _where: str, missing: float) -> bool:
    """Send `missing` bytes fewer than the Content-Length, then close the connection."""
    # A body shorter than `missing` is sent empty, under a Content-Length of `missing`.
    length = max(int(missing), len(message.body))
    await exchange.send(message.with_length(length).head() + message.body[: length - int(missing)])
    exchange.transport.close()
    return False


async def overlong(exchange: Exchange, message: Message, _where: str, extra: float) -> bool:
    """Send `extra` bytes more than the Content-Length."""
    await exchange.send(message.to_bytes() + b"}" * int(extra))
    return True


async def endless(exchange: Exchange, message: Message, where: str, seconds: float) -> bool:
    """Send pieces without end, with a pause of `seconds` after each."""
    pieces = ENDLESS[where](message)
    while True:
        await exchange.send(next(pieces))
        await pause(seconds)


async def surplus(exchange: Exchange, message: Message, where: str, seconds: float) -> bool:
    """Send the surplus response, or garbage for any `where`, `seconds` after the response."""
    # Without a delay both go out in one write, so that the client reads them together.
    extra = _GARBAGE if where else message.surplus
    await exchange.send(message.to_bytes() + (b"" if seconds else extra))
    if seconds:
        exchange.spawn(_later(exchange, extra, seconds))
    return True


async def _later(exchange: Exchange, data: bytes, seconds: float) -> None:
    await asyncio.sleep(seconds)
    with contextlib.suppress(ConnectionError):
        await exchange.send(data)


async def pause(seconds: float) -> None:
    """Wait for `seconds`; infinity waits until the emulator closes, which cancels the wait."""
    if seconds == math.inf:
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(seconds)


def _before(message: Message, where: str) -> bytes:
    """Return the bytes of a response that are sent before it breaks at `where`."""
    head = message.head()
    parts = {
        "": b"",
        "headers": head[: len(head) // 2],
        "body": head + message.body[: len(message.body) // 2],
        "after": head + message.body,
    }
    return parts[where]


def _endless_headers(message: Message) -> Iterator[bytes]:
    start = message.head().removesuffix(b"\r\n")
    return itertools.chain([start], (b"X-Filler-%d: %s\r\n" % (number, b"x" * 1000) for number in itertools.count()))


def _endless_body(message: Message) -> Iterator[bytes]:
    headers = tuple(header for header in message.headers if header[0] != "Content-Length")
    start = Message(message.status, (*headers, ("Transfer-Encoding", "chunked")), b"").head()
    return itertools.chain([start], itertools.repeat(b"%x\r\n%s\r\n" % (len(_PIECE), _PIECE)))


def _endless_continues(_message: Message) -> Iterator[bytes]:
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


ENDLESS: dict[str, Callable[[Message], Iterator[bytes]]] = {
    "headers": _endless_headers,
    "body": _endless_body,
    "continues": _endless_continues,
}
"""The pieces of each endless answer."""
