"""Addresses of host names: one look-up at a time for each name, in a daemon thread, cached for some seconds.

The loop's own thread pool is not used: other code of the program may occupy all its threads, so that a look-up waits;
and `asyncio.run` waits for these threads, so that a look-up that hangs keeps the program from ending.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Final

Address = tuple[socket.AddressFamily, str]
"""A family, IPv4 or IPv6, and a numeric address."""

_KEPT_SECONDS: Final = 10.0  # one look-up for a burst of creates, each on a new connection; but a host may move
_NUMERIC: Final = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
# Only families for which this machine has an address; BSD refuses flags that its AI_MASK lacks.
_OWN_FAMILIES: Final = socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", socket.AI_ADDRCONFIG)

Key = tuple[str, int]
Found = list[Address] | Exception


class Names:
    """The addresses of the few hosts of one session. Belongs to one event loop."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[float, list[Address]]] = {}
        self._asked: dict[Key, asyncio.Future[Found]] = {}

    async def addresses(self, host: str, family: int) -> list[Address]:
        """Return the addresses of `host`. Cancelling leaves at once; the look-up continues for other callers.

        Raises:
            OSError: The name has no address, or the look-up failed.
        """
        loop = asyncio.get_running_loop()
        key = (host, family)
        if key in self._known and loop.time() - self._known[key][0] < _KEPT_SECONDS:
            return self._known[key][1]
        if key not in self._asked:
            self._ask(key, loop)
        found = await asyncio.shield(self._asked[key])
        if isinstance(found, Exception):
            raise _copied(found)
        return found

    def _ask(self, key: Key, loop: asyncio.AbstractEventLoop) -> None:
        def ask() -> None:
            found = _look_up(*key)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._on_found, key, found, loop)

        threading.Thread(target=ask, name=f"look-up of {key[0]}", daemon=True).start()
        self._asked[key] = loop.create_future()

    def _on_found(self, key: Key, found: Found, loop: asyncio.AbstractEventLoop) -> None:
        if not isinstance(found, Exception):
            self._known[key] = (loop.time(), found)
        self._asked.pop(key).set_result(found)


def _look_up(host: str, family: int) -> Found:
    """Look the name up, in a thread. An error is returned, not raised: each caller gets a copy of it."""
    try:
        flags = 0 if host == "localhost" else _OWN_FAMILIES  # localhost resolves without a network as well
        found = socket.getaddrinfo(host, None, family=family, type=socket.SOCK_STREAM, flags=flags)
        return [(kind, _numeric(address)) for kind, _, _, _, address in found]
    except Exception as error:  # noqa: BLE001 - a name that can't be encoded raises ValueError, for instance
        return error


def _numeric(address: tuple[str | int | bytes, ...]) -> str:
    """Return the numeric address, with its zone if it is a link-local one of IPv6."""
    zone = address[3] if len(address) > 3 else 0  # noqa: PLR2004 - IPv6: host, port, flow, zone
    return socket.getnameinfo(address, _NUMERIC)[0] if zone else str(address[0])  # type: ignore[arg-type]  # as above


def _copied(error: Exception) -> OSError:
    """Return a copy of `error`: if several tasks raised one object, its traceback would hold the frames of all."""
    return (
        socket.gaierror(*error.args) if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, str(error))
    )
