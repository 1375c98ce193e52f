"""A journal in a file of SQLite: whether it is one, how it is opened, and how a new one is made."""

import asyncio
import errno
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Executable,
    Float,
    String,
    Table,
    and_,
    bindparam,
    case,
    create_engine,
    event,
    false,
    func,
    insert,
    literal,
    make_url,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.dml import Insert, ReturningUpdate

from agentjobs_async import JournalError
from agentjobs_async.batch._database.connections import Backend, Read, Stamp
from agentjobs_async.batch._database.schema import (
    APPLICATION,
    BEFORE_RELEASE,
    ITEMS,
    JOURNAL,
    LAYOUT,
    METADATA,
    SENDS,
    SKEW_SECONDS,
    first_row,
    other_layout,
)
from agentjobs_async.batch._database.threads import FileEngine
from agentjobs_async.batch.states import State
from agentjobs_async.errors import JournalReason

_ROW: Final = ITEMS.c

_BUSY_SECONDS: Final = 10.0  # a foreign program that reads the file may lock it for a moment
_CHECKPOINT_PAGES: Final = 32  # often, so that the file alone, copied without its log, holds nearly all rows
_WRITABLE: Final = 0o222  # any of the bits: `os.access` alone says yes to root
_SETTLED_SECONDS: Final = 2.5  # the coarsest times of a file system are whole 2 s
_REASONS: Final[dict[int, JournalReason]] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_ERROR: "corrupt",  # a table or a column is missing: the statements are ours
    sqlite3.SQLITE_READONLY: "read_only",
}
SHARED_LOCATION: Final = "PostgreSQL (postgresql+psycopg://host/database)"
"""What several processes use at once, as errors name it."""
_WORDS: Final[dict[JournalReason, str]] = {
    "full": "the disk is full; nothing more is sent until there is room",
    "locked": f"another process owns it, and one at a time may: several share one journal by {SHARED_LOCATION}",
    "corrupt": "the file is broken, or no journal",
    "read_only": "the file can't be written",
    "io": "it can't be read or written",
}


def _claim() -> ReturningUpdate[None, None, None, int]:
    token, now = bindparam("new_claim", type_=String), bindparam("new_time", type_=Float(53))
    owner = bindparam("new_owner", type_=String)
    repeated = and_(_ROW.state == State.SENDING, _ROW.claim == token)  # executed before, and the answer was lost
    claiming = update(ITEMS).where(_ROW.key == bindparam("its_key"), or_(_ROW.state == State.PLANNED, repeated))
    # No earlier change is the last one now: a statement that made it must not find it when it is executed again.
    digest = bindparam("its_digest", type_=String)
    values: dict[str, Any] = {"error": None, "digest": digest}
    # With a digest, its create may be repeated, with the claim as its idempotency key.
    values["idempotency_key"] = case((digest.is_not(None), token))
    values["first_sent_at"] = case((digest.is_not(None), now))
    return claiming.values(**values, **_claimed(token, owner, now)).returning(*_FOUND)


def _repeat() -> tuple[Insert, ReturningUpdate[None, None, None, int]]:
    token, now = bindparam("new_claim", type_=String), bindparam("new_time", type_=Float(53))
    owner, seconds = bindparam("new_owner", type_=String), bindparam("its_seconds", type_=Float(53))
    its_key = _ROW.key == bindparam("its_key")
    may_repeat = and_(
        _ROW.state == State.UNKNOWN,
        _ROW.owner == owner,  # it has taken the row
        # What it would send is what was sent first, and no end of a repetition is final.
        _ROW.idempotency_key == bindparam("its_idempotency_key", type_=String),
        _ROW.digest == bindparam("its_digest", type_=String),
        _ROW.refusal.is_(None),
        _ROW.first_sent_at > now - seconds,
        _ROW.first_sent_at < now + SKEW_SECONDS,
    )
    # A rate counts each POST: the time of the one before is kept apart, since it is overwritten. Executed again, this
    # finds nothing, since the row is `sending`.
    sent = select(_ROW.project_id, _ROW.counted_at).where(its_key, may_repeat, _ROW.counted_at.is_not(None))
    counting = insert(SENDS).from_select(["project_id", "counted_at"], sent)
    repeated = and_(_ROW.state == State.SENDING, _ROW.claim == token)
    claiming = update(ITEMS).where(its_key, or_(may_repeat, repeated))
    return counting, claiming.values(told_at=None, **_claimed(token, owner, now)).returning(*_FOUND)


def _claimed(token: Any, owner: Any, now: Any) -> dict[str, Any]:
    """Return the columns that each claim sets."""
    values: dict[str, Any] = {"state": State.SENDING, "claim": token, "owner": owner, "change": None}
    values |= dict.fromkeys(("sent_at", "counted_at", "updated_at", "changed_at"), now)
    return values | {"revision": _ROW.revision + 1, "is_noticed": func.coalesce(_ROW.follower == owner, false())}


_FOUND: Final = (null().label("wait"), null().label("of_project"), null().label("cause"), literal(1).label("claimed"))
_CLAIM: Final = _claim()
_REPEAT: Final = _repeat()
"""Make a planned or an unknown row `sending`, as `Backend.claim` and `repeat` say.

Built once: building one costs more than executing it.
"""


def faults(path: Path, error: BaseException) -> JournalError:
    """Return an error of SQLite or of the system as a `JournalError`."""
    code = getattr(error, "sqlite_errorcode", None)
    reason = _REASONS.get((code or 0) & 0xFF, "io")
    said = str(error)
    if isinstance(error, PermissionError):
        reason = "read_only"
    elif code is None and not isinstance(error, OSError | sqlite3.ProgrammingError):
        # What Python can't make of a cell; its words quote the cell.
        reason, said = "corrupt", type(error).__name__
    return JournalError(f"journal {path.name}: {_WORDS[reason]} ({said})", reason)


