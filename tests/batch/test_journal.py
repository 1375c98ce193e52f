import asyncio
import errno
import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from attrs import evolve
from sqlalchemy import Connection, select

from agentjobs_async import AgentJob, InvalidInputError, JobRef, JournalError, NotFoundError, SessionClosedError
from agentjobs_async.batch import BatchItem, Journal, State, Where
from agentjobs_async.batch._database.schema import APPLICATION, ITEMS
from agentjobs_async.batch._monitoring import owners_of
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.measures import counts
from agentjobs_async.batch._store.seen import Seen, record_seen
from tests.batch.stage import (
    BY_HAND,
    NO_KEYS,
    FakeSession,
    claim_of,
    connected,
    created_by_hand,
    items,
    records_of,
    rejected_by_hand,
    rows_of,
    run,
    sent_by_hand,
    set_pragma,
    states,
    unknown_by_hand,
    unused,
)
from tests.cli.stage import Child
from tests.contract.children import ROOT, environment
from tests.until import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


async def refused(path: Path, **settings: Any) -> JournalError:
    with pytest.raises(JournalError) as caught:
        async with Journal.open(path, **settings):
            pass
    assert caught.value.__context__ is None
    return caught.value


async def sending(journal: Journal, *keys: str) -> None:
    """Bring rows into the state of a create under way."""
    for key in keys:
        await sent_by_hand(journal, key)


async def test_rows(journal: Journal) -> None:
    """Rows come in order, with all that is known of them, all or those of one state."""
    await journal.add([BatchItem("b", "two\nlines", "web"), BatchItem("a", "x\x1ay")], project_id="docs")
    rows = [row async for row in journal.rows()]
    assert [(row.key, row.prompt, row.project_id, row.number) for row in rows] == [
        ("b", "two\nlines", "web", 1),
        ("a", "x\x1ay", "docs", 2),
    ]
    assert rows[0].item == BatchItem("b", "two\nlines", "web")
    await sending(journal, "a")
    sent = (await journal.rows())[1]
    assert sent.sent_at is not None
    assert abs((sent.sent_at - datetime.now(UTC)).total_seconds()) < 60
    assert sent.planned_at is not None
    assert sent.planned_at <= sent.sent_at <= sent.updated_at
    assert [row.key async for row in journal.rows("sending")] == ["a"]
    assert "lines" not in repr(rows[0])
    assert await journal.rows() == [row async for row in journal.rows()]
    assert [row.key for row in await journal.rows(State.PLANNED)] == ["b"]
    assert [row async for row in journal.unknown()] == []
    with pytest.raises(InvalidInputError, match="nonsense"):
        await journal.rows("nonsense")


async def test_nul(file_journal: Journal) -> None:
    """A journal in a file keeps NUL in a prompt, and finds it."""
    await file_journal.add([BatchItem("a", "x\0y"), BatchItem("b", "xy")], project_id="docs")
    assert [row.prompt for row in await file_journal.rows(where=Where(text="x\0"))] == ["x\0y"]


async def test_add(journal: Journal) -> None:
    """Many items are planned at once; invalid ones are given with their reasons, known ones stay as they are."""
    await journal.add(items(10))
    changed = [BatchItem("k3", "another", "docs"), BatchItem("", "x"), *items(1200)]
    invalid = await journal.add(changed)
    assert [(item.key, str(error)[:20]) for item, error in invalid] == [
        ("", "key must have 1 to 5"),
        ("k3", "the key 'k3' is that"),
    ]
    assert (await journal.counts())[State.PLANNED] == 1200
    assert [row.prompt async for row in journal.rows()] == [f"p{number}" for number in range(1200)]
    assert len(await journal.add([BatchItem("", "x")], project_id="docs")) == 1


async def test_the_project_of_planned_rows(journal: Journal) -> None:
    """A planned row names its project, its own or the one of the call; an item without any is refused."""
    todo = [BatchItem("own", "p", "web"), BatchItem("default", "p")]
    for refusing in (journal.check, journal.add):
        assert [(item.key, str(error)) for item, error in await refusing(todo)] == [
            ("default", "project_id is missing: give the item one, or a default")
        ]
    assert await journal.add(todo, project_id="docs") == []
    assert {row.key: row.project_id for row in await journal.rows()} == {"own": "web", "default": "docs"}
    for project in ("", "a/../b\0", "."):
        with pytest.raises(InvalidInputError, match="project_id must"):
            await journal.add((), project_id=project)


