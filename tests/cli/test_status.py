import asyncio
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._store.file_lock import FileLock
from tests.batch.stage import claim_of
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow


def test_a_fleet(service: EmulatorThread, database: str) -> None:
    """It shows the workers and the items under way until the last has ended, and ends with the code of all."""
    service.live(duration=3600)
    service.live("failed", prompt="first one")
    assert main(["submit", "first one", "second one", "--journal", database]) == 0
    command = ("status", "--watch", "--journal", database)
    with Child("worker", "--until-done", "--journal", database, env=service.environment) as worker:
        worker.until("1 failed")
        with Child(*command, terminal=True) as shown, Child(*command) as logged:
            shown.until("] 1 of 2 ended").until("1 failed").until("1 active").until("LAST HEARTBEAT").until(
                "second one"
            )
            logged.until("50 %: 1 failed, 1 active; ").until("; 1 worker")
            service.wait_for_polls(2)  # an item without a job is not abandoned
            assert main(["resolve", "2", "--abandon", "--journal", database]) == 0
            for watch in (shown, logged):
                assert watch.ended() == 1
                assert "1 failed, 1 abandoned" in watch.stdout
        assert worker.ended() == 1


def test_a_file_that_has_ended(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """A journal whose items have all ended is not watched: its sum is shown."""
    assert main(["run", "one", "--journal", db]) == 0
    capsys.readouterr()
    assert main(["status", "--watch", db]) == 0
    assert capsys.readouterr().out == "1 completed\n"
    assert service.emulator.agents_started.total() == 1


def test_a_file_that_was_left(tmp_path: Path) -> None:
    """Where the run has ended before its items, it says at once that nobody works on them, and tells no end."""
    journal = tmp_path / "run.db"

    async def plan() -> None:
        async with Journal.open(journal) as opened:
            await opened.add([BatchItem("1", "p", "docs"), BatchItem("2", "p", "docs")])
            assert isinstance(await opened._entries.claim("2"), str)
            assert await opened._entries.mark_unknown(
                "2", OSError("no answer"), claim=await claim_of(opened._entries, "2")
            )
            await opened.abandon("2")

    asyncio.run(plan())
    with Child("status", "--watch", str(journal)) as watch:
        watch.until("no process works on it; agentjobs resume continues\n")
        assert "ends about" not in watch.stdout
    owner = FileLock(journal)
    with Child("status", "--watch", str(journal)) as watch:
        watch.until("50 %: 1 planned, 1 abandoned; ")
        assert "no process" not in watch.stdout
    owner.release()
