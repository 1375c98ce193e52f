import asyncio
import csv
import io
import json
import re
from pathlib import Path

import pytest

from agentjobs_async import AgentJob, JobRef, RejectedError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._database.file_lock import FileLock
from agentjobs_async.batch._monitoring import OwnerState
from agentjobs_async.batch._run.records import Records
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.status import _show_workers
from tests.cli.checks import Captured, plan, screen
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow


async def reject(db: str, number: int) -> None:
    """Record of the first items that the server has refused their creates, if they are planned."""
    async with Journal.open(db) as journal:
        records = Records(journal.store, "owner", str)
        for row in (await journal.rows("planned"))[:number]:
            claim = await records.claim(row.key)
            assert isinstance(claim, str)
            assert await records.rejected(row.key, claim, RejectedError(422))


async def leave_unknown(db: str, number: int) -> None:
    """Send the first items, none of whose creates is answered."""
    async with Journal.open(db) as journal:
        records = Records(journal.store, "owner", str)
        for key in (f"k{each}" for each in range(number)):
            claim = await records.claim(key)
            assert isinstance(claim, str)
            await records.unknown(key, claim, OSError("broke"))


def test_what_needs_a_person(db: str, capsys: Captured) -> None:
    """At most 50 items are shown: those that need a person, or that the filters name; a command writes all of them."""
    plan(db, *(BatchItem(f"k{number}", "p", "docs") for number in range(120)))
    asyncio.run(reject(db, 60))
    assert main(["status", db]) == 4
    printed = capsys.readouterr()
    tally, _, *rows = printed.out.splitlines()
    assert tally == "60 rejected, 60 planned"
    assert [row.split()[:2] for row in rows] == [["rejected", f"k{number}"] for number in range(50)]
    more, command = printed.err.splitlines()[:2]
    assert more == "50 of 60 are shown; all of them are written by:"
    assert command.endswith(f" export {db} --state unknown --state failed --state rejected")
    assert main(["status", db, "--state", "rejected", "--tries", "all"]) == 4
    assert capsys.readouterr().err.splitlines()[1].endswith(f" export {db} --state rejected --tries all")
    assert main(["status", db, "--state", "planned", "--state", "rejected", "--grep", "k11"]) == 4
    printed = capsys.readouterr()
    assert [row.split()[:2] for row in printed.out.splitlines()[2:]] == [
        ["rejected", "k11"],
        *(["planned", f"k{number}"] for number in range(110, 120)),
    ]
    assert "are shown" not in printed.err


def test_one_screen(db: str) -> None:
    """On a terminal, what needs a person is one screen: as many items as fit, each in two lines, and what is next."""
    plan(db, *(BatchItem(f"k{number}", "Document it " * 20, "docs") for number in range(60)))
    asyncio.run(reject(db, 55))
    with Child("status", db, terminal=True) as child:
        assert child.ended() == 4
    lines = child.stdout.splitlines()
    assert len(lines) < 24
    shown = sum("\x1b[1;31mrejected" in line for line in lines)
    assert shown in {6, 7, 8}  # the path of the journal may need another line
    assert f"{shown} of 55 are shown; all of them are written by:" in child.stdout
    assert "No process works on it; continue with:" in child.stdout
    with Child("status", db, "--state", "rejected", terminal=True) as child:
        assert child.ended() == 4
    assert sum("\x1b[1;31mrejected" in line for line in child.stdout.splitlines()) == 50