async def test_a_key_under_another_project(journal: Journal) -> None:
    """Projects are compared as they are settled: a key is known under its project alone, whatever names that."""
    await journal.add([BatchItem("k", "p")], project_id="docs")
    for same in (
        (BatchItem("k", "p", "docs"), None),
        (BatchItem("k", "p"), "docs"),
        (BatchItem("k", "p", "docs"), "web"),
    ):
        assert await journal.add([same[0]], project_id=same[1]) == []
    for other in ((BatchItem("k", "p", "web"), "docs"), (BatchItem("k", "p"), "web")):
        for refusing in (journal.check, journal.add):
            invalid = await refusing([other[0]], project_id=other[1])
            assert [(item, "that of another project" in str(error)) for item, error in invalid] == [(other[0], True)]
    assert [row.project_id for row in await journal.rows()] == ["docs"]


async def test_a_repeated_key(journal: Journal) -> None:
    """A key that comes twice is invalid the second time, on the same page or a later one, by a check as by planning."""
    twice = [BatchItem("k7", "p7", "docs"), *items(600), BatchItem("k9", "p9", "docs")]
    for refusing in (journal.check, journal.add, journal.check, journal.add):
        invalid = await refusing(twice)
        assert [(item.key, str(error)) for item, error in invalid] == [
            ("k7", "the key 'k7' came before in this run"),
            ("k9", "the key 'k9' came before in this run"),
        ]
    assert (await journal.counts())[State.PLANNED] == 600


async def test_a_key_that_is_taken(journal: Journal) -> None:
    """A key of another prompt, project or extra, of the journal or of the same input, is taken; a repetition is not."""
    one = BatchItem("k", "p", "docs")
    others = [evolve(one, prompt="q"), evolve(one, project_id="web"), evolve(one, extra={"branch": "main"})]
    for refusing in (journal.check, journal.add, journal.check, journal.add):
        invalid = await refusing([one, one, *others, BatchItem("x", " ")])
        reasons = [error.reason for item, error in sorted(invalid, key=lambda found: found[0].key)]
        assert reasons == [None, "key_taken", "key_taken", "key_taken", None]
    results = await run(FakeSession(), [*others, one], journal)
    refused = [result.error for result in results if result.outcome == "rejected"]
    assert [isinstance(error, InvalidInputError) and error.reason for error in refused] == ["key_taken"] * 3


async def test_resolve(journal: Journal) -> None:
    """An unknown row gets the job that was found, or is planned again; no other row is touched."""
    await journal.add(items(4))
    await unknown_by_hand(journal, "k0", "k1")
    await sending(journal, "k2")
    await journal.resolve("k0", job_id="job_9")
    await journal.resolve("k1", send_again=True)
    assert states([row async for row in journal.rows()]) == {
        "k0": "active",
        "k1": "planned",
        "k2": "sending",
        "k3": "planned",
    }
    for key, words in {"k0": "active", "k2": "sending", "k3": "planned", "k4": "no item"}.items():
        with pytest.raises(InvalidInputError, match=words):
            await journal.resolve(key, send_again=True)
    await records_of(journal).unknown("k2", await claim_of(journal.store, "k2"), ValueError("broke"))
    await journal.resolve("k2", job_id=JobRef("web", "a/job_8"))
    row = (await journal.rows(State.ACTIVE))[1]
    assert (row.project_id, row.job_id) == ("web", "a/job_8")
    bad_ids: list[Any] = ["..", "web~.job_8", "Fix it", 5]
    for settings in ({}, {"job_id": "x", "send_again": True}, *({"job_id": bad} for bad in bad_ids)):
        with pytest.raises(InvalidInputError):
            await journal.resolve("k0", **settings)


async def test_a_wrong_id_is_corrected(journal: Journal) -> None:
    """Another id replaces one that was given before, until the job has ended; the wrong one's end changes nothing."""
    records = records_of(journal)
    await journal.add(items(2))
    await unknown_by_hand(journal, "k0")
    await created_by_hand(journal, "k1", JobRef("docs", "its own"))
    wrong, right = JobRef("docs", "wrong"), JobRef("web", "right")
    for ref in (wrong, right):
        await journal.resolve("k0", job_id=ref)
    with pytest.raises(InvalidInputError, match="k0 is active"):
        await journal.resolve("k0", send_again=True)
    ended = AgentJob("wrong", "docs", "failed")
    assert not await records.ended("k0", ended, 1)
    assert not await records.gone("k0", "wrong", NotFoundError(410), 1)
    (row,) = [row for row in await journal.rows() if row.key == "k0"]
    assert (row.state, row.project_id, row.job_id) == ("active", "web", "right")
    assert await records.ended("k0", AgentJob("right", "web", "completed"), 1)
    for key in ("k0", "k1"):
        with pytest.raises(InvalidInputError, match="nothing to resolve"):
            await journal.resolve(key, job_id="another")


