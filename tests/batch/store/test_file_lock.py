import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import pytest

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal
from agentjobs_async.batch._database import file_lock
from agentjobs_async.batch._database.file_lock import FileLock, is_owned
from agentjobs_async.batch._monitoring import is_at_work, owners_of
from agentjobs_async.cli._output.outcomes import described

LOCKED = (
    "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); sys.stdin.read()"
)


def test_owned_by_another_process(path: Path) -> None:
    """The lock of another process counts, until that is killed; to look at what nobody ever owned makes no file."""
    assert not is_owned(path)
    assert not list(path.parent.iterdir())
    command = [sys.executable, "-c", LOCKED, f"{path}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # noqa: S603 - our own script
        assert other.stdout is not None
        other.stdout.readline()
        assert is_owned(path)
        with pytest.raises(JournalError, match="another process owns it") as caught:
            FileLock(path)
        assert caught.value.reason == "locked"
        assert described(caught.value) == (
            "journal run.db: another process owns it, such as a run: wait until that has ended, look at it with"
            " agentjobs status FILE, or use PostgreSQL (postgresql+psycopg://host/database) where several"
            " processes work on one journal (run.db.lock is locked)"
        )
        other.kill()
        other.wait()
        assert not is_owned(path)


async def test_owned_by_this_process(path: Path) -> None:
    """A file has one owner without a name; once that one has left, nobody is at work."""
    async with Journal.open(path):
        async with Journal.open(path, read_only=True) as seen:
            assert await owners_of(seen) is None
    async with Journal.open(path, read_only=True) as seen:
        assert await owners_of(seen) == []
    assert (is_at_work(None), is_at_work([])) == (True, False)


def test_look_beside_a_new_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the lock keeps no new owner out: that one tries until the look is over."""
    monkeypatch.setattr(file_lock, "_ACQUIRE_SECONDS", 60.0)
    looking = filelock.FileLock(f"{path}.lock", thread_local=False, preserve_lock_file=True)
    looking.acquire()
    tries = 0
    acquire = filelock.FileLock._acquire

    def released_before_the_third_try(lock: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            looking.release()
        acquire(lock)

    monkeypatch.setattr(filelock.FileLock, "_acquire", released_before_the_third_try)
    FileLock(path).release()
    assert tries == 3


def test_lock_that_cannot_be_opened(path: Path) -> None:
    """Where nobody can tell, a process may own the journal."""
    path.with_name("run.db.lock").mkdir()
    assert is_owned(path)
