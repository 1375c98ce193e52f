"""Connections to the queue: messages to it are repeated until it accepts them, and none delays a worker that leaves."""

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
from agentjobs_async.batch._database.postgresql import shut_down

_CONNECTIONS: Final = 4  # fetching, heartbeat, sweep, and one for the ends of chunks
_CONNECTING_SECONDS: Final = 5.0  # to get a free connection; after that the database counts as gone
_REPEAT_SECONDS: Final = 1.0  # between two tries of one message
_ERRORS: Final = (ConnectorException, TimeoutError, psycopg.Error)

_logger: Final = logging.getLogger("agentjobs_async.engines")


class QueueConnector(PsycopgConnector):
    """The connections of one worker or one submission.

    A message to the queue, such as the end of a chunk or a heartbeat, is repeated while the database is gone: a chunk
    whose end is not recorded would stay assigned to a worker that no longer runs it. A message that the queue refuses
    is only logged: another worker has taken over the chunk, or ended it. Neither raises, because Procrastinate's worker
    sends no further heartbeat after one that failed.
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
                _logger.info("a message did not reach the queue: %s", error_text(error))
                if not _is_gone(error):
                    return
            else:
                return
            await asyncio.sleep(_REPEAT_SECONDS)

    def leave(self) -> None:
        """Stop repeating, and break all connections: every call that waits for a response fails at once."""
        self._left = True
        shut_down(self._connections)

    async def _opened(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connections.add(connection)
        if self._left:
            shut_down([connection])


@contextmanager
def queue_errors() -> Iterator[None]:
    """Return a block in which errors of the queue are raised as `JournalError`."""
    try:
        yield
    except _ERRORS as error:
        fault = JournalError(f"the queue can't be reached, read or written ({error_text(error)})", "io")
    else:
        return
    try:
        raise fault
    finally:
        fault.__context__ = None  # the block's own error, which is still being handled here, may quote what was sent


def error_text(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error.__cause__ or error).partition("\n")[0]


def database_error(record: logging.LogRecord) -> str | None:
    """Return why the database can't be used, if a record of the queue's libraries is about that."""
    passed = record.args if isinstance(record.args, tuple) else ()
    errors = [*passed, record.exc_info[1] if record.exc_info else None]
    return next((error_text(error) for error in errors if isinstance(error, _ERRORS)), None)


def _is_gone(error: ConnectorException) -> bool:
    """Return whether the database was not reached; `False` if the queue received and refused the message."""
    cause = error.__cause__
    return not isinstance(cause, psycopg.Error) or isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