class FileBackend(Backend):
    """SQLite on a file."""

    claim = _CLAIM
    repeat = _REPEAT
    stores_nul = True
    notifies = False
    claims_apart = False
    can_be_cut = False
    patience = 0.0

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.engine = _engine(path, read_only=read_only)
        self._path = path

    @staticmethod
    def insert(table: Table) -> sqlite.Insert:
        """Return an insert into a table."""
        return sqlite.insert(table)

    def turn(self, name: str) -> Sequence[Executable]:  # noqa: ARG002 - one writer at a time, whatever the name
        """Return nothing: a file has one writer at a time."""
        return ()

    def fault(self, error: BaseException) -> JournalError:
        """Return an error of SQLite as a `JournalError`."""
        return faults(self._path, error)

    def is_gone(self, error: DBAPIError) -> bool:
        """Return whether the connection broke."""
        return error.connection_invalidated

    async def stamp(self, read: Read) -> Stamp:
        """Return the times and sizes of the file and its log: each commit writes one of them."""
        del read  # not by PRAGMA data_version: its values compare on one connection only, and reads have several
        return await asyncio.to_thread(_stamp_of, self._path)

    def cut(self) -> None:
        """Do nothing: threads can't be interrupted."""


def _engine(path: Path, *, read_only: bool) -> FileEngine:
    # To look, read-only: otherwise the last one to close would carry a crashed owner's log over into the file. To own,
    # "rw": SQLite's default would make an empty file where the journal was removed meanwhile.
    query = {"mode": "ro" if read_only else "rw", "uri": "true"}
    url = make_url("sqlite://").set(database=path.as_uri(), query=query)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _durable(connection: Any, record: object) -> None:
        del record
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        cursor.close()

    return FileEngine(engine)


def log_of(path: Path) -> Path:
    """Return where SQLite keeps the write-ahead log of a journal."""
    return path.with_name(f"{path.name}-wal")


def _stamp_of(path: Path) -> Stamp:
    found = []
    for file in (path, log_of(path)):
        with suppress(FileNotFoundError):
            status = file.stat()
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    newest = max((changed for _, _, changed in found), default=0) / 1e9
    return Stamp(tuple(found), is_settled=time.time() - newest > _SETTLED_SECONDS)


def check(path: Path, *, writing: bool) -> None:
    """Refuse a file that is no whole journal of this version, without changing it.

    Raises:
        JournalError: `corrupt` when it is broken or something else, `version` when it has another layout,
            `read_only` when `writing` is asked for and not allowed, or its directory can't be written.
    """
    check_kind(path, writing=writing)
    fault = None
    try:
        with closing(_look_into(path, immutable=False)) as connection:
            _check_layout(path, connection)
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
            # Immutable: SQLite makes no files beside a foreign database. It also ignores the log, which may hold half
            # of a journal: with a log, `check` alone decides.
            with closing(_look_into(path, immutable=True)) as connection:
                _check_layout(path, connection)
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
        raise PermissionError(errno.EACCES, "no user may write it")
    if not (writing or os.access(path.resolve().parent, os.W_OK)):
        raise JournalError(
            f"journal {path.name}: its directory can't be written, and SQLite reads it with files that it makes there;"
            f" copy {path.name}, and {path.name}-wal if there is one, to another directory, or make this one writable",
            "read_only",
        )
    return found.st_size


def _has_log(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return log_of(path).stat().st_size > 0
    return False


def _look_into(path: Path, *, immutable: bool) -> sqlite3.Connection:
    """Open a connection that can't write.

    Only SQLite may open the file: closing any other descriptor of it would drop SQLite's locks, which are POSIX's.
    """
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' * immutable}", uri=True)


def _check_layout(path: Path, connection: sqlite3.Connection) -> None:
    def number(pragma: str) -> int:
        return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    application = number("application_id")
    if application not in {APPLICATION, BEFORE_RELEASE}:
        raise JournalError(f"journal {path.name}: the file is no journal; it is left as it is", "corrupt")
    layout = number("user_version") if application == APPLICATION else 0
    # The fingerprint last: a newer layout may keep it elsewhere.
    if (words := other_layout(layout, _fingerprint(connection) if layout == LAYOUT else None)) is not None:
        raise JournalError(f"journal {path.name}: {words}; the file is left as it is", "version")


def _fingerprint(connection: sqlite3.Connection) -> str | None:
    """Return the fingerprint that a file has; `None` for a file without one."""
    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (JOURNAL.name,)).fetchall()
    if (JOURNAL.c.fingerprint.name,) not in columns:
        return None
    found = connection.execute(f"SELECT fingerprint FROM {JOURNAL.name}").fetchone()  # noqa: S608 - a name of ours
    return None if found is None else str(found[0])


def make(path: Path) -> None:
    """Make an empty journal, whole or not at all: it is made under another name first. Only its owner may call this.

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
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
            for statement in _table_statements():
                connection.execute(statement)
            connection.commit()
            connection.execute("PRAGMA journal_mode = WAL")
        new.replace(path)
        _sync_directory(path.parent)
    except (OSError, sqlite3.Error) as error:
        fault = faults(path, error)
    if fault is not None:
        raise fault


def _table_statements() -> Iterator[str]:
    """Return the statements that create a journal's tables and indexes, and its one row."""
    dialect = sqlite.dialect()
    for table in METADATA.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
    first = insert(JOURNAL).values(first_row())
    yield str(first.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def _sync_directory(directory: Path) -> None:
    """Make a new name in a directory durable, where directories can be opened."""
    if os.name == "posix":  # pragma: no branch - the tests of signals and terminals run nowhere else
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
