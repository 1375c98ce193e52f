import asyncio
import json
import shlex
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentjobs_async import JournalError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import Journal
from agentjobs_async.batch._run.records import Records
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread, lasting_emulator

pytestmark = pytest.mark.slow


@contextmanager
def two_of_three(service: EmulatorThread, path: Path, *more: str, polled: int = 2) -> Iterator[Child]:
    """Run three prompts, two at once, until both are sent and `polled` of their jobs polled; these take an hour."""
    take_an_hour(service)
    arguments = ("run", "--yes", "a", "b", "c", "--journal", str(path), "--max-active", "2", *more)
    with Child(*arguments, env=service.environment) as child:
        service.wait_for_agents(2)
        service.wait_for_polls(polled)
        yield child


def take_an_hour(service: EmulatorThread) -> None:
    """Let all jobs take an hour, and give two of them ids that do not tell which create arrives first."""
    service.live(duration=3600)
    for prompt in "ab":
        service.live(duration=3600, prompt=prompt, job_id=f"job_{prompt}")


def remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.parametrize("lost", ["journal", "content", "log"])
def test_the_journal_is_removed(service: EmulatorThread, path: Path, lost: str) -> None:
    """When the journal does not have all, the jobs in hand are shown by a command that works, and none is made."""
    with two_of_three(service, path) as child:
        if lost == "log":
            Path(f"{path}-wal").unlink()
        else:
            remove(path)
        if lost == "content":
            path.write_text("something else")
        child.send(signal.SIGINT)
        assert child.ended() == 130
    words = "The journal was moved, removed or replaced.\n2 jobs continue remotely. Keep the ids; wait"
    assert words in child.stderr or lost == "log"
    assert "resume" not in child.stderr
    command = shlex.split(child.stderr.splitlines()[-1])
    assert sorted(command[-2:]) == ["docs~.job_a", "docs~.job_b"]
    assert path.exists() is (lost != "journal")
    with Child(*command[command.index("wait") :], env=service.environment) as again:
        again.until("docs~.job_a active").until("docs~.job_b active").send(signal.SIGINT)
        assert again.ended() == 130


def test_the_journal_goes_while_it_is_needed(service: EmulatorThread, path: Path) -> None:
    """A create that would come next is not sent; the error and the jobs in hand are shown."""
    take_an_hour(service)
    arguments = ("run", "--yes", "a", "b", "c", "--journal", str(path), "--max-active", "2", "--json")
    with Child(*arguments, env=service.environment) as child:
        child.until("docs~.job_a").until("docs~.job_b")
        remove(path)
        service.complete(prompt="a")
        assert child.ended() == 4
    assert "moved, removed or replaced.\n1 job continues remotely" in child.stderr
    assert " 'docs~.job_b'\n" in child.stderr
    assert "nothing more is sent" in child.stderr.splitlines()[-1]
    assert json.loads(child.stdout.splitlines()[-1])["exit_code"] == 4
    assert service.emulator.agents_started.total() == 2


def test_an_emulated_run(path: Path) -> None:
    """An emulator's jobs end with it: no command is offered."""
    arguments = ("run", "--emulator", "a", "--journal", str(path), "--json")
    with Child(*arguments, before=lasting_emulator) as child:
        child.until('"status": "active"')
        remove(path)
        child.send(signal.SIGINT)
        assert child.ended() == 130
    assert "The journal was moved, removed or replaced.\nThe emulator ends with this command" in child.stderr
    assert " wait " not in child.stderr


def test_a_second_signal_tells_ids(service: EmulatorThread, path: Path) -> None:
    """When a second signal ends a run, the ids that its removed journal does not have are shown first."""
    service.inject("hang", prompt="b")
    with two_of_three(service, path, polled=1) as child:
        remove(path)
        child.send(signal.SIGINT)
        child.until_error("Stopping: up to 10 s")
        child.send(signal.SIGINT)
        assert child.ended() == -signal.SIGINT
    assert child.stderr.endswith("docs~.job_a was created, and the journal may not have it: keep this.\n")


def test_a_journal_that_can_not_be_read(
    service: EmulatorThread, path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that can't be read at the end is offered for later, and the run's own error is shown."""

    async def gone(_: object) -> None:
        await asyncio.sleep(0)
        raise JournalError("the database is gone", "io")

    async def broken(*_: object) -> bool:
        await asyncio.sleep(0)
        monkeypatch.setattr(Journal, "counts", gone)
        raise JournalError("no room", "full")

    monkeypatch.setattr(Records, "created", broken)
    assert main(["run", "a", "--journal", str(path)]) == 4
    printed = capsys.readouterr().err
    assert "The journal can't be read.\n1 job continues remotely. Keep the id; wait for it with:" in printed
    assert "When the journal can be read again, resume with:" in printed
    assert f"Error: no room; the job of '1' is docs~.{service.job_ids[0]}" in printed.splitlines()[-1]
    assert service.emulator.agents_started.total() == 1


def test_in_place(path: Path) -> None:
    """A journal knows whether its file is still where it was, a lock that is gone apart."""

    async def is_at_location() -> list[bool]:
        async with Journal.open(path) as journal:
            found = [journal._opened.is_at_location]
            remove(Path(f"{path}.lock"))
            found.append(journal._opened.is_at_location)
            await asyncio.to_thread(path.rename, f"{path}.old")
            found.append(journal._opened.is_at_location)
            with closing(sqlite3.connect(path)):
                found.append(journal._opened.is_at_location)
        return found

    assert asyncio.run(is_at_location()) == [True, True, False, False]


def test_failed_items_are_offered_again(service: EmulatorThread, path: Path, capsys: Captured) -> None:
    """The end of a run offers once the command that tries again what failed, and this command does so."""
    service.live("failed", prompt="b")
    service.inject("400", prompt="c")
    assert main(["run", "--yes", "a", "b", "c", "--journal", str(path)]) == 1
    printed = capsys.readouterr().err
    assert printed.count("Try 2 items again with:\n") == 1
    command = printed.splitlines()[-1].split()
    service.live(prompt="b")
    with Child(*command[command.index("resume") :], env=service.environment) as again:
        assert again.ended() == 0
    assert "failed" not in again.stderr
    assert service.emulator.agents_started == {"a": 1, "b": 2, "c": 1}
    service.live("failed")
    assert main(["run", "a x"]) == 1
    assert "again with" not in capsys.readouterr().err  # that run's own journal is removed
