import asyncio
import io
import json
import re
import signal
from pathlib import Path

import pytest

from agentjobs_async import JournalError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.file_lock import FileLock
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread, lasting_emulator, without_power

pytestmark = pytest.mark.slow

HOSTILE = "\x1b]0;owned\x07"


def plan(db: str, *items: BatchItem) -> None:
    """Make a journal of items that nobody has begun."""

    async def make() -> None:
        async with Journal.open(db) as journal:
            await journal.add(items)

    asyncio.run(make())


def run(tasks: Path, db: str, *more: str) -> int:
    return main(["run", "--file", str(tasks), "--journal", db, "--create-rate", "none", *more])


def test_run_and_run_again(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """A run sends each task once, tells each end, and running again does nothing."""
    assert run(tasks, db) == 0
    written = capsys.readouterr()
    assert sorted(line.split(":")[0] for line in written.out.splitlines()) == [f"k{n} completed" for n in range(3)]
    assert written.err == "3 completed\n"
    assert run(tasks, db) == 0
    assert capsys.readouterr().out == ""
    assert set(service.emulator.agents_started.values()) == {1}


def test_refusals(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """Tasks that can't be sent are told with the reasons and disturb no other; the exit code tells."""
    with tasks.open("a") as file:
        file.write('{"key": "k1", "prompt": "again"}\n{"key": "bad", "prompt": " "}\n')
    assert run(tasks, db) == 1
    told = capsys.readouterr().err
    assert "k1 refused: the key came before in this file\nbad refused: prompt is blank" in told
    assert told.endswith("3 completed\n2 refused, and not in the journal: see the beginning.\n")
    assert len(service.emulator.agents_started) == 3


def test_dry_run(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """A dry run tells what would be sent and refused, makes no journal and sends nothing."""
    assert run(tasks, db, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[:3] == [f"k{n} would be sent: p{n}" for n in range(3)]
    assert not Path(db).exists()
    assert service.emulator.requests == ()
    assert run(tasks, db, "--limit", "1") == 4
    tasks.write_text('{"key": "k0", "prompt": "changed"}\n{"key": "new", "prompt": "x"}\n')
    capsys.readouterr()
    assert run(tasks, db, "--dry-run") == 1
    written = capsys.readouterr()
    assert written.out.splitlines() == [
        *("k1 would be sent: p1", "k2 would be sent: p2", "new would be sent: x"),
        "3 would be sent, 1 refused.",
    ]
    assert "k0 refused: the key 'k0' is that of another prompt" in written.err


def test_dry_run_of_tries(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """An item that is tried again would be sent once, and a failed one where a run would try it again.

    Of a journal that was moved, which no run takes, nothing would be.
    """
    service.live("failed", prompt="p1")
    service.live("failed", prompt="p2")
    assert run(tasks, db) == 1
    assert main(["retry", db, "k1"]) == 0
    capsys.readouterr()
    for arguments, number in (([], 1), (["--retry-failed"], 2), (["--retry-failed", "--limit", "1"], 1)):
        assert run(tasks, db, "--dry-run", *arguments) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"{number} would be sent, 0 refused."
    assert main(["plan", "--file", str(tasks), "--journal", db]) == 0
    assert capsys.readouterr().out.splitlines() == ["k1#2 would be sent: p1", "1 would be sent, 0 refused."]
    assert main(["move", "--from", db, "--to", f"{db}.new"]) == 0
    for command in (["plan", "p x"], ["run", "p x", "--dry-run"], ["retry", "--state", "failed", "--dry-run"]):
        assert main([*command, "--journal", db]) == 4
        assert "it was moved to" in capsys.readouterr().err


def test_failures_and_retry(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """A failed item makes the exit code 1, and goes again only where that is asked for."""
    service.live("failed", prompt="p1")
    assert run(tasks, db) == 1
    assert "k1 failed\n" in capsys.readouterr().out
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


def test_a_bound_on_tries(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """With a number, failed items are tried again until they had as many tries; what follows the option is no value."""
    service.live("failed", prompt="p1")
    assert run(tasks, db) == 1
    assert main(["resume", "--retry-failed", db]) == 1
    for _ in range(2):
        assert main(["resume", db, "--retry-failed=3"]) == 1
    assert service.emulator.agents_started["p1"] == 3
    capsys.readouterr()
    for wrong in ("0", "many"):
        assert main(["resume", db, f"--retry-failed={wrong}"]) == 2
        assert f"{wrong} is not a number of tries" in capsys.readouterr().err


def test_a_retried_item_in_the_file(
    service: EmulatorThread, tasks: Path, db: str, tmp_path: Path, capsys: Captured
) -> None:
    """The results name an item by its own key, with the number of its tries, and settle it by that key."""
    service.live("failed", prompt="p1")
    run(tasks, db)
    service.inject("503 on=create", prompt="p1")
    out = tmp_path / "results.jsonl"
    assert main(["resume", db, "--retry-failed", "--out", str(out)]) == 4
    assert [
        (line["key"], line.get("tries"), line["outcome"]) for line in map(json.loads, out.read_text().splitlines())
    ] == [("k0", None, "completed"), ("k2", None, "completed"), ("k1", 2, "unknown")]
    assert main(["resolve", "k1", "--journal", db, "--abandon"]) == 0
    assert main(["status", db]) == 0
    assert "\n1 abandoned, 2 completed\nKEY " in capsys.readouterr().out


def test_items_by_a_filter(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """The numbers come first, then the items that are asked for, with reasons; the same filter tries them again."""
    service.live("failed", prompt="p1")
    service.inject("422", prompt="p2")
    assert run(tasks, db) == 1
    capsys.readouterr()
    assert main(["status", db, "--grep", "p2", "--state", "rejected", "--state", "failed"]) == 1
    tally, header, row = capsys.readouterr().out.splitlines()
    assert (tally, header.split()[:3]) == ("1 failed, 1 rejected, 1 completed", ["KEY", "STATE", "PROMPT"])
    assert row.split()[:5] == ["k2", "rejected", "p2", "HTTP", "422:"]
    assert main(["status", db, "--older-than", "1h", "--project", "none"]) == 1
    assert capsys.readouterr().err == "0 of them are shown.\n"
    assert main(["status", db, "--older-than", "soon"]) == 2
    assert main(["retry", "--journal", db, "--state", "failed", "--dry-run"]) == 0
    assert "1 item would be planned again" in capsys.readouterr().err
    assert main(["retry", "--journal", db, "--state", "failed"]) == 0
    planned, command = capsys.readouterr().err.splitlines()
    assert planned == "1 item planned again. Send it with:"
    assert command.endswith(f" resume {db}")
    assert main(["retry", "k2", "k0", "k9", "--journal", db]) == 1
    assert re.search(r"k0 refused: .*completed.*\nk9 refused: .*no row.*\n1 item planned", capsys.readouterr().err)
    assert main(["status", db, "--summary", "--format", "jsonl"]) == 4
    assert json.loads(capsys.readouterr().out) == {"items": 3, "states": {"planned": 2, "completed": 1}}
    for wrong in ([], ["k1", "--state", "failed"], ["k1", "--dry-run"], ["--state", "abandoned", "--dry-run"]):
        assert main(["retry", "--journal", db, *wrong]) == 2


@pytest.mark.parametrize("form", ["txt", "csv", "jsonl"])
def test_settling_many(
    form: str, service: EmulatorThread, tasks: Path, db: str, tmp_path: Path, capsys: Captured
) -> None:
    """Each line of a file settles its item, or is shown with the reason; the totals come last."""
    service.inject("503 x3 on=create")
    assert run(tasks, db) == 4
    lines = [("k0", "docs/job_7"), ("k1", "send-again"), ("k2", "abandon"), ("k2", "abandon"), ("k9", "job_1")]
    text = {
        "txt": "".join(f"{key} {what}\n" for key, what in lines) + "alone\n",
        "csv": "job,key\n" + "".join(f'{what},"{key}"\n' for key, what in lines) + ",alone\n",
        "jsonl": "".join(f"{json.dumps({'key': key, 'job': what})}\n" for key, what in lines) + '{"key": "alone"}\n',
    }[form]
    file = tmp_path / f"settled.{form}"
    file.write_text(text)
    capsys.readouterr()
    assert main(["resolve", "--journal", db, "--from", str(file)]) == 1
    shown = capsys.readouterr().err.splitlines()
    assert "k2 refused: k2 is abandoned" in shown[0]
    assert "k9 refused: there is no row" in shown[1]
    assert "refused: it has no key, or neither a job" in shown[2]
    assert shown[3] == "3 settled, 1 with their jobs, 1 planned again, 1 abandoned; 3 refused."
    assert main(["status", db, "--summary"]) == 4
    assert capsys.readouterr().out == "1 active, 1 planned, 1 abandoned\n"
    assert main(["resolve", "k0", "--job", "docs~.job_8", "--journal", db]) == 2
    assert "contains '~.', as tokens do: write project/job" in capsys.readouterr().err
    assert main(["resolve", "k0", "--job", "docs/job_8", "--journal", db]) == 0
    assert main(["resolve", "k0", "--from", str(file), "--journal", db]) == 2
    file.write_text("")
    assert main(["resolve", "--from", str(file), "--journal", db]) == 2


def test_tables_of_what_is_settled(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A table is known by its columns where it has no suffix, and is refused as a whole where it names none."""
    plan(db, BatchItem("k0", "p"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"key,job\nk0,send-again\n")))
    assert main(["resolve", db, "--from", "-"]) == 1
    assert capsys.readouterr().err.startswith("line 2 k0 refused: k0 is planned: there is nothing to resolve")
    file = tmp_path / "settled.csv"
    file.write_text("k0,send-again\nk1,abandon\n")
    assert main(["resolve", db, "--from", str(file)]) == 2
    assert "the first line of a table must name its columns, key and job among them" in capsys.readouterr().err


def test_events_for_machines(service: EmulatorThread, tasks: Path, db: str, tmp_path: Path, capsys: Captured) -> None:
    """With --json a batch speaks the documented lines, of each item in their order; so do refusals, in the file too."""
    out = tmp_path / "results.jsonl"
    with tasks.open("a") as file:
        file.write('\n{"key": "", "prompt": "x"}\n{"key": "k0", "prompt": "x"}\n{"key": "bad", "prompt": " "}\n')
    service.inject("422", prompt="p2")
    service.inject("503 x2 on=get", prompt="p1")
    for _ in range(2):
        assert run(tasks, db, "--out", str(out), "--json") == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(event) for event in events if event.get("key") == "k0" and event["number"]] == [
        ["event", "job", "number", "key", "status", "prompt"],
        ["event", "job", "number", "key", "status"],
        ["event", "job", "number", "key", "prompt", "outcome", "status", "pr_link", "error"],
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
    assert trouble["job"].startswith("docs/job_")
    refused = [(event["key"], event["error"]) for event in events if event.get("number", 0) is None]
    assert refused == 2 * [
        (None, "line 5: its key is empty"),
        ("k0", "the key came before in this file"),
        ("bad", "prompt is blank: it must say something"),
    ]
    summaries = [event for event in events if event["event"] == "summary"]
    assert summaries == 2 * [{"event": "summary", "outcomes": {"rejected": 4, "completed": 2}, "exit_code": 1}]
    assert events[-1] == summaries[-1]
    lines = out.read_text().splitlines()
    assert set(lines) == {json.dumps(event) for event in events if event["event"] == "ended"}
    written = [json.loads(line) for line in lines]
    assert sorted((end["key"] or "", end["number"] or 0) for end in written) == [
        ("", 0),
        ("bad", 0),
        ("k0", 0),
        ("k0", 1),
        ("k1", 2),
        ("k2", 3),
    ]


def test_status(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
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


def test_status_of_what_was_left(db: str, capsys: Captured) -> None:
    """Where nobody works on the items that are open, people get the command that continues; machines get no notice.

    Of an empty journal it says where the rows of a copy may have stayed.
    """
    plan(db)
    assert main(["status", "--journal", db]) == 0
    captured = capsys.readouterr()
    assert ("-wal file" in captured.out, captured.err) == (True, "")
    plan(db, BatchItem("1", "p", "docs"))
    assert main(["status", db]) == 4
    told = capsys.readouterr().err
    assert told.startswith("No process works on it; continue with:\n  ")
    assert told.endswith(f" resume {db}\n")
    assert main(["status", db, "--format", "jsonl"]) == 4
    assert capsys.readouterr().err == ""
    owner = FileLock(Path(db))
    assert main(["status", db]) == 4
    assert capsys.readouterr().err == ""
    owner.release()


def test_status_in_markdown(db: str, capsys: Captured) -> None:
    """In Markdown the status has a chart of all items, and stays below the 1 MiB of the summary of a step on GitHub."""
    plan(db, *(BatchItem(f"{number:05}-{'k' * 490}", "p") for number in range(2500)))
    assert main(["status", db, "--format", "markdown"]) == 4
    written = capsys.readouterr().out
    assert 900_000 < len(written.encode()) < 1_048_576
    shown = written.splitlines()
    assert shown[:7] == ["2500 planned", "", "```mermaid", "pie showData", '    "planned" : 2500', "```", ""]
    assert shown[7].startswith("| key |")
    left_out = 2500 - sum(line.startswith("| 0") for line in shown)
    assert shown[-1] == f"… and {left_out:,} more"
    assert main(["status", db, "--format", "markdown", "--grep", "00007-"]) == 4
    assert capsys.readouterr().out.splitlines()[:7] == shown[:7]
    assert main(["status", db, "--format", "markdown", "--summary"]) == 4
    assert capsys.readouterr().out == "2500 planned\n"


def test_unknown_and_resolved(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """What nobody is sure of is listed, and resolved by its job or by sending it again."""
    service.inject("reset:headers x1", prompt="p0")
    service.inject("500 agent=no x1", prompt="p1")
    assert run(tasks, db) == 4
    told = capsys.readouterr().err
    assert "2 unknown, 1 completed" in told
    assert "May have started an agent; look at the project:\n  k0: p0\n  k1: p1\nThen settle each by its job, " in told
    assert f" resolve {db} k0 --job JOB\n" in told
    assert main(["resolve", db, "k0", "--job", "JOB"]) == 2
    assert "JOB stands for the job that you found" in capsys.readouterr().err
    assert " resume " not in told
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
            for number in range(25):
                await journal._entries.claim(f"-{number}")
                await journal._entries.mark_unknown(f"-{number}", OSError("broke"))

    asyncio.run(begin())
    with Child("resume", db, "--max-active", "2", env=service.environment) as child:
        child.until_error(": unknown items keep all slots of --max-active, since their agents may be at work.")
        child.until_error("  … and 5 more: agentjobs status shows all").until_error(f"{db} --job JOB -- -19\n")
        assert child.send(signal.SIGINT).ended() == 130
    assert not service.emulator.requests
    assert main(["resume", "--journal", db, "--unknown-for", "0"]) == 4
    assert capsys.readouterr().out.startswith("-25 completed")


def test_ids_that_the_journal_cannot_take(
    service: EmulatorThread, tasks: Path, db: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every id that can't be written down is told, not only that of the error which ends the run."""

    async def full(*_: object) -> bool:
        await asyncio.sleep(0)
        raise JournalError("no room", "full")

    monkeypatch.setattr(Entries, "mark_created", full)
    assert run(tasks, db) == 4
    told = capsys.readouterr().err
    for job in service.emulator.jobs.values():
        assert f"the job of 'k{job.prompt[1:]}' is docs/{job.job_id}" in told
    assert len(service.emulator.jobs) >= 1


@pytest.mark.usefixtures("service")
def test_the_way_on(tasks: Path, db: str, capsys: Captured) -> None:
    """The command that goes on has the settings of this run but its limits, which the journal keeps."""
    settings = ["--create-rate", "90/m", "--max-active", "7", "--timeout", "none", "--max-failures", "9", "--for", "9h"]
    assert main(["run", "--file", str(tasks), "--journal", db, "--limit", "1", *settings]) == 4
    told = capsys.readouterr().err
    assert "that the journal keeps" not in told
    assert re.search(r"Resume with:\n  .* resume \S+run.db --base-url \S+ ", told)
    assert told.splitlines()[-1].endswith(" --project docs --max-failures 9 --for 9h")


def test_limits_in_the_journal(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """What goes on with a journal takes its limits and says so; an option overrides one, and is kept."""
    settings = ["--create-rate", "2/d", "--max-active", "7", "--unknown-for", "none", "--max-sending", "3"]
    with Child("run", "--file", str(tasks), "--journal", db, *settings, env=service.environment) as child:
        child.until(" completed").send(signal.SIGKILL)
    with Child("resume", db, "--timeout", "600", env=service.environment) as child:
        child.until_error("2/d, 7 jobs at once, 3 creates in flight, unknown items keep their slots for ever.\n")
        assert child.send(signal.SIGINT).ended() == 130
    assert service.emulator.agents_started.total() == 1
    assert main(["resume", db, "--create-rate", "none", "--unknown-for", "600"]) == 0
    told = capsys.readouterr().err
    assert "With the limits that the journal keeps: 7 jobs at once, 600 s for each job, 3 creates in flight.\n" in told
    assert main(["plan", "a", "--journal", db, "--minutes", "60"]) == 0
    assert "This takes about 1.0 h: --max-active 7 decides." in capsys.readouterr().out


def test_a_run_that_stops_itself(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """A run whose time is up ends as unfinished, and shows the command that goes on; one that ends before does not."""
    service.live(duration=600, prompt="p1")
    assert run(tasks, db, "--for", "0.2s") == 4
    told = capsys.readouterr().err
    assert "The time is up (--for 0.2s).\n" in told
    assert told.splitlines()[-1].endswith(" --project docs --for 0.2s")
    service.live(prompt="p1")
    assert main(["run", "x", "--for", "1d"]) == 0
    assert main(["run", "x", "--for", "soon"]) == 2


def test_abandoned(service: EmulatorThread, tasks: Path, db: str, capsys: Captured) -> None:
    """An item that nobody can settle is abandoned: it is counted apart, and no run sends it again but by its key."""
    service.inject("500 agent=no x1", prompt="p1")
    assert run(tasks, db) == 4
    assert main(["resolve", "k1", "--journal", db, "--abandon", "--send-again"]) == 2
    for key, words in {"k0": "k0 is completed", "x": "no row of the key 'x'"}.items():
        for option in ("--abandon", "--send-again"):
            capsys.readouterr()
            assert main(["resolve", key, "--journal", db, option]) == 2
            assert words in capsys.readouterr().err
    assert main(["resolve", "k1", "--journal", db, "--abandon"]) == 0
    assert capsys.readouterr().err.endswith("k1 is abandoned; an agent that is at work continues.\n")
    assert main(["resume", "--journal", db, "--retry-failed"]) == 0
    assert main(["retry", db, "--state", "failed"]) == 0
    capsys.readouterr()
    assert main(["status", db, "--summary"]) == 0
    assert capsys.readouterr().out == "1 abandoned, 2 completed\n"
    assert service.emulator.agents_started.total() == 2
    assert main(["retry", db, "k1"]) == 0


def test_rate_of_each_project(service: EmulatorThread, tasks: Path, db: str) -> None:
    """A rate counts each project for itself, unless it is said to hold for all of them together."""
    lines = [{"key": f"{project}-{place}", "prompt": "x", "project": project} for project in "ab" for place in "12"]
    tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["run", "--file", str(tasks), "--create-rate", "2/d/burst", "--journal", db]) == 0
    arguments = ["run", "--file", str(tasks), "--create-rate", "2/d/all/burst", "--journal", f"{db}.all"]
    with Child(*arguments, env=service.environment) as child:
        child.until(" completed")
        child.stdout = child.stdout.partition(" completed")[2]
        child.until(" completed").send(signal.SIGINT)
        assert child.ended() == 130
    assert service.emulator.agents_started.total() == 4 + 2


def test_emulated_run_is_stopped(tasks: Path, db: str) -> None:
    """An emulator's jobs end with the command; what goes on runs on an emulator again."""
    arguments = ("run", "--emulator", "--file", str(tasks), "--journal", db, "--json")
    with Child(*arguments, before=lasting_emulator) as child:
        child.until('"created"').send(signal.SIGINT)
        assert child.ended() == 130
    assert "and its jobs with it" in child.stderr
    assert child.stderr.endswith(" --emulator --json\n")


def test_second_signal_on_a_terminal(service: EmulatorThread, db: str) -> None:
    """A second signal clears the live view, and shows the cursor again."""
    service.inject("hang forever")
    with Child("run", "a", "--journal", db, env=service.environment, terminal=True) as child:
        child.until("\x1b[?25l").until("1 active")
        service.wait_for_requests(1)
        while child.process.poll() is None:
            child.send(signal.SIGTERM)
        assert child.ended() == -signal.SIGTERM
    assert child.stdout.rfind("\x1b[?25h") > child.stdout.rfind("\x1b[?25l")
    assert child.stdout.endswith("\x1b[2K\x1b[?25h")


def test_live_view_until_the_end(service: EmulatorThread, tasks: Path, db: str) -> None:
    """A live view shows the items under way, and disappears at the end of the run; the lines of the ended ones stay."""
    service.live(duration=3600)
    arguments = ["run", "--file", str(tasks), "--journal", db]
    with Child(*arguments, env=service.environment, terminal=True) as child:
        child.until("PULL REQUEST").until("active").until("3 active")
        service.complete()
        assert child.ended() == 0
    assert "k0 " in child.stdout
    assert "3 completed" in child.stdout.splitlines()[-1]


@pytest.mark.parametrize("crashed", [False, True])
def test_status_on_a_read_only_disk(service: EmulatorThread, tmp_path: Path, crashed: bool) -> None:  # noqa: FBT001 - a case of the parameter list
    """A journal is read where nothing can be written, with all that a crashed run left in its log; nothing is made."""
    place = tmp_path / "disk"
    place.mkdir()
    db = str(place / "run.db")
    service.live(duration=3600 if crashed else 0)
    with Child("run", "--yes", "a", "b", "--journal", db, env=service.environment) as child:
        if crashed:
            service.wait_for_polls(2)
            child.send(signal.SIGKILL)
        child.ended()
    Path(f"{db}-shm").unlink(missing_ok=True)
    for file in place.iterdir():
        file.chmod(0o444)
    place.chmod(0o555)
    before = sorted(place.iterdir())
    with Child("status", "--journal", db, "--format", "jsonl", before=without_power) as child:
        assert child.ended() == (4 if crashed else 0), child.stderr
    states = [json.loads(line)["state"] for line in child.stdout.splitlines()]
    assert states == ["active" if crashed else "completed"] * 2
    assert sorted(place.iterdir()) == before
    with Child("resume", "--journal", db, env=service.environment, before=without_power) as child:
        assert child.ended() == 4
    assert "run.db: the file can't be written" in child.stderr
    place.chmod(0o755)