async def test_retry(journal: Journal) -> None:
    """What was rejected is planned again under its key, once, with its context; what it was is kept as a try.

    An unknown item that is planned again has one try more as well.
    """
    await journal.add([BatchItem("a", "x", "web", {"row": 1}), BatchItem("b", "x")], project_id="docs")
    await rejected_by_hand(journal, "a")
    assert await journal.retry("a") == "a"
    for key in ("a", "b"):
        with pytest.raises(InvalidInputError, match=f"{key} is planned"):
            await journal.retry(key)
    await rejected_by_hand(journal, "a")
    assert await journal.retry("a") == "a"
    rows = await journal.rows(all_tries=True)
    assert [(row.key, row.tries, row.state, row.error, row.context) for row in rows] == [
        ("a", 1, "rejected", "ValueError: no", {"row": 1}),
        ("a", 2, "rejected", "ValueError: no", {"row": 1}),
        ("a", 3, "planned", None, {"row": 1}),
        ("b", 1, "planned", None, None),
    ]
    assert {(row.prompt, row.project_id, row.number) for row in rows[:3]} == {("x", "web", 1)}
    await unknown_by_hand(journal, "a")
    await journal.resolve("a", send_again=True)
    row = (await journal.rows())[0]
    assert (row.tries, row.sent_at, row.planned_at is None) == (4, None, False)


async def test_items_not_tries(journal: Journal) -> None:
    """Rows and counts are those of the items, each by its newest try; all tries can be had as well."""
    await journal.add(items(3))
    await rejected_by_hand(journal, "k0", "k1")
    await journal.retry("k0")
    assert states([row async for row in journal.rows()]) == {"k0": "planned", "k1": "rejected", "k2": "planned"}
    assert [row.key for row in await journal.rows("rejected")] == ["k1"]
    assert [(row.key, row.state) for row in await journal.rows("planned", all_tries=True)] == [
        ("k0", "rejected"),
        ("k0", "planned"),
        ("k2", "planned"),
    ]
    assert {state: number for state, number in (await journal.counts()).items() if number} == {
        "planned": 2,
        "rejected": 1,
    }


async def test_retries_at_once(journal: Journal) -> None:
    """Of several callers that try all failed items again at once, one plans each item."""
    await journal.add(items(40))
    await rejected_by_hand(journal, *(f"k{number}" for number in range(40)))
    await asyncio.gather(*(journal.retry(where=Where()) for _ in range(3)))
    rows = await journal.rows(all_tries=True)
    assert (len(rows), {row.tries for row in rows}) == (80, {1, 2})


async def test_bounded_retries(journal: Journal) -> None:
    """With a bound on the tries, an item that had as many is left alone."""
    await journal.add(items(1))
    for _ in range(2):
        await rejected_by_hand(journal, "k0")
        assert await journal.retry(where=Where(), max_tries=3) == ("k0",)
    await rejected_by_hand(journal, "k0")
    assert await journal.retry(where=Where(), max_tries=3) == ()
    for wrong in ({"key": "k0", "max_tries": 3}, {"where": Where(), "max_tries": 0}):
        with pytest.raises(InvalidInputError, match="max_tries"):
            await journal.retry(**wrong)  # type: ignore[call-overload]  # that is the point


async def test_abandon(journal: Journal) -> None:
    """What is planned, active or unknown can be given up, which says so, and is sent again only by its key."""
    await journal.add(items(5))
    records = records_of(journal)
    await created_by_hand(journal, "k0", JobRef("docs", "job_0"), is_polled=True)
    assert await records.noted("k0", "job_0", ValueError("an odd status"), 1)
    await unknown_by_hand(journal, "k1", "k3")
    await sending(journal, "k2")
    assert await records.created("k3", await claim_of(journal.store, "k3"), JobRef("docs", "job_3"), None)
    for key in ("k0", "k1", "k3", "k4"):
        await journal.abandon(key)
    rows = {row.key: row for row in await journal.rows()}
    assert {key: (row.state, row.job_id, row.error) for key, row in rows.items()} == {
        "k0": ("abandoned", "job_0", "abandoned while active; before that: ValueError: an odd status"),
        "k1": ("abandoned", None, "abandoned while unknown; before that: ValueError: broke"),
        "k2": ("sending", None, None),
        "k3": ("abandoned", "job_3", "abandoned while active"),
        "k4": ("abandoned", None, "abandoned while planned"),
    }
    for key, words in {"k0": "abandoned", "k2": "sending", "k5": "no item"}.items():
        with pytest.raises(InvalidInputError, match=words):
            await journal.abandon(key)
    assert await journal.retry(where=Where()) == ()
    with pytest.raises(InvalidInputError, match="by its key"):
        await journal.retry(where=Where(states={"abandoned"}))
    for key in ("k1", "k4"):
        assert await journal.retry(key) == key
    assert dict.fromkeys(("k1", "k4"), "planned").items() <= states(await journal.rows()).items()


