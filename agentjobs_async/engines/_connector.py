"""Connections to the queue: what is told to it is told until it hears, and none of them keeps a worker from leaving."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString
from weakref import WeakSet

import psycopg
from procrastinate import PsycopgConnector
from procrastinate.exceptions import ConnectorException

from agentjobs_async import JournalError
from agentjobs_async.batch._sockets import shut_down

__all__ = ["QueueConnector", "error_text", "queue_errors"]

_CONNECTIONS: Final = 4
_CONNECTING_SECONDS: Final = 5.0  # for a free connection; then it counts as gone
_AGAIN_SECONDS: Final = 1.0  # between tries to tell the queue something

_logger: Final = logging.getLogger("agentjobs_async.engines")


class QueueConnector(PsycopgConnector):
    """The connections of one worker or one submission.

    What tells the queue of something, such as a chunk's end or a sign of life, is repeated while the database is gone:
    a chunk whose end was not told would stay with a worker that does not run it. What the queue refuses is logged only:
    another worker has taken the chunk up, or ended it. Either way the queue's worker goes on; it would give no sign of
    life any more after the first that failed.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=_CONNECTING_SECONDS,
            kwargs=settings,
            configure=self._opened,
        )
        self._connections: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()
        self._left = False

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        """Send a message to the queue again and again until it is accepted, or the worker leaves."""
        while not self._left:
            try:
                await super().execute_query_async(query, **arguments)
            except ConnectorException as error:
                _logger.info("the queue could not be told: %s", error_text(error))
                if not _is_gone(error):
                    return
            else:
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def leave(self) -> None:
        """Repeat nothing any more, and break all connections: what waits for an answer fails at once."""
        self._left = True
        shut_down(self._connections)

    async def _opened(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connections.add(connection)
        if self._left:
            shut_down([connection])


@contextmanager
def queue_errors() -> Iterator[None]:
    """A block whose errors of the queue come out as ours."""
    try:
        yield
    except (ConnectorException, TimeoutError, psycopg.Error) as error:
        fault = JournalError(f"the queue can't be reached, read or written ({error_text(error)})", "io")
    else:
        return
    raise fault


def error_text(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error.__cause__ or error).partition("\n")[0]


def _is_gone(error: ConnectorException) -> bool:
    """Return whether the database did not hear; where the queue refused something, it did."""
    cause = error.__cause__
    return not isinstance(cause, psycopg.Error) or isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
