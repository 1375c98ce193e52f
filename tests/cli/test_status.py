import asyncio
import json
import re
from pathlib import Path

import pytest

from agentjobs_async import RejectedError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._store.file_lock import FileLock
from tests.batch.stage import claim_of
from tests.cli.checks import Captured, plan
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow


async def reject(db: str, number: int) -> None:
    """Record of the first items that the server has refused their creates."""
    async with Journal.open(db) as journal:
        for row in (await journal.rows())[:number]:
            claim = await journal._store.claim(row.key)
            assert isinstance(claim, str)
            assert await journal._store.record_rejected(row.key, RejectedError(422), claim=claim)


def test_what_needs_a_person(db: str, capsys: Captured) -> None:
    """At most 50 items are shown: those that need a person, or that the filters name; a line tells how to get all."""
    plan(db, *(BatchItem(f"k{number}", "p", "docs") for number in range(120)))
    asyncio.run(reject(db, 60))
    assert main(["status", db]) == 4
    printed = capsys.readouterr()
    tally, _, *rows = printed.out.splitlines()
    assert tally == "60 rejected, 60 planned"
    assert [row.split()[:2] for row in rows] == [["rejected", f"k{number}"] for number in range(50)]
    more, command = printed.err.splitlines()[:2]
    assert more == "50 of 60 are shown; all items are written by:"
    assert command.endswith(f" export {db}")
    assert main(["status", db, "--state", "planned", "--state", "rejected", "--grep", "k11"]) == 4
    printed = capsys.readouterr()
    assert [row.split()[:2] for row in printed.out.splitlines()[2:]] == [
        ["rejected", "k11"],
        *(["planned", f"k{number}"] for number in range(110, 120)),
    ]
    assert "are shown" not in printed.err


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
        assert "] 1 of 2 ended" in printed
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
            assert isinstance(await opened._store.claim("2"), str)
            assert await opened._store.record_unknown(
                "2", OSError("no answer"), claim=await claim_of(opened._store, "2")
            )
            await opened.abandon("2")

    asyncio.run(plan())
    assert main(["status", str(journal)]) == 4
    printed = capsys.readouterr()
    assert "No process works on it; continue with:" in printed.err
    assert "ends about" not in printed.out
    owner = FileLock(journal)
    assert main(["status", str(journal)]) == 4
    printed = capsys.readouterr()
    assert "] 1 of 2 ended" in printed.out
    assert "No process" not in printed.err
    owner.release()
