"""The connection to a journal: reads, and writes that share their commits."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import field, frozen
from sqlalchemy import Executable, Row, event, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from agentjobs_async import JournalError
from agentjobs_async._binding import Binding
from agentjobs_async.batch._file import QuietConnection, faults

__all__ = ["Database"]

_MOST_TOGETHER: Final = 200
_BUSY_PATIENCE: Final = 10.0
_CHECKPOINT_PAGES: Final = 32

T = TypeVar("T")

Rows = Sequence[Row[Any]]


@frozen
class _Order:
    """A statement that waits for its commit."""

    statement: Executable
    done: asyncio.Future[tuple[int, Rows]] = field(factory=lambda: asyncio.get_running_loop().create_future())


class Database:
    """An open journal's database.

    What is written at the same time shares one transaction, so that many writers cost one commit. SQLite runs in
    threads of aiosqlite; the loop never waits for the disk.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path = path
        self._engine = _engine(path, read_only=read_only)
        self._orders: asyncio.Queue[_Order | None] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        self._writing: AsyncConnection | None = None
        self._reading: set[asyncio.Task[Rows]] = set()
        self._closed = False
        self._binding = Binding("journal")
        self.enter()

    async def read(self, statement: Executable) -> Rows:
        """Give the rows of a query. Cancelling it leaves at once.

        Raises:
            JournalError: It can't be read.
        """
        self._check()
        # A connection whose opening is cancelled would never be closed.
        reading = asyncio.get_running_loop().create_task(self._ours(self._rows(statement)))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        return await asyncio.shield(reading)

    async def write(self, statement: Executable) -> tuple[int, Rows]:
        """Execute a statement durably; give how many rows it touched, and what it returned.

        Cancelling it leaves at once, and the statement may or may not be carried out.

        Raises:
            JournalError: It was not carried out; or, when the loop is ending, nobody knows.
        """
        self._check()
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
        order = _Order(statement)
        self._orders.put_nowait(order)
        try:
            # Who ends a loop cancels all of its tasks, the writer too, and no order may wait for one that is gone.
            either: set[asyncio.Future[Any]] = {order.done, self._writer}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if order.done.done():
                return order.done.result()
        finally:
            order.done.cancel()
        raise JournalError(f"journal {self._path.name}: its writer was cancelled", "io")

    async def close(self) -> None:
        """Carry out what was ordered, and close."""
        self._closed = True
        if self._writer is not None:
            self._orders.put_nowait(None)
            await asyncio.wait([self._writer])
        if self._reading:
            await asyncio.wait(self._reading)
        await self._engine.dispose()

    def enter(self) -> None:
        """See that this is the loop and the process of the journal: in any other, its threads would never answer.

        Raises:
            SessionClosedError: It is not.
        """
        self._binding.enter()

    def _check(self) -> None:
        self.enter()
        if self._closed:
            raise JournalError(f"journal {self._path.name}: it was closed meanwhile", "io")

    async def _write_all(self) -> None:
        """Carry out orders until `None` comes: all that wait, together."""
        ending = False
        try:
            while not ending:
                waiting = [await self._orders.get()]
                while not self._orders.empty() and len(waiting) < _MOST_TOGETHER:
                    waiting.append(self._orders.get_nowait())
                ending = None in waiting
                if orders := [order for order in waiting if order is not None]:
                    await self._carry_out(orders)
        finally:
            if self._writing is not None:
                await self._writing.close()

    async def _carry_out(self, orders: list[_Order]) -> None:
        try:
            results = await self._ours(self._committed(orders))
        except Exception as error:  # noqa: BLE001 - whatever it is, who ordered has to hear of it
            if len(orders) > 1:
                # One by one: what still fits on a full disk gets there, and no order fails for another's sake.
                for order in orders:
                    await self._carry_out([order])
            elif not orders[0].done.done():
                orders[0].done.set_exception(error)
            return
        for order, result in zip(orders, results, strict=True):
            if not order.done.done():
                order.done.set_result(result)

    async def _committed(self, orders: list[_Order]) -> list[tuple[int, Rows]]:
        if self._writing is None:
            self._writing = await self._engine.connect()
        async with self._writing.begin():
            return [await _executed(self._writing, order.statement) for order in orders]

    async def _rows(self, statement: Executable) -> Rows:
        async with self._engine.connect() as connection:
            return (await connection.execute(statement)).fetchall()

    async def _ours(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, whose errors become ours; theirs would show prompts."""
        try:
            return await work
        except (SQLAlchemyError, ValueError) as error:  # ValueError: what SQLite's schema says is no text
            fault = faults(self._path, getattr(error, "orig", None) or error)
        raise fault


async def _executed(connection: AsyncConnection, statement: Executable) -> tuple[int, Rows]:
    result = await connection.execute(statement)
    rows = result.fetchall() if result.returns_rows else []
    return (len(rows) if result.returns_rows else result.rowcount), rows


def _engine(path: Path, *, read_only: bool) -> AsyncEngine:
    url = make_url("sqlite+aiosqlite://").set(database=str(path))
    if read_only:
        # Else the last one to look would carry a crashed owner's WAL over into the file.
        url = url.set(database=path.as_uri(), query={"mode": "ro", "uri": "true"})
    connecting = {"timeout": _BUSY_PATIENCE, "factory": QuietConnection}
    engine = create_async_engine(url, hide_parameters=True, connect_args=connecting)

    @event.listens_for(engine.sync_engine, "connect")
    def _durable(connection: Any, record: object) -> None:
        del record
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        # Often, so that the file alone, copied without its log, holds nearly all.
        cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        cursor.close()

    return engine
