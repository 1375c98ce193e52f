"""Connections to a journal's database: what differs between databases, and work that is repeated while one is gone."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from attrs import frozen
from sqlalchemy import Executable, Row, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agentjobs_async import JournalError
from agentjobs_async.batch._database.threads import FileConnection, FileEngine

if TYPE_CHECKING:  # a run on a file does without it, and without the half of SQLAlchemy that it imports
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

_RECONNECTING_SECONDS: Final = 0.2  # between tries to reach a server that is gone: a restart takes some seconds
_SILENCE_SECONDS: Final = 60.0  # without an answer the server counts as gone; a statement may wait for locks for long

T = TypeVar("T")

AnyConnection: TypeAlias = "AsyncConnection | FileConnection"
"""A connection to a server, or to a file."""
Insert: TypeAlias = "sqlite.Insert | postgresql.Insert"
"""An insert of a dialect that knows ON CONFLICT."""
Read = Callable[[Executable], Awaitable[Sequence[Row[Any]]]]
"""Returns the rows of a query."""


@frozen
class Stamp:
    """What changes with each commit.

    Attributes:
        value: Equal to that of an earlier stamp if nothing was committed in between.
        is_settled: Whether a later commit is sure to change it; otherwise one may have come in the same moment.
    """

    value: object
    is_settled: bool = True


class Backend(ABC):
    """A database, and what is specific to it.

    Attributes:
        engine: Opens connections.
        claim: Makes a planned row `sending`, with the parameters of `Store.claim`. Returns no row when it is not
            planned, else (`wait`, `of_project`, `cause`, `claimed`): the seconds after which there may be room, or
            null; the only project that has no room, null for all of them; what leaves none, as `NoRoom` has it; the
            number of rows that were claimed.
        repeat: The same for an unknown row whose create may be repeated, in one transaction.
        stores_nul: Whether its texts may contain NUL.
        notifies: Whether it notifies those who listen, by `pg_notify`.
        claims_apart: Whether each claim is a transaction of its own, and claims have a connection of their own, as have
            writes in turn.
        can_be_cut: Whether `cut` ends calls that wait for an answer; threads that wait for a disk can't be interrupted.
        patience: Seconds for which a database that is gone is waited for.
    """

    engine: "AsyncEngine | FileEngine"
    claim: Executable
    repeat: Sequence[Executable]
    stores_nul: bool
    notifies: bool
    claims_apart: bool
    can_be_cut: bool
    patience: float

    @staticmethod
    @abstractmethod
    def insert(table: Table) -> Insert:
        """Return an insert into a table, in the database's dialect. Static: statements are kept by it."""

    @abstractmethod
    def turn(self, name: str) -> Sequence[Executable]:
        """Return what a transaction executes first, so that those of the same `name` are executed one after another.

        That is nothing for a database that executes all of them so.
        """

    @abstractmethod
    def fault(self, error: BaseException) -> JournalError:
        """Return an error of the database as a `JournalError`."""

    @abstractmethod
    def is_gone(self, error: DBAPIError) -> bool:
        """Return whether an error means that the connection broke, and a new one may help."""

    @abstractmethod
    async def stamp(self, read: Read) -> Stamp:
        """Return the stamp of all that is committed by now; what it asks the database, it asks by `read`."""

    @abstractmethod
    def cut(self) -> None:
        """Break all connections, so that each call that waits for an answer fails at once, where that can be done."""


class _CutError(Exception):
    """A connection was given up before it was open."""


class Connector:
    """Opens connections, and repeats work over them while the database is gone.

    Attributes:
        patience: Seconds for which work is repeated while the database is gone.
        is_gone: Whether the last work failed because the database was gone.
        given_up: Whether the server is no longer waited for, since it did not answer in time.
    """

    def __init__(self, backend: Backend) -> None:
        self.patience: float = backend.patience
        self.is_gone: bool = False
        self.given_up: bool = False
        self._backend = backend
        self._opening: set[asyncio.Task[AnyConnection]] = set()

    async def open(self, *, alone: bool = False) -> AnyConnection:
        """Return an open connection; with `alone`, each of its statements is a transaction on a server.

        It is opened by a task of its own, so that `cut` ends the opening as well.
        """
        engine = self._backend.engine
        if alone and not isinstance(engine, FileEngine):
            engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        opening = asyncio.get_running_loop().create_task(_opened(engine), context=Context())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        await asyncio.wait([opening])
        if opening.cancelled():
            raise _CutError("there was no connection in time")
        return opening.result()

    async def run(
        self, work: Callable[[], Coroutine[Any, Any, T]], patience: float | None = None, *, is_long: bool = False
    ) -> T:
        """Await `work`, and repeat it for `patience` seconds while the database is gone; `None` takes the backend's.

        A server that `work` waits for counts as gone after a minute, unless `work` is long.

        Raises:
            JournalError: The database can't be reached, read or written. The database's own error, which shows
                prompts, is not in its context.
        """
        loop = asyncio.get_running_loop()
        patience = self.patience if patience is None else patience
        gone_since: float | None = None
        while True:
            if self.given_up:
                raise self._backend.fault(_CutError("it was left without an answer"))
            began = loop.time()
            # No timer for a file: its threads can't be cut.
            cuts = self._backend.can_be_cut and not is_long
            silence = loop.call_later(_SILENCE_SECONDS, self.cut, context=Context()) if cuts else None
            try:
                result = await work()
            except (SQLAlchemyError, ValueError, _CutError) as error:  # ValueError: a schema that is not text
                fault = self._backend.fault(getattr(error, "orig", None) or error)
                self.is_gone = self._shows_that_it_is_gone(error)
            else:
                self.is_gone = False
                return result
            finally:
                if silence is not None:
                    silence.cancel()
            gone_since = began if gone_since is None else gone_since
            # Raised outside of the handler: inside of it, the database's error would become the context of ours.
            if not self.is_gone or loop.time() - gone_since >= patience:
                raise fault
            await asyncio.sleep(_RECONNECTING_SECONDS)

    def cut(self) -> None:
        """Break all connections to a server, those being opened included: what waits for an answer is done again."""
        for opening in self._opening if self._backend.can_be_cut else ():
            opening.cancel()
        self._backend.cut()

    def give_up(self) -> None:
        """Fail whatever waits for a server, now and later, at once; files, whose threads can't be cut, continue."""
        if self._backend.can_be_cut:
            self.given_up = True
            self.cut()

    def _shows_that_it_is_gone(self, error: Exception) -> bool:
        return isinstance(error, _CutError) or (isinstance(error, DBAPIError) and self._backend.is_gone(error))


async def _opened(engine: "AsyncEngine | FileEngine") -> AnyConnection:
    return await engine.connect()
