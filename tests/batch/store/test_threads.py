import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentjobs_async.batch import Journal
from agentjobs_async.batch._database.threads import FileConnection, FileEngine
from tests.batch.stage import items


async def test_one_piece_of_work(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits together to be written changes threads once, however many statements it has."""
    await file_journal.add(items(50))
    ran, run = [], FileEngine.run

    async def counted(*arguments: object) -> object:
        ran.append(arguments)
        return await run(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(FileEngine, "run", counted)
    claims = await asyncio.gather(*(file_journal.store.claim(f"k{number}", "me") for number in range(50)))
    assert all(isinstance(claim, str) for claim in claims)
    assert len(ran) <= 2  # the first claim may go alone


async def test_reading_while_a_write_waits(path: Path, file_journal: Journal) -> None:
    """No read waits for a write that another program's lock of the file holds up."""
    await file_journal.add(items(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        adding = asyncio.ensure_future(file_journal.add(items(2)))
        assert sum((await file_journal.counts()).values()) == 1
        assert not adding.done()
        busy.execute("ROLLBACK")
    assert await adding == []
    assert sum((await file_journal.counts()).values()) == 2


async def test_many_reads_at_once(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have few threads, of which a machine, and even more a container, has not many to give."""
    open_now: set[FileConnection] = set()
    most = 0
    opening, leave = FileConnection.open, FileConnection.leave

    async def counted(connection: FileConnection) -> FileConnection:
        nonlocal most
        open_now.add(connection)
        most = max(most, len(open_now))
        return await opening(connection)

    def left(connection: FileConnection) -> None:
        open_now.discard(connection)  # not there: the one that writes
        leave(connection)

    monkeypatch.setattr(FileConnection, "open", counted)
    monkeypatch.setattr(FileConnection, "leave", left)
    await asyncio.gather(*(file_journal.counts() for _ in range(200)))
    assert 0 < most <= 15
    assert not open_now


async def test_closing_without_threads_of_the_loop(path: Path) -> None:
    """A journal closes while the loop's own threads serve nobody: all of them are busy, or the loop is ending."""
    journal = Journal.open(path)
    await journal.__aenter__()
    await journal.add(items(1))
    await asyncio.get_running_loop().shutdown_default_executor()
    await journal.aclose()
    assert not path.with_name(f"{path.name}-wal").exists()
