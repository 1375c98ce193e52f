"""Cutting connections to PostgreSQL: what waits for a server that does not answer fails at once."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


def shut_down(connections: Iterable[Any]) -> None:
    """Shut the sockets of psycopg's connections down: each call that waits for an answer sees the end of the stream.

    Cancelling a query instead asks the server for that, and psycopg waits 10 s for one that does not answer.
    """
    for connection in list(connections):
        if not connection.closed:
            shut = socket.socket(fileno=connection.pgconn.socket)
            with suppress(OSError):  # it broke by itself
                shut.shutdown(socket.SHUT_RDWR)
            shut.detach()  # it stays the connection's own
