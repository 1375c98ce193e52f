"""Moves of a journal, whatever ends them."""

import asyncio
import itertools
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import make_url

from agentjobs_async import InvalidInputError, JobRef, JournalError
from agentjobs_async.batch import BatchItem, FleetLimits, Journal, JournalRow, Rate, State, move_journal
from tests.batch.stage import FakeSession, items, rows_of, run, states
from tests.cli.stage import Child
from tests.postgresql import Server, execute

pytestmark = pytest.mark.slow

LIMITS = FleetLimits(max_active=7, create_rate=Rate(3, per=60, scope="all"), unknown_for=None)
SECRET = "hunter2-very-secret"


async def all_rows(location: str | Path) -> list[JournalRow]:
    async with Journal.open(location, read_only=True) as journal:
        return await journal.rows(all_tries=True)


async def begun(location: str | Path) -> list[JournalRow]:
    """Make a journal with a row in each state, of which one was being sent when its owner ended; return its rows."""
    async with Journal.open(location) as journal:
        session = FakeSession()
        session.ends["p1"] = "failed"
        await run(session, items(2), journal)
        await journal.add([*items(4), BatchItem("k4", "p 4", "docs", {"row": 4})])
        store = journal._store
        await store.claim("k2")
        await store.record_created("k2", JobRef("docs", "job_x"), "00-aa-bb-01")
        await store.claim("k3")
        await store.pause(3600, "docs")
        await journal.set_limits(LIMITS)
        await journal.retry("k1")
    return await all_rows(location)


@pytest.fixture
def url(laid_out: str) -> str:
    """The URL of a database with an empty journal, with a password that nobody may see."""
    return make_url(laid_out).set(password=SECRET).render_as_string(hide_password=False)


async def is_closed(location: str | Path, words: str) -> None:
    """Check that a journal cannot be opened, in words without a secret."""
    with pytest.raises(JournalError, match=words) as caught:
        await Journal.open(location).__aenter__()
    assert caught.value.reason == "moved"
    assert SECRET not in str(caught.value)


async def test_to_postgresql_and_back(path: Path, url: str, tmp_path: Path) -> None:
    """A file moves to a database and back with all that its rows have, and every old journal stays closed."""
    before = await begun(path)
    assert await move_journal(path, url) == 6
    after = await all_rows(url)
    ends = {"k0": "completed", "k1": "failed", "k2": "active", "k3": "unknown"}
    assert states(after) == {**ends, "k4": "planned", "k1#2": "planned"}
    assert [row for row in after if row.key != "k3"] == [row for row in before if row.key != "k3"]
    await is_closed(path, "it was moved to postgresql")
    async with Journal.open(url) as journal:
        assert (await journal._store.paused_for())["docs"] > 3000
        assert await journal.limits() == LIMITS
        await journal.add([BatchItem("new", "p")], project_id="docs")
    back = tmp_path / "back.db"
    assert await move_journal(url, back) == 7
    await is_closed(url, "it was moved to .*back.db")
    async with Journal.open(back) as journal:
        assert await journal.limits() == LIMITS
    assert [row.number for row in await all_rows(back)] == sorted({row.number for row in await all_rows(url)})
    async with Journal.open(path, read_only=True) as old:
        assert (old.moved_to or "").startswith("postgresql+psycopg://")
        assert SECRET not in (old.moved_to or "")
        assert (await old.counts())[State.COMPLETED] == 1


async def test_a_prompt_that_a_server_cannot_store(path: Path, url: str) -> None:
    """A journal with NUL in a prompt does not move to PostgreSQL, and is open as before."""
    async with Journal.open(path) as journal:
        await journal.add([*items(2), BatchItem("nul", "a\0b", "docs")])
    with pytest.raises(InvalidInputError, match="the prompt of 'nul' contains NUL"):
        await move_journal(path, url)
    async with Journal.open(path) as journal:
        assert len(await journal.rows()) == 3
    assert await all_rows(url) == []


async def test_the_move_is_told_again(path: Path, url: str) -> None:
    """The same move, when it has ended, changes nothing; to any other location the journal is closed."""
    await begun(path)
    await move_journal(path, url)
    async with Journal.open(url) as journal:
        await journal.abandon("k2")
    assert await move_journal(path, url) == 6
    assert states(await rows_of(url))["k2"] == "abandoned"
    with pytest.raises(JournalError, match="it was moved to") as caught:
        await move_journal(path, path.with_name("other.db"))
    assert caught.value.reason == "moved"


