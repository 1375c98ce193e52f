"""A network in memory: connections between the processes of a world and its service, and what befalls them."""

import asyncio
import errno
import os
import random
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import Any, Final

from tests.simulation.loop import Loop
from tests.simulation.world import Fault, World

_END: Final = b""  # the other side closed its connection
_RESET: Final = None  # the connection broke
_RECEIVED: Final = 65_536  # bytes at a time
_MOST_PIECES: Final = 2_000  # of what is sent at once


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, connection: "Connection", loop: Loop, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self.connection = connection
        self.loop = loop
        self.protocol: Any = None
        self.out: Pipe
        self.into: Pipe
        self._closing = False
        self.is_paused = False  # its program does not want to read at present
        loop.transports[self] = None

    def get_protocol(self) -> Any:
        return self.protocol

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self.loop.call_soon(self.into.deliver, context=Context())

    def write(self, data: Any) -> None:
        if not self._closing and data:
            self.out.send(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0  # the network takes everything at once

    def close(self) -> None:
        self.leave(_END)

    def abort(self) -> None:
        self.leave(_RESET if self.connection.random.random() < 0.5 else _END)

    def leave(self, last: bytes | None, error: Exception | None = None) -> None:
        """End, for its own program with `error`, and for the other side as `last` says."""
        if not self._closing:
            self._closing = True
            self.out.send(last)
            self.connection.left(self)
            self.loop.call_soon(self._lost, error, context=Context())

    def _lost(self, error: Exception | None) -> None:
        self.vanish()
        self.protocol.connection_lost(error)

    def vanish(self) -> None:
        """Free what the system keeps; when a process is killed, the system resets its connections."""
        if self in self.loop.transports:
            del self.loop.transports[self]
            self.leave(_RESET)
            if (sock := self.get_extra_info("socket")) is not None:
                sock.close()

    def receive(self, data: bytes | None) -> None:
        """Pass what arrived to the protocol."""
        if self._closing:
            return
        if data is _RESET:
            self.leave(_END, _error(errno.ECONNRESET))
        elif data == _END:
            if not self.protocol.eof_received():
                self.close()
        elif isinstance(self.protocol, asyncio.BufferedProtocol):
            while data:
                buffer: Any = self.protocol.get_buffer(-1)
                part, data = data[: len(buffer)], data[len(buffer) :]
                buffer[: len(part)] = part
                self.protocol.buffer_updated(len(part))
        else:
            self.protocol.data_received(data)


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class Pipe:
    """One direction of a connection: what is sent arrives in order, each piece after a while.

    Args:
        faults: Which of `silent`, `reset`, `close` happens after how many bytes; `pieces` and `slow`.
    """

    def __init__(self, connection: "Connection", receiver: Transport, faults: list[Fault]) -> None:
        self._connection = connection
        self._receiver = receiver
        self._queue: deque[bytes | None] = deque()
        self._last = 0.0
        self._passed = 0
        self._is_cut = False
        self._cut = next((fault for fault in faults if fault.what in {"silent", "reset", "close"}), None)
        self._slow = sum(fault.amount for fault in faults if fault.what == "slow")
        self._piece = next((int(fault.amount) for fault in faults if fault.what == "pieces"), _RECEIVED)

    def send(self, data: bytes | None) -> None:
        """Take what is sent, or the end."""
        self._connection.sends(self, data)
        size = max(self._piece, len(data or b"") // _MOST_PIECES)
        pieces = [data[at : at + size] for at in range(0, len(data), size)] if data else [data]
        world, delay = self._connection.world, self._slow
        for piece in pieces:
            self._last = max(self._last + 1e-6, world.now + delay + self._connection.random.uniform(0.0005, 0.05))
            self._queue.append(piece)
            self._receiver.loop.call_at(self._last, self.deliver, context=Context())

    def deliver(self) -> None:
        """Let the next piece arrive."""
        if not self._queue or self._is_cut:
            return
        data = self._queue[0]
        cut = self._cut
        if cut is not None and (data is _RESET or self._passed + len(data) > cut.amount):
            head = b"" if not data else data[: int(cut.amount) - self._passed]
            self._is_cut = True
            self._connection.world.note_fault(cut)
            if head:
                self._receiver.receive(head)
            self._connection.breaks(cut.what, self._receiver)
        elif data is _RESET or not self._receiver.is_paused:
            self._queue.popleft()
            self._passed += len(data or b"")
            if not self._receiver.is_closing():
                self._connection.arrives(self, is_last=not any(self._queue))  # first: the program may close it at once
            self._receiver.receive(data)


class Connection:
    """A connection of a process with the service.

    Attributes:
        left_at: When the first byte of the request under way was sent; `None` before.
        on_heard: Called, once, when all that was answered has arrived, or can't arrive any more.
    """

    def __init__(
        self, world: World, number: int, faults: list[Fault], begun: float, sock: socket.socket, client: Loop
    ) -> None:
        self.world = world
        self.random = random.Random(f"{world.seed} connection {number}")
        self.begun = begun  # when it was asked for
        self.left_at: float | None = None
        self.cut_at = inf  # when the client left
        self.on_heard: Callable[[], None] | None = None
        self.client = Transport(self, client, {"socket": sock, "peername": ("192.0.2.1", 80)})
        self.server = Transport(self, world.loop, {"peername": ("192.0.2.7", number)})
        of_requests = [fault for fault in faults if fault.text != "response"]
        of_responses = [fault for fault in faults if fault.text != "request"]
        self.client.out = self.server.into = Pipe(self, self.server, of_requests)
        self.server.out = self.client.into = Pipe(self, self.client, of_responses)

    def sends(self, pipe: Pipe, data: bytes | None) -> None:
        """Remember when a request began."""
        if pipe is self.client.out and data and self.left_at is None:
            self.left_at = self.world.network.last = self.world.now

    def arrives(self, pipe: Pipe, *, is_last: bool) -> None:
        """Notice that an answer has come whole."""
        if pipe is self.client.into and is_last:
            if self.on_heard is not None:
                self.world.next("answer")
            self._heard()

    def _heard(self) -> None:
        on_heard, self.on_heard = self.on_heard, None
        if on_heard is not None:
            self.left_at = None
            on_heard()

    def left(self, transport: Transport) -> None:
        """Notice that the client has gone: it hears nothing more."""
        if transport is self.client:
            self.cut_at = self.world.now
            if self.left_at is not None and self.on_heard is None:
                self.world.network.lost.append((self.world.now, transport.loop.name))
            self._heard()

    def breaks(self, what: str, receiver: Transport) -> None:
        """Break the connection: for both sides, for the receiver alone, or without a word."""
        if what == "close":
            receiver.receive(_END)
        elif what == "reset":
            for end in (self.client, self.server):
                end.loop.call_soon(end.leave, _END, _error(errno.ECONNRESET), context=Context())


class Network:
    """Leads every connection to the service.

    Attributes:
        connects: When each connection was begun, and by which process.
        lost: When a request was given up that had not arrived whole, and by which process.
        last: When a connection was last begun, or a request last sent.
    """

    def __init__(self, world: World, serve: Callable[[], Any]) -> None:
        self._world = world
        self._serve = serve
        self._connected: dict[socket.socket, tuple[list[Fault], float]] = {}
        self._count = 0
        self.connects: list[tuple[float, str]] = []
        self.lost: list[tuple[float, str]] = []
        self.last = 0.0

    async def connect(self, loop: Loop, sock: socket.socket) -> None:
        """Connect as the faults of this connection, and an outage, allow."""
        faults = self._world.next("connection")
        kinds = {fault.what for fault in faults}
        begun = self.last = self._world.now
        self.connects.append((begun, loop.name))
        if "descriptors" in kinds:
            raise _error(errno.EMFILE)
        await asyncio.sleep(0.001)
        outage = self._world.outage()
        if "hang" in kinds or outage == "silent":
            await loop.create_future()
        for name, code in (("refuse", errno.ECONNREFUSED), ("unreachable", errno.EHOSTUNREACH)):
            if name in kinds or outage == name:
                raise _error(code)
        self._connected[sock] = faults, begun

    def open(self, loop: Loop, protocol: Any, sock: socket.socket) -> tuple[Transport, Any]:
        """Return the client's transport and its protocol."""
        self._count += 1
        faults, begun = self._connected.pop(sock)
        connection = Connection(self._world, self._count, faults, begun, sock, loop)
        connection.client.protocol, connection.server.protocol = protocol, self._serve()
        self._world.loop.call_soon(connection.server.protocol.connection_made, connection.server, context=Context())
        protocol.connection_made(connection.client)
        return connection.client, protocol
