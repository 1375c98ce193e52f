"""Listeners that let nobody in, and how many sockets this process has."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from ssl import SSLContext

from tests.scripted import address, loopback_socket

__all__ = ["connections", "full_listener", "silent_listener"]


@asynccontextmanager
async def full_listener(scheme: str = "http") -> AsyncIterator[str]:
    """Give the address of a listener whose backlog is full: a connection to it is never made."""
    with loopback_socket() as listening:
        listening.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listening.getsockname())
        try:
            yield address(listening, scheme)
        finally:
            for filler in fillers:
                filler.close()


@asynccontextmanager
async def silent_listener(scheme: str, ssl: SSLContext | None = None) -> AsyncIterator[str]:
    """Give the address of a server that takes connections and never says a word of its own."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=ssl)
    async with server:
        yield address(server.sockets[0], scheme)


def connections() -> int:
    """Count the ends of TCP connections, made or in the making, that this process holds."""
    count = 0
    for name in Path("/dev/fd").iterdir():
        number = int(name.name)
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as held:
                    listens = held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    count += held.family == socket.AF_INET and not listens
    return count