def test_much_to_be_said(db: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a small terminal has no room beside what is next, one row is shown: the counts stay in sight."""
    plan(db, *(BatchItem(f"k{number}", "p", "docs") for number in range(10)))
    asyncio.run(leave_unknown(db, 9))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(Screen, "height", 18)
    assert main(["status", db]) == 4
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3  # the counts, the names of the columns, and the row
    assert printed.err.startswith("1 of 9 are shown; all of them are written by:\n")
    assert "  … and 6 more; all of them are written by:\n" in printed.err
    assert f" export {db} --state unknown\n" in printed.err


def test_what_holds_creates_back(db: str, capsys: Captured) -> None:
    """While a process is at work, it says why the next planned item is held back, where its row has the reason."""
    plan(db, BatchItem("k0", "p", "docs"), BatchItem("k1", "p", "docs"))

    async def hold() -> None:
        async with Journal.open(db) as journal:
            records = Records(journal.store, "owner", str)
            claim = await records.claim("k0")
            assert isinstance(claim, str)
            await records.released("k0", claim, OSError("no such name"))

    asyncio.run(hold())
    owner = FileLock(Path(db))
    assert main(["status", db]) == 4
    assert capsys.readouterr().out.splitlines()[1] == "no estimate of the end yet; OSError: no such name"
    owner.release()


def test_json(db: str, capsys: Captured) -> None:
    """In JSON Lines it is the same items as in `export`, and says how many more there are; or the counts."""
    plan(db, *(BatchItem(f"k{number}", "p", "docs") for number in range(60)))
    asyncio.run(reject(db, 52))
    assert main(["status", db, "--format", "jsonl"]) == 4
    shown = capsys.readouterr()
    assert "50 of 52 are shown" in shown.err
    assert main(["export", db, "--format", "jsonl"]) == 0
    assert shown.out.splitlines() == capsys.readouterr().out.splitlines()[:50]
    assert main(["status", db, "--format", "jsonl", "--summary"]) == 4
    assert json.loads(capsys.readouterr().out) == {"items": 60, "states": {"rejected": 52, "planned": 8}}


def test_workers(service: EmulatorThread, database: str, capsys: Captured) -> None:
    """Of a shared journal it shows the processes that work on it."""
    service.live(duration=3600)
    assert main(["submit", "first one", "--journal", database]) == 0
    with Child("worker", "--journal", database, env=service.environment):
        service.wait_for_polls(1)
        capsys.readouterr()
        assert main(["status", "--journal", database]) == 4
        shown = capsys.readouterr().out
    assert re.search(r"^WORKER +ACTIVE +LAST HEARTBEAT\n\S+:\d+ +1 +[\d.]+ s ago$", shown, re.MULTILINE)


def test_many_workers(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets the first of many processes, those that count as dead before all others; a pipe gets all."""
    workers = [OwnerState(f"host:{number}", 1, 2.0, is_dead=number == 39) for number in range(40)]
    assert _show_workers(screen(), workers) == 41
    assert len(capsys.readouterr().out.splitlines()) == 41
    monkeypatch.setattr(Screen, "height", 24)
    assert _show_workers(screen(), workers) == 8
    names, first, *_, others = capsys.readouterr().out.splitlines()
    assert names.split() == ["WORKER", "ACTIVE", "LAST", "HEARTBEAT"]
    assert first.split() == ["host:39", "1", *["2", "s", "ago,", "counts", "as", "dead"]]
    assert others == "… and 34 more"
    assert _show_workers(screen(), []) == 0


def test_a_fleet(service: EmulatorThread, database: str, capsys: Captured) -> None:
    """While workers are at work it shows how far they are; its exit code is that of all items."""
    service.live(duration=3600)
    service.live("failed", prompt="first one")
    assert main(["submit", "first one", "second one", "--journal", database]) == 0
    with Child("worker", "--until-done", "--journal", database, env=service.environment) as worker:
        worker.until("1 failed")
        service.wait_for_polls(2)  # an item without a job is not abandoned
        capsys.readouterr()
        assert main(["status", "--journal", database]) == 4
        printed = capsys.readouterr().out
        assert " 1 of 2 ended" in printed
        assert "1 failed" in printed
        assert "1 active" in printed
        assert main(["resolve", "2", "--abandon", "--journal", database]) == 0
        assert worker.ended() == 1
    assert main(["status", "--journal", database]) == 1
    assert "1 failed, 1 abandoned" in capsys.readouterr().out


def test_a_file_that_was_left(tmp_path: Path, capsys: Captured) -> None:
    """Where the run has ended before its items, it says at once that nobody works on them, and tells no end."""
    journal = tmp_path / "run.db"

    async def plan() -> None:
        async with Journal.open(journal) as opened:
            await opened.add([BatchItem("1", "p", "docs"), BatchItem("2", "p", "docs")])
            records = Records(opened.store, "owner", str)
            claim = await records.claim("2")
            assert isinstance(claim, str)
            assert await records.unknown("2", claim, OSError("no answer"))
            await opened.abandon("2")

    asyncio.run(plan())
    assert main(["status", str(journal)]) == 4
    printed = capsys.readouterr()
    assert "No process works on it; continue with:" in printed.err
    assert "ends about" not in printed.out
    owner = FileLock(journal)
    assert main(["status", str(journal)]) == 4
    printed = capsys.readouterr()
    assert " 1 of 2 ended" in printed.out
    assert "No process" not in printed.err
    owner.release()


async def answered_late(db: str) -> None:
    """Let the create of `k1` be answered after it was sent again, and give its second job an end."""
    async with Journal.open(db) as journal:
        records = Records(journal.store, "owner", str)
        first = await records.claim("k1")
        assert isinstance(first, str)
        assert await records.unknown("k1", first, OSError("cut"))
        await journal.resolve("k1", send_again=True)
        second = await records.claim("k1")
        assert isinstance(second, str)
        assert await records.created("k1", second, JobRef("docs", "job_b"), None)
        assert await records.ended("k1", AgentJob("job_b", "docs", "completed"), 1)
        assert await records.created("k1", first, JobRef("docs", "job_a"), None) is None


def test_a_late_answer(db: str, capsys: Captured) -> None:
    """A create that was answered after its item had gone on is among what needs a person, with what to do."""
    plan(db, BatchItem("k0", "p", "docs"), BatchItem("k1", "p", "docs"))
    asyncio.run(answered_late(db))
    assert main(["status", db]) == 4
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2].split() == ["active", "k1", "p", *["its", "create", "was", "answered", "late"]]
    assert "look at both jobs, and keep the result of one:" in printed.err
    assert "  k1: try 1 is active, docs~.job_a; try 2 is completed, docs~.job_b\n" in printed.err
    assert main(["status", db, "--format", "jsonl"]) == 4
    late = json.loads(capsys.readouterr().out)
    assert (late["key"], late["tries"], late["job_id"]) == ("k1", 1, "job_a")
    assert main(["status", db, "--state", "planned"]) == 4
    printed = capsys.readouterr()
    assert "answered late" not in (printed.out + printed.err).lower()


