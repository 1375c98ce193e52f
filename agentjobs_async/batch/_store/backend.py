"""What differs between the databases that hold journals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Executable, event, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agentjobs_async import JournalError
from agentjobs_async.batch._store import tables
from agentjobs_async.batch._store.sqlite_file import QuietConnection, before_reading, faults, reading

__all__ = ["Backend", "file_backend"]

_BUSY_PATIENCE: Final = 10.0
_CHECKPOINT_PAGES: Final = 32


@frozen
class Backend:
    """A database, and how it is spoken to.

    Attributes:
        insert: An insert into the journal's entries.
        claim: Makes the statement of a claim from key, claim, the moment, owner and project; what it returns says
            `tables.claimed`.
        claims_apart: Whether each claim is a transaction of its own, on a connection of their own.
        fault: Gives the database's error as ours.
        is_gone: Tells whether an error means that the connection broke, and a new one may help.
        patience: Seconds for which a database that is gone is waited for.
        cut: Breaks all connections, so that what waits for an answer fails at once; `None` where threads wait, which
            can't be interrupted.
    """

    engine: AsyncEngine
    insert: tables.Insert
    claim: Callable[[str, str, tables.Moment, str, str | None], Executable]
    claims_apart: bool
    fault: Callable[[BaseException], JournalError]
    is_gone: Callable[[DBAPIError], bool]
    patience: float
    cut: Callable[[], None] | None = None


def file_backend(path: Path, *, read_only: bool) -> Backend:
    """Return SQLite on a file."""
    return Backend(
        engine=_engine(path, read_only=read_only),
        insert=sqlite.insert(tables.ENTRIES),
        claim=tables.claimed,
        claims_apart=False,
        fault=lambda error: faults(path, error),
        is_gone=lambda error: error.connection_invalidated,
        patience=0.0,
    )


def _engine(path: Path, *, read_only: bool) -> AsyncEngine:
    # Read-only, or the last one to look would carry a crashed owner's WAL over into the file. Else "rw": by default
    # SQLite would make an empty file where the journal was removed meanwhile.
    query = reading(path) if read_only else {"mode": "rw"}
    url = make_url("sqlite+aiosqlite://").set(database=path.as_uri(), query={**query, "uri": "true"})
    connecting = {"timeout": _BUSY_PATIENCE, "factory": QuietConnection}
    engine = create_async_engine(url, hide_parameters=True, connect_args=connecting)

    @event.listens_for(engine.sync_engine, "connect")
    def _durable(connection: Any, record: object) -> None:
        del record
        cursor = connection.cursor()
        cursor.execute(before_reading(query))
        cursor.execute("PRAGMA synchronous = FULL")
        # Often, so that the file alone, copied without its log, holds nearly all.
        cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        cursor.close()

    return engine
