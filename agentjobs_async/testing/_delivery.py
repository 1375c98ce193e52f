"""How a response goes out, byte by byte, when a fault breaks its delivery."""

import asyncio
import contextlib
import itertools
import math
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator

from agentjobs_async.testing._answers import Message
from agentjobs_async.testing._listener import Exchange
from agentjobs_async.testing.faults import Fault

__all__ = ["deliver", "pause"]

_PIECE = b" " * 16_384
_GARBAGE = b"\x16\x03\x01 surplus bytes \r\n\r\n"
_NO_LINGER = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


async def deliver(exchange: Exchange, message: Message, fault: Fault, surplus: bytes = b"") -> bool:
    """Send a response the way a fault wants it.

    Args:
        exchange: Where it goes.
        message: The response.
        fault: What is done to it.
        surplus: The second response of the surplus fault.

    Returns:
        Whether the connection stays open.

    Raises:
        ConnectionError: The client is gone.
    """
    if fault.kind == "surplus":
        return await _surplus(exchange, message, fault, surplus)
    return await _WAYS.get(fault.kind, _whole)(exchange, message, fault)


async def _whole(exchange: Exchange, message: Message, _fault: Fault) -> bool:
    await exchange.send(message.to_bytes())
    return True


async def _reset(exchange: Exchange, message: Message, fault: Fault) -> bool:
    await exchange.send(_before(message, fault.place))
    exchange.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    exchange.transport.abort()
    return False


async def _close(exchange: Exchange, message: Message, fault: Fault) -> bool:
    await exchange.send(_before(message, fault.place))
    exchange.transport.close()
    return False


async def _hang(exchange: Exchange, message: Message, fault: Fault) -> bool:
    sent = _before(message, fault.place)
    await exchange.send(sent)
    await pause(fault.number("for", math.inf))
    await exchange.send(message.to_bytes()[len(sent) :])
    return True


async def _drip(exchange: Exchange, message: Message, fault: Fault) -> bool:
    for byte in message.to_bytes():
        await exchange.send(bytes([byte]))
        await pause(fault.number("every", 1.0))
    return True


async def _short(exchange: Exchange, message: Message, fault: Fault) -> bool:
    whole = message.to_bytes()
    await exchange.send(whole[: len(whole) - int(fault.number("by", 10))])
    exchange.transport.close()
    return False


async def _overlong(exchange: Exchange, message: Message, fault: Fault) -> bool:
    await exchange.send(message.to_bytes() + b"}" * int(fault.number("by", 10)))
    return True


async def _endless(exchange: Exchange, message: Message, fault: Fault) -> bool:
    pieces = _ENDLESS[fault.place](message)
    while True:
        await exchange.send(next(pieces))
        await pause(fault.number("every", 0.0))


async def _surplus(exchange: Exchange, message: Message, fault: Fault, surplus: bytes) -> bool:
    extra = _GARBAGE if fault.place else surplus
    after = fault.number("after", 0.0)
    await exchange.send(message.to_bytes() + (b"" if after else extra))
    if after:
        exchange.spawn(_later(exchange, extra, after))
    return True


async def _later(exchange: Exchange, data: bytes, seconds: float) -> None:
    await asyncio.sleep(seconds)
    with contextlib.suppress(ConnectionError):
        await exchange.send(data)


async def pause(seconds: float) -> None:
    """Wait so long; infinity waits until the emulator closes."""
    if seconds == math.inf:
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(seconds)


def _before(message: Message, place: str) -> bytes:
    """Give what goes out before a response breaks off in a place."""
    head = message.head()
    parts = {
        "": b"",
        "headers": head[: len(head) // 2],
        "body": head + message.body[: len(message.body) // 2],
        "after": head + message.body,
    }
    return parts[place]


def _endless_headers(message: Message) -> Iterator[bytes]:
    start = message.head().removesuffix(b"\r\n")
    return itertools.chain([start], (b"X-Filler-%d: %s\r\n" % (number, b"x" * 1000) for number in itertools.count()))


def _endless_body(message: Message) -> Iterator[bytes]:
    headers = tuple(header for header in message.headers if header[0] != "Content-Length")
    start = Message(message.status, (*headers, ("Transfer-Encoding", "chunked")), b"").head()
    return itertools.chain([start], itertools.repeat(b"%x\r\n%s\r\n" % (len(_PIECE), _PIECE)))


def _endless_continues(_message: Message) -> Iterator[bytes]:
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


_ENDLESS: dict[str, Callable[[Message], Iterator[bytes]]] = {
    "headers": _endless_headers,
    "body": _endless_body,
    "continues": _endless_continues,
}
_WAYS: dict[str, Callable[[Exchange, Message, Fault], Awaitable[bool]]] = {
    "reset": _reset,
    "close": _close,
    "hang": _hang,
    "drip": _drip,
    "short": _short,
    "overlong": _overlong,
    "endless": _endless,
}
