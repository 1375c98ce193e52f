"""Connections to a journal's database, and work over them that is repeated while the database is gone."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agentjobs_async.batch._store.backend import AnyConnection, Backend
from agentjobs_async.batch._store.threads import FileEngine

if TYPE_CHECKING:  # as in `backend`
    from sqlalchemy.ext.asyncio import AsyncEngine

_RECONNECTING_SECONDS: Final = 0.2  # between tries to reach a server that is gone: a restart takes some seconds
_SILENCE_SECONDS: Final = 60.0  # without an answer the server counts as gone; a statement may wait for locks for long

T = TypeVar("T")


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
            cuts = self._backend.cut is not None and not is_long
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
        if self._backend.cut is not None:
            for opening in self._opening:
                opening.cancel()
            self._backend.cut()

    def give_up(self) -> None:
        """Fail whatever waits for a server, now and later, at once; files, whose threads can't be cut, continue."""
        if self._backend.cut is not None:
            self.given_up = True
            self.cut()

    def _shows_that_it_is_gone(self, error: Exception) -> bool:
        return isinstance(error, _CutError) or (isinstance(error, DBAPIError) and self._backend.is_gone(error))


async def _opened(engine: "AsyncEngine | FileEngine") -> AnyConnection:
    return await engine.connect()
