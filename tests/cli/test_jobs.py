import asyncio
import json
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem
from agentjobs_async.batch._database.file_lock import FileLock
from tests.aged import LONG_AGO_SECONDS, aged_journal
from tests.cli.checks import LOCAL_TIME, Captured, plan
from tests.cli.stage import Child, EmulatorThread


def test_create_prints_the_token(service: EmulatorThread, capsys: Captured) -> None:
    """`create` prints the token alone, so that a script can keep it; `--project` wins, and becomes one segment."""
    assert main(["create", "Tidy up"]) == 0
    assert capsys.readouterr() == (f"docs~.{service.job_ids[0]}\n", "")
    assert main(["create", "--project", "a/b c", "Tidy up"]) == 0
    assert capsys.readouterr() == (f"a~2Fb~20c~.{service.job_ids[1]}\n", "")
    assert [request.project_id for request in service.emulator.requests] == ["docs", "a/b c"]
    assert service.emulator.agents_started == {"Tidy up": 2}


FAILURES = {
    "400 error=nonsense": (1, "HTTP 400: nonsense"),
    "401": (3, "check the API key"),
    "403": (3, "check the API key"),
    "429 retry-after=3600": (1, "nothing was done"),
    "500": (4, "an agent may have been started"),
    "reset": (4, "an agent may have been started"),
    r'400 error="\u001b[31mred [bold]"': (1, r"\x1b[31mred [bold]"),
}


def test_create_that_fails(service: EmulatorThread, capsys: Captured) -> None:
    """A create that fails is shown on one line, and its outcome gives the exit code."""
    failed = {}
    for fault, (code, words) in FAILURES.items():
        service.inject(fault)
        found, written = main(["create", "Tidy up"]), capsys.readouterr()
        line = written.err.removesuffix("\n")
        is_told = line.startswith("Error: ") and words in line and line.isprintable()
        if (found, is_told, written.out) != (code, True, ""):
            failed[fault] = (found, written)
    assert failed == {}