async def test_each_change_has_its_time(journal: Journal) -> None:
    """Any change of a row that is shown has its time, also where the row was only seen, or tried again."""
    store, records = journal.store, records_of(journal)
    changed_at = select(ITEMS.c.changed_at).where(ITEMS.c.key == "k0")
    times: list[float] = []

    async def happened(change: Awaitable[object]) -> None:
        await change
        times.append((await store.read(changed_at))[0][0])

    await happened(journal.add(items(1)))
    await happened(sending(journal, "k0"))
    await happened(records.created("k0", await claim_of(store, "k0"), JobRef("docs", "job_0"), None))
    await happened(record_seen(store, [Seen("k0", 0.0, 1)]))
    await happened(records.ended("k0", AgentJob("job_0", "docs", "failed"), 1))
    await happened(journal.retry("k0"))
    assert times == sorted(set(times))


async def test_one_owner(file_journal: Journal, path: Path) -> None:
    """A second owner in this process is refused, through another name of the file too, until the first has left.

    That leaves the file and its lock.
    """
    link = path.with_name("link.db")
    link.symlink_to(path)
    for name in (path, link):
        error = await refused(name)
        assert (error.reason, "this process has it open already" in str(error)) == ("locked", True)
    await file_journal.add(items(1))
    await file_journal.aclose()
    await file_journal.aclose()
    assert {file.name for file in path.parent.iterdir()} == {"run.db", "run.db.lock", "link.db"}
    async with Journal.open(link) as second:
        assert len([row async for row in second.rows()]) == 1


SECOND = """
import asyncio, sys
from agentjobs_async import JournalError
from agentjobs_async.batch import Journal
async def main():
    try:
        async with Journal.open(sys.argv[1]):
            print("owned")
    except JournalError as error:
        print(error.reason)
    async with Journal.open(sys.argv[1], read_only=True) as journal:
        print([row.key async for row in journal.rows()])
asyncio.run(main())
"""


async def second(path: Path) -> list[str]:
    """Return what another process prints."""
    with Child(str(path), command=("-W", "error", "-c", SECOND)) as child:
        assert (await asyncio.to_thread(child.ended), child.stderr) == (0, "")
    return child.stdout.splitlines()


async def test_one_owner_among_processes(file_journal: Journal, path: Path) -> None:
    """Another process is refused as an owner, and can look meanwhile, whatever else this process did with the files."""
    await file_journal.add(items(2))
    assert (await refused(path)).reason == "locked"
    assert len(await rows_of(path)) == 2
    copy_directory(path)
    assert await second(path) == ["locked", "['k0', 'k1']"]
    assert (await refused(path)).reason == "locked"
    assert await file_journal.store.claim("k0", BY_HAND)
    await file_journal.aclose()
    assert await second(path) == ["owned", "['k0', 'k1']"]


def copy_directory(path: Path) -> None:
    """Copy a journal's directory in this process, which opens and closes each of its files."""
    shutil.copytree(path.parent, path.parent.with_name(f"{path.parent.name}-copy"))


async def look_by_other_means(path: Path) -> None:
    """Read the journal in another process that knows it only as a database of SQLite."""
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM agentjobs_items'); c.close()"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(path))
    assert await process.wait() == 0


async def test_a_log_taken_away(file_journal: Journal, path: Path) -> None:
    """Nothing more is claimed once a foreign program took the log away, which it can after a copy of the directory."""
    await file_journal.add(items(2))
    assert await file_journal.store.claim("k0", BY_HAND)
    copy_directory(path)
    await look_by_other_means(path)
    with pytest.raises(JournalError, match="wal was moved, removed") as caught:
        await file_journal.store.claim("k1", BY_HAND)
    assert caught.value.reason == "locked"
    await file_journal.aclose()
    assert states(await rows_of(path)) == {"k0": "sending", "k1": "planned"}


async def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files can't be locked no journal is made, and the error says so."""
    for number, told in ((errno.ENOSYS, True), (errno.ENOLCK, True), (errno.EIO, False)):
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number))))
        error = await refused(path)
        assert (error.reason, "can't lock files" in str(error)) == ("io", told)
        assert not path.exists()  # noqa: ASYNC240 - a test's own file


