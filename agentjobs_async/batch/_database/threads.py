"""Connections to a file, each in a thread of its own: the loop never waits for the disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, CursorResult, Dialect, Engine, Executable, Result

from agentjobs_async._loop.tasks import until_done

_THREADS: Final = "agentjobs-journal"  # their name
_MAX_CONNECTIONS: Final = 15  # at once, the most that SQLAlchemy's pool opens: a thread never waits for the pool

P = ParamSpec("P")
T = TypeVar("T")


class FileEngine:
    """Opens connections to a file, as an `AsyncEngine` does to a server; at most 15 are open at once.

    Args:
        sync_engine: Opens what the threads use.

    Attributes:
        slots: One for each connection that may be open.
    """

    def __init__(self, sync_engine: Engine) -> None:
        self.sync_engine = sync_engine
        self.slots: asyncio.Semaphore = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._running: set[asyncio.Future[Any]] = set()

    async def connect(self) -> "FileConnection":
        """Return an open connection, once fewer than 15 are open."""
        await self.slots.acquire()
        connection = FileConnection(self)
        try:
            return await connection.open()
        except BaseException:
            connection.leave()
            raise

    async def dispose(self) -> None:
        """Wait for all work in threads, however often this is cancelled, then close the connections."""
        await until_done(self._running)
        # In a thread of its own: those of the loop may all be busy with the caller's work, or gone already.
        thread = ThreadPoolExecutor(1, _THREADS)
        try:
            await self.run(thread, self.sync_engine.dispose)
        finally:
            thread.shutdown(wait=False)

    async def run(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Return what `work` returns in a thread. Cancelling this call leaves at once, and the work continues."""
        running = asyncio.get_running_loop().run_in_executor(thread, work)
        self._running.add(running)
        running.add_done_callback(self._has_run)
        await asyncio.wait([running])
        return running.result()

    def _has_run(self, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # retrieved here: the call that asked may have been cancelled


class FileConnection:
    """An open connection to a file, with those methods of an `AsyncConnection` that a journal needs.

    Its thread does one piece of work after the other: what follows a cancelled call waits for the work of that call.

    Args:
        engine: What it belongs to.
    """

    def __init__(self, engine: FileEngine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, _THREADS)
        self._connection: Connection

    async def open(self) -> Self:
        """Open it, and return it."""
        self._connection = await self._engine.run(self._thread, self._engine.sync_engine.connect)
        return self

    @property
    def dialect(self) -> Dialect:
        """The dialect of SQLite."""
        return self._engine.sync_engine.dialect

    @property
    def invalidated(self) -> bool:
        """Whether the connection broke."""
        return self._connection.invalidated

    async def run_sync(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns in the thread; its first argument is the connection."""
        return await self._engine.run(self._thread, partial(work, self._connection, *args, **kwargs))

    async def execute(self, statement: Executable, parameters: Any = None) -> Result[Any]:
        """Return the result of a statement, with all rows read."""
        return await self.run_sync(_executed, statement, parameters)

    async def exec_driver_sql(self, statement: str) -> CursorResult[Any]:
        """Return the result of a statement in SQLite's own words."""
        return await self.run_sync(Connection.exec_driver_sql, statement)

    async def commit(self) -> None:
        """Commit the transaction."""
        await self.run_sync(Connection.commit)

    async def close(self) -> None:
        """Roll back, and close."""
        try:
            await self.run_sync(Connection.close)
        finally:
            self.leave()

    def leave(self) -> None:
        """End the thread, after the work that it has been given."""
        self._thread.shutdown(wait=False)
        self._engine.slots.release()


def _executed(connection: Connection, statement: Executable, parameters: Any) -> Result[Any]:
    result = connection.execute(statement, parameters)
    return result.freeze()() if result.returns_rows else result
