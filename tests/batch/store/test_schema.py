"""A journal of the earlier layout, as the version before wrote it, and what becomes of it."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from agentjobs_async import JournalError
from agentjobs_async.batch import BatchItem, FleetLimits, Journal, State
from agentjobs_async.batch._store import opened, postgresql, shared, sqlite_file
from agentjobs_async.batch._store.format import APPLICATION, EARLIER, VERSION
from agentjobs_async.batch._store.schema import ADDED
from agentjobs_async.batch._store.sqlite import upgrade_statements
from tests.batch.stage import FakeSession, items, rows_of, run, states
from tests.postgresql import execute

EARLIER_TABLES = """
CREATE TABLE agentjobs_entries (
    number INTEGER NOT NULL,
    "key" VARCHAR NOT NULL,
    prompt TEXT NOT NULL,
    project_id VARCHAR,
    state VARCHAR NOT NULL,
    job_id VARCHAR,
    pr_link TEXT,
    error TEXT,
    run VARCHAR,
    owner VARCHAR,
    claim VARCHAR,
    sent_at FLOAT,
    updated_at FLOAT NOT NULL,
    PRIMARY KEY (number),
    CONSTRAINT known_state CHECK (state IN
        ('planned', 'sending', 'created', 'completed', 'failed', 'archived', 'rejected', 'unknown')),
    CONSTRAINT id_when_created CHECK (job_id IS NOT NULL OR state NOT IN ('created', 'completed', 'archived')),
    CONSTRAINT no_id_before CHECK (job_id IS NULL OR state NOT IN ('planned', 'sending', 'rejected', 'unknown')),
    UNIQUE ("key")
);
CREATE INDEX agentjobs_entries_by_sending ON agentjobs_entries (sent_at);
CREATE INDEX agentjobs_entries_by_state ON agentjobs_entries (state, number);
CREATE TABLE agentjobs_pauses (
    project VARCHAR NOT NULL, set_at FLOAT NOT NULL, until FLOAT NOT NULL, PRIMARY KEY (project)
);
CREATE TABLE agentjobs_sends (number INTEGER NOT NULL, project_id VARCHAR, sent_at FLOAT, PRIMARY KEY (number));
CREATE INDEX agentjobs_sends_by_sending ON agentjobs_sends (sent_at);
"""
EARLIER_ROWS = """
INSERT INTO agentjobs_entries (number, key, prompt, project_id, state, job_id, claim, sent_at, updated_at) VALUES
    (1, 'k0', 'p0', NULL, 'planned', NULL, NULL, NULL, 1000.0),
    (2, 'k1', 'p1', 'docs', 'created', 'job_1', 'c1', 1001.5, 1001.5),
    (3, 'k2', 'p2', 'docs', 'completed', 'job_2', 'c2', 1002.5, 1003.5),
    (4, 'k3', 'p3', NULL, 'unknown', NULL, 'c3', 1004.5, 1004.5)
"""
EARLIER_STATES = {"k0": "planned", "k1": "created", "k2": "completed", "k3": "unknown"}


@pytest.fixture
def earlier(path: Path) -> Path:
    """A file of the earlier layout."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {EARLIER};")
        connection.executescript(f"{EARLIER_TABLES} {EARLIER_ROWS}; PRAGMA journal_mode = WAL;")
    return path


@pytest.fixture
def earlier_database(laid_out: str) -> str:
    """A database of the earlier layout: made by this version, less what this version has added."""
    for name in ADDED:
        execute(laid_out, f"ALTER TABLE agentjobs_entries DROP COLUMN {name}")
    for name in ("create_spread", "timeout", "max_sending", "polls_per_second"):
        execute(laid_out, f"ALTER TABLE agentjobs_fleet DROP COLUMN {name}")
    function = shared.functions().replace("claimed_at = moment, ", "")
    assert function != shared.functions()
    execute(laid_out, function)
    execute(laid_out, f"UPDATE agentjobs_fleet SET version = {EARLIER}")  # noqa: S608 - a number
    execute(laid_out, EARLIER_ROWS)
    execute(laid_out, "SELECT setval(pg_get_serial_sequence('agentjobs_entries', 'number'), 4)")
    return laid_out


@pytest.fixture(params=["earlier", pytest.param("earlier_database", marks=pytest.mark.slow)])
def earlier_place(request: pytest.FixtureRequest) -> str:
    """A file and a database of the earlier layout."""
    return str(request.getfixturevalue(request.param))