async def test_no_lock_is_lost(file_journal: Journal, path: Path) -> None:
    """Whoever opens the file by other means while it is used, and was looked at, leaves its WAL where it is.

    A process that opens and closes a file loses all of its locks on it, and the next one to leave takes the WAL away.
    """
    await file_journal.add(items(1))
    assert len(await rows_of(path)) == 1
    await look_by_other_means(path)
    assert path.with_name("run.db-wal").stat().st_size
    assert await file_journal.store.claim("k0", BY_HAND)
    assert states(await rows_of(path)) == {"k0": "sending"}


async def test_only_looking(location: str) -> None:
    """Who only looks is no owner and changes nothing, not even what an owner left behind."""
    async with Journal.open(location) as journal:
        await journal.add(items(1))
        await sending(journal, "k0")
    async with Journal.open(location, read_only=True) as journal:
        with pytest.raises(JournalError) as caught:
            await journal.add(items(2))
        assert caught.value.reason == "read_only"
        assert await owners_of(journal) == []
    assert states(await rows_of(location)) == {"k0": "sending"}


async def test_mode_and_durability(file_journal: Journal, path: Path) -> None:
    """All files are readable to their user only; commits are synced, and the journal is a WAL."""
    await file_journal.add(items(1))
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(files.values()) == {0o600}
    assert {"run.db", "run.db-wal", "run.db.lock"} <= set(files)
    database = file_journal._opened.database
    assert database is not None
    assert database._changes.connection is not None
    for pragma, value in {"synchronous": 2, "journal_mode": "wal"}.items():
        async with connected(file_journal) as connection:
            assert (await connection.exec_driver_sql(f"PRAGMA {pragma}")).scalar() == value
        assert (await database._changes.connection.exec_driver_sql(f"PRAGMA {pragma}")).scalar() == value
    await database._changes.connection.run_sync(Connection.rollback)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def _foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE agentjobs_items (key TEXT)")
    connection.commit()
    connection.close()


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()


def _another_state(path: Path) -> None:
    apply_fault(path, "UPDATE agentjobs_journal SET fingerprint = 'f00d'")


def _without_fingerprint(path: Path) -> None:
    apply_fault(path, "ALTER TABLE agentjobs_journal DROP COLUMN fingerprint")


def _before_release(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {0x414A6F62}")
    connection.execute("PRAGMA user_version = 3")
    connection.close()


def _newer_in_the_wal(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA user_version = 2")
    left = {name: path.with_name(name).read_bytes() for name in ("run.db", "run.db-wal")}
    connection.close()
    for name, content in left.items():  # as a kill leaves them
        path.with_name(name).write_bytes(content)


def _illegible_schema(path: Path) -> None:
    change(path, lambda data: data.replace(b"UNIQUE (", b"\xb1NIQUE ("))


def _flipped_bit(path: Path) -> None:
    """Let an index lose a key, whose prompt would be sent a second time; the row holds it as well, in either order."""
    change(path, lambda data: data.replace(b"a-key-of-its-own", b"b-key-of-its-own", 1))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("key,prompt\n" * 100), "corrupt"),
    "one byte": (lambda path: path.write_bytes(b"x"), "corrupt"),
    "no database": (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(200)), "corrupt"),
    "cut": (_cut, "corrupt"),
    "scribbled": (_scribbled, "corrupt"),
    "foreign": (_foreign, "corrupt"),
    "illegible schema": (_illegible_schema, "corrupt"),
    "flipped bit in an index": (_flipped_bit, "corrupt"),
    "newer": (_newer, "version"),
    "of another development version": (_another_state, "version"),
    "without a fingerprint": (_without_fingerprint, "version"),
    "before the first release": (_before_release, "version"),
    "newer in its log": (_newer_in_the_wal, "version"),
}


async def test_unusable_files(path: Path) -> None:
    """Broken, foreign and newer files are refused with their reason, and left byte for byte as they are."""
    async with Journal.open(path) as journal:
        await journal.add([*items(300), BatchItem("a-key-of-its-own", "x")], project_id="docs")
    whole = path.read_bytes()  # noqa: ASYNC240 - a test's own file
    found = {}
    for name, (fault, _) in BROKEN.items():
        location = path.with_name(name) / "run.db"
        location.parent.mkdir()
        location.write_bytes(whole)
        fault(location)
        before = location.read_bytes()
        reasons = {(await refused(location, read_only=read_only)).reason for read_only in (True, False)}
        found[name] = (reasons, location.read_bytes() == before)
        for file in location.parent.iterdir():
            file.unlink()
        async with Journal.open(location) as journal:
            assert len(await journal.unknown()) == 0
    assert found == {name: ({reason}, True) for name, (_, reason) in BROKEN.items()}


async def test_a_missing_table(path: Path) -> None:
    """A journal that lacks its table is broken."""
    async with Journal.open(path):
        pass
    apply_fault(path, "DROP TABLE agentjobs_items")
    assert (await refused(path)).reason == "corrupt"