def test_all_tries(db: str, capsys: Captured) -> None:
    """With `--tries all` each item comes after its earlier tries; the number of items does not change."""
    plan(db, *(BatchItem(f"k{number}", "p", "docs") for number in range(60)))
    asyncio.run(reject(db, 55))

    async def retried() -> None:
        async with Journal.open(db) as journal:
            await journal.retry("k1")

    asyncio.run(retried())
    asyncio.run(reject(db, 1))
    assert main(["status", db, "--tries", "all"]) == 4
    printed = capsys.readouterr()
    names = [re.split("  +", line)[1] for line in printed.out.splitlines()[2:]]
    assert names[:4] == ["k0", "k1", "k1 (try 2)", "k2"]
    assert "50 of 55 are shown" in printed.err
    for options, tries in (([], ["2"]), (["--tries", "all"], ["1", "2"])):
        assert main(["export", db, *options]) == 0
        lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [line["tries"] for line in lines if line["key"] == "k1"] == tries
        for form in ("csv", "jsonl"):
            assert main(["report", db, "--format", form, *options]) == 0
            assert len(capsys.readouterr().out.splitlines()) == len(lines) + (form == "csv")
    assert main(["report", db, "--format", "markdown", "--tries", "all"]) == 2
    assert capsys.readouterr().err == "Error: --tries all is for csv and jsonl: markdown has each item once\n"
