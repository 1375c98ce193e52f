"""Moves of a journal from a file to PostgreSQL, whatever ends them."""

import asyncio
import itertools
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, String, make_url, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentjobs_async import AgentJobsError, InvalidInputError, JobRef, JournalError
from agentjobs_async.batch import BatchItem, Journal, JournalRow, Limits, Rate, State, move_journal
from agentjobs_async.batch._database.schema import ITEMS, METADATA
from agentjobs_async.batch._store.moving import undo_move
from agentjobs_async.batch._store.pauses import pause, paused_for
from tests.batch.stage import FakeSession, items, rows_of, run, states
from tests.batch.store.owned import WHY, claimed, created, lost, records_of
from tests.batch.store.test_heartbeat import is_waiting_for_a_lock
from tests.cli.stage import Child
from tests.postgresql import Server, execute
from tests.until import until

pytestmark = pytest.mark.slow

LIMITS = Limits(max_active=7, create_rate=Rate(3, per=60, scope="all"), unknown_for=None)
SECRET = "hunter2-very-secret"
ENDS = {"k0": "completed", "k1": "planned", "k2": "active", "k3": "unknown", "k4": "planned", "k5": "planned"}


async def all_rows(location: str | Path) -> list[JournalRow]:
    async with Journal.open(location, read_only=True) as journal:
        return await journal.rows(all_tries=True)


async def begun(path: Path) -> list[JournalRow]:
    """Make a journal with something in each table, of which one row was being sent at its end; return its rows."""
    async with Journal.open(path) as journal:
        session = FakeSession()
        session.ends["p1"] = "failed"
        await run(session, items(2), journal)
        await journal.add(
            [*items(4), BatchItem("k4", "p 4", "docs", {"row": 4}, {"n": 4}), BatchItem("k5", "p 5", "docs")]
        )
        await created(journal, "k2", JobRef("docs", "job_x"))
        await claimed(journal, "k3")
        claim = await lost(journal, "k5")
        await journal.resolve("k5", send_again=True)
        await records_of(journal).created("k5", claim, JobRef("docs", "job_late"), None)
        await pause(journal.store, 3600, "docs")
        await journal.set_limits(LIMITS)
        await journal.retry("k1")
    return await all_rows(path)


@pytest.fixture
def url(laid_out: str) -> str:
    """The URL of a database with an empty journal, with a password that nobody may see."""
    return make_url(laid_out).set(password=SECRET).render_as_string(hide_password=False)


def without_password(url: str) -> str:
    address = make_url(url)
    return address.create(
        address.drivername, address.username, None, address.host, address.port, address.database, address.query
    ).render_as_string()


