"""A journal's file on SQLite: who owns it, whether it is one, and how a new one is made."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from agentjobs_async import JournalError
from agentjobs_async.batch._tables import APPLICATION, METADATA, VERSION

__all__ = ["Ownership", "check", "faults", "make"]

_MAGIC: Final = b"SQLite format 3\x00"
_VERSION_AT: Final = 60
_APPLICATION_AT: Final = 68
_HEADER: Final = 100
_REASONS: Final = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_READONLY: "read_only",
}
_WORDS: Final = {
    "full": "the disk is full; nothing more is sent until there is room",
    "locked": "somebody else uses it; one process at a time may",
    "corrupt": "the file is broken",
    "read_only": "the file can't be written",
    "io": "it can't be read or written",
}


def faults(path: Path, error: BaseException) -> JournalError:
    """Give SQLite's error, or the system's, as ours."""
    code = getattr(error, "sqlite_errorcode", None)
    reason = _REASONS.get((code or 0) & 0xFF, "io")
    if isinstance(error, PermissionError):
        reason = "read_only"
    return JournalError(f"journal {path.name}: {_WORDS[reason]} ({error})", reason)


class Ownership:
    """The right to write one journal, held until `release` or the end of the process, however it ends.

    It is SQLite's own lock of an empty file beside the journal, so that others can read the journal meanwhile.

    Raises:
        JournalError: Somebody else has it (`locked`), or the directory can't be written.
    """

    def __init__(self, path: Path) -> None:
        beside = path.with_name(f"{path.name}.lock")
        fault = None
        try:
            os.close(os.open(beside, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                self._connection.execute("BEGIN EXCLUSIVE")
            except BaseException:
                self._connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            fault = faults(path, error)
        if fault is not None:
            raise fault

    def release(self) -> None:
        """Let others have it."""
        self._connection.close()


def check(path: Path, *, writing: bool) -> None:
    """Refuse a file that is no whole journal of this version, without changing it.

    Raises:
        JournalError: `corrupt` when it is broken or something else, `version` when another version wrote it,
            `read_only` when `writing` is asked for and not allowed.
    """
    fault = None
    try:
        with path.open("rb+" if writing else "rb") as stream:
            _check_header(path, stream.read(_HEADER))
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != ("ok",):
            fault = JournalError(f"journal {path.name}: the file is broken ({found[0]!r:.200})", "corrupt")
    except (OSError, sqlite3.Error) as error:
        fault = faults(path, error)
    if fault is not None:
        raise fault


def _check_header(path: Path, header: bytes) -> None:
    def number(place: int) -> int:
        return int.from_bytes(header[place : place + 4], "big")

    if len(header) < _HEADER or not header.startswith(_MAGIC) or number(_APPLICATION_AT) != APPLICATION:
        raise JournalError(f"journal {path.name}: the file is no journal; it is left as it is", "corrupt")
    if number(_VERSION_AT) != VERSION:
        raise JournalError(
            f"journal {path.name}: it has version {number(_VERSION_AT)}, and this program knows {VERSION};"
            " use the version of agentjobs-async that wrote it",
            "version",
        )


def make(path: Path) -> None:
    """Make an empty journal, which is there as a whole or not at all. Only its owner may call this.

    Raises:
        JournalError: It can't be written.
    """
    new = path.with_name(f".{path.name}.new")
    fault = None
    try:
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(new)) as connection:
            _lay_out(connection)
        new.replace(path)
        _sync_directory(path.parent)
    except (OSError, sqlite3.Error) as error:
        fault = faults(path, error)
    if fault is not None:
        raise fault


def _lay_out(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    dialect = sqlite.dialect()
    for table in METADATA.sorted_tables:
        connection.execute(str(CreateTable(table).compile(dialect=dialect)))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(str(CreateIndex(index).compile(dialect=dialect)))
    connection.commit()
    connection.execute("PRAGMA journal_mode = WAL")


def _sync_directory(directory: Path) -> None:
    """Make a new name in a directory durable, where directories can be opened."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
