"""Notifications of PostgreSQL, received over a connection of their own."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from agentjobs_async import JournalError
from agentjobs_async._loop.tasks import until_done
from agentjobs_async._text import one_line
from agentjobs_async.batch._database.address import ServerAddress
from agentjobs_async.batch._database.postgresql import connect_arguments, shut_down

_Connection = psycopg.AsyncConnection[Any]
_ERRORS: Final = (psycopg.Error, OSError)


@asynccontextmanager
async def listening(address: ServerAddress, channel: str) -> AsyncIterator[AsyncIterator[str]]:
    """Return a block with the words of a channel's notifications, as they come: those that are sent from now on.

    Cancelling it leaves at once, whether the server answers or not.

    Raises:
        JournalError: The server can't be reached, or the connection broke.
    """
    connection = await _connected(address)
    try:
        await _listen(connection, address, channel)
        async with aclosing(_words(connection, address)) as words:
            yield words
    finally:
        await connection.close()


async def _connected(address: ServerAddress) -> _Connection:
    try:
        return await psycopg.AsyncConnection.connect(**connect_arguments(address), autocommit=True)
    except _ERRORS as error:
        fault = _fault(address, error)
    raise fault


async def _listen(connection: _Connection, address: ServerAddress, channel: str) -> None:
    """Wait for the answer to LISTEN. It is not cancelled: psycopg would ask the server to cancel it, and wait 5 s."""
    work = asyncio.ensure_future(connection.execute(SQL("LISTEN {}").format(Identifier(channel))))
    try:
        await until_done({work}, lambda: shut_down([connection]))
    except asyncio.CancelledError:
        work.exception()  # retrieved: the cancellation is what propagates
        raise
    try:
        work.result()
    except _ERRORS as error:
        fault = _fault(address, error)
    else:
        return
    raise fault


async def _words(connection: _Connection, address: ServerAddress) -> AsyncGenerator[str, None]:
    try:
        async with aclosing(connection.notifies()) as notifications:
            async for notification in notifications:
                yield notification.payload
    except _ERRORS as error:
        fault = _fault(address, error)
    else:
        return
    raise fault


def _fault(address: ServerAddress, error: BaseException) -> JournalError:
    """Return an error of the connection as a `JournalError`, which keeps its first line alone."""
    said = one_line(str(error).partition("\n")[0], 300)
    return JournalError(f"journal {address.name}: its notifications can't be received ({said})", "io")
