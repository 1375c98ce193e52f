"""A journal's file on SQLite: who owns it, whether it is one, and how a new one is made."""

import errno
import logging
import os
import sqlite3
import stat
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from agentjobs_async import JournalError
from agentjobs_async.batch._tables import APPLICATION, METADATA, VERSION

__all__ = ["Ownership", "QuietConnection", "check", "check_kind", "faults", "make"]

_WRITABLE: Final = 0o222
_CREATING: Final = threading.Lock()
_REASONS: Final = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_ERROR: "corrupt",  # a table or a column is missing: the statements are ours
    sqlite3.SQLITE_READONLY: "read_only",
}
_WORDS: Final = {
    "full": "the disk is full; nothing more is sent until there is room",
    "locked": "somebody else uses it; one process at a time may",
    "corrupt": "the file is broken, or no journal",
    "read_only": "the file can't be written",
    "io": "it can't be read or written",
}


def faults(path: Path, error: BaseException) -> JournalError:
    """Give SQLite's error, or the system's, as ours."""
    code = getattr(error, "sqlite_errorcode", None)
    reason = _REASONS.get((code or 0) & 0xFF, "io")
    said = str(error)
    if isinstance(error, PermissionError):
        reason = "read_only"
    elif code is None and not isinstance(error, OSError | sqlite3.ProgrammingError):
        # What Python can't make of a cell; its words quote the cell.
        reason, said = "corrupt", type(error).__name__
    return JournalError(f"journal {path.name}: {_WORDS[reason]} ({said})", reason)


class QuietConnection(sqlite3.Connection):
    """A connection in a thread of its own, whose statements, with the prompts in them, aiosqlite must not log."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        _THREAD.quiet = True


_THREAD: Final = threading.local()
logging.getLogger("aiosqlite").addFilter(
    lambda record: record.levelno > logging.DEBUG or not getattr(_THREAD, "quiet", False)
)


class Ownership:
    """The right to write one journal, held until `release` or the end of the process, however it ends.

    It is SQLite's own lock of an empty file beside the journal: locked itself, the journal could not be read by others,
    and where `flock` and SQLite's locks are of one kind, it would shut its owner out as well. The empty file stays:
    whoever removed it could remove one that the next owner has just locked.

    Raises:
        JournalError: Somebody else has it (`locked`), or the directory can't be written.
    """

    def __init__(self, path: Path) -> None:
        beside = path.with_name(f"{path.name}.lock")
        fault = None
        try:
            with _CREATING:
                _create(beside)
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
        self._places = {beside: _identity(beside)}

    def watch(self, path: Path) -> None:
        """Remember which file is the journal, for `check`."""
        self._places[path] = _identity(path)

    def check(self) -> None:
        """See that the journal and its lock are still the files that they were.

        Raises:
            JournalError: They are not, and somebody else may own the journal by now (`locked`).
        """
        for path, before in self._places.items():
            if not path.exists() or _identity(path) != before:
                words = "was moved, removed or replaced; nothing more is sent, since somebody else may use it now"
                raise JournalError(f"journal: {path.name} {words}", "locked")

    def release(self) -> None:
        """Let others have it."""
        self._connection.close()


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _create(beside: Path) -> None:
    """Create the file where it is missing; one that is there is left to SQLite.

    Closing any descriptor of a file would end all locks that this process has on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def check(path: Path, *, writing: bool) -> None:
    """Refuse a file that is no whole journal of this version, without changing it.

    Raises:
        JournalError: `corrupt` when it is broken or something else, `version` when another version wrote it,
            `read_only` when `writing` is asked for and not allowed.
    """
    check_kind(path, writing=writing)
    fault = None
    try:
        with closing(_looking(path, "mode=ro")) as connection:
            _check_number(path, connection)
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()  # quick_check leaves the indexes out
        if found != ("ok",):
            fault = JournalError(f"journal {path.name}: the file is broken ({found[0]!r:.200})", "corrupt")
    except (OSError, sqlite3.Error, ValueError) as error:
        fault = faults(path, error)
    if fault is not None:
        raise fault


def check_kind(path: Path, *, writing: bool) -> None:
    """Refuse what can be no journal of this version, without changing it or making a file beside it.

    Raises:
        JournalError: As `check` does, and `io` for anything but a regular file of one name. A missing or an empty file
            passes when `writing` is asked for: a journal can be made there.
    """
    fault = None
    try:
        size = _size(path, writing=writing)
        if size and not _has_log(path):
            # A foreign database gets no files beside it. With a log, half of a journal may be in there.
            with closing(_looking(path, "immutable=1&mode=ro")) as connection:
                _check_number(path, connection)
    except (OSError, sqlite3.Error, ValueError) as error:
        fault = faults(path, error)
    if fault is not None:
        raise fault


def _size(path: Path, *, writing: bool) -> int:
    """Give the size of a file that may be a journal, or is to become one."""
    if not path.parent.is_dir():
        raise JournalError(f"journal {path}: there is no directory {path.parent}", "io")
    if not path.exists():
        if not writing:
            raise JournalError(f"journal {path}: there is no such file", "io")
        return 0
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise JournalError(f"journal {path}: this is {what}; give the name of a file", "io")
    if found.st_nlink > 1:
        raise JournalError(f"journal {path}: it has a second name (a hard link), where it would go unlocked", "io")
    if writing and not (os.access(path, os.W_OK) and found.st_mode & _WRITABLE):
        raise PermissionError(errno.EACCES, "nobody may write it")
    return found.st_size


def _has_log(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    return False


def _looking(path: Path, how: str) -> sqlite3.Connection:
    """Give a connection that can't write. Nothing else may open the file: see `Ownership`."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)


def _check_number(path: Path, connection: sqlite3.Connection) -> None:
    def number(pragma: str) -> int:
        return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    if number("application_id") != APPLICATION:
        raise JournalError(f"journal {path.name}: the file is no journal; it is left as it is", "corrupt")
    if number("user_version") != VERSION:
        raise JournalError(
            f"journal {path.name}: it has version {number('user_version')}, and this program knows {VERSION};"
            " use the version of agentjobs-async that wrote it",
            "version",
        )


def make(path: Path) -> None:
    """Make an empty journal, which is there as a whole or not at all. Only its owner may call this.

    Raises:
        JournalError: It can't be written, or the log of another journal lies beside it (`corrupt`).
    """
    if _has_log(path):
        raise JournalError(
            f"journal {path.name}: {path.name}-wal is what a journal of this name left;"
            " bring that back, or remove this too, since it would get into the new one",
            "corrupt",
        )
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
    if os.name == "posix":  # pragma: no branch - the tests of signals and terminals run nowhere else
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