async def contents(location: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Return all that a journal holds, but for who owns what: by table."""
    async with Journal.open(location, read_only=True) as journal:
        found = {table.name: await journal.store.read(select(table)) for table in METADATA.sorted_tables}
    return {name: sorted((dict(row._mapping) for row in rows), key=str) for name, rows in found.items()}


def mark_of(path: Path) -> str | None:
    """Return where a file says that it was moved to."""
    with closing(sqlite3.connect(path)) as connection:
        ((found,),) = connection.execute("SELECT moved_to FROM agentjobs_journal").fetchall()
        return None if found is None else str(found)


async def is_closed(path: Path) -> None:
    """Check that a file can't be opened, in words without a secret."""
    with pytest.raises(JournalError, match="it was moved to postgresql") as caught:
        await Journal.open(path).__aenter__()
    assert caught.value.reason == "moved"
    assert SECRET not in str(caught.value)


def is_there(path: Path) -> bool:
    return path.exists()


async def is_open(path: Path) -> None:
    """Check that a file is open to be written, and holds what `begun` has made."""
    async with Journal.open(path) as journal:
        assert journal.moved_to is None
        assert states(await journal.rows()) == ENDS


async def test_to_postgresql(path: Path, url: str) -> None:
    """A file moves to a database with all that its tables have, and stays closed."""
    rows = await begun(path)
    async with Journal.open(path):
        """What was being sent is unknown from here on, as it would be in a move."""
    before = await contents(path)
    assert all(before.values())
    assert await move_journal(path, url) == 6
    moved = await all_rows(url)
    assert states(moved) == ENDS
    assert [row for row in moved if row.key != "k3"] == [row for row in rows if row.key != "k3"]
    after = await contents(url)
    for row in before[ITEMS.name]:
        row["revision"] += row["state"] in {"planned", "active"}  # so that workers find it
    assert after == before
    await is_closed(path)
    async with Journal.open(path, read_only=True) as old:
        assert old.moved_to == without_password(url)
        assert (await old.counts())[State.COMPLETED] == 1
    async with Journal.open(url) as journal:
        assert (await paused_for(journal.store))["docs"] > 3000
        assert await journal.limits() == LIMITS
        await journal.set_limits(Limits())
        await journal.add([BatchItem("new", "p")], project_id="web")  # the other one is paused
        await records_of(journal).rejected("new", await claimed(journal, "new"), WHY)
        await journal.retry("new")
    assert [row.number for row in await rows_of(url)] == [1, 2, 3, 4, 5, 6, 7]


async def test_what_was_being_sent(path: Path, url: str) -> None:
    """What was being sent when the last owner ended is unknown after the move, and nobody owns what is active."""
    await begun(path)
    await move_journal(path, url)
    found = {row["key"]: row for row in (await contents(url))[ITEMS.name]}
    assert (found["k3"]["state"], found["k3"]["owner"]) == ("unknown", None)
    assert (found["k2"]["state"], found["k2"]["owner"]) == ("active", None)


async def test_the_move_is_told_again(path: Path, url: str) -> None:
    """The same move, when it has ended, changes nothing, with or without the password; another one is refused."""
    await begun(path)
    await move_journal(path, url)
    async with Journal.open(url) as journal:
        await journal.abandon("k2")
    assert await move_journal(path, without_password(url)) == 6
    assert states(await rows_of(url))["k2"] == "abandoned"


async def test_another_target(path: Path, url: str, postgresql: Server) -> None:
    """A move that has begun or ended goes to no other database; without its password it is the same one."""
    await begun(path)
    with unfinished(path), pytest.raises(JournalError):
        await move_journal(path, url)
    with postgresql.database() as other:
        for _ in range(2):
            with pytest.raises(InvalidInputError, match=r"its move to postgresql.* has begun") as caught:
                await move_journal(path, other)
            assert SECRET not in str(caught.value)
            await move_journal(path, without_password(url))
        assert await rows_of(other) == []


async def test_a_journal_in_use(path: Path, url: str) -> None:
    """A file that an owner has open does not move, and stays as it is."""
    async with Journal.open(path) as owner:
        await owner.add(items(1))
        for moving in (move_journal(path, url), undo_move(path)):
            with pytest.raises(JournalError) as caught:
                await moving
            assert caught.value.reason == "locked"
        await owner.add([BatchItem("more", "p")], project_id="docs")
    assert len(await rows_of(path)) == 2
    assert await rows_of(url) == []


async def test_what_can_not_move(path: Path, url: str, tmp_path: Path) -> None:
    """A missing or an empty file, any other pair of places, and a target with rows are refused before any change."""
    with pytest.raises(InvalidInputError, match="there is no journal"):
        await move_journal(path, url)
    assert not is_there(path)
    async with Journal.open(path):
        pass
    with pytest.raises(InvalidInputError, match="holds no rows"):
        await move_journal(path, url)
    for source, target in ((path, path), (path, tmp_path / "new.db"), (url, path), (url, url)):
        with pytest.raises(InvalidInputError, match="from a file to PostgreSQL"):
            await move_journal(source, target)
    assert not is_there(tmp_path / "new.db")
    for location in (path, url):
        async with Journal.open(location) as journal:
            await journal.add(items(1))
    with pytest.raises(InvalidInputError, match="holds rows already") as caught:
        await move_journal(path, url)
    assert SECRET not in str(caught.value)
    async with Journal.open(path) as journal:
        assert len(await journal.rows()) == 1


async def test_a_target_of_another_service(path: Path, url: str) -> None:
    """Workers that wait in an empty journal get no items that another service was to do, such as those of a trial."""
    await begun(path)
    for location, service in ((path, "emulator"), (url, "https://api.example.com /a /b")):
        async with Journal.open(location) as journal:
            await journal.store.set_service(service, replaces=True)
    with pytest.raises(InvalidInputError, match="belongs to another service"):
        await move_journal(path, url)
    assert await rows_of(url) == []
    await is_open(path)


async def test_a_target_that_fails(path: Path, url: str) -> None:
    """When the rows can't be written, the file is open as before, and a later move succeeds."""
    await begun(path)
    execute(url, "ALTER TABLE agentjobs_items ADD CONSTRAINT too_short CHECK (key <> 'k4')")
    with pytest.raises(JournalError, match="journal PostgreSQL/"):
        await move_journal(path, url)
    assert await rows_of(url) == []
    await is_open(path)
    execute(url, "ALTER TABLE agentjobs_items DROP CONSTRAINT too_short")
    assert await move_journal(path, url) == 6


def edited(path: Path, change: str) -> Path:
    """Return a copy of a file in which another program has changed something, past all checks."""
    copy = path.with_name("edited.db")
    shutil.copyfile(path, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = on")
        connection.execute(change)
    return copy


WRONG_CELLS = [
    ("agentjobs_items", "polls", "3000000000"),
    ("agentjobs_items", "polls", "'many'"),
    ("agentjobs_items", "polls", "1.5"),
    ("agentjobs_items", "is_noticed", "'perhaps'"),
    ("agentjobs_items", "is_noticed", "7"),
    ("agentjobs_items", "is_notified", "'perhaps'"),
    ("agentjobs_items", "planned_at", "9e999"),
    ("agentjobs_items", "seen_at", "-9e999"),
    ("agentjobs_items", "seen_at", "'yesterday'"),
    ("agentjobs_items", "prompt", "x'00ff'"),
    ("agentjobs_items", "prompt", "CAST(x'61eda080' AS TEXT)"),
    ("agentjobs_items", "key", "CAST(x'ff' || number AS TEXT)"),
    ("agentjobs_tries", "polls", "-3000000000"),
    ("agentjobs_tries", "item", "'first'"),
    ("agentjobs_tries", "updated_at", "9e999"),
    ("agentjobs_tries", "error", "CAST(x'ff' AS TEXT)"),
    ("agentjobs_sends", "counted_at", "9e999"),
    ("agentjobs_pauses", "until", "'later'"),
    ("agentjobs_journal", "max_active", "'many'"),
    ("agentjobs_journal", "max_active", "5000000000"),
    ("agentjobs_journal", "unknown_for", "9e999"),
]
"""What a file can hold once another program has written to it, and a journal on PostgreSQL can't, or is not to."""


def with_nul(column: Column[Any]) -> str:
    table = column.table.name
    return f"UPDATE {table} SET {column.name} = coalesce({column.name}, '') || char(0) || 'x'"  # noqa: S608 - names of ours


@pytest.mark.parametrize("part", range(4))
async def test_what_a_server_can_not_store(path: Path, url: str, part: int) -> None:
    """Whatever PostgreSQL can't store, in whichever column, is refused before anything is written.

    A text with NUL can be a user's own; nothing else of this can.
    """
    await begun(path)
    texts = [column for table in METADATA.sorted_tables for column in table.columns if isinstance(column.type, String)]
    wrong = (f"UPDATE {table} SET {name} = {cell}" for table, name, cell in WRONG_CELLS)  # noqa: S608 - our own words
    changes = [*map(with_nul, texts), *wrong]
    for change in changes[part::4]:
        file = edited(path, change)
        mark = mark_of(file)
        with pytest.raises(AgentJobsError) as caught:
            await move_journal(file, url)
        error = caught.value
        assert isinstance(error, InvalidInputError) or getattr(error, "reason", "") in {"corrupt", "version"}, change
        assert mark_of(file) == mark, change
    assert await rows_of(url) == []


async def test_a_prompt_that_a_server_cannot_store(path: Path, url: str) -> None:
    """A journal with NUL in a prompt does not move to PostgreSQL, and is open as before; the error names its row."""
    async with Journal.open(path) as journal:
        await journal.add([*items(2), BatchItem("nul", "a\0b", "docs")])
    with pytest.raises(InvalidInputError, match=r"agentjobs_items.prompt of 'nul' contains NUL"):
        await move_journal(path, url)
    async with Journal.open(path) as journal:
        assert len(await journal.rows()) == 3
    assert await rows_of(url) == []


@contextmanager
def unfinished(path: Path) -> Iterator[None]:
    """Let moves of a file end as the server is to commit, without an answer."""
    commit = AsyncConnection.commit

    async def broken(connection: AsyncConnection) -> None:
        if mark_of(path) is not None:
            raise OperationalError("", {}, ConnectionError("it was cut"))
        await commit(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncConnection, "commit", broken)
        yield


async def test_undo(path: Path, url: str) -> None:
    """A move that has begun and not ended is taken back: the file is open again, and moves later."""
    await begun(path)
    with unfinished(path), pytest.raises(JournalError, match="it was cut"):
        await move_journal(path, url)
    await is_closed(path)
    await undo_move(path)
    await is_open(path)
    assert await rows_of(url) == []
    assert await move_journal(path, url) == 6


async def test_undo_of_a_finished_move(path: Path, url: str) -> None:
    """A move that has ended is not taken back: the rows belong to the new journal."""
    await begun(path)
    await move_journal(path, url)
    with pytest.raises(InvalidInputError, match="which has all of its rows") as caught:
        await undo_move(path)
    assert SECRET not in str(caught.value)
    await is_closed(path)
    assert states(await rows_of(url)) == ENDS


async def test_undo_of_what_was_not_moved(path: Path, url: str) -> None:
    """What was not moved, is no file, or is not there has nothing to be taken back."""
    with pytest.raises(InvalidInputError, match="there is no journal"):
        await undo_move(path)
    with pytest.raises(InvalidInputError, match="only a file is moved"):
        await undo_move(url)
    await begun(path)
    with pytest.raises(InvalidInputError, match="was not moved"):
        await undo_move(path)
    await is_open(path)


async def test_undo_without_the_target(path: Path, postgresql: Server) -> None:
    """Without an answer of the new database nothing is taken back; one that holds no journal stays without."""
    await begun(path)
    with postgresql.database() as url:
        with unfinished(path), pytest.raises(JournalError):
            await move_journal(path, url)
        name = make_url(url).database
        elsewhere = make_url(url).set(database="postgres")
        execute(elsewhere, f"ALTER DATABASE {name} RENAME TO {name}_away")
        with pytest.raises(JournalError) as caught:
            await undo_move(path)
        assert caught.value.reason == "io"
        await is_closed(path)
        execute(elsewhere, f"CREATE DATABASE {name}")
        await undo_move(path)
        assert execute(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
        execute(elsewhere, f"DROP DATABASE {name}_away WITH (FORCE)")
    await is_open(path)


async def test_undo_while_the_move_is_committed(path: Path, url: str) -> None:
    """A commit that a killed process has asked for goes on: the move is not taken back before that has ended."""
    await begun(path)
    with unfinished(path), pytest.raises(JournalError):
        await move_journal(path, url)
    async with Journal.open(path, read_only=True) as journal:
        identity = (await journal.store.meta()).identity
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(address) as connection:
        await connection.execute("UPDATE agentjobs_journal SET identity = %s", [identity])
        undoing = asyncio.ensure_future(undo_move(path))
        await until(lambda: undoing.done() or is_waiting_for_a_lock(url))
        await connection.commit()
        with pytest.raises(InvalidInputError, match="which has all of its rows"):
            await undoing
    await is_closed(path)


KILLED_MOVE = """
import asyncio, os, signal, sys
from sqlalchemy import Connection
from agentjobs_async.batch import move_journal
from agentjobs_async.batch._store import moving

source, target, last, *names = sys.argv[1:]
moving._PAGE_ROWS, calls = 2, []

def counted(method):
    def call(*rest, **settings):
        calls.append(1)
        if len(calls) == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*rest, **settings)
    return call

for name in names:
    setattr(Connection, name, counted(getattr(Connection, name)))
asyncio.run(move_journal(source, target))
"""
KILLED_BEFORE = ["_commit_impl", *(["execute", "exec_driver_sql"] if "AGENTJOBS_MOVES" in os.environ else [])]
"""Between two commits nothing lasts: `AGENTJOBS_MOVES=1` kills before each other call of a database as well."""


async def killed_before(call: int, source: Path, target: str) -> bool:
    """Move in a process that is killed before one of its calls; return whether it got so far."""
    with Child(str(source), target, str(call), *KILLED_BEFORE, command=("-W", "error", "-c", KILLED_MOVE)) as child:
        code = await asyncio.to_thread(child.ended)
    assert (code in {0, -signal.SIGKILL}, child.stderr) == (True, "")
    return code != 0


async def sends(location: str | Path) -> bool:
    """Return whether a journal can be opened to send its rows."""
    with suppress(JournalError):
        async with Journal.open(location) as journal:
            return (await journal.counts())[State.PLANNED] > 0
    return False


async def is_undone(path: Path) -> bool:
    """Take a move back, if that can be done."""
    with suppress(InvalidInputError):
        await undo_move(path)
        return True
    return False


@pytest.mark.parametrize("undoes", [False, True])
async def test_kills(path: Path, postgresql: Server, laid_out: str, *, undoes: bool) -> None:
    """After a kill before any commit, never both journals can send; it can be undone, and the same move ends it."""
    rows = await begun(path)
    template = laid_out.rpartition("/")[2].partition("?")[0]
    found = []
    for call in itertools.count(1):
        file = path.with_name(f"{call}.db")
        with postgresql.database(template) as database:
            shutil.copyfile(path, file)
            is_killed = await killed_before(call, file, database)
            found.append((await sends(file), await sends(database)))
            if undoes:
                assert await is_undone(file) == (found[-1] == (False, False))
                assert (await sends(file), await sends(database)) == (found[-1] != (False, True), found[-1][1])
            assert await move_journal(file, database) == 6
            moved = await all_rows(database)
            assert [row for row in moved if row.key != "k3"] == [row for row in rows if row.key != "k3"], call
            assert (states(moved)["k3"], await sends(file), await sends(database)) == ("unknown", False, True), call
        if not is_killed:
            break
    assert list(dict.fromkeys(found)) == [(True, False), (False, False), (False, True)]
