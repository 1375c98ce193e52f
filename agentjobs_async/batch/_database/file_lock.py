"""The lock of a journal's file: one process at a time owns it."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import filelock

from agentjobs_async import JournalError
from agentjobs_async.batch._database.sqlite import SHARED_LOCATION, faults, log_of

_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
"""The errors of a file system that can't lock files."""
_ACQUIRE_SECONDS: Final = 0.2  # for which a new owner tries: `is_owned` of another process holds the lock for a moment
_RETRY_SECONDS: Final = 0.01  # between two tries
_locked: Final[dict[Path, int]] = {}  # the files that were locked here, each with the process: a fork copies this


class FileLock:
    """The right to write one journal, held until `release` or the end of the process, however it ends.

    It is a lock (`flock`; on Windows `LockFileEx`) of an empty file beside the journal. SQLite's own locks are POSIX
    record locks, which a process loses as soon as it closes any descriptor of the file: a copy of the directory would
    give the journal away. The lock of the journal itself would keep readers out. The empty file stays: removing it
    could remove one that the next owner has just locked.

    Raises:
        JournalError: Another owner has it (`locked`), the directory can't be written, or files there can't be locked.
    """

    def __init__(self, path: Path) -> None:
        beside = _beside(path)
        self._lock = _lock_of(beside)
        self._files: dict[Path, tuple[int, int] | None] = {}
        self._log: Path | None = None
        fault = None
        try:
            self._lock.acquire(timeout=_ACQUIRE_SECONDS, poll_interval=_RETRY_SECONDS)
            self._files[beside] = _identity(beside)
            _locked[beside] = os.getpid()
        except filelock.Timeout:
            fault = _owned(path, beside)
        except OSError as error:
            fault = _without_locks(path) if error.errno in _NO_LOCKS else faults(path, error)
        if fault is not None:
            raise fault

    def watch(self, path: Path) -> None:
        """Remember which file the journal is, for `check`."""
        self._files[path] = _identity(path)
        self._log = log_of(path)

    def check(self) -> None:
        """Check that the journal, its log and its lock are still the files that they were.

        The log goes when this process has read the journal's files itself, as a copy of the directory does, and
        another program uses the file then: SQLite has lost its locks, and what is written goes to a log without a name.

        Raises:
            JournalError: They are not, and another owner may use the journal by now (`locked`).
        """
        self._watch_log()
        for path, before in self._files.items():
            if _identity(path) != before:
                words = "was moved, removed or replaced; nothing more is sent, since another owner may use it now"
                raise JournalError(f"journal: {path.name} {words}", "locked")

    def is_of(self, path: Path) -> bool:
        """Return whether the journal and its log are still where they were, so that it can be opened again."""
        self._watch_log()
        known = {path, log_of(path)} & self._files.keys()
        return path in known and all(_identity(file) == self._files[file] for file in known)

    def _watch_log(self) -> None:
        """Remember the log as soon as SQLite has made it, with the first statement."""
        if self._log is not None and (found := _identity(self._log)) is not None:
            self._files[self._log] = found
            self._log = None

    def release(self) -> None:
        """Release the journal to the next owner."""
        _locked.pop(Path(self._lock.lock_file), None)
        self._lock.release()


def is_owned(path: Path) -> bool:
    """Return whether a process owns the journal at `path`; true also where that can't be found out."""
    beside = _beside(path)
    if not beside.exists():
        return False  # each owner makes it
    try:
        with _lock_of(beside).acquire(timeout=0):
            return False
    except (filelock.Timeout, OSError):
        return True


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _lock_of(beside: Path) -> filelock.BaseFileLock:
    # Not bound to a thread: another thread acquires, the loop releases. A soft lock would survive a killed owner.
    return filelock.FileLock(beside, mode=0o600, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)


def _owned(path: Path, beside: Path) -> JournalError:
    words = (
        "another process owns it, such as a run: wait until that has ended, read it with read_only=True, or use"
        f" {SHARED_LOCATION} where several processes work on one journal"
    )
    if _locked.get(beside) == os.getpid():
        words = "this process has it open already: use that Journal, close it first, or read it with read_only=True"
    return JournalError(f"journal {path.name}: {words} ({beside.name} is locked)", "locked")


def _without_locks(path: Path) -> JournalError:
    words = "its file system can't lock files, so two owners could send the same; put it on another one"
    return JournalError(f"journal {path.name}: {words}", "io")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and number of a file; `None` when there is none."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
