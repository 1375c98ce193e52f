"""A journal's file on SQLite: who owns it, whether it is one, and how a new one is made."""

import errno
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from filelock import FileLock, Timeout
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from agentjobs_async import JournalError
from agentjobs_async.batch._store.tables import APPLICATION, METADATA, VERSION

__all__ = ["JournalLock", "QuietConnection", "before_reading", "check", "check_kind", "faults", "make", "reading"]

_WRITABLE: Final = 0o222
_WITHOUT_LOCKS: Final = "unix-none" if os.name == "posix" else "win32-none"
_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
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
    """Return SQLite's error, or the system's, as ours."""
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

    def close(self) -> None:
        """Close it, and end its transaction; a cursor that a cancelled call left behind would keep that open."""
        with suppress(sqlite3.Error):
            self.rollback()
        super().close()


_THREAD: Final = threading.local()
# aiosqlite logs each statement, with the prompts in it, at DEBUG to one logger for the whole process. The filter drops
# these records in the threads of our connections only: other connections of the program are logged as before.
logging.getLogger("aiosqlite").addFilter(
    lambda record: record.levelno > logging.DEBUG or not getattr(_THREAD, "quiet", False)
)


class JournalLock:
    """The right to write one journal, held until `release` or the end of the process, however it ends.

    It is a lock (`flock`; on Windows `LockFileEx`) of an empty file beside the journal. SQLite's own locks are POSIX
    record locks, which a process loses as soon as it closes any descriptor of the file: a copy of the directory would
    give the journal away. The lock of the journal itself would keep readers out. The empty file stays: removing it
    could remove one that the next owner has just locked.

    Raises:
        JournalError: Another owner has it (`locked`), the directory can't be written, or files there can't be locked.
    """

    def __init__(self, path: Path) -> None:
        beside = path.with_name(f"{path.name}.lock")
        # Not bound to a thread: a worker thread acquires, the loop releases. A soft lock would survive a killed owner.
        self._lock = FileLock(
            beside, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False, preserve_lock_file=True
        )
        self._places: dict[Path, tuple[int, int] | None] = {}
        self._log: Path | None = None
        fault = None
        try:
            self._lock.acquire()
            self._places[beside] = _identity(beside)
        except Timeout:
            fault = JournalError(f"journal {path.name}: {_WORDS['locked']} ({beside.name} is locked)", "locked")
        except OSError as error:
            fault = _without_locks(path) if error.errno in _NO_LOCKS else faults(path, error)
        if fault is not None:
            raise fault

    def watch(self, path: Path) -> None:
        """Remember which file is the journal, for `check`."""
        self._places[path] = _identity(path)
        self._log = _log_of(path)

    def check(self) -> None:
        """See that the journal, its log and its lock are still the files that they were.

        The log goes when this process has read the journal's files itself, as a copy of the directory does, and
        another program uses the file then: SQLite has lost its locks, and what is written lands in a log without name.

        Raises:
            JournalError: They are not, and somebody else may own the journal by now (`locked`).
        """
        self._watch_log()
        for path, before in self._places.items():
            if _identity(path) != before:
                words = "was moved, removed or replaced; nothing more is sent, since somebody else may use it now"
                raise JournalError(f"journal: {path.name} {words}", "locked")

    def holds(self, path: Path) -> bool:
        """Return whether the journal and its log are still where they were, so that it can be opened again."""
        self._watch_log()
        places = {path, _log_of(path)} & self._places.keys()
        return path in places and all(_identity(place) == self._places[place] for place in places)

    def _watch_log(self) -> None:
        """Remember the log as soon as SQLite has made it, with the first statement."""
        if self._log is not None and (found := _identity(self._log)) is not None:
            self._places[self._log] = found
            self._log = None

    def release(self) -> None:
        """Release the journal to the next owner."""
        self._lock.release()


def _without_locks(path: Path) -> JournalError:
    words = "its file system can't lock files, so two owners could send the same; put it on another one"
    return JournalError(f"journal {path.name}: {words}", "io")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from others, `None` when there is none."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def check(path: Path, *, writing: bool) -> None:
    """Refuse a file that is no whole journal of this version, without changing it.

    Raises:
        JournalError: `corrupt` when it is broken or something else, `version` when another version wrote it,
            `read_only` when `writing` is asked for and not allowed.
    """
    check_kind(path, writing=writing)
    fault = None
    try:
        with closing(_look_into({"mode": "ro"} if writing else reading(path), path)) as connection:
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
            with closing(_look_into({"mode": "ro", "immutable": "1"}, path)) as connection:
                _check_number(path, connection)
    except (OSError, sqlite3.Error, ValueError) as error:
        fault = faults(path, error)
    if fault is not None:
        raise fault


def _size(path: Path, *, writing: bool) -> int:
    """Return the size of a file that may be a journal, or is to become one."""
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
        return _log_of(path).stat().st_size > 0
    return False


def reading(path: Path) -> dict[str, str]:
    """Return how a journal is opened that is only read: the parameters of SQLite's address.

    SQLite keeps files beside one with a log, and can't make them on a disk that is read-only. There it reads without
    them, and without locks: nobody writes there.
    """
    query = {"mode": "ro"}
    if os.access(path.parent, os.W_OK):
        return query
    try:
        with closing(_look_into(query, path)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return {**query, "vfs": _WITHOUT_LOCKS} if _has_log(path) else {**query, "immutable": "1"}
    return query


def before_reading(query: Mapping[str, str]) -> str:
    """Return the first statement of a connection that `query` opens: without locks the log's index stays in memory."""
    return "PRAGMA locking_mode = EXCLUSIVE" if query.get("vfs") == _WITHOUT_LOCKS else "PRAGMA locking_mode = NORMAL"


def _look_into(query: Mapping[str, str], path: Path) -> sqlite3.Connection:
    """Open a connection that can't write; nothing else may open the file, or SQLite loses its own locks on it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{urlencode(query)}", uri=True)
    connection.execute(before_reading(query))
    return connection


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
