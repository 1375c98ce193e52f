"""A journal in a file of SQLite, through SQLAlchemy."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import create_engine, event, insert, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.connections import Backend, Read, Stamp
from agentjobs_async.batch._store.limits import first_row
from agentjobs_async.batch._store.schema import JOURNAL, METADATA
from agentjobs_async.batch._store.sqlite_file import before_reading, faults, reading, stamp_of
from agentjobs_async.batch._store.threads import FileEngine

_BUSY_SECONDS: Final = 10.0  # a foreign program that reads the file may lock it for a moment
_CHECKPOINT_PAGES: Final = 32  # often, so that the file alone, copied without its log, holds nearly all rows


def table_statements() -> Iterator[str]:
    """Return the statements that create a journal's tables and indexes, and its limits."""
    dialect = sqlite.dialect()
    for table in METADATA.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
    first = insert(JOURNAL).values(first_row())
    yield str(first.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def file_backend(path: Path, *, read_only: bool) -> Backend:
    """Return SQLite on a file."""

    async def stamp(_: Read) -> Stamp:
        # Not by PRAGMA data_version: its values compare on one connection only, and reads have several.
        return await asyncio.to_thread(stamp_of, path)

    return Backend(
        engine=_engine(path, read_only=read_only),
        insert=sqlite.insert,
        claim=statements.CLAIM,
        claims_apart=False,
        fault=lambda error: faults(path, error),
        is_gone=lambda error: error.connection_invalidated,
        patience=0.0,
        stamp=stamp,
    )


def _engine(path: Path, *, read_only: bool) -> FileEngine:
    # To look, read-only: otherwise the last one to close would carry a crashed owner's log over into the file. To own,
    # "rw": SQLite's default would make an empty file where the journal was removed meanwhile.
    query = reading(path) if read_only else {"mode": "rw"}
    url = make_url("sqlite://").set(database=path.as_uri(), query={**query, "uri": "true"})
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _durable(connection: Any, record: object) -> None:
        del record
        cursor = connection.cursor()
        cursor.execute(before_reading(query))
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        cursor.close()

    return FileEngine(engine)