async def test_protected_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that nobody may write, or that we may not, is refused as read_only, and can still be looked at."""
    async with Journal.open(path) as journal:
        await journal.add(items(1))
    path.chmod(0o400)  # noqa: ASYNC240 - a test's own file
    before = path.read_bytes()  # noqa: ASYNC240 - a test's own file
    assert (await refused(path)).reason == "read_only"
    assert len(await rows_of(path)) == 1
    path.chmod(0o600)  # noqa: ASYNC240 - a test's own file
    monkeypatch.setattr("os.access", lambda *_: False)  # the tests may run as root, whom no mode keeps out
    assert (await refused(path)).reason == "read_only"
    assert path.read_bytes() == before  # noqa: ASYNC240 - a test's own file


async def test_locations_without_a_file(path: Path) -> None:
    """Where a journal is not there to look at, or can't be made, is a JournalError, and nothing is there in part."""
    assert (await refused(path.parent / "none" / "run.db")).reason == "io"
    assert (await refused(path, read_only=True)).reason == "io"
    path.with_name(".run.db.new").mkdir()
    assert (await refused(path)).reason in {"io", "read_only"}
    assert not path.exists()  # noqa: ASYNC240 - a test's own file


async def test_empty_file(path: Path) -> None:
    """An empty file becomes a journal, which is whole from the start; what a killed making left is no harm."""
    path.touch()  # noqa: ASYNC240 - a test's own file
    path.with_name(".run.db.new").write_text("half")
    async with Journal.open(path):
        header = path.read_bytes()  # noqa: ASYNC240 - a test's own file
        assert int.from_bytes(header[68:72], "big") == APPLICATION
        assert not path.with_name(".run.db.new").exists()


async def test_full_disk(path: Path) -> None:
    """Without room a write fails as full, what is there stays, and writing goes on once there is room."""
    async with Journal.open(path) as journal:
        await journal.add(items(5))
        await set_pragma(journal, "max_page_count = 1")
        with pytest.raises(JournalError, match="disk is full") as caught:
            await journal.add([BatchItem(f"big{number}", "x" * 10_000) for number in range(50)], project_id="docs")
        assert caught.value.reason == "full"
        assert caught.value.__context__ is None
        leaving = asyncio.ensure_future(journal.add([BatchItem("gone", "x" * 100_000)], project_id="docs"))
        await asyncio.sleep(0)
        leaving.cancel()
        # What fits goes on, beside what does not.
        claim, big = await asyncio.gather(
            journal.store.claim("k0", BY_HAND),
            journal.add([BatchItem("big", "x" * 100_000)], project_id="docs"),
            return_exceptions=True,
        )
        assert (type(claim), type(big)) == (str, JournalError)
        await set_pragma(journal, "max_page_count = 100000")
        await journal.add([BatchItem("big", "x" * 100_000)], project_id="docs")
    assert states(await rows_of(path)) == {
        "k0": "sending",
        **{f"k{number}": "planned" for number in range(1, 5)},
        "big": "planned",
    }


async def test_what_a_removed_journal_left(path: Path) -> None:
    """The log of a journal whose file is gone does not pass into a new one: that is refused, and nothing changed."""
    async with Journal.open(path) as journal:
        await journal.add(items(3))
        log = path.with_name("run.db-wal").read_bytes()
    path.unlink()  # noqa: ASYNC240 - a test's own file
    path.with_name("run.db-wal").write_bytes(log)
    assert (await refused(path)).reason == "corrupt"
    assert not path.exists()  # noqa: ASYNC240 - a test's own file
    assert path.with_name("run.db-wal").read_bytes() == log


async def test_killed_as_the_log_was_carried_over(path: Path) -> None:
    """A file into which only a part of its log was carried over, as a kill or a full disk leaves it, is whole."""
    log = path.with_name("run.db-wal")
    async with Journal.open(path) as journal:
        made = path.stat().st_size  # noqa: ASYNC240 - a test's own file
        await journal.add(items(500))
        logged = log.read_bytes()
    carried_over = path.read_bytes()  # noqa: ASYNC240 - a test's own file
    for read_only in (True, False):
        part = (made + len(carried_over)) // 8192 * 4096
        path.write_bytes(carried_over[:part])  # noqa: ASYNC240 - a test's own file
        log.write_bytes(logged)
        async with Journal.open(path, read_only=read_only) as journal:
            assert len(await journal.rows()) == 500