async def goes_on(place: str) -> None:
    """Check that a journal has what it had, and that a run goes on with it."""
    async with Journal.open(place) as journal:
        rows = await journal.rows()
        assert states(rows) == EARLIER_STATES
        assert [(row.planned_at, row.sent_at, row.polls, row.tries, row.context) for row in rows] == [
            (None, None, 0, 1, None)
        ] * 4
        await journal.add([BatchItem("k4", "p4", context={"a": 1})])
        session = FakeSession()
        await run(session, [], journal)
        assert session.agents == {"p0": 1, "p4": 1}
        k0, k1, k2, _, k4 = await journal.rows()
        assert {row.state for row in (k0, k1, k2, k4)} == {State.COMPLETED}
        assert None not in {k0.sent_at, k0.created_at, k0.ended_at, k1.ended_at, k4.planned_at}
        assert (k1.sent_at, k2.ended_at, k4.context) == (None, None, {"a": 1})
        assert await journal.limits() == FleetLimits()
        await journal.set_limits(FleetLimits(max_active=3, max_sending=2))
        assert await journal.limits() == FleetLimits(max_active=3, max_sending=2)


async def test_an_earlier_layout(earlier_place: str) -> None:
    """A journal of the earlier layout has all of its rows after it was opened, and a run goes on with them."""
    await goes_on(earlier_place)
    async with Journal.open(earlier_place, read_only=True) as journal:
        assert (await journal.counts())[State.COMPLETED] == 4


RETRIED_ROWS = """
INSERT INTO agentjobs_entries (number, key, prompt, state, updated_at) VALUES
    (5, 'k4', 'p4', 'rejected', 1005.0), (6, 'k5#9', 'p5', 'rejected', 1005.0), (7, 'k6', 'p6', 'rejected', 1005.0),
    (8, 'k4#2', 'p4', 'rejected', 1006.0), (9, 'k5#10', 'p5', 'planned', 1006.0), (10, 'k6#2', 'p7', 'planned', 1006.0),
    (11, 'k4#3', 'p4', 'planned', 1007.0)
"""
ITEMS = [("k6", "k6", 1), ("k5#9", "k5#10", 2), ("k6#2", "k6#2", 1), ("k4", "k4#3", 3)]


def add_rows(place: str) -> None:
    """Add the tries of three items, and another item, to a journal of the earlier layout."""
    if "://" in place:
        execute(place, RETRIED_ROWS)
        return
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(RETRIED_ROWS)


async def test_items_of_an_earlier_layout(earlier_place: str) -> None:
    """A row that the earlier version planned again is no item any more; its newest try is, as the last of so many."""
    add_rows(earlier_place)
    async with Journal.open(earlier_place) as journal:
        rows = (await journal.rows())[4:]
        assert [(row.item_key, row.key, row.tries) for row in rows] == ITEMS
        assert sum((await journal.counts()).values()) == 8
        assert len(await journal.rows(all_tries=True)) == 11


async def test_only_looking_at_a_file(earlier: Path) -> None:
    """A file of the earlier layout can be looked at, by items and without the times, and stays as it is."""
    add_rows(str(earlier))
    before = earlier.read_bytes()  # noqa: ASYNC240 - a test's own file
    async with Journal.open(earlier, read_only=True) as journal:
        rows = await journal.rows()
        assert states(rows[:4]) == EARLIER_STATES
        assert [row.key for row in rows[4:]] == [key for _, key, _ in ITEMS]
        assert {row.sent_at for row in rows} == {None}
        assert await journal.limits() == FleetLimits()
        assert (await journal.counts())[State.PLANNED] == 4
        assert await journal.check([BatchItem("k0", "another")]) != []
    assert earlier.read_bytes() == before  # noqa: ASYNC240 - a test's own file


async def test_looking_on_while_it_is_upgraded(earlier: Path) -> None:
    """Who looks at a file while its owner upgrades it can go on looking."""
    async with Journal.open(earlier, read_only=True) as looking:
        assert states(await looking.rows()) == EARLIER_STATES
        async with Journal.open(earlier) as owner:
            await owner.add(items(5))
            assert states(await looking.rows()) == {**EARLIER_STATES, "k4": "planned"}