async def test_a_journal_in_use(path: Path, url: str) -> None:
    """A journal that an owner has open does not move, and stays as it is."""
    async with Journal.open(path) as owner:
        await owner.add(items(1))
        with pytest.raises(JournalError) as caught:
            await move_journal(path, url)
        assert caught.value.reason == "locked"
        await owner.add([BatchItem("more", "p")], project_id="docs")
    async with Journal.open(url) as owner:
        await owner.add(items(1))
        with pytest.raises(JournalError, match="1 workers or runs use it") as caught:
            await move_journal(url, path.with_name("other.db"))
        assert caught.value.reason == "locked"
        await owner.add([BatchItem("more", "p")], project_id="docs")
    assert len(await rows_of(path)) == len(await rows_of(url)) == 2


async def test_what_can_not_move(path: Path, tmp_path: Path) -> None:
    """A missing or an empty journal, the same one and one with rows are refused before anything is changed."""
    with pytest.raises(InvalidInputError, match="there is no journal"):
        await move_journal(path, tmp_path / "new.db")
    async with Journal.open(path):
        pass
    with pytest.raises(InvalidInputError, match="holds no rows"):
        await move_journal(path, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(InvalidInputError, match="to where it is"):
        await move_journal(path, path)
    other = tmp_path / "other.db"
    for location in (path, other):
        async with Journal.open(location) as journal:
            await journal.add(items(1))
    with pytest.raises(InvalidInputError, match="holds rows already"):
        await move_journal(path, other)
    async with Journal.open(path) as journal:
        assert len(await journal.rows()) == 1


async def test_a_target_of_another_service(path: Path, url: str) -> None:
    """Workers that wait in an empty journal get no items that another service was to do, such as those of a trial."""
    await begun(path)
    for location, service in ((path, "emulator"), (url, "https://api.example.com /a /b")):
        async with Journal.open(location) as journal:
            await journal._store.set_service(service, replaces=True)
    with pytest.raises(InvalidInputError, match="belongs to another service"):
        await move_journal(path, url)
    assert await rows_of(url) == []
    async with Journal.open(path) as journal:
        assert (await journal.counts())[State.PLANNED] == 2


async def test_a_target_that_fails(path: Path, url: str) -> None:
    """When the rows can't be written, the old journal is open as before, and a later move succeeds."""
    await begun(path)
    execute(url, "ALTER TABLE agentjobs_items ADD CONSTRAINT too_short CHECK (key <> 'k4')")
    with pytest.raises(JournalError, match="journal PostgreSQL/"):
        await move_journal(path, url)
    async with Journal.open(path) as journal:
        assert (await journal.counts())[State.PLANNED] == 2
    assert await rows_of(url) == []
    execute(url, "ALTER TABLE agentjobs_items DROP CONSTRAINT too_short")
    assert await move_journal(path, url) == 6


async def test_an_owner_that_was_overlooked(path: Path, url: str) -> None:
    """An owner of a database that was not seen among the living ones can't claim a row after the move."""
    async with Journal.open(url) as owner:
        await owner.add(items(1))
        execute(url, "DELETE FROM agentjobs_owners")
        await move_journal(url, path)
        with pytest.raises(JournalError) as caught:
            await owner._store.claim("k0")
        assert caught.value.reason == "read_only"
    assert states(await rows_of(url)) == {"k0": "planned"}


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


async def killed_before(call: int, source: Path | str, target: Path | str) -> bool:
    """Move in a process that is killed before one of its calls; return whether it got so far."""
    with Child(
        str(source), str(target), str(call), *KILLED_BEFORE, command=("-W", "error", "-c", KILLED_MOVE)
    ) as child:
        code = await asyncio.to_thread(child.ended)
    assert (code in {0, -signal.SIGKILL}, child.stderr) == (True, "")
    return code != 0


async def sends(location: str | Path) -> bool:
    """Return whether a journal can be opened to send its rows."""
    with suppress(JournalError):
        async with Journal.open(location) as journal:
            return (await journal.counts())[State.PLANNED] > 0
    return False


@pytest.mark.parametrize("is_back", [False, True])
async def test_kills(path: Path, postgresql: Server, laid_out: str, *, is_back: bool) -> None:
    """After a kill before any commit, never both journals can send, and the same move ends with all rows."""
    rows = await begun(laid_out if is_back else path)
    template = laid_out.rpartition("/")[2].partition("?")[0]
    found = []
    for call in itertools.count(1):
        file = path.with_name(f"{call}.db")
        with postgresql.database(template) as database:
            if not is_back:
                shutil.copyfile(path, file)
            source, target = (database, file) if is_back else (file, database)
            is_killed = await killed_before(call, source, target)
            found.append((await sends(source), await sends(target)))
            assert await move_journal(source, target) == len(rows)
            moved = await all_rows(target)
            assert [row for row in moved if row.key != "k3"] == [row for row in rows if row.key != "k3"], call
            assert (states(moved)["k3"], await sends(source), await sends(target)) == ("unknown", False, True), call
        if not is_killed:
            break
    assert list(dict.fromkeys(found)) == [(True, False), (False, False), (False, True)]
