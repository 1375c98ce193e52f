"""When the jobs of `agentjobs wait` will end, in words."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch._store.file_lock import FileLock
from agentjobs_async.cli.actions import _journal_options
from tests.aged import aged_journal
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow

WORDS = "in about 2.0 h, 9 of 10 within 2.0 h"
"""They stay the same for minutes, however slow the machine is."""


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A journal in which 20 jobs took 2 hours each."""
    asyncio.run(aged_journal(tmp_path / "run.db", [7200.0] * 20))
    return str(tmp_path / "run.db")


@pytest.fixture
def token(service: EmulatorThread, capsys: Captured) -> str:
    """A job that has just begun, and takes longer than the test."""
    service.live(duration=3600)
    assert main(["create", "Tidy up"]) == 0
    return capsys.readouterr().out.strip()


def test_in_a_log(service: EmulatorThread, token: str, db: str) -> None:
    """A log gets the estimate with the line that shows the job as active; its last command names the journal."""
    with Child("wait", token, "--journal", db, env=service.environment) as wait:
        wait.until(f"{token} active, ends {WORDS}\n").send(signal.SIGINT)
        assert wait.ended() == 130
    assert f" --journal {db} {token}\n" in wait.stderr


def test_at_a_terminal(service: EmulatorThread, token: str, db: str) -> None:
    """A terminal shows it below the count, of several jobs of when one ends; the journal may be the environment's."""
    assert main(["create", "Another"]) == 0
    env = {**service.environment, "AGENTJOBS_JOURNAL": db}
    for jobs, words in ([token], f"\nends {WORDS}"), ([token, "job_000002"], f"an active job ends {WORDS}"):
        with Child("wait", *jobs, env=env, terminal=True) as wait:
            wait.until(words).send(signal.SIGINT)
            assert wait.ended() == 130
        assert f"active, ends {WORDS}" not in wait.stdout
        assert "--journal" not in wait.stdout


def test_nothing_is_known(service: EmulatorThread, token: str, tmp_path: Path) -> None:
    """Without 20 durations nothing is told; a journal that can't be read is named, and the wait goes on."""
    for journal in ([], ["--journal", str(tmp_path / "none.db")]):
        with Child("wait", token, *journal, env=service.environment) as wait:
            wait.until(f"{token} active\n").send(signal.SIGINT)
            assert wait.ended() == 130
        assert ("Nothing is learned from the journal: " in wait.stderr) is bool(journal)


def test_own_run(service: EmulatorThread) -> None:
    """Once 20 jobs of the run itself have ended, their durations tell of a younger one."""
    service.live(duration=3600, prompt="Tidy up")
    created_at = datetime.now(UTC) - timedelta(seconds=45)
    service.inject(f"document createdAt={created_at:%Y-%m-%dT%H:%M:%SZ} on=get forever", prompt="Page")
    for prompt in [*["Page"] * 20, "Tidy up"]:
        assert main(["create", prompt]) == 0
    tokens = [f"docs/job_{number:06}" for number in range(1, 22)]
    with Child("wait", *tokens, env=service.environment, terminal=True) as wait:
        wait.until("20 of 21 ended").until("ends in about ").send(signal.SIGINT)
        assert wait.ended() == 130


def test_status_of_a_journal(tmp_path: Path, capsys: Captured) -> None:
    """`status` tells people when an active job ends, below the counts, while a process works on the journal."""
    db = tmp_path / "run.db"
    asyncio.run(aged_journal(db, [7200.0] * 20, ages=[1.0]))
    assert main(["status", str(db)]) == 4
    assert "an active job" not in capsys.readouterr().out
    owner = FileLock(db)
    assert main(["status", str(db)]) == 4
    assert capsys.readouterr().out.splitlines()[:2] == ["1 active, 20 completed", f"an active job ends {WORDS}"]
    for form in ("markdown", "jsonl"):
        assert main(["status", str(db), "--format", form]) == 4
        assert "an active job" not in capsys.readouterr().out
    owner.release()


def test_watched_journal(service: EmulatorThread, db: str) -> None:
    """`status --watch`, and the end of a run that leaves jobs active, tell it as well."""
    service.live(duration=3600)
    with Child("run", "--yes", "Another", "--journal", db, env=service.environment) as run:
        service.wait_for_requests(2)
        with Child("status", "--watch", db) as watch:
            watch.until(f"an active job ends {WORDS}")
        run.send(signal.SIGINT)
        assert run.ended() == 130
    assert f"1 active, 20 completed\nan active job ends {WORDS}\nResume with:\n" in run.stderr


def test_journal_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command gets the journal without its password, and none that the environment names."""
    url = "postgresql+psycopg://me:hunter2@db.example/agents"
    monkeypatch.delenv("AGENTJOBS_JOURNAL", raising=False)
    assert _journal_options(None) == []
    assert _journal_options(url) == ["--journal", "postgresql+psycopg://me@db.example/agents"]
    monkeypatch.setenv("AGENTJOBS_JOURNAL", url)
    assert _journal_options(url) == []
