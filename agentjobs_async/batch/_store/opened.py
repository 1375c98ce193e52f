"""A journal from its opening to its closing: its database, its rows, and what makes this process its owner."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from agentjobs_async import AgentJobsSession, InvalidInputError
from agentjobs_async._loop.tasks import until_done
from agentjobs_async._polling.limiters import PollShare
from agentjobs_async.batch._store.address import ServerAddress
from agentjobs_async.batch._store.connections import Backend
from agentjobs_async.batch._store.file_lock import FileLock
from agentjobs_async.batch._store.heartbeat import Heartbeat, parts_of
from agentjobs_async.batch._store.row_store import RowStore
from agentjobs_async.batch._store.rows import TO, Move
from agentjobs_async.batch._store.schema import Moment
from agentjobs_async.batch._store.sqlite import FileBackend, check, check_kind, make
from agentjobs_async.batch._store.writer import Database


class Opened:
    """What belongs to a journal while it is open; every part is `None` before and after.

    Args:
        location: The path of a file, or the address of a database.
        read_only: Whether nothing is changed, and the journal is not owned.
        clock: The wall clock, in seconds since the epoch; `None` for the process's with a file, for the server's with
            a database.
        owner_timeout: Seconds without a heartbeat after which an owner on PostgreSQL counts as dead.
        moving: Whether it is opened to be moved: one that was moved before can be opened to write too, and this process
            sends no heartbeats to PostgreSQL, so that none is left when it is killed.

    Attributes:
        location: As given; a file's path is absolute, and follows no link, once it is open.
        database: The open database.
        store: The journal's rows.
        lock: The lock of a file; `None` with `read_only`.
        heartbeat: The heartbeats of an owner on PostgreSQL.
        read_only: As given.
        owner_timeout: As given.
        moves: The moves that the journal has recorded, by their directions.
    """

    def __init__(
        self,
        location: Path | ServerAddress,
        *,
        read_only: bool,
        clock: Callable[[], float] | None,
        owner_timeout: float,
        moving: bool = False,
    ) -> None:
        self.location = location
        self.database: Database | None = None
        self.store: RowStore | None = None
        self.lock: FileLock | None = None
        self.heartbeat: Heartbeat | None = None
        self.moves: dict[str, Move] = {}
        self._moving = moving
        self.read_only = read_only
        self._clock = clock
        self._sharers: dict[object, AgentJobsSession] = {}  # runs and workers, with their sessions
        self._polls: PollShare | None = None
        self._limited: list[AgentJobsSession] = []
        self.owner_timeout = owner_timeout

    @property
    def name(self) -> str:
        """The file's path, or the host and the name of the database."""
        return str(self.location) if isinstance(self.location, Path) else self.location.name

    @property
    def address(self) -> str:
        """What opens the same journal again, without secrets."""
        return str(self.location) if isinstance(self.location, Path) else self.location.shown

    @property
    def is_shared(self) -> bool:
        """Whether it is a database, which any number of processes may own at once."""
        return not isinstance(self.location, Path)

    @property
    def moved_to(self) -> str | None:
        """Where the journal was moved to, without secrets; `None` if it was not."""
        return self.moves[TO].location if TO in self.moves else None

    def check_not_moved(self) -> None:
        """Raise a `JournalError` where the journal was moved (`moved`): no run can use it."""
        if TO in self.moves:
            raise self.moves[TO].error(self.name)

    async def open(self) -> None:
        """Open the journal, and make it when it is missing. Whatever fails, `close` ends what is open by then.

        Raises:
            JournalError: The journal can't be used.
        """
        location = self.location
        opening = self._open_file(location) if isinstance(location, Path) else self._open_server(location)
        await _finished(opening, self._give_up)

    async def close(self, patience: float) -> None:
        """Execute what is pending, close, and release a file; a server is waited for `patience` seconds at most."""
        if self.database is not None:
            self.database.enter()  # first: a forked child must not release the lock, which it shares with its parent
        # Taken before the first await: a second call finds nothing to close, and new work is refused from now on.
        database, self.database, self.store = self.database, None, None
        lock, self.lock = self.lock, None
        heartbeat, self.heartbeat = self.heartbeat, None
        try:
            if database is not None:
                await _finished(_closed(database, heartbeat, patience), lambda: _give_up(database, heartbeat))
        finally:
            # Last of all: the next owner may open the file as soon as it is released, and makes unknown what is
            # `sending` then. An opening that failed early has left a lock without a database. After a crash before this
            # line the system releases the lock, and SQLite rolls back what was not committed.
            if lock is not None:
                lock.release()

    @property
    def is_at_location(self) -> bool:
        """Whether `location` leads to the open journal: a file may have been moved, removed or replaced meanwhile."""
        return self.lock is None or (isinstance(self.location, Path) and self.lock.is_of(self.location))

    async def is_used(self) -> bool:
        """Return whether a run, a worker or durable jobs use the journal, here or in another living process."""
        if self._sharers:
            return True
        if self.store is None or self.heartbeat is None:
            return False
        others = [age for owner, age in await self.store.owners() if owner != self.store.owner]
        return any(age < self.owner_timeout for age in others)

    def connect_arguments(self) -> dict[str, Any]:
        """Return the arguments of `psycopg.connect` for the same database. They may hold a password.

        Raises:
            InvalidInputError: The journal is a file.
        """
        if isinstance(self.location, Path):
            raise InvalidInputError("the journal is a file, which serves one process: give a URL of PostgreSQL")
        from agentjobs_async.batch._store.postgresql import connect_arguments  # noqa: PLC0415 - takes long to import

        return connect_arguments(self.location)

    async def share_polls(self, sharer: object, polls_per_second: float | None, session: AgentJobsSession) -> None:
        """Limit a session to its part of the journal's polls per second, until `stop_sharing_polls` of `sharer`.

        The sessions of all sharers have equal parts of what is this owner's, now and at each change. The session's own
        limits apply as well: the smallest counts.
        """
        self._sharers[sharer] = session
        try:
            if self.heartbeat is None:
                self._share(None if polls_per_second is None else PollShare(polls_per_second))
            else:
                await self.heartbeat.polls.begin(self._share)
        except BaseException:
            self.stop_sharing_polls(sharer)
            raise

    def stop_sharing_polls(self, sharer: object) -> None:
        """Lift the limit of a sharer's session unless another one uses it; the last one gives up the owner's share."""
        self._sharers.pop(sharer, None)
        if self.heartbeat is not None and not self._sharers:
            self.heartbeat.polls.end()
        self._share(self._polls)

    def _share(self, share: PollShare | None) -> None:
        self._polls = share
        sessions = [] if share is None else list(dict.fromkeys(self._sharers.values()))
        shares = dict.fromkeys(self._limited) | dict(zip(sessions, parts_of(share, len(sessions)), strict=True))
        # Without a limit of polls nothing private of a session is used: callers' tests run batches on doubles of it.
        for session, part in shares.items():
            session._limits.share(self, part)  # noqa: SLF001 - for journals alone: callers use `limit_polls`
        self._limited = sessions

    async def _open_file(self, path: Path) -> None:
        # In a thread: all of it waits for the disk.
        path = self.location = await asyncio.to_thread(self._own, path)
        store = self._begin(FileBackend(path, read_only=self.read_only), time.time)
        await self._read_moves(store)
        if not self.read_only:
            await store.record_sending_as_unknown()

    async def _open_server(self, address: ServerAddress) -> None:
        from agentjobs_async.batch._store import postgresql  # noqa: PLC0415 - its dialect takes long to import

        def backend(**settings: float) -> Backend:
            timeout = self.owner_timeout
            return postgresql.ServerBackend(address, read_only=self.read_only, owner_timeout=timeout, **settings)

        store = self._begin(backend(), postgresql.server_clock)
        assert self.database is not None  # noqa: S101 - `_begin` has set it
        await self.database.once(
            lambda connection: postgresql.lay_out(connection, address.name, writing=not self.read_only)
        )
        await self._read_moves(store)
        if not (self.read_only or self._moving):
            # Over a connection of its own, without patience: a beat that waited would come too late anyway.
            self.heartbeat = Heartbeat(Database(backend(patience=0.0)), store, self.owner_timeout)
            await self.heartbeat.begin()

    def _own(self, path: Path) -> Path:
        """Own the file, check that it is a journal or make one, and return its real path."""
        writing = not self.read_only
        check_kind(path, writing=writing)
        path = path.resolve()
        if writing:
            self.lock = FileLock(path)
            if not path.exists() or not path.stat().st_size:
                make(path)
        check(path, writing=writing)
        if self.lock is not None:
            self.lock.watch(path)
        return path

    async def _read_moves(self, store: RowStore) -> None:
        """Read where the journal was moved to.

        Raises:
            JournalError: It was, and would be written (`moved`).
        """
        self.moves = await store.moves()
        if not (self.read_only or self._moving):
            self.check_not_moved()

    def _begin(self, backend: Backend, clock: Callable[[], Moment]) -> RowStore:
        self.database = Database(backend)
        self.store = RowStore(self.database, self._clock or clock, self.lock)
        return self.store

    def _give_up(self) -> None:
        if self.database is not None:
            _give_up(self.database, self.heartbeat)


async def _closed(database: Database, heartbeat: Heartbeat | None, patience: float) -> None:
    """Close. The owner lives on until its last write is done: others make the rows of a dead one unknown."""
    if heartbeat is not None:
        await heartbeat.rest()
    try:
        await database.close(patience)
    finally:
        if heartbeat is not None:
            if database.connector.given_up:
                heartbeat.give_up()
            await heartbeat.end()


def _give_up(database: Database, heartbeat: Heartbeat | None) -> None:
    database.connector.give_up()
    if heartbeat is not None:
        heartbeat.give_up()


async def _finished(work: Coroutine[Any, Any, None], on_cancel: Callable[[], None]) -> None:
    """Await `work` to its end, even when cancelled: threads continue, and what they open or write must not be left so.

    Each cancellation calls `on_cancel`, after which nothing waits for a server any more.
    """
    working = asyncio.ensure_future(work)
    try:
        await until_done({working}, on_cancel)
    finally:
        if not working.cancelled():
            working.exception()  # when both failed, the cancellation is what propagates
    working.result()