async def test_only_looking_at_a_database(earlier_database: str) -> None:
    """Who only looks at a database of the earlier layout is told what upgrades it, and changes nothing."""
    with pytest.raises(JournalError, match="a worker of this version upgrades it") as caught:
        await rows_of(earlier_database)
    assert caught.value.reason == "version"
    assert execute(earlier_database, "SELECT version FROM agentjobs_fleet") == [(EARLIER,)]


async def test_an_owner_of_the_earlier_version(earlier_database: str) -> None:
    """A worker that claims by statements of the earlier version goes on after another has upgraded the database."""
    async with Journal.open(earlier_database):
        pass
    assert execute(earlier_database, "SELECT version FROM agentjobs_fleet") == [(VERSION,)]
    (claimed,) = execute(earlier_database, "SELECT * FROM agentjobs_claim('k0', 'c', 'old', NULL, NULL)")
    assert claimed == (None, None, 1)
    columns = "key, prompt, state, updated_at"
    execute(earlier_database, f"INSERT INTO agentjobs_entries ({columns}) VALUES ('z', 'z', 'planned', 1)")  # noqa: S608 - its columns
    rows = await rows_of(earlier_database)
    assert states(rows) == {**EARLIER_STATES, "k0": "sending", "z": "planned"}


def upgrade_and_copy(path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upgrade a file, and copy it and its log before each statement and before the connection closes."""

    class Copying(sqlite3.Connection):
        def copy(self) -> None:
            target = copies / f"{len(list(copies.iterdir())):02}"
            target.mkdir(parents=True)
            for file in path.parent.glob(f"{path.name}*"):
                if not file.name.endswith("-shm"):
                    shutil.copyfile(file, target / file.name)

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            self.copy()
            return super().execute(*arguments)

        def close(self) -> None:
            self.copy()
            super().close()

    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *rest, **settings: connect(*rest, factory=Copying, **settings))
        sqlite_file.upgrade(path, upgrade_statements())


async def test_killed_while_upgrading(
    earlier: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at any statement of an upgrade, or while its commit is written, leaves a journal that goes on."""
    copies = tmp_path_factory.mktemp("copies")
    upgrade_and_copy(earlier, copies, monkeypatch)
    *_, last = sorted(copies.iterdir())
    log = (last / f"{earlier.name}-wal").read_bytes()
    for part in range(0, len(log), len(log) // 7):
        shutil.copytree(last, torn := copies / f"torn-{part}")
        (torn / f"{earlier.name}-wal").write_bytes(log[:part])
    assert len([*copies.iterdir()]) > len(ADDED)
    versions = []
    distinct = {tuple(file.read_bytes() for file in sorted(copy.iterdir())): copy for copy in copies.iterdir()}
    for copy in distinct.values():
        with closing(sqlite3.connect(copy / earlier.name)) as connection:
            versions += connection.execute("PRAGMA user_version").fetchone()
            columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(agentjobs_entries)")}
            assert columns & ADDED == (ADDED if versions[-1] == VERSION else set())
        await goes_on(str(copy / earlier.name))
    assert set(versions) == {EARLIER, VERSION}


async def test_a_failing_upgrade(earlier_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade that fails on its way changes nothing, and the next opening makes it whole."""
    for module, name in ((opened, "upgrade_statements"), (postgresql, "upgrading")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *rest, real=real: [*list(real(*rest))[:3], "ALTER TABLE x RENAME TO y"]
        )
    with pytest.raises(JournalError):
        await Journal.open(earlier_place).__aenter__()
    monkeypatch.undo()
    await goes_on(earlier_place)


async def test_owners_that_upgrade_at_once(earlier_database: str) -> None:
    """Of several owners that open a database of the earlier layout at once, all find it upgraded."""
    owners = [Journal.open(earlier_database) for _ in range(4)]
    await asyncio.gather(*(owner.__aenter__() for owner in owners))
    assert states(await owners[3].rows()) == EARLIER_STATES
    for owner in owners:
        await owner.aclose()


async def test_an_upgrade_that_waits_in_vain(earlier_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that keeps its locks lets the upgrade fail after a time, so that no claim waits behind it."""
    monkeypatch.setattr(postgresql, "_UPGRADING_SECONDS", 0.1)
    address = make_url(earlier_database).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as connection:
        connection.execute("SELECT FROM agentjobs_entries")
        with pytest.raises(JournalError) as caught:
            await Journal.open(earlier_database).__aenter__()
    assert caught.value.reason == "locked"
    monkeypatch.undo()
    await goes_on(earlier_database)
