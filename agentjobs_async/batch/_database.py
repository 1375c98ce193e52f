"""The connection to a journal: reads, and writes that share their commits."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from attrs import field, frozen
from sqlalchemy import Executable, Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentjobs_async import JournalError
from agentjobs_async._binding import Binding
from agentjobs_async.batch._backend import Backend

__all__ = ["Database"]

_MOST_TOGETHER: Final = 200
_RECONNECTING: Final = 0.2
_LAST_PATIENCE: Final = 5.0

T = TypeVar("T")

Rows = Sequence[Row[Any]]


@frozen
class _Order:
    """A statement that waits for its commit."""

    statement: Executable
    claims: bool = False
    done: asyncio.Future[tuple[int, Rows]] = field(factory=lambda: asyncio.get_running_loop().create_future())


class Database:
    """An open journal's database.

    What is written at the same time shares one transaction, so that many writers cost one commit. SQLite runs in
    threads of aiosqlite; the loop never waits for the disk. A server that is gone is waited for, and told again:
    every statement of the journal may be carried out twice.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._engine = backend.engine
        self._patience = backend.patience
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
        reading = asyncio.get_running_loop().create_task(self._ours(lambda: self._rows(statement)))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        return await asyncio.shield(reading)

    async def write(self, statement: Executable, *, claims: bool = False) -> tuple[int, Rows]:
        """Execute a statement durably; give how many rows it touched, and what it returned.

        One that `claims` is executed after what the backend wants to be done before claims. Cancelling it leaves at
        once, and the statement may or may not be carried out.

        Raises:
            JournalError: It was not carried out; or, when the loop is ending, nobody knows.
        """
        self._check()
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
        order = _Order(statement, claims)
        self._orders.put_nowait(order)
        try:
            # Who ends a loop cancels all of its tasks, the writer too, and no order may wait for one that is gone.
            either: set[asyncio.Future[Any]] = {order.done, self._writer}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if order.done.done():
                return order.done.result()
        finally:
            order.done.cancel()
        raise JournalError("the journal's writer was cancelled", "io")

    async def close(self) -> None:
        """Carry out what was ordered, and close; a database that is gone is waited for no longer than 5 s."""
        self._patience = min(self._patience, _LAST_PATIENCE)
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
            raise JournalError("the journal was closed meanwhile", "io")

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
            results = await self._ours(lambda: self._committed(orders))
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
        try:
            async with self._writing.begin():
                before = self.backend.before_claims
                if before is not None and any(order.claims for order in orders):
                    await self._writing.execute(before)
                return [await _executed(self._writing, order.statement) for order in orders]
        finally:
            if self._writing.invalidated:
                broken, self._writing = self._writing, None
                await broken.close()

    async def _rows(self, statement: Executable) -> Rows:
        async with self._engine.connect() as connection:
            return (await connection.execute(statement)).fetchall()

    async def _ours(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await `work`, again while the database is gone. Its errors become ours; theirs would show prompts."""
        clock = asyncio.get_running_loop().time
        gone_since: float | None = None
        while True:
            try:
                return await work()
            except (SQLAlchemyError, ValueError) as error:  # ValueError: what SQLite's schema says is no text
                fault = self.backend.fault(getattr(error, "orig", None) or error)
                gone = isinstance(error, DBAPIError) and self.backend.is_gone(error)
            gone_since = clock() if gone_since is None else gone_since
            if not gone or clock() - gone_since >= self._patience:
                raise fault
            await asyncio.sleep(_RECONNECTING)


async def _executed(connection: AsyncConnection, statement: Executable) -> tuple[int, Rows]:
    result = await connection.execute(statement)
    rows = result.fetchall() if result.returns_rows else []
    return (len(rows) if result.returns_rows else result.rowcount), rows
