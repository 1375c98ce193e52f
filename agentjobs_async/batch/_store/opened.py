"""A journal from its opening to its closing: its database, its rows, and what makes this process its owner."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from agentjobs_async import AgentJobsSession, InvalidInputError
from agentjobs_async._loop.tasks import until_done
from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async.batch._database.address import ServerAddress
from agentjobs_async.batch._database.connections import Backend
from agentjobs_async.batch._database.file_lock import FileLock
from agentjobs_async.batch._database.schema import Moment
from agentjobs_async.batch._database.sqlite import FileBackend, check, check_kind, make
from agentjobs_async.batch._database.writer import Database
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.heartbeat import Heartbeat
from agentjobs_async.batch._store.owners import Owner, Owners, SessionShare
from agentjobs_async.batch._store.owning import doubt_dead, free_dead
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch._store.store import NOBODY, Store, moved_error


class Opened:
    """What belongs to a journal while it is open; every part is `None` before and after.

    Args:
        location: The path of a file, or the address of a database.
        read_only: Whether nothing is changed, and the journal is not owned.
        clock: The wall clock, in seconds since the epoch; `None` for the process's with a file, for the server's with
            a database.
        owner_timeout: Seconds without a heartbeat after which an owner on PostgreSQL counts as dead.
        moving: Whether it is opened to be moved: one that was moved before can be opened to write too.

    Attributes:
        location: As given; a file's path is absolute, and follows no link, once it is open.
        database: The open database.
        store: The journal's rows.
        lock: The lock of a file; `None` with `read_only`.
        heartbeat: The heartbeats of the owners in this process, on PostgreSQL.
        owners: The runs, workers and durable jobs in this process.
        lost: Rows that became unknown as the journal was opened: the first run tells of them.
        read_only: As given.
        owner_timeout: As given.
        moved_to: Where the journal was moved to, without secrets; `None` if it was not.
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
        self.store: Store | None = None
        self.lock: FileLock | None = None
        self.heartbeat: Heartbeat | None = None
        self.owners: Owners = Owners(is_shared=self.is_shared)
        self.lost: list[JournalRow] = []
        self.moved_to: str | None = None
        self.read_only = read_only
        self.owner_timeout = owner_timeout
        self._moving = moving
        self._clock = clock

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

    def check_not_moved(self) -> None:
        """Raise a `JournalError` where the journal was moved (`moved`): no run can use it."""
        if self.moved_to is not None:
            raise moved_error(self.name, self.moved_to)

    def take_lost(self) -> list[JournalRow]:
        """Return the rows that became unknown as the journal was opened, or as a run was left; each only once."""
        found, self.lost = self.lost, []
        return found

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
        if self.owners.own:
            return True
        if self.store is None or self.heartbeat is None:
            return False
        return any(age < self.owner_timeout for _, age in await measures.owners(self.store))

    def connect_arguments(self) -> dict[str, Any]:
        """Return the arguments of `psycopg.connect` for the same database. They may hold a password.

        Raises:
            InvalidInputError: The journal is a file.
        """
        if isinstance(self.location, Path):
            raise InvalidInputError("the journal is a file, which serves one process: give a URL of PostgreSQL")
        from agentjobs_async.batch._database.postgresql import connect_arguments  # noqa: PLC0415 - takes long to import

        return connect_arguments(self.location)

    def listening(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Return a block with the words of a channel's notifications, as they come, over a connection of its own.

        The block, and the iteration in it, raise a `JournalError` when the server can't be reached, or the connection
        breaks.

        Raises:
            InvalidInputError: The journal is a file.
        """
        if isinstance(self.location, Path):
            raise InvalidInputError("the journal is a file, which notifies nobody")
        from agentjobs_async.batch._database.listening import listening  # noqa: PLC0415 - takes long to import

        return listening(self.location, channel)

    def note_lost(self, rows: Sequence[JournalRow]) -> None:
        """Note rows that became unknown: a run on this open journal that goes on, or the next one, tells of them."""
        self.lost += rows

    async def join(self, session: AgentJobsSession, limit: float | None = None) -> Owner:
        """Return a new owner of the journal, whose session keeps to its part of the journal's polls until it leaves.

        The session's own limits apply as well: the smallest counts.

        Args:
            session: Polls for the owner.
            limit: As of `Owner`.

        Raises:
            JournalError: The journal can't be read or written.
        """
        assert self.store is not None  # noqa: S101 - runs look first whether the journal is open
        owner = Owner(session, limit)
        self.owners.own[owner.name] = owner
        try:
            if self.heartbeat is None:
                self.owners.share_out((await self.store.meta()).limits.polls_per_second)
                owner.note_counted()  # there is no other one to do it
            else:
                await self.heartbeat.join(owner)
        except BaseException:
            await self.leave(owner, has_left=True)
            raise
        self._share(session)
        return owner

    async def leave(self, owner: Owner, *, has_left: bool) -> None:
        """Remove an owner, whose share of the polls is that of others then.

        Where it could not leave its rows (`has_left`), others free them as those of a dead owner. Idempotent: a block
        may be left while its run is being closed.
        """
        if self.owners.own.pop(owner.name, None) is None:
            return
        self._share(owner.session)
        if self.heartbeat is not None and has_left:
            await self.heartbeat.leave(owner.name)

    def _share(self, session: AgentJobsSession) -> None:
        """Limit a session that polls for an owner; lift its limit after the last one."""
        polls = any(owner.session is session for owner in self.owners.own.values())
        share = SessionShare(self.owners, session, self.heartbeat) if polls else None
        limits: PollLimits | None = getattr(session, "_limits", None)  # a double in callers' tests may have none
        if limits is not None:
            limits.share(self, share)

    async def _open_file(self, path: Path) -> None:
        # In a thread: all of it waits for the disk.
        path = self.location = await asyncio.to_thread(self._own, path)
        store = self._begin(FileBackend(path, read_only=self.read_only), time.time)
        await self._check_moved(store)
        if not (self.read_only or self._moving):
            await self._free_dead(store)

    async def _open_server(self, address: ServerAddress) -> None:
        from agentjobs_async.batch._database import postgresql  # noqa: PLC0415 - its dialect takes long to import

        def backend(**settings: float) -> Backend:
            timeout = self.owner_timeout
            return postgresql.ServerBackend(address, read_only=self.read_only, owner_timeout=timeout, **settings)

        store = self._begin(backend(), postgresql.server_clock)
        assert self.database is not None  # noqa: S101 - `_begin` has set it
        await self.database.once(
            lambda connection: postgresql.lay_out(connection, address.name, writing=not self.read_only)
        )
        await self._check_moved(store)
        if not (self.read_only or self._moving):
            await self._free_dead(store)
            # Over a connection of its own. It is made anew for as long as a beat may take, which is less than this.
            beats = Database(backend(patience=self.owner_timeout))
            self.heartbeat = Heartbeat(beats, store, self.owners, self.owner_timeout)

    async def _free_dead(self, store: Store) -> None:
        """Free what earlier owners have left; what they were sending is unknown."""
        await free_dead(store)
        await doubt_dead(store, NOBODY, followed=True)  # durable jobs tell of these
        self.lost += await doubt_dead(store, NOBODY, followed=False)

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

    async def _check_moved(self, store: Store) -> None:
        """Read where the journal was moved to.

        Raises:
            JournalError: It was, and would be written (`moved`).
        """
        self.moved_to = (await store.meta()).moved_to
        if not (self.read_only or self._moving):
            self.check_not_moved()

    def _begin(self, backend: Backend, clock: Callable[[], Moment]) -> Store:
        self.database = Database(backend)
        patience = self.owner_timeout if self.is_shared else None
        self.store = Store(self.database, self._clock or clock, owners=self.owners, lock=self.lock, patience=patience)
        return self.store

    def _give_up(self) -> None:
        if self.database is not None:
            _give_up(self.database, self.heartbeat)


async def _closed(database: Database, heartbeat: Heartbeat | None, patience: float) -> None:
    """Close. The owners live on until the last write is done: others make the rows of dead ones unknown."""
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