async def test_no_prompt_is_shown(file_journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """No error of the database and no log shows anything of a prompt, not even that of the database's own library."""
    caplog.set_level(logging.DEBUG)
    await file_journal.add([BatchItem("a", "a very private prompt")], project_id="docs")
    await file_journal.rows()
    await set_pragma(file_journal, "query_only = ON")
    with pytest.raises(JournalError) as caught:
        await file_journal.add([BatchItem("b", "a very private prompt")], project_id="docs")
    shown = repr(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)
    assert "private" not in shown + caplog.text


async def test_cancelled_opening(location: str) -> None:
    """An opening that is cancelled leaves nobody as owner."""
    opening = asyncio.ensure_future(Journal.open(location).__aenter__())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with Journal.open(location) as journal:
        assert await journal.unknown() == []


async def test_a_cancelled_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends a loop cancels the journal's writer, too: nothing hangs, writes fail, and closing gives the file up."""
    async with Journal.open(path) as journal:
        await journal.add(items(2))
        database = journal._opened.database
        assert database is not None
        assert database._changes.writer is not None
        committing = asyncio.Event()

        async def committed(*_: object) -> None:
            committing.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(database, "_committed", committed)
        adding = asyncio.ensure_future(journal.add(items(3)))
        await committing.wait()
        database._changes.writer.cancel()
        for writing in (adding, journal.store.claim("k0", BY_HAND)):
            with pytest.raises(JournalError, match="writer was cancelled"):
                await writing
    assert states(await rows_of(path)) == {"k0": "planned", "k1": "planned"}
    async with Journal.open(path) as journal:
        assert await journal.unknown() == []


async def test_closed_under_somebody(journal: Journal) -> None:
    """Who still holds the rows of a closed journal gets an error, and opens nothing again."""
    store = journal.store
    await journal.aclose()
    for call in (store.claim("k0", BY_HAND), counts(store)):
        with pytest.raises(JournalError, match="closed meanwhile"):
            await call


async def test_opened_once(file_journal: Journal) -> None:
    """An open journal is not opened again."""
    with pytest.raises(InvalidInputError, match="open already"):
        await file_journal.__aenter__()
    assert await file_journal.unknown() == []


def apply_fault(path: Path, *statements: str) -> None:
    """Write into a journal what it would not take."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = 1")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def change(path: Path, changed: Callable[[bytes], bytes]) -> None:
    """Change the bytes of a file."""
    before = path.read_bytes()
    path.write_bytes(changed(before))
    assert path.read_bytes() != before


ILLEGIBLE = [
    "updated_at = 1e300",
    "updated_at = 'secret'",
    "key = cast(x'ff736563726574' as text)",
    "prompt = x'ff736563726574'",
    "state = 'secret'",
    "context = '[1]'",
    "context = 'no JSON: secret'",
    "extra = '[1]'",
    "extra = 'no JSON: secret'",
    "polls = 'secret'",
    "ended_at = 'secret'",
]


async def test_illegible_cells(path: Path) -> None:
    """A cell that the journal can't have written gives a JournalError that does not quote it."""
    async with Journal.open(path) as journal:
        await journal.add(items(1))
    whole = path.read_bytes()  # noqa: ASYNC240 - a test's own file
    found = {}
    for cell in ILLEGIBLE:
        path.write_bytes(whole)  # noqa: ASYNC240 - a test's own file
        apply_fault(path, f"UPDATE agentjobs_items SET {cell}")  # noqa: S608 - one of those above
        with pytest.raises(JournalError) as caught:
            async with Journal.open(path) as journal:
                await measures.sent_ages(journal.store, 60, 10)
                await journal.rows()
        found[cell] = (caught.value.reason, "secret" in str(caught.value), caught.value.__context__)
    assert found == dict.fromkeys(ILLEGIBLE, ("corrupt", False, None))


async def test_an_unknown_state(path: Path) -> None:
    """A state of no meaning is found by who is at work already, too."""
    async with Journal.open(path) as journal:
        await journal.add(items(1))
        apply_fault(path, "UPDATE agentjobs_items SET state = 'weird'")
        with pytest.raises(JournalError) as caught:
            await journal.counts()
        assert caught.value.reason == "corrupt"


async def test_only_journals(tmp_path: Path) -> None:
    """What is no file of ours is neither replaced nor given a lock beside it."""
    kinds: list[tuple[Callable[[Path], object], str, str]] = [
        (os.mkfifo, "io", "no regular file"),
        (lambda path: path.touch(0o444), "read_only", "no user may write it"),
        (lambda path: path.write_text("root:x:0:0\n" * 100), "corrupt", "no journal"),
        (Path.mkdir, "io", "is a directory"),
    ]
    for make, reason, words in kinds:
        path = tmp_path / words / "run.db"
        path.parent.mkdir()
        make(path)
        before = os.lstat(path)
        error = await refused(path)
        assert (error.reason, words in str(error)) == (reason, True)
        after = os.lstat(path)
        assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)
        assert [*path.parent.iterdir()] == [path]


