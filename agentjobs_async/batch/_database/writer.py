"""An open journal's database: reads, and writes that share their commits."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from copy import copy
from functools import partial
from threading import Event
from typing import Any, Final

from attrs import define, field, frozen
from sqlalchemy import Connection, Executable, Row

from agentjobs_async import JournalError
from agentjobs_async._loop.loop_binding import LoopBinding
from agentjobs_async._loop.tasks import until_done
from agentjobs_async.batch._database.connections import AnyConnection, Backend, Connector

_MOST_TOGETHER: Final = 200  # writes in one transaction: more would keep the locks of their rows for long
_CUTTING_SECONDS: Final = 0.5  # a connection that was cut fails at once; this much when the loop is busy

Rows = Sequence[Row[Any]]
Parameters = dict[str, Any] | list[dict[str, Any]]


@frozen
class _PendingWrite:
    """Statements that wait for their commit, which is one for all of them."""

    statements: tuple[Executable, ...]
    parameters: Parameters | None
    done: asyncio.Future[tuple[int, Rows]]


@define(eq=False)
class _WriteQueue:
    """Writes that are executed in their order, over a connection of their own.

    Attributes:
        alone: Whether each statement is a transaction; otherwise the writes that wait together share one.
        most: How many writes share a transaction at the most.
        pending: The writes; `None` ends the task.
        again: Writes that failed together, each of which is to be executed in a transaction of its own.
        waiting: What the callers of the writes wait for.
        writer: The task that executes them.
    """

    alone: bool = False
    most: int = _MOST_TOGETHER
    pending: asyncio.Queue[_PendingWrite | None] = field(factory=asyncio.Queue)
    again: deque[_PendingWrite] = field(factory=deque)
    waiting: set[asyncio.Future[tuple[int, Rows]]] = field(factory=set)
    writer: asyncio.Task[None] | None = None
    connection: "AnyConnection | None" = None

    async def next(self) -> list[_PendingWrite]:
        """Return the writes that are executed next, in one transaction; none once all are done."""
        if self.again:
            return [self.again.popleft()]
        writes: list[_PendingWrite] = []
        while not writes or (len(writes) < self.most and not self.pending.empty()):
            write = await self.pending.get()
            if write is None:  # the last one
                if writes:
                    self.pending.put_nowait(None)
                break
            writes.append(write)
        return writes

    def fail(self, _writer: asyncio.Task[None]) -> None:
        """Fail what is left when the writer has ended: the end of a loop cancels all tasks, and nothing may wait on."""
        for done in self.waiting:
            if not done.done():
                done.set_exception(JournalError("the journal's writer was cancelled", "io"))


class Database:
    """An open journal's database.

    Writes of the same time share one transaction, so that many writers cost one commit. On a file, a whole transaction
    is one piece of work for a thread, since a change of threads costs more than a statement. While a server is gone,
    all work is done again, so that a statement whose answer was lost is executed twice. On a server, claims have a
    connection of their own, and so have writes in turn: these may wait for those of another process, and no id of a job
    waits for them. A write in turn is a transaction of its own: two that each held several turns could wait for each
    other.

    Attributes:
        connector: Its connections.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.connector: Connector = Connector(backend)
        self._changes = _WriteQueue()
        self._claims = _WriteQueue(alone=True) if backend.claims_apart else self._changes
        self._in_turn = _WriteQueue(most=1) if backend.claims_apart else self._changes
        self._queues = (self._changes, self._claims, self._in_turn) if backend.claims_apart else (self._changes,)
        self._reading: set[asyncio.Task[Rows]] = set()
        self._closed = False
        self._binding = LoopBinding("journal")
        self.enter()

    async def read(self, statement: Executable) -> Rows:
        """Return the rows of a query, over a connection of its own. Cancelling this call returns at once.

        Raises:
            JournalError: It was not executed.
        """
        self._check()

        async def rows() -> Rows:
            connection = await self.connector.open()
            try:
                return await connection.run_sync(_rows, statement)
            finally:
                await connection.close()

        # A task of its own, which continues when this call is cancelled: a connection whose opening is cancelled would
        # never be closed.
        reading = asyncio.get_running_loop().create_task(self.connector.run(rows))
        self._reading.add(reading)
        reading.add_done_callback(self._has_read)
        return await asyncio.shield(reading)

    async def write(
        self,
        *statements: Executable,
        parameters: Parameters | None = None,
        claims: bool = False,
        turn: str | None = None,
    ) -> tuple[int, Rows]:
        """Execute statements durably in one transaction; return how many rows the last one touched, and its rows.

        A list of parameters executes them once for each. The whole transaction is executed again when its connection
        breaks before the answer comes: statements that were executed once must change nothing the second time. With
        `claims`, it may wait for other owners' claims, and no other transaction waits for it where the backend has
        claims apart. With `turn`, it sees all that transactions of the same turn have committed before, in all
        processes, and they wait for it. Cancelling this call returns at once, and the statements may or may not be
        executed.

        Raises:
            JournalError: They were not executed; or, when the loop is ending, they may have been.
        """
        if turn is not None:
            return await self._write(self._in_turn, (*self.backend.turn(turn), *statements), parameters)
        return await self._write(self._claims if claims else self._changes, statements, parameters)

    async def _write(
        self, queue: _WriteQueue, statements: tuple[Executable, ...] = (), parameters: Parameters | None = None
    ) -> tuple[int, Rows]:
        self._check()
        loop = asyncio.get_running_loop()
        if queue.writer is None:
            # It serves all callers for as long as the journal is open: in the context of none of them.
            queue.writer = loop.create_task(self._write_all(queue), context=Context())
            queue.writer.add_done_callback(queue.fail)
        done: asyncio.Future[tuple[int, Rows]] = loop.create_future()
        queue.waiting.add(done)
        queue.pending.put_nowait(_PendingWrite(statements, parameters, done))
        if queue.writer.done():
            queue.fail(queue.writer)
        try:
            return await done
        finally:
            queue.waiting.discard(done)

    async def flush(self) -> None:
        """Wait for all queued writes, including those whose callers were cancelled.

        Raises:
            JournalError: What was queued could not be executed.
        """
        self._check()
        await asyncio.gather(*(self._write(queue) for queue in self._queues if queue.writer is not None))

    async def once(
        self, work: Callable[[AnyConnection], Coroutine[Any, Any, object]], *, is_long: bool = False
    ) -> None:
        """Await `work` in a transaction; a server that is gone is not waited for. Long work may take over a minute.

        Raises:
            JournalError: The database can't be reached, read or written; or `work` raised it.
        """

        async def in_transaction() -> None:
            connection = await self.connector.open()
            try:
                await work(connection)
                await connection.commit()
            finally:
                await connection.close()  # rolls back what is not committed

        await self.connector.run(in_transaction, 0.0, is_long=is_long)

    async def close(self, patience: float) -> None:
        """Execute what is pending, and close; a server is waited for no longer than `patience` seconds."""
        self._closed = True
        for queue in self._queues:
            queue.pending.put_nowait(None)
        left: set[asyncio.Future[Any]] = {
            queue.writer for queue in self._queues if queue.writer is not None
        } | self._reading
        try:
            await self._ended(left, patience)
        finally:
            await self.backend.engine.dispose()

    def enter(self) -> None:
        """Check that this is the loop and the process of the journal: in any other, its threads would never answer.

        Raises:
            SessionClosedError: This is another loop or process.
        """
        self._binding.enter()

    async def _ended(self, tasks: set[asyncio.Future[Any]], patience: float) -> None:
        """Wait for all tasks of a file, whose threads can't be cut; for those of a server while it may still answer."""
        if not self.backend.can_be_cut:
            await until_done(tasks)
        elif tasks and (left := (await asyncio.wait(tasks, timeout=patience))[1]):
            self.connector.give_up()
            await _cut_off(left)

    def _check(self) -> None:
        self.enter()
        if self._closed:
            raise JournalError("the journal was closed meanwhile", "io")

    def _has_read(self, reading: asyncio.Task[Rows]) -> None:
        self._reading.discard(reading)
        if not reading.cancelled():
            reading.exception()  # retrieved here: the call that asked may have been cancelled

    async def _write_all(self, queue: _WriteQueue) -> None:
        """Execute writes until the last one: all that are pending, together, and each alone where that fails.

        So no write fails for another's sake, and on a full disk those that still fit are executed. Not while the server
        is gone: each of them would wait as long as all did.
        """
        try:
            while writes := await queue.next():
                try:
                    results = await self.connector.run(partial(self._committed, queue, writes))
                except Exception as error:  # noqa: BLE001 - whatever it is, the callers have to get it
                    if len(writes) > 1 and not self.connector.is_gone:
                        queue.again.extend(writes)
                        continue
                    for write in writes:
                        if not write.done.done():
                            write.done.set_exception(copy(error))  # a copy: each caller adds a traceback of its own
                else:
                    for write, result in zip(writes, results, strict=True):
                        if not write.done.done():
                            write.done.set_result(result)
        finally:
            if queue.connection is not None:
                await queue.connection.close()

    async def _committed(self, queue: _WriteQueue, writes: list[_PendingWrite]) -> list[tuple[int, Rows]]:
        if queue.connection is None:
            queue.connection = await self.connector.open(alone=queue.alone)
        cancelled = Event()
        try:
            return await queue.connection.run_sync(_transaction, writes, cancelled)
        except asyncio.CancelledError:
            # The loop is ending, but a thread at work continues. It must roll back: a claim that it committed now would
            # become unknown under the next owner, though nothing was sent.
            cancelled.set()
            raise
        finally:
            if queue.connection.invalidated:
                broken, queue.connection = queue.connection, None
                await broken.close()


async def _cut_off(tasks: set[asyncio.Future[Any]]) -> None:
    """Wait for tasks whose connections were cut; cancel those that do not end by that."""
    _, left = await asyncio.wait(tasks, timeout=_CUTTING_SECONDS)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CUTTING_SECONDS)


def _transaction(connection: Connection, writes: list[_PendingWrite], cancelled: Event) -> list[tuple[int, Rows]]:
    results = []
    with connection.begin() as transaction:
        for write in writes:
            touched: tuple[int, Rows] = 0, []
            for statement in write.statements:
                result = connection.execute(statement, write.parameters)
                rows = result.fetchall() if result.returns_rows else []
                touched = len(rows) if result.returns_rows else result.rowcount, rows
            results.append(touched)
        if cancelled.is_set():
            transaction.rollback()
    return results


def _rows(connection: Connection, statement: Executable) -> Rows:
    return connection.execute(statement).fetchall()
