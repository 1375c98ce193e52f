import asyncio
import io
import json
import os
import pty
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async import JournalError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._database.file_lock import FileLock
from agentjobs_async.batch._run.records import Records
from agentjobs_async.cli.run import _planned
from agentjobs_async.report.items import COLUMNS
from tests.cli.checks import LOCAL_TIME, Captured, plan, run, screen
from tests.cli.stage import Child, EmulatorThread, endless_planning, lasting_emulator, without_power

pytestmark = pytest.mark.slow

HOSTILE = "\x1b]0;owned\x07"


def test_run_and_run_again(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """A run sends each item once, shows each end, and running again does nothing."""
    assert run(prompts, db) == 0
    written = capsys.readouterr()
    assert sorted(line.split(":")[0] for line in written.out.splitlines()) == [f"k{n} completed" for n in range(3)]
    assert written.err == "3 completed\n"
    assert run(prompts, db) == 0
    assert capsys.readouterr().out == ""
    assert set(service.emulator.agents_started.values()) == {1}


def test_invalid_prompts(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """Prompts that can't be sent are shown with the reasons and disturb no other; the exit code tells."""
    with prompts.open("a") as file:
        file.write('{"key": "k1", "prompt": "again"}\n{"key": "bad", "prompt": " "}\n')
    assert run(prompts, db) == 1
    printed = capsys.readouterr().err
    assert "k1 refused: line 4 repeats the key of line 2\nbad refused: prompt is blank" in printed
    assert printed.endswith(
        "3 completed\n2 prompts were refused, and are not in the journal: the first lines say why.\n"
    )
    assert len(service.emulator.agents_started) == 3


def test_failures_and_retry(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """A failed item makes the exit code 1, and goes again only where that is asked for."""
    service.live("failed", prompt="p1")
    assert run(prompts, db) == 1
    assert re.search(r"^k1 failed: the agent failed \(docs~.job_\w+\)$", capsys.readouterr().out, re.MULTILINE)
    service.live("completed", prompt="p1")
    assert main(["resume", "--journal", db]) == 1
    assert main(["resume", "--journal", db, "--retry-failed", "--create-rate", "none"]) == 0
    written = capsys.readouterr()
    assert "k1 (try 2) completed: http" in written.out
    assert written.err.endswith("3 completed\n")
    assert service.emulator.agents_started["p1"] == 2
    assert main(["resume", "--journal", db, "--retry-failed"]) == 0
    assert main(["status", "--journal", db, "--summary"]) == 0
    assert capsys.readouterr().out == "3 completed\n"
    assert service.emulator.agents_started["p1"] == 2


def test_a_bound_on_tries(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """What is tried again and fails makes the code 4 while it has tries left, then 1: a loop goes on at 4 alone."""
    service.live("failed", prompt="p1")
    assert run(prompts, db) == 1
    again = ["resume", db, "--retry-failed", "--max-tries", "3"]
    assert main(again) == 4
    assert capsys.readouterr().err.endswith(" --retry-failed --max-tries 3\n")
    assert [main(again) for _ in range(2)] == [1, 1]
    assert "--retry-failed" not in capsys.readouterr().err
    assert service.emulator.agents_started["p1"] == 3
    assert main(["resume", "--retry-failed", db]) == 4
    service.live(prompt="p1")
    assert main(["resume", "--retry-failed", db]) == 0
    assert service.emulator.agents_started["p1"] == 5


def test_a_retried_item_among_the_results(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """The results name an item by its own key, with the number of its tries, and settle it by that key."""
    service.live("failed", prompt="p1")
    run(prompts, db)
    service.inject("503 on=create", prompt="p1")
    assert main(["resume", db, "--retry-failed"]) == 4
    capsys.readouterr()
    assert main(["export", db, "--format", "jsonl"]) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert {row["key"]: (row["tries"], row["state"]) for row in rows} == {
        "k0": (1, "completed"),
        "k1": (2, "unknown"),
        "k2": (1, "completed"),
    }
    assert main(["resolve", "k1", "--journal", db, "--abandon"]) == 0
    assert main(["status", db]) == 0
    assert capsys.readouterr().out == "1 abandoned, 2 completed\n"


def test_events_for_machines(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """With --json a batch speaks the documented lines, of each item in their order, and of each that is refused."""
    with prompts.open("a") as file:
        file.write('\n{"key": "", "prompt": "x"}\n{"key": "k0", "prompt": "x"}\n{"key": "bad", "prompt": " "}\n')
    service.inject("422", prompt="p2")
    service.inject("503 x2 on=get", prompt="p1")
    for _ in range(2):
        assert run(prompts, db, "--json") == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(event) for event in events if event.get("key") == "k0" and event["number"]] == [
        ["event", "job", "number", "key", "status", "prompt", "project", "job_id"],
        ["event", "job", "number", "key", "status", "project", "job_id"],
        ["event", "job", "status", *COLUMNS],
    ]
    by_item = {
        key: [(event["event"], event["number"], event["status"]) for event in events if event.get("key") == key]
        for key in ("k1", "k2")
    }
    assert by_item == {
        "k1": [("created", 2, "active"), ("status", 2, "completed"), ("ended", 2, "completed")],
        "k2": [("ended", 3, None)],
    }
    (trouble,) = [event for event in events if event["event"] == "trouble"]
    assert trouble["job"].startswith("docs~.job_")
    refused = [(event["key"], event["error"]) for event in events if event.get("number", 0) is None]
    assert refused == 2 * [
        (None, "line 5: its key is empty"),
        ("k0", "line 6 repeats the key of line 1"),
        ("bad", "prompt is blank: it must say something"),
    ]
    summaries = [event for event in events if event["event"] == "summary"]
    assert summaries == 2 * [
        {"event": "summary", "states": {"rejected": 1, "refused": 3, "completed": 2}, "exit_code": 1}
    ]
    assert events[-1] == summaries[-1]


def test_a_stream_of_ends(service: EmulatorThread, prompts: Path, db: str) -> None:
    """With --json each end is a whole line at once, while others are at work; the next run tells the other ends."""
    service.live(duration=3600)
    service.live("failed", prompt="p1")
    with Child("run", "--file", str(prompts), "--journal", db, "--json", env=service.environment) as child:
        child.until('"event": "ended"')
        service.wait_for_polls(3)
        child.send(signal.SIGKILL).ended()
    ends = [event for event in map(json.loads, child.stdout.splitlines()) if event["event"] == "ended"]
    assert [(end["key"], end["state"]) for end in ends] == [("k1", "failed")]
    service.complete()
    with Child("resume", db, "--json", env=service.environment) as child:
        assert child.ended() == 1
    ends = [event for event in map(json.loads, child.stdout.splitlines()) if event["event"] == "ended"]
    assert sorted((end["key"], end["state"]) for end in ends) == [("k0", "completed"), ("k2", "completed")]


def test_status(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """The status is a table or JSON; nothing hostile in it reaches a terminal."""
    prompts.write_text(json.dumps({"key": "a|b", "prompt": HOSTILE}) + "\n")
    service.inject(f'422 error="{HOSTILE}"'.replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
    assert run(prompts, db) == 1
    cases: list[tuple[list[str], str]] = [([], "rejected  a|b"), (["--format", "jsonl"], '"key": "a|b"')]
    for arguments, words in cases:
        capsys.readouterr()
        assert main(["status", "--journal", db, *arguments]) == 1
        written = capsys.readouterr()
        assert words in written.out
        assert written.out.replace("\n", "").isprintable()


def test_status_of_what_was_left(db: str, capsys: Captured) -> None:
    """Where nobody works on the items that are open, people get the command that continues; machines get no notice.

    Of an empty journal it says where the rows of a copy may have stayed.
    """
    plan(db)
    assert main(["status", "--journal", db]) == 0
    captured = capsys.readouterr()
    assert (captured.out.startswith("The journal holds no items. If it is a copy, "), captured.err) == (True, "")
    plan(db, BatchItem("1", "p", "docs"))
    assert main(["status", db]) == 4
    printed = capsys.readouterr().err
    assert printed.startswith("No process works on it; continue with:\n  ")
    assert printed.endswith(f" resume {db}\n")
    assert main(["status", db, "--format", "jsonl"]) == 4
    assert capsys.readouterr().err == ""
    owner = FileLock(Path(db))
    assert main(["status", db]) == 4
    assert capsys.readouterr().err == ""
    owner.release()


def test_unknown_and_resolved(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """What nobody is sure of is listed, and resolved by its job or by sending it again."""
    service.inject("reset:headers x1", prompt="p0")
    service.inject("500 agent=no x1", prompt="p1")
    assert run(prompts, db) == 4
    printed = capsys.readouterr().err
    assert "2 unknown, 1 completed" in printed
    assert re.search(
        r"May have started an agent; look at the project for a job of this time:\n"
        rf"  k0, docs, sent {LOCAL_TIME}: p0\n  k1, docs, sent {LOCAL_TIME}: p1\nThen settle each by its job, ",
        printed,
    )
    assert f" resolve {db} k0 --job JOB\n" in printed
    assert main(["resolve", db, "k0", "--job", "JOB"]) == 2
    assert "JOB stands for the job that you found" in capsys.readouterr().err
    assert " resume " not in printed
    (job,) = [job.job_id for job in service.emulator.jobs.values() if job.prompt == "p0"]
    assert main(["resolve", "k0", "--journal", db, "--job", job]) == 0
    assert main(["resolve", "k1", "--journal", db, "--send-again"]) == 0
    assert main(["resume", "--journal", db, "--create-rate", "none"]) == 0
    assert set(service.emulator.agents_started.values()) == {1}


def test_many_unknown(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """Unknown items that keep all slots are listed, the first of very many, with the command that settles each."""
    plan(db, *(BatchItem(f"-{number}", f"prompt {number}", "docs") for number in range(26)))

    async def begin() -> None:
        async with Journal.open(db) as journal:
            records = Records(journal.store, "owner", str)
            for number in range(25):
                claim = await records.claim(f"-{number}")
                assert isinstance(claim, str)
                await records.unknown(f"-{number}", claim, OSError("broke"))

    asyncio.run(begin())
    with Child("resume", db, "--max-active", "2", env=service.environment) as child:
        child.until_error(": unknown items keep all slots of --max-active, since their agents may be at work.")
        child.until_error("  … and 5 more; all of them are written by:\n")
        child.until_error(f" export {db} --state unknown\n").until_error(f"{db} --job JOB -- -19\n")
        assert child.send(signal.SIGINT).ended() == 130
    assert not service.emulator.requests
    assert main(["resume", "--journal", db, "--unknown-for", "0"]) == 4
    assert capsys.readouterr().out.startswith("-25 completed")


def test_ids_that_the_journal_cannot_store(
    service: EmulatorThread, prompts: Path, db: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every id that can't be written down is shown, not only that of the error which ends the run."""

    async def full(*_: object) -> bool:
        await asyncio.sleep(0)
        raise JournalError("no room", "full")

    monkeypatch.setattr(Records, "created", full)
    assert run(prompts, db) == 4
    printed = capsys.readouterr().err
    for job in service.emulator.jobs.values():
        assert f"the job of 'k{job.prompt[1:]}' is docs~.{job.job_id}" in printed
    assert len(service.emulator.jobs) >= 1


@pytest.mark.usefixtures("service")
def test_the_way_on(prompts: Path, db: str, capsys: Captured) -> None:
    """The command that goes on has the settings of this run but its limits, which the journal keeps."""
    settings = ["--create-rate", "90/m", "--max-active", "7", "--timeout", "none", "--max-failures", "9"]
    assert main(["run", "--file", str(prompts), "--journal", db, "--limit", "1", *settings]) == 4
    printed = capsys.readouterr().err
    assert "that the journal keeps" not in printed
    assert re.search(r"Resume with:\n  .* resume \S+run.db --base-url \S+ ", printed)
    assert printed.splitlines()[-1].endswith(" --max-failures 9")


def test_limits_in_the_journal(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """What goes on with a journal uses its limits and says so; an option overrides one, and stays in it."""
    settings = ["--create-rate", "1/d", "--max-active", "7", "--unknown-for", "none", "--max-sending", "3"]
    with Child("run", "--file", str(prompts), "--journal", db, *settings, env=service.environment) as child:
        child.until(" completed").send(signal.SIGKILL)
    with Child("resume", db, "--timeout", "600", env=service.environment) as child:
        child.until_error(": 7 jobs at once, 3 creates in flight, unknown items keep their slots for ever.\n")
        child.until_error("--create-rate 1/d: at most 1 create of each project in any span of 24 h.\n")
        assert child.send(signal.SIGINT).ended() == 130
    assert service.emulator.agents_started.total() == 1
    assert main(["status", db]) == 4
    assert "--create-rate 1/d: at most 1 create of each project in any span of 24 h.\n" in capsys.readouterr().err
    assert main(["resume", db, "--create-rate", "none", "--unknown-for", "600"]) == 0
    shown = capsys.readouterr().err
    assert "With the limits that the journal keeps: 7 jobs at once, 600 s for each job, 3 creates in flight.\n" in shown
    assert main(["plan", "a", "--journal", db, "--minutes", "60"]) == 0
    assert "This takes about 1 h: --max-active 7 decides." in capsys.readouterr().out


def test_rate_of_each_project(service: EmulatorThread, prompts: Path, db: str) -> None:
    """A rate counts each project for itself, unless it is said to be for all of them together."""
    lines = [{"key": f"{project}-{number}", "prompt": "x", "project": project} for project in "ab" for number in "12"]
    prompts.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["run", "--file", str(prompts), "--create-rate", "2/d", "--journal", db]) == 0
    arguments = ["run", "--file", str(prompts), "--create-rate", "2/d/all", "--journal", f"{db}.all"]
    with Child(*arguments, env=service.environment) as child:
        child.until(" completed")
        child.stdout = child.stdout.partition(" completed")[2]
        child.until(" completed").send(signal.SIGINT)
        assert child.ended() == 130
    assert service.emulator.agents_started.total() == 4 + 2


def test_emulated_run_is_stopped(prompts: Path, db: str, capsys: Captured) -> None:
    """An emulator's jobs end with the command; what goes on runs on an emulator again."""
    arguments = ("run", "--emulator", "--file", str(prompts), "--journal", db, "--json")
    with Child(*arguments, before=lasting_emulator) as child:
        child.until('"created"').send(signal.SIGINT)
        assert child.ended() == 130
    assert "and its jobs with it" in child.stderr
    assert child.stderr.endswith(" --emulator --json\n")
    assert main(["status", db]) == 4
    lost, *_, command = capsys.readouterr().err.splitlines()
    assert lost.startswith("The jobs of an earlier emulator ended with it (")
    assert command.endswith(f" resume {db} --emulator")
    assert main(["resume", "--emulator", db]) in {1, 4}
    printed = capsys.readouterr().err
    assert "The jobs of an earlier emulator ended with it (" in printed
    assert "\nThe jobs of an earlier emulator ended with it; --retry-failed creates such jobs again" in printed
    assert "--base-url" not in printed


def test_a_trial_goes_no_further(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """The journal of a trial is refused for a service, by `run` before anything is planned, unless that is meant."""
    assert main(["run", "--emulator", "--file", str(prompts), "--journal", db, "--limit", "1"]) in {1, 4}
    capsys.readouterr()
    for command in (["resume", db], ["run", "Another prompt", "--journal", db]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"the journal belongs to an emulator, not to {service.emulator.base_url}, " in error
        assert f"or give --other-service where {service.emulator.base_url} has taken its place" in error
    assert service.emulator.requests == ()
    assert main(["resume", db, "--other-service"]) in {0, 1}
    assert {job.project_id for job in service.emulator.jobs.values()} == {"docs"}
    assert service.emulator.agents_started.total() == 2
    capsys.readouterr()
    assert main(["resume", db, "--emulator"]) == 2
    assert f"the journal belongs to {service.emulator.base_url}, not to an emulator" in capsys.readouterr().err


def test_second_signal_on_a_terminal(service: EmulatorThread, db: str) -> None:
    """A second signal clears the live view, shows the cursor again, and says how to continue."""
    service.inject("hang forever")
    with Child("run", "a", "--journal", db, env=service.environment, terminal=True) as child:
        child.until("\x1b[?25l").until("1 active")
        service.wait_for_requests(1)
        while child.process.poll() is None:
            child.send(signal.SIGTERM)
        assert child.ended() == -signal.SIGTERM
    assert child.stdout.rfind("\x1b[?25h") > child.stdout.rfind("\x1b[?25l")
    assert re.search(rf"\x1b\[2K\x1b\[\?25hResume with: [^\n]* resume {re.escape(db)} [^\n]*\n$", child.stdout)


def test_live_view_until_the_end(service: EmulatorThread, prompts: Path, db: str) -> None:
    """A live view shows the items under way, and disappears at the end of the run; the lines of the ended ones stay."""
    service.live(duration=3600)
    arguments = ["run", "--file", str(prompts), "--journal", db]
    with Child(*arguments, env=service.environment, terminal=True) as child:
        child.until("PROMPT").until("active").until("3 active")
        service.complete()
        assert child.ended() == 0
    assert "k0 " in child.stdout
    assert "3 completed" in child.stdout.splitlines()[-1]


def test_status_on_a_read_only_disk(service: EmulatorThread, tmp_path: Path) -> None:
    """A journal where nothing can be written is refused with what to do; a copy has all of a crashed run."""
    disk = tmp_path / "disk"
    disk.mkdir()
    db = str(disk / "run.db")
    service.live(duration=3600)
    with Child("run", "--yes", "a", "b", "--journal", db, env=service.environment) as child:
        service.wait_for_polls(2)
        child.send(signal.SIGKILL)
        child.ended()
    Path(f"{db}-shm").unlink()
    for file in disk.iterdir():
        file.chmod(0o444)
    disk.chmod(0o555)
    before = sorted(disk.iterdir())
    with Child("status", "--journal", db, before=without_power) as child:
        assert child.ended() == 4
    assert "copy run.db, and run.db-wal if there is one, to another directory" in child.stderr
    assert sorted(disk.iterdir()) == before
    with Child("resume", "--journal", db, env=service.environment, before=without_power) as child:
        assert child.ended() == 4
    assert "run.db: the file can't be written" in child.stderr
    disk.chmod(0o755)
    copies = shutil.copytree(disk, tmp_path / "copies")
    with Child("status", "--journal", str(copies / "run.db"), "--summary") as child:
        assert (child.ended(), child.stdout) == (4, "2 active\n")


class SlowJournal:
    """Takes two seconds for each page; refuses every thousandth item."""

    async def add(self, items: list[BatchItem], *, project_id: str) -> list[Any]:
        assert project_id == "docs"
        await asyncio.sleep(2)
        return [(item, ValueError("no")) for item in items if int(item.key) % 1000 == 0]


@pytest.mark.looptime
async def test_a_log_of_the_planning(capsys: Captured) -> None:
    """Without a terminal, a line every five seconds or more says how far planning is; invalid items are returned."""
    items = [BatchItem(str(number), "x") for number in range(1, 3_001)]
    journal: Any = SlowJournal()
    assert [item.key for item, _ in await _planned(screen(), journal, items, "docs", lasts=True)] == [
        "1000",
        "2000",
        "3000",
    ]
    assert capsys.readouterr() == ("", "1,500 of 3,000 are planned …\n3,000 of 3,000 are planned …\n")


def test_planning_is_stopped(service: EmulatorThread, tmp_path: Path, state_directory: Path, db: str) -> None:
    """A terminal shows how far planning is; Ctrl-C leaves it, and says what is planned in a journal that stays."""
    prompts = tmp_path / "prompts"
    prompts.write_text("".join(f"prompt {number}\n" for number in range(4_000)))
    said = []
    for journal in ([], ["--journal", db]):
        arguments = ("run", "--file", str(prompts), *journal)
        with Child(*arguments, env=service.environment, terminal=True, before=endless_planning) as child:
            child.until(" of 4,000 are planned").send(signal.SIGINT)
            assert child.ended() == 130
        said.append(" ".join(child.stdout.split()))
    assert "Nothing was sent; no journal is kept. Stopped." in said[0]
    assert list(state_directory.iterdir()) == []
    assert "Nothing was sent; at least " in said[1]
    assert "The same command again plans the rest and continues." in said[1]
    assert "resume" not in said[1]
    assert service.emulator.requests == ()


def test_forgotten_quotes(
    service: EmulatorThread, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several prompts of one word each are refused without a terminal, unless they are in a file or --yes is given."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["run", "Fix", "it"]) == 2
    assert "put a prompt of several words in quotes, or say --yes" in capsys.readouterr().err
    assert service.emulator.agents_started == {}
    assert main(["run", "--yes", "Fix", "it"]) == 0
    (tmp_path / "words").write_text("Document\nTest\n")
    assert main(["run", "--file", str(tmp_path / "words")]) == 0
    assert main(["run", "Fix it", "Tidy"]) == 0
    assert "quotes" not in capsys.readouterr().err
    assert service.emulator.agents_started == {"Fix": 1, "it": 1, "Document": 1, "Test": 1, "Fix it": 1, "Tidy": 1}


def test_questions_at_a_terminal(service: EmulatorThread, tmp_path: Path) -> None:
    """A terminal is asked about prompts of one word, and before more than 100 creates; only a yes starts the agents.

    Lines of a file that the journal has already are no creates.
    """
    file = tmp_path / "pages.csv"
    file.write_text("id,title\n" + "".join(f"k{number},page {number}\n" for number in range(101)))
    many = ("--file", str(file), "--prompt", "{title}", "--journal", str(tmp_path / "run.db"))
    for arguments, answer, agents in (
        (("Fix", "it"), "", 0),
        (("Fix", "it"), "no", 0),
        (("Fix", "it"), "y", 2),
        (many, "n", 0),
        (many, "yes", 101),
    ):
        before = service.emulator.agents_started.total()
        leader, follower = pty.openpty()
        with Child("run", *arguments, env=service.environment, terminal=True, stdin=follower) as child:
            os.close(follower)
            child.until("Start them? [y/N] ")
            os.write(leader, f"{answer}\n".encode())
            assert child.ended() == (0 if agents else 2), (arguments, answer)
        os.close(leader)
        assert ("101 would be sent, 0 refused." in child.stdout) is (arguments == many)
        assert service.emulator.agents_started.total() - before == agents, (arguments, answer)
    leader, follower = pty.openpty()
    with Child("run", *many, env=service.environment, terminal=True, stdin=follower) as child:
        assert child.ended() == 0
    for descriptor in (leader, follower):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("command", "answer", "agents"),
    [("run --yes", "n", 0), ("run --yes", "", 0), ("run --yes", "y", 1), ("create", "y", 1)],
)
def test_the_path_of_a_file_at_a_terminal(
    command: str, answer: str, agents: int, service: EmulatorThread, tmp_path: Path
) -> None:
    """A terminal is asked whether a prompt that is the path of a file is meant, and `--yes` is no answer."""
    file = tmp_path / "pages.csv"
    file.touch()
    leader, follower = pty.openpty()
    with Child(*command.split(), str(file), env=service.environment, terminal=True, stdin=follower) as child:
        os.close(follower)
        child.until("Send the path itself? [y/N] ")
        os.write(leader, f"{answer}\n".encode())
        assert child.ended() == (0 if agents else 2)
    os.close(leader)
    assert service.emulator.agents_started == ({str(file): 1} if agents else {})


def test_what_is_no_file(service: EmulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that only looks like a path, or is that of a directory, or is too long for one, is sent as it is."""
    monkeypatch.chdir(tmp_path)
    Path("pages").mkdir()
    prompts = ["missing.csv", "pages", "x" * 5_000, "pages.csv/y"]
    assert main(["run", "--yes", *prompts]) == 0
    assert service.emulator.agents_started == dict.fromkeys(prompts, 1)