async def test_a_second_name(path: Path) -> None:
    """A file with a hard link is refused: through that name it would have a second owner."""
    async with Journal.open(path):
        pass
    path.with_name("second.db").hardlink_to(path)
    assert "hard link" in str(await refused(path))


def test_another_loop(path: Path) -> None:
    """A journal that is open in one event loop is refused in another, where nobody would ever answer."""
    loop = asyncio.new_event_loop()
    journal = loop.run_until_complete(Journal.open(path).__aenter__())
    loop.run_until_complete(journal.add(items(1)))
    uses: list[Callable[[], Any]] = [journal.counts, lambda: journal.add(items(2)), journal.aclose]
    for use in uses:

        async def used(use: Callable[[], Any] = use) -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await use()

        with pytest.raises(SessionClosedError, match="another event loop"):
            asyncio.run(used())
    loop.run_until_complete(journal.aclose())
    loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is nothing to fork with")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_forked_child(journal: Journal) -> None:
    """A journal is refused in a child that was forked from its owner, which loses nothing by that."""
    await journal.add(items(1))
    child = os.fork()
    if child == 0:
        try:
            journal.counts().send(None)
        except SessionClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7  # noqa: ASYNC222 - it ends at once
    assert (await journal.counts())[State.PLANNED] == 1


FORKING = """
import asyncio, os, signal, sys
from agentjobs_async.batch import Journal
async def main():
    async with Journal.open(sys.argv[1]):
        if not os.fork():  # here, whatever a fork has to put right is right
            os.kill(os.getppid(), signal.SIGKILL)
            print("forked", flush=True)
            sys.stdin.read()
            os._exit(0)
        signal.pause()
asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is nothing to fork with")
def test_a_child_of_a_killed_owner(path: Path) -> None:
    """A forked child that outlives its killed parent does not keep the journal."""

    async def open_it() -> None:
        async with Journal.open(path) as journal:
            assert await journal.unknown() == []

    command = [sys.executable, "-c", FORKING, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, env=environment()) as process:  # noqa: S603 - our own script
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"forked\n"
        assert process.wait() == -signal.SIGKILL
        asyncio.run(open_it())
        process.stdin.close()  # which ends the child
        assert process.stdout.read() == b""


async def test_a_copy_without_its_log(path: Path) -> None:
    """The file alone, copied while its owner goes on, has nearly all of many rows."""
    copy = path.with_name("copy.db")
    async with Journal.open(path) as journal:
        await journal.add(items(3000))
        copy.write_bytes(path.read_bytes())  # noqa: ASYNC240 - a test's own file
        async with Journal.open(copy, read_only=True) as looking:
            assert (await looking.counts())[State.PLANNED] > 2000


@pytest.mark.parametrize("location", [1, None, True, b"run.db", "", "run\0.db", "\ud800"])
def test_what_names_no_journal(location: Any) -> None:
    """What can be no path is refused before anything is opened."""
    with pytest.raises(InvalidInputError, match="journal"):
        Journal.open(location)


@pytest.mark.parametrize("key", NO_KEYS)
async def test_keys_that_no_item_can_have(file_journal: Journal, key: Any) -> None:
    """A key that no item can have is refused by every call, without a look into the journal."""
    with unused(file_journal):
        for call in (
            lambda: file_journal.retry(key),
            lambda: file_journal.abandon(key),
            lambda: file_journal.resolve(key, send_again=True),
        ):
            with pytest.raises(InvalidInputError, match=r"^key must"):
                await call()


async def test_longest_key(journal: Journal) -> None:
    """The longest key is accepted by every call."""
    key = "k" * 512
    await journal.add([BatchItem(key, "p", "docs")])
    await rejected_by_hand(journal, key)
    assert await journal.retry(key) == key
    await unknown_by_hand(journal, key)
    await journal.resolve(key, send_again=True)
    await journal.abandon(key)
    assert states(await journal.rows()) == {key: "abandoned"}


async def test_jobs_that_none_can_be(file_journal: Journal) -> None:
    """What can be no job is refused before the item is looked for."""
    with unused(file_journal):
        for job_id in ("\ud800", "a\0", "docs~.job", 3):
            with pytest.raises(InvalidInputError, match="job_id"):
                await file_journal.resolve("k", job_id=job_id)  # type: ignore[arg-type]  # what is refused
        with pytest.raises(InvalidInputError, match="where must be of type Where"):
            await file_journal.retry(where="failed")  # type: ignore[call-overload]  # what is refused
