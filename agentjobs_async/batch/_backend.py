"""What differs between the databases that hold journals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Executable, event, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import agentjobs_async.batch._tables as tables
from agentjobs_async import JournalError
from agentjobs_async.batch._file import QuietConnection, faults

__all__ = ["Backend", "file_backend"]

_BUSY_PATIENCE: Final = 10.0
_CHECKPOINT_PAGES: Final = 32


@frozen
class Backend:
    """A database, and how it is spoken to.

    Attributes:
        insert: An insert into the journal's entries.
        claim: Makes the statement of a claim from key, claim, the moment and other values; it gives a row of (seconds
            after which there may be room, or null; how many rows it claimed), or none.
        before_claims: What a transaction executes before its claims; `None` for nothing.
        fault: Gives the database's error as ours.
        is_gone: Tells whether an error means that the connection broke, and a new one may help.
        patience: Seconds for which a database that is gone is waited for.
    """

    engine: AsyncEngine
    insert: tables.Insert
    claim: Callable[..., Executable]
    before_claims: Executable | None
    fault: Callable[[BaseException], JournalError]
    is_gone: Callable[[DBAPIError], bool]
    patience: float


def file_backend(path: Path, *, read_only: bool) -> Backend:
    """Give SQLite on a file."""

    def claim(key: str, claim: str, now: tables.Moment, **values: Any) -> Executable:
        return tables.claimed(key, claim, sent_at=now, updated_at=now, **values)

    return Backend(
        engine=_engine(path, read_only=read_only),
        insert=sqlite.insert(tables.ENTRIES),
        claim=claim,
        before_claims=None,
        fault=lambda error: faults(path, error),
        is_gone=lambda error: error.connection_invalidated,
        patience=0.0,
    )


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
