"""The connection to a journal: reads, and writes that share their commits."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from copy import copy
from typing import Any, Final, TypeVar

from attrs import define, field, frozen
from sqlalchemy import Executable, Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentjobs_async import JournalError
from agentjobs_async._loop_binding import LoopBinding
from agentjobs_async.batch._store.backend import Backend

__all__ = ["Database", "until_done"]

_MOST_TOGETHER: Final = 200
_RECONNECTING_SECONDS: Final = 0.2  # between tries to reach a server that is gone
_SILENCE_SECONDS: Final = 60.0  # without an answer the server counts as gone; claims may wait for a lock for long
_CUTTING_SECONDS: Final = 0.5  # what is cut ends at once; this much when the loop is busy

T = TypeVar("T")

Rows = Sequence[Row[Any]]
Parameters = list[dict[str, Any]]


class _CutError(Exception):
    """A connection was given up before it was open."""


@frozen
class _PendingWrite:
    """Statements that wait for their commit, which is one for all of them."""

    statements: tuple[Executable, ...]
    rows: Parameters | None = None
    done: asyncio.Future[tuple[int, Rows]] = field(factory=lambda: asyncio.get_running_loop().create_future())


@define(eq=False)
class _Lane:
    """Statements that are carried out in their order, over a connection of their own.

    Attributes:
        alone: Whether each of them is a transaction; else those that wait together share one.
    """

    alone: bool = False
    orders: asyncio.Queue[_PendingWrite | None] = field(factory=asyncio.Queue)
    writer: asyncio.Task[None] | None = None
    connection: AsyncConnection | None = None


class Database:
    """An open journal's database.

    What is written at the same time shares one transaction, so that many writers cost one commit. SQLite runs in
    threads of aiosqlite; the loop never waits for the disk. A server that is gone is waited for, and told again:
    every statement of the journal may be carried out twice. On a server, claims have a connection of their own: they
    may wait for another owner's, and no id of a job waits for them.

    Attributes:
        given_up: Whether nothing waits for the server any more, since it did not answer in time.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._engine = backend.engine
        self._patience = backend.patience
        self._changes = _Lane()
        self._claims = _Lane(alone=True) if backend.claims_apart else self._changes
        self._reading: set[asyncio.Task[Rows]] = set()
        self._connecting: set[asyncio.Task[AsyncConnection]] = set()
        self._gone = False
        self.given_up = False
        self._closed = False
        self._binding = LoopBinding("journal")
        self.enter()

    async def read(self, statement: Executable) -> Rows:
        """Return the rows of a query. Cancelling it leaves at once.

        Raises:
            JournalError: It can't be read.
        """
        return await self._apart(statement, commit=False)

    async def sweep(self, statement: Executable) -> Rows:
        """Execute a statement durably that may wait for locks of others; nothing of this journal waits for it.

        Raises:
            JournalError: It was not carried out.
        """
        return await self._apart(statement, commit=True)

    async def write(self, *statements: Executable, claims: bool = False) -> tuple[int, Rows]:
        """Execute statements durably in one transaction; return how many rows the last one touched, and its rows.

        The whole transaction is executed again when its connection breaks before the answer comes: statements that
        were carried out once must change nothing the second time. With `claims`, it may wait for other owners' claims,
        and no other transaction waits for it where the backend has claims apart. Cancelling this call returns at once,
        and the statements may or may not be carried out.

        Raises:
            JournalError: It was not carried out; or, when the loop is ending, nobody knows.
        """
        self._check()
        return await self._written(self._claims if claims else self._changes, _PendingWrite(statements))

    async def insert(self, statement: Executable, rows: Parameters) -> Rows:
        """Execute an insert durably for many rows in one transaction, as `write` does, and return its rows.

        Raises:
            JournalError: As `write` does.
        """
        self._check()
        return (await self._written(self._changes, _PendingWrite((statement,), rows)))[1]

    async def settle(self, nothing: Executable) -> None:
        """Wait until all statements so far are carried out, those of calls that were cancelled included.

        Raises:
            JournalError: `nothing`, a statement that changes nothing, could not be carried out, nor what came before.
        """
        self._check()
        lanes = {id(lane): lane for lane in (self._changes, self._claims)}.values()
        await asyncio.gather(
            *(self._written(lane, _PendingWrite((nothing,))) for lane in lanes if lane.writer is not None)
        )

    def give_up(self) -> None:
        """Fail whatever waits for a server, now and later, at once; files, whose threads can't be cut, go on."""
        if self.backend.cut is not None:
            self.given_up = True
            self.cut()

    def cut(self) -> None:
        """Break all connections to a server, those being opened included: what waits for an answer is told again."""
        if self.backend.cut is not None:
            for connecting in self._connecting:
                connecting.cancel()
            self.backend.cut()

    async def once(self, work: Callable[[AsyncConnection], Coroutine[Any, Any, None]]) -> None:
        """Await `work` in a transaction; a server that is gone is not waited for.

        Raises:
            JournalError: The database can't be reached, read or written; or `work` raised it.
        """
        await self._ours(lambda: self._in_transaction(work), 0.0)

    async def close(self, patience: float) -> None:
        """Carry out what was ordered, and close; a server is waited for no longer than `patience` seconds."""
        self._closed = True
        lanes = {id(lane): lane for lane in (self._changes, self._claims)}.values()
        for lane in lanes:
            lane.orders.put_nowait(None)
        left = {lane.writer for lane in lanes if lane.writer is not None} | self._reading
        try:
            await self._ended(left, patience)
        finally:
            await self._engine.dispose()

    async def _ended(self, tasks: set[asyncio.Task[Any]], patience: float) -> None:
        """Wait for all tasks of a file, whose threads can't be cut; for those of a server while it may still answer."""
        if self.backend.cut is None:
            await until_done(tasks)
        elif tasks and (left := (await asyncio.wait(tasks, timeout=patience))[1]):
            self.give_up()
            await _cut_off(left)

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

    async def _apart(self, statement: Executable, *, commit: bool) -> Rows:
        self._check()
        # A connection whose opening is cancelled would never be closed.
        reading = asyncio.get_running_loop().create_task(self._ours(lambda: self._rows(statement, commit=commit)))
        self._reading.add(reading)
        reading.add_done_callback(self._has_read)
        return await asyncio.shield(reading)

    def _has_read(self, reading: asyncio.Task[Rows]) -> None:
        self._reading.discard(reading)
        if not reading.cancelled():
            reading.exception()  # it is nobody's when the call that asked was cancelled

    async def _written(self, lane: _Lane, order: _PendingWrite) -> tuple[int, Rows]:
        if lane.writer is None:
            # It serves all who write, for as long as the journal is open: in the context of none of them.
            lane.writer = asyncio.get_running_loop().create_task(self._write_all(lane), context=Context())
        lane.orders.put_nowait(order)
        try:
            # Who ends a loop cancels all of its tasks, the writer too, and no order may wait for one that is gone.
            either: set[asyncio.Future[Any]] = {order.done, lane.writer}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if order.done.done():
                return order.done.result()
        finally:
            order.done.cancel()
        raise JournalError("the journal's writer was cancelled", "io")

    async def _write_all(self, lane: _Lane) -> None:
        """Carry out orders until `None` comes: all that wait, together."""
        ending = False
        try:
            while not ending:
                waiting = [await lane.orders.get()]
                while not lane.orders.empty() and len(waiting) < _MOST_TOGETHER:
                    waiting.append(lane.orders.get_nowait())
                ending = None in waiting
                if orders := [order for order in waiting if order is not None]:
                    await self._carry_out(lane, orders)
        finally:
            if lane.connection is not None:
                await lane.connection.close()

    async def _carry_out(self, lane: _Lane, orders: list[_PendingWrite]) -> None:
        try:
            results = await self._ours(lambda: self._committed(lane, orders))
        except Exception as error:  # noqa: BLE001 - whatever it is, who ordered has to hear of it
            if len(orders) > 1 and not self._gone:
                # One by one: what still fits on a full disk gets there, and no order fails for another's sake. Not
                # where the server is gone: each of them would wait for it as long as all have waited already.
                for order in orders:
                    await self._carry_out(lane, [order])
            else:
                for order in orders:
                    if not order.done.done():
                        order.done.set_exception(copy(error))
            return
        for order, result in zip(orders, results, strict=True):
            if not order.done.done():
                order.done.set_result(result)

    async def _committed(self, lane: _Lane, orders: list[_PendingWrite]) -> list[tuple[int, Rows]]:
        if lane.connection is None:
            lane.connection = await self._connected(alone=lane.alone)
        try:
            async with lane.connection.begin():
                return [await _last_executed(lane.connection, order) for order in orders]
        finally:
            if lane.connection.invalidated:
                broken, lane.connection = lane.connection, None
                await broken.close()

    async def _rows(self, statement: Executable, *, commit: bool) -> Rows:
        connection = await self._connected()
        try:
            _, rows = await _executed(connection, statement)
            if commit:
                await connection.commit()
            return rows
        finally:
            await connection.close()

    async def _in_transaction(self, work: Callable[[AsyncConnection], Coroutine[Any, Any, None]]) -> None:
        connection = await self._connected()
        try:
            async with connection.begin():
                await work(connection)
        finally:
            await connection.close()

    async def _connected(self, *, alone: bool = False) -> AsyncConnection:
        """Return an open connection; in a task of its own, so that `cut` ends the opening of one.

        Each of its statements is a transaction where they are to be `alone`.
        """
        engine = self._engine.execution_options(isolation_level="AUTOCOMMIT") if alone else self._engine
        connecting = asyncio.get_running_loop().create_task(_opened(engine.connect()), context=Context())
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise _CutError("there was no connection in time")
        return connecting.result()

    async def _ours(self, work: Callable[[], Coroutine[Any, Any, T]], patience: float | None = None) -> T:
        """Await `work`, again while the database is gone. Its errors become ours; theirs would show prompts."""
        loop = asyncio.get_running_loop()
        gone_since: float | None = None
        while True:
            if self.given_up:
                raise self.backend.fault(_CutError("it was left without an answer"))
            began = loop.time()
            # No timer for a file, whose threads can't be cut: nothing would be done when it rings.
            silence = (
                None if self.backend.cut is None else loop.call_later(_SILENCE_SECONDS, self.cut, context=Context())
            )
            try:
                result = await work()
            except (
                SQLAlchemyError,
                ValueError,
                _CutError,
            ) as error:  # ValueError: what SQLite's schema says is no text
                fault = self.backend.fault(getattr(error, "orig", None) or error)
                gone = isinstance(error, _CutError) or (isinstance(error, DBAPIError) and self.backend.is_gone(error))
            else:
                self._gone = False
                return result
            finally:
                if silence is not None:
                    silence.cancel()
            gone_since = began if gone_since is None else gone_since
            self._gone = gone
            if not gone or loop.time() - gone_since >= (self._patience if patience is None else patience):
                raise fault
            await asyncio.sleep(_RECONNECTING_SECONDS)


async def _opened(connection: AsyncConnection) -> AsyncConnection:
    return await connection


async def until_done(tasks: set[asyncio.Task[Any]], hasten: Callable[[], None] = lambda: None) -> None:
    """Wait until all tasks are done, however often this is cancelled; each time, `hasten` is called.

    Raises:
        CancelledError: It was cancelled meanwhile.
    """
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in tasks if not task.done()}:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:  # comes at each turn of the loop from a scope of anyio's
            cancelled = error
            hasten()
    if cancelled is not None:
        raise cancelled


async def _cut_off(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait for tasks whose connections were cut; cancel those that do not end by that."""
    _, left = await asyncio.wait(tasks, timeout=_CUTTING_SECONDS)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CUTTING_SECONDS)


async def _last_executed(connection: AsyncConnection, order: _PendingWrite) -> tuple[int, Rows]:
    return [await _executed(connection, statement, order.rows) for statement in order.statements][-1]


async def _executed(
    connection: AsyncConnection, statement: Executable, parameters: Parameters | None = None
) -> tuple[int, Rows]:
    result = await connection.execute(statement, parameters)
    rows = result.fetchall() if result.returns_rows else []
    return (len(rows) if result.returns_rows else result.rowcount), rows
