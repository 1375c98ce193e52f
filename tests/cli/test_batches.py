import asyncio
import json
import re
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from agentjobs_async import JournalError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import Entries, Journal
from tests.cli.stage import Child, EmulatorThread

HOSTILE = "\x1b]0;owned\x07"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A file of three tasks."""
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps({"key": f"k{n}", "prompt": f"p{n}"}) + "\n" for n in range(3)))
    return file


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Where the journal is."""
    return str(tmp_path / "run.db")


def db_has_jobs(db: str) -> bool:
    """Look into a journal whose owner may just be making it."""
    try:
        with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT 1 FROM agentjobs_entries WHERE state = 'created'").fetchone())
    except sqlite3.OperationalError:
        return False


def run(tasks: Path, db: str, *more: str) -> int:
    return main(["run", "--file", str(tasks), "--journal", db, "--create-rate", "none", *more])


def test_run_and_run_again(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A run sends each task once, tells each end, and running again does nothing."""
    assert run(tasks, db) == 0
    written = capsys.readouterr()
    assert sorted(line.split(":")[0] for line in written.out.splitlines()) == [f"k{n} completed" for n in range(3)]
    assert written.err == "3 completed\n"
    assert run(tasks, db) == 0
    assert capsys.readouterr().out == ""
    assert set(service.emulator.agents_started.values()) == {1}


def test_refusals(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks that can't be sent are told with the reasons and disturb no other; the exit code tells."""
    with tasks.open("a") as file:
        file.write('{"key": "k1", "prompt": "again"}\n{"key": "bad", "prompt": " "}\n')
    assert run(tasks, db) == 1
    told = capsys.readouterr().err
    assert "k1 refused: the key came before in this file\nbad refused: prompt is blank" in told
    assert len(service.emulator.agents_started) == 3


def test_dry_run(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run tells what would be sent and refused, makes no journal and sends nothing."""
    assert run(tasks, db, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [f"k{n} would be sent: p{n}" for n in range(3)]
    assert not Path(db).exists()
    assert service.emulator.requests == ()
    assert run(tasks, db, "--limit", "1") == 4
    tasks.write_text('{"key": "k0", "prompt": "changed"}\n{"key": "new", "prompt": "x"}\n')
    capsys.readouterr()
    assert run(tasks, db, "--dry-run") == 1
    written = capsys.readouterr()
    assert written.out.splitlines() == ["k1 would be sent: p1", "k2 would be sent: p2", "new would be sent: x"]
    assert "k0 refused: the key 'k0' is that of another prompt" in written.err


def test_limit_and_resume(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A limited run ends as unfinished and prints the command that goes on; resume goes on."""
    assert run(tasks, db, "--limit", "1") == 4
    assert re.search(r"Go on with:\n  .* resume --journal \S+run.db --base-url \S+ ", capsys.readouterr().err)
    assert main(["resume", "--journal", db, "--create-rate", "none"]) == 0
    assert len(service.emulator.agents_started) == 3


def test_failures_and_retry(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed item makes the exit code 1, and goes again only where that is asked for."""
    service.live("failed", prompt="p1")
    assert run(tasks, db) == 1
    assert "k1 failed\n" in capsys.readouterr().out
    service.live("completed", prompt="p1")
    assert main(["resume", "--journal", db]) == 1
    assert main(["resume", "--journal", db, "--retry-failed", "--create-rate", "none"]) == 1
    assert "k1#2 completed: http" in capsys.readouterr().out
    assert service.emulator.agents_started["p1"] == 2
    assert main(["resume", "--journal", db, "--retry-failed"]) == 1
    assert service.emulator.agents_started["p1"] == 2


def test_results_for_machines(
    service: EmulatorThread, tasks: Path, db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each result is a line of JSON, on standard output with --json, and at the end of the file that --out names."""
    service.live("failed", prompt="p1")
    out = tmp_path / "results.jsonl"
    out.write_text("before\n")
    assert run(tasks, db, "--out", str(out), "--json") == 1
    lines = capsys.readouterr().out.splitlines()
    assert out.read_text().splitlines() == ["before", *lines]
    results = {result["key"]: result for result in map(json.loads, lines)}
    assert (results["k1"]["outcome"], results["k1"]["pr_link"]) == ("failed", None)
    assert results["k0"]["pr_link"].startswith("http")


def test_status(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is a table, Markdown or JSON Lines; nothing hostile in it reaches a terminal."""
    tasks.write_text(json.dumps({"key": "a|b", "prompt": HOSTILE}) + "\n")
    service.inject(f'422 error="{HOSTILE}"'.replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
    assert run(tasks, db) == 1
    for form, words in {"table": "a|b  rejected", "markdown": "| a\\|b | rejected |", "jsonl": '"key": "a|b"'}.items():
        capsys.readouterr()
        assert main(["status", "--journal", db, "--format", form]) == 1
        written = capsys.readouterr()
        assert words in written.out
        assert written.out.replace("\n", "").isprintable()


def test_unsure_and_resolved(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody is sure of is listed, and resolved by its job or by sending it again."""
    service.inject("reset:headers x1", prompt="p0")
    service.inject("500 agent=no x1", prompt="p1")
    assert run(tasks, db) == 4
    told = capsys.readouterr().err
    assert "1 completed, 2 unsure" in told
    assert "then use agentjobs resolve:\n  k0: p0\n  k1: p1\n" in told
    (job,) = [job.job_id for job in service.emulator.jobs.values() if job.prompt == "p0"]
    assert main(["resolve", "k0", "--journal", db, "--job", job]) == 0
    assert main(["resolve", "k1", "--journal", db, "--send-again"]) == 0
    assert main(["resume", "--journal", db, "--create-rate", "none"]) == 0
    assert set(service.emulator.agents_started.values()) == {1}


def test_many_unsure(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of very many that are unsure the first are listed, and how many more there are."""
    tasks.write_text("".join(f"prompt {number}\n" for number in range(25)))
    service.inject("500 forever")
    assert run(tasks, db) == 4
    assert "  … and 5 more: agentjobs status tells all" in capsys.readouterr().err


def test_ids_that_the_journal_cannot_take(
    service: EmulatorThread,
    tasks: Path,
    db: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every id that can't be written down is told, not only that of the error which ends the run."""

    async def full(*_: object) -> bool:
        await asyncio.sleep(0)
        raise JournalError("no room", "full")

    monkeypatch.setattr(Entries, "created", full)
    assert run(tasks, db) == 4
    told = capsys.readouterr().err
    for job in service.emulator.jobs.values():
        assert f"the job of 'k{job.prompt[1:]}' is docs/{job.job_id}" in told
    assert len(service.emulator.jobs) >= 1


def test_the_way_on(service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that goes on has every setting of this run that is not the default."""
    settings = ["--create-rate", "90/m", "--max-active", "7", "--timeout", "none", "--max-failures", "9"]
    assert main(["run", "--file", str(tasks), "--journal", db, "--limit", "1", *settings]) == 4
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith("--project docs --max-active 7 --create-rate 90/m --timeout none --max-failures 9")
    assert main(["run", "--file", str(tasks), "--journal", db, "--limit", "1", "--timeout", "2.5"]) == 4
    assert capsys.readouterr().err.splitlines()[-1].endswith("--project docs --timeout 2.5")
    assert len(service.emulator.agents_started) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "x", "--limit", "1"], "--limit needs --journal FILE"),
        (["run", "x", "--dry-run"], "--dry-run needs --journal FILE"),
        (["run", "--file", "tasks.jsonl"], "they need --journal FILE"),
        (["run", "x", "--journal", "a.db", "--create-rate", "soon"], "--create-rate: soon is neither"),
        (["resume", "--journal", "none.db"], "--journal: there is no none.db"),
        (["status", "--journal", "none.db"], "--journal: there is no none.db"),
        (["resolve", "k", "--journal", "none.db"], "give either --job ID or --send-again"),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong usage ends with 2 before anything is made."""
    monkeypatch.chdir(tmp_path)
    Path("tasks.jsonl").write_text('{"prompt": "x"}\n')
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_resolving_what_is_sure(
    service: EmulatorThread, tasks: Path, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to resolve about an item that is known, or is not there."""
    assert run(tasks, db) == 0
    assert service.emulator.agents_started.total() == 3
    for key, words in {"k0": "k0 is completed", "x": "no row of the key 'x'"}.items():
        assert main(["resolve", key, "--journal", db, "--send-again"]) == 2
        assert words in capsys.readouterr().err


def test_emulated_run_is_stopped(tasks: Path, db: str) -> None:
    """An emulator's jobs end with the command; what goes on runs on an emulator again."""
    with Child("run", "--emulator", "--file", str(tasks), "--journal", db) as child:
        child.until_error("Emulator at")
        while not db_has_jobs(db):
            time.sleep(0.01)
        child.send(signal.SIGINT)
        assert child.ended() == 130
    assert "and its jobs with it" in child.stderr
    assert child.stderr.endswith(" --emulator\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(service: EmulatorThread, tasks: Path, db: str, number: signal.Signals, code: int) -> None:
    """A signal ends the run with its own code after the command that goes on; nothing is lost, nothing begun."""
    service.live(duration=3600)
    arguments = ["run", "--file", str(tasks), "--journal", db, "--max-active", "2"]
    with Child(*arguments, env=service.environment) as child:
        service.wait_for_requests(4)
        child.send(number)
        assert child.ended() == code
    assert "resume --journal" in child.stderr
    assert "Traceback" not in child.stderr
    assert service.emulator.agents_started.total() == 2
    service.live(duration=0)
    for job in service.emulator.jobs.values():
        assert job.prompt in {"p0", "p1"}


def test_second_signal(service: EmulatorThread, tasks: Path, db: str) -> None:
    """The first signal tells what is waited for; a second one ends the run at once, though a create under way hangs."""
    service.inject("hang forever")
    with Child("run", "--file", str(tasks), "--journal", db, env=service.environment) as child:
        service.wait_for_requests(1)
        child.send(signal.SIGINT)
        child.until_error("Stopping: up to 10 s for the answers of creates under way (")
        while child.process.poll() is None:
            child.send(signal.SIGINT)
        assert child.process.returncode == -signal.SIGINT
    with Child("status", "--journal", db, "--format", "jsonl", env=service.environment) as status:
        assert status.ended() == 4
    assert '"state": "sending"' in status.stdout


def test_board_until_the_end(service: EmulatorThread, tasks: Path, db: str) -> None:
    """The board goes at the end of the run, and leaves the lines of what ended."""
    service.live(duration=1.5)
    arguments = ["run", "--file", str(tasks), "--journal", db]
    with Child(*arguments, env=service.environment, terminal=True) as child:
        child.until("3 active").until("created")
        assert child.ended() == 0
    assert "k0 " in child.stdout
    assert "3 completed" in child.stdout.splitlines()[-1]


def test_board_on_a_terminal(service: EmulatorThread, tasks: Path, db: str) -> None:
    """On a terminal of 80 columns a board shows the items under way, and goes when the run is stopped."""
    service.live(duration=3600)
    arguments = ["run", "--file", str(tasks), "--journal", db, "--max-active", "2"]
    with Child(*arguments, env=service.environment, terminal=True) as child:
        child.until("PULL REQUEST").until("created").until("2 active").send(signal.SIGINT)
        assert child.ended() == 130
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.stdout)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 80 or "resume --journal" in plain


def test_status_of_nothing(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The summary of a status is output; of an empty journal it says where the rows of a copy may have stayed."""

    async def make() -> None:
        async with Journal.open(db):
            pass

    asyncio.run(make())
    assert main(["status", "--journal", db]) == 0
    captured = capsys.readouterr()
    assert ("-wal file" in captured.out, captured.err) == (True, "")
