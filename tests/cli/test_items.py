"""The journal as the first argument of the commands that need one."""

import asyncio
import json
import os
import pty
import re
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal, State
from agentjobs_async.batch._database.file_lock import FileLock
from tests.cli.checks import Captured, plan, run
from tests.cli.stage import Child, EmulatorThread, environment

pytestmark = pytest.mark.slow


@pytest.fixture
def failed(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> str:
    """The journal of two items that failed."""
    service.live("failed")
    path = str(tmp_path / "run.db")
    assert main(["run", "--yes", "one", "two", "--journal", path]) == 1
    capsys.readouterr()
    return path


def test_journal_comes_first(failed: str, capsys: Captured) -> None:
    """`retry` and `resolve` read the journal as their first argument, before keys and without."""
    assert main(["retry", failed, "1"]) == 0
    assert main(["retry", failed, "--state", "failed"]) == 0
    printed = capsys.readouterr().err
    assert printed.count("1 item planned again") == 2
    assert main(["resolve", failed, "1", "--send-again"]) == 2
    assert "there is nothing to resolve" in capsys.readouterr().err
    assert main(["status", failed, "--summary"]) == 4
    assert capsys.readouterr().out == "2 planned\n"


def test_a_journal_in_use(db: str, capsys: Captured) -> None:
    """A journal that another command uses is refused in words of the shell, not of Python."""
    plan(db, BatchItem("1", "x", "docs"))
    owner = FileLock(Path(db))
    assert main(["retry", db, "1"]) == 4
    owner.release()
    error = capsys.readouterr().err
    assert "or look at it with agentjobs status FILE (run.db.lock is locked)\n" in error


def test_journal_named_otherwise(failed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the option or the environment names the journal, all arguments are keys."""
    assert main(["retry", "--journal", failed, "1"]) == 0
    monkeypatch.setenv("AGENTJOBS_JOURNAL", failed)
    assert main(["retry", "2"]) == 0
    assert main(["status"]) == 4


def test_items_by_a_filter(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """The numbers come first, then the items that are asked for, with reasons; the same filter tries them again."""
    service.live("failed", prompt="p1")
    service.inject("422", prompt="p2")
    assert run(prompts, db) == 1
    capsys.readouterr()
    assert main(["status", db, "--grep", "p2", "--state", "rejected", "--state", "failed"]) == 1
    tally, header, row = capsys.readouterr().out.splitlines()
    assert (tally, header.split()[:3]) == ("1 failed, 1 rejected, 1 completed", ["STATE", "KEY", "PROMPT"])
    assert row.split()[:5] == ["rejected", "k2", "p2", "HTTP", "422:"]
    assert main(["status", db, "--grep", "p1"]) == 1
    assert "  the agent failed (docs~.job_" in capsys.readouterr().out
    assert main(["status", db, "--older-than", "1h", "--project", "none"]) == 1
    assert capsys.readouterr().err.splitlines()[:2] == ["No item meets the filters.", "Try 2 items again with:"]
    assert main(["status", db, "--older-than", "soon"]) == 2
    capsys.readouterr()
    assert main(["retry", "--journal", db, "--state", "failed"]) == 0
    planned, command = capsys.readouterr().err.splitlines()
    assert planned == "1 item planned again. Send it with:"
    assert command.endswith(f" resume {db} --base-url {service.emulator.base_url}")
    assert main(["retry", "k2", "k0", "k9", "--journal", db]) == 1
    assert re.search(r"k0 refused: .*completed.*\nk9 refused: .*no item.*\n1 item planned", capsys.readouterr().err)
    assert main(["status", db, "--summary", "--format", "jsonl"]) == 4
    assert json.loads(capsys.readouterr().out) == {"items": 3, "states": {"planned": 2, "completed": 1}}
    for wrong in ([], ["k1", "--state", "failed"], ["k1", "--max-tries", "2"], ["--state", "abandoned"]):
        assert main(["retry", "--journal", db, *wrong]) == 2
    service.inject("422 forever on=create")
    assert run(prompts, db) == 1
    capsys.readouterr()
    assert main(["retry", db, "--state", "rejected", "--max-tries", "2"]) == 0
    assert capsys.readouterr() == ("", "0 items planned again.\n")


def test_a_job_that_was_found(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """An unknown item is settled by its job, and by another one while that has not ended."""
    service.inject("503 on=create", prompt="p0")
    assert run(prompts, db) == 4
    assert main(["resolve", "k0", "--job", "docs~.", "--journal", db]) == 2
    assert "not a job token: docs~.; a token looks like project~.job" in capsys.readouterr().err
    for wrong in (["k0"], ["--send-again"], ["k0", "k1", "--abandon"], ["k0", "--job", "abandon"]):
        assert main(["resolve", "--journal", db, *wrong]) == 2
    capsys.readouterr()
    for job in ("docs~.job_7", "job_8"):
        assert main(["resolve", "k0", "--job", job, "--journal", db]) == 0
        assert capsys.readouterr().err == "k0 has its job; agentjobs resume continues with it.\n"
    assert main(["status", db, "--summary"]) == 4
    assert capsys.readouterr().out == "1 active, 2 completed\n"


def test_withdrawn(service: EmulatorThread, failed: str, capsys: Captured) -> None:
    """An item that is planned is withdrawn: `resume` does not send it."""
    sent = service.emulator.agents_started.total()
    assert main(["retry", failed, "1", "2"]) == 0
    assert main(["resolve", failed, "1", "--abandon"]) == 0
    assert main(["resolve", failed, "2", "--abandon"]) == 0
    capsys.readouterr()
    assert main(["resume", failed]) == 0
    assert service.emulator.agents_started.total() == sent
    assert main(["status", failed, "--summary"]) == 0
    assert capsys.readouterr().out == "2 abandoned\n"


def test_many_withdrawn(db: str, capsys: Captured) -> None:
    """Without a terminal, items that meet filters are withdrawn with `--yes` alone; the refusal says how many."""
    plan(db, *(BatchItem(f"{'ab'[number % 2]}/{number}", "x", "docs") for number in range(6)))
    assert main(["resolve", db, "a/0", "--job", "job_1"]) == 2
    capsys.readouterr()
    assert main(["resolve", db, "--abandon", "--prefix", "a/"]) == 2
    assert "3 items would be abandoned: 3 planned; say --yes" in capsys.readouterr().err
    assert main(["resolve", db, "--abandon", "--prefix", "a/", "--yes"]) == 0
    assert capsys.readouterr().err == (
        "3 items abandoned: nothing is sent, and an agent at work continues.\n"
        "To plan one of them again, use agentjobs retry with its key.\n"
    )
    for again in ([], ["--yes"]):
        assert main(["resolve", db, "--abandon", "--prefix", "a/", *again]) == 0
        assert capsys.readouterr().err == "0 items abandoned.\n"
    for wrong, words in {
        ("b/1", "--abandon", "--prefix", "b/"): "without a KEY",
        ("--send-again", "--prefix", "b/"): "without a KEY",
        ("--abandon", "--state", "failed"): "--state failed: only what is planned, active or unknown is abandoned",
        ("--abandon", "--state", "failed", "--yes"): "--state failed: only what is planned",
        ("--abandon",): "which items",
    }.items():
        assert main(["resolve", db, *wrong]) == 2
        assert words in capsys.readouterr().err
    assert main(["retry", db, "a/0"]) == 0
    assert main(["resolve", db, "--abandon", "--state", "planned", "--project", "docs", "--yes"]) == 0
    assert main(["status", db, "--summary"]) == 0
    assert capsys.readouterr().out == "6 abandoned\n"


def test_withdrawing_at_a_terminal(db: str) -> None:
    """A terminal is asked whether so many items are to be withdrawn; only a yes does it."""
    plan(db, *(BatchItem(f"k{number}", "x", "docs") for number in range(3)))
    for answer, code, left in (("", 2, 3), ("n", 2, 3), ("y", 0, 0)):
        leader, follower = pty.openpty()
        arguments = ("resolve", db, "--abandon", "--prefix", "k")
        with Child(*arguments, env=environment(), terminal=True, stdin=follower) as child:
            os.close(follower)
            child.until("3 items would be abandoned: 3 planned. Abandon them? [y/N] ")
            os.write(leader, f"{answer}\n".encode())
            assert child.ended() == code
        os.close(leader)
        assert planned_in(db) == left


def planned_in(db: str) -> int:
    async def count() -> int:
        async with Journal.open(db, read_only=True) as journal:
            return (await journal.counts())[State.PLANNED]

    return asyncio.run(count())


def test_abandoned(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """An item that nobody can settle is abandoned: it is counted apart, and no run sends it again but by its key."""
    service.inject("500 agent=no x1", prompt="p1")
    assert run(prompts, db) == 4
    assert main(["resolve", "k1", "--journal", db, "--abandon", "--send-again"]) == 2
    for key, words in {"k0": "k0 is completed", "x": "no item of the key 'x'"}.items():
        for option in ("--abandon", "--send-again"):
            capsys.readouterr()
            assert main(["resolve", key, "--journal", db, option]) == 2
            assert words in capsys.readouterr().err
    assert main(["resolve", "k1", "--journal", db, "--abandon"]) == 0
    assert capsys.readouterr().err.endswith(
        "k1 is abandoned: nothing is sent, and an agent at work continues.\n"
        "To plan it again, use agentjobs retry with its key.\n"
    )
    assert main(["resume", "--journal", db, "--retry-failed"]) == 0
    assert main(["retry", db, "--state", "failed"]) == 0
    capsys.readouterr()
    assert main(["status", db, "--summary"]) == 0
    assert capsys.readouterr().out == "1 abandoned, 2 completed\n"
    assert service.emulator.agents_started.total() == 2
    assert main(["retry", db, "k1"]) == 0


def test_keys_as_filters(db: str, capsys: Captured) -> None:
    """A key, or the beginning of keys, says which items are shown, and which are planned again."""
    plan(db, *(BatchItem(key, "x", "docs") for key in ("chat-7/1", "chat-7/2", "chat_7/1", "chat-70")))
    for options, keys in {
        ("--prefix", "chat-7/"): ["chat-7/1", "chat-7/2"],
        ("--prefix", "chat_"): ["chat_7/1"],
        ("--key", "chat-70"): ["chat-70"],
        ("--prefix", "chat-7/", "--key", "chat-7/2"): ["chat-7/2"],
    }.items():
        assert main(["status", db, "--format", "jsonl", *options]) == 4
        assert [json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()] == keys
    assert main(["retry", db, "--prefix", "chat-7/"]) == 0
    assert capsys.readouterr().err == "0 items planned again.\n"
    for wrong in (["--prefix", "a\nb"], ["--key", "x" * 513], ["--prefix", ""], ["chat-70", "--prefix", "chat"]):
        assert main(["retry", db, *wrong]) == 2