def test_get_shows_the_job(service: EmulatorThread, capsys: Captured) -> None:
    """`get` shows each field of the job on its line, and ends with 0 whatever the status."""
    service.live("failed")
    assert main(["create", "Tidy up"]) == 0
    assert main(["get", service.job_ids[0]]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[:4] == [
        f"job           docs~.{service.job_ids[0]}",
        "status        failed",
        "pull request  -",
        "repository    acme/docs",
    ]
    assert lines[-1] == "archived      -"


def test_a_job_as_json(service: EmulatorThread, capsys: Captured) -> None:
    """With `--json` a job has the names and times of an item, and no number, which a journal alone gives."""
    service.live("archived")
    assert main(["create", "--json", "Tidy up"]) == 0
    created = json.loads(capsys.readouterr().out)
    token = f"docs~.{service.job_ids[0]}"
    assert (created["job"], created["status"]) == (token, "active")
    service.inject("document source=null model=null on=get")
    assert main(["get", "--json", token]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "archived"
    assert re.fullmatch(r"[-\d]{10}T[:\d]{8}\.\d{3}Z", document["archived_at"])
    assert (document["source"], document["pr_link"]) == (None, None)
    assert list(document)[:4] == ["job", "project", "job_id", "status"]
    assert main(["wait", "--json", token]) == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["number"] for event in events if "number" in event] == [None] * 2
    assert events[1] | document == document | events[1]


def test_get_hostile_text(service: EmulatorThread, capsys: Captured) -> None:
    """What the service says of a job never reaches the terminal raw, nor as markup."""
    assert main(["create", "Tidy up"]) == 0
    service.inject(r'document status="\u001b[2J" model="[red]\u202emodel" source.ref="a\nb" on=get')
    capsys.readouterr()
    assert main(["get", service.job_ids[0]]) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert r"status        \x1b[2J" in shown
    assert r"model         [red]\u202emodel" in shown
    assert r"ref           a\nb" in shown


def test_get_that_fails(service: EmulatorThread, capsys: Captured) -> None:
    """A mistyped job is shown on one line, and `get --timeout` bounds the one read."""
    assert main(["get", "job_typo"]) == 4
    error = capsys.readouterr().err
    assert "HTTP 404: no such job" in error
    assert error.count("\n") == 1
    service.inject("hang")
    assert main(["get", "--timeout", "0.05", "job_1"]) == 4
    assert "no whole answer within 0.05 s" in capsys.readouterr().err


def test_wait_exit_code(service: EmulatorThread, capsys: Captured) -> None:
    """`wait` ends with 0 when the job completed, with 1 when it ended otherwise, and says which."""
    for outcome, code, end in (
        ("completed", 0, "completed: https://code.example/acme/docs/pull/completed"),
        ("failed", 1, "failed: the agent failed"),
        ("archived", 1, "archived: the job was archived"),
    ):
        service.live(outcome, job_id=outcome)
        assert main(["create", "Tidy up"]) == 0
        assert main(["wait", outcome]) == code
        assert f"docs~.{outcome} {end}" in capsys.readouterr().out.splitlines()


def test_wait_for_the_same_twice(service: EmulatorThread, capsys: Captured) -> None:
    """A job named twice, as token and as id, is waited for once, with `--timeout none` for as long as it takes."""
    assert main(["create", "Tidy up"]) == 0
    (job_id,) = service.job_ids
    assert main(["wait", "--timeout", "none", job_id, f"docs~.{job_id}"]) == 0
    assert len(service.emulator.requests) == 2
    assert "\n1 completed\n" in capsys.readouterr().out


def test_wait_times_out(service: EmulatorThread, capsys: Captured) -> None:
    """A wait whose time ran out ends with 4 and prints the command that goes on, with all its options."""
    service.live(duration=3600)
    assert main(["create", "Tidy up"]) == 0
    (job_id,) = service.job_ids
    assert main(["wait", "--timeout", "0.05", "--json", job_id]) == 4
    url = service.emulator.base_url
    assert f" wait --base-url {url} --timeout 0.05 --json 'docs~.{job_id}'\n" in capsys.readouterr().err


def test_wait_for_a_job_that_is_not_there(service: EmulatorThread, capsys: Captured) -> None:
    """A job that is gone is not offered to be waited for again; one that no poll has shown is not said to exist."""
    service.inject("410")
    assert main(["wait", "job_gone"]) == 4
    written = capsys.readouterr()
    assert "docs~.job_gone unknown: HTTP 410" in written.out
    assert "agentjobs" not in written.err
    service.inject("404 forever")
    assert main(["wait", "--timeout", "0.05", "job_typo"]) == 4
    assert "1 job continues remotely, if it exists. Wait for it with:\n" in capsys.readouterr().err


def test_a_key_that_is_refused_later(service: EmulatorThread, capsys: Captured) -> None:
    """A key that may not read the job leaves it active, and makes the exit code 3, of a wait as of a run."""
    service.live("failed", prompt="a x")
    service.inject("403 forever on=get", prompt="b x")
    assert main(["run", "--yes", "a x", "b x"]) == 3
    assert " active: HTTP 403: Forbidden\n" in capsys.readouterr().out
    assert main(["wait", "--json", service.job_ids[1]]) == 3
    ended, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (ended["state"], ended["status"]) == ("active", None)
    assert summary == {"event": "summary", "states": {"active": 1}, "exit_code": 3}


def test_run_survives_failures(service: EmulatorThread, capsys: Captured) -> None:
    """One prompt's failure disturbs no other; each has its line, its row, and its part in the exit code."""
    service.live("failed", prompt="b")
    service.inject("500", prompt="c")
    service.inject("400", prompt="d")
    assert main(["run", "--yes", "a", "b", "c", "d", "e"]) == 4
    written = capsys.readouterr()
    table = [line for line in written.out.split("\n\n")[1].splitlines() if not line.startswith(" ")]
    assert [line.split()[:3] for line in table] == [
        ["STATE", "KEY", "PROMPT"],
        ["unknown", "3", "c"],
        ["failed", "2", "b"],
        ["rejected", "4", "d"],
        ["completed", "1", "a"],
        ["completed", "5", "e"],
    ]
    assert "  the agent failed (docs~.job_" in table[2]
    assert "\n1 unknown, 1 failed, 1 rejected, 2 completed\n" in written.out
    assert "The request was refused; the same request would be refused again.\n" in written.err
    assert "prompt 3 unknown: HTTP 500 after the prompt was sent" in written.out
    assert "May have started an agent; look at the project" in written.err
    assert re.search(rf"\n  item 3, docs, sent {LOCAL_TIME}: c\n", written.err)


def test_run_bounds_active_jobs(service: EmulatorThread, capsys: Captured) -> None:
    """With `--max-active 1` a job is created only when the one before it has ended."""
    assert main(["run", "--yes", "--max-active", "1", "a", "b"]) == 0
    assert [request.method for request in service.emulator.requests] == ["POST", "GET", "POST", "GET"]
    assert "\n2 completed\n" in capsys.readouterr().out


def test_wrong_key_stops_the_run(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A key that is refused from the start is tried once, not for every prompt, and is in no output."""
    monkeypatch.setenv("AGENTJOBS_API_KEY", "wrong-key-0123456789")
    assert main(["run", "--yes", "--max-active", "1", "a", "b", "c"]) == 3
    written = capsys.readouterr()
    assert len(service.emulator.requests) == 1
    assert "\n3 planned\n" in written.out
    assert "Nothing was sent. Resume with:\n" in written.err
    assert " resume " in written.err
    assert "wrong-key" not in written.out + written.err


WORDS = "in about 2 h, 9 of 10 within 2 h"
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


@pytest.mark.slow
def test_own_run(service: EmulatorThread) -> None:
    """Once 20 jobs have ended, their durations tell when a younger one will."""
    service.live(duration=3600, prompt="Tidy up")
    created_at = datetime.now(UTC) - timedelta(seconds=45)
    service.inject(f"document createdAt={created_at:%Y-%m-%dT%H:%M:%SZ} on=get forever", prompt="Page")
    for prompt in [*["Page"] * 20, "Tidy up"]:
        assert main(["create", prompt]) == 0
    tokens = [f"docs~.{job_id}" for job_id in service.job_ids]
    with Child("wait", *tokens, env=service.environment, terminal=True) as wait:
        wait.until("20 of 21 ended").until(f"{tokens[-1]} ends in about ").send(signal.SIGINT)
        assert wait.ended() == 130


@pytest.mark.slow
def test_an_unknown_job_has_not_ended(service: EmulatorThread, token: str) -> None:
    """The count of a wait leaves out a job that can't be found: its end is not known."""
    service.inject("410 forever", job_id="job_gone")
    with Child("wait", token, "job_gone", env=service.environment, terminal=True) as wait:
        wait.until(": HTTP 410").send(signal.SIGINT)
        assert wait.ended() == 130
    assert "0 of 2 ended" in wait.stdout
    assert "1 of 2 ended" not in wait.stdout


@pytest.mark.slow
def test_status_of_a_journal(tmp_path: Path, capsys: Captured) -> None:
    """`status` tells when a run ends while its jobs are seen; else it says why nothing is known."""
    db = tmp_path / "run.db"
    gone = tmp_path / "gone.db"
    asyncio.run(aged_journal(db, [7200.0] * 20, ages=[1.0]))
    asyncio.run(aged_journal(gone, [7200.0] * 20, ages=[1000.0], unseen_seconds=900.0))
    assert main(["status", str(db)]) == 4
    assert "ends about" not in capsys.readouterr().out
    for journal, words in (db, "ends about "), (gone, "no active job was seen for 15 min: "):
        owner = FileLock(journal)
        assert main(["status", str(journal)]) == 4
        head = capsys.readouterr().out.splitlines()[:3]
        assert head[0].startswith("95 % ━━━━")
        assert head[1].startswith(words)
        assert head[2] == "1 active  20 completed  median 2 h, 9 of 10 within 2 h"
        owner.release()


def test_status_before_the_first_answer(tmp_path: Path, capsys: Captured) -> None:
    """While no job is active, nothing shows that the service answers, and no end is shown."""
    db = tmp_path / "run.db"
    asyncio.run(aged_journal(db, [7200.0] * 20))
    plan(str(db), BatchItem("new", "p", "docs"))
    owner = FileLock(db)
    assert main(["status", str(db)]) == 4
    assert capsys.readouterr().out.splitlines()[1] == "no estimate of the end yet"
    owner.release()


def test_status_while_a_rate_holds_creates_back(tmp_path: Path, capsys: Captured) -> None:
    """Where a job was seen of late, the end is shown while none is active, too: the next create waits for the rate."""
    db = tmp_path / "run.db"
    asyncio.run(aged_journal(db, [LONG_AGO_SECONDS - 5.0] * 20))
    plan(str(db), BatchItem("new", "p", "docs"))
    owner = FileLock(db)
    assert main(["status", str(db)]) == 4
    assert capsys.readouterr().out.splitlines()[1].startswith("ends about ")
    owner.release()
