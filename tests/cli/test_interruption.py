import asyncio
import json
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch import Journal, State
from agentjobs_async.testing import JobScript
from tests.cli.checks import LOCAL_TIME
from tests.cli.stage import (
    Child,
    EmulatorThread,
    hanging_lookup,
    impatience,
    own_terminal,
    own_terminal_under_nohup,
    stop_before_the_view,
)
from tests.held import HeldEmulator
from tests.until import until

pytestmark = pytest.mark.slow

TEN = [f"Fix the link {number}" for number in range(10)]


@pytest.fixture
def held() -> Iterator[HeldEmulator]:
    """An emulator on a thread that answers no create before it is released; its jobs do not end by themselves."""
    with HeldEmulator.in_thread(script=JobScript(duration=3600)) as emulator:
        yield emulator


def release(held: HeldEmulator) -> None:
    """Let the emulator answer."""

    async def released() -> None:
        held.release.set()

    held.call(released())


def states(journal: Path) -> dict[State, int]:
    """Return how many items of a journal are in which state, without those of none."""

    async def counted() -> dict[State, int]:
        async with Journal.open(journal, read_only=True) as opened:
            return {state: count for state, count in (await opened.counts()).items() if count}

    return asyncio.run(counted())


def said(child: Child) -> str:
    """Return standard error without the line about a server that has not answered for 4 s."""
    return re.sub(r"^No answer from \S+ so far; still trying\.\n", "", child.stderr)


def test_the_printed_command_works(service: EmulatorThread) -> None:
    """The command that a stopped run prints continues the wait, and creates nothing."""
    service.live(duration=3600, job_id="b~'")
    environment = service.environment | {"AGENTJOBS_PROJECT_ID": "-docs"}
    with Child("run", "a", env=environment) as child:
        child.until(" created").send(signal.SIGINT)
        assert child.ended() == 130
    *program, resume, journal, url, address = shlex.split(child.stderr.splitlines()[-1])
    assert program == [sys.executable, "-m", "agentjobs_async"]
    assert (url, address) == ("--base-url", service.emulator.base_url)
    with Child(resume, journal, url, address, env=environment) as again:
        again.until("-docs~.b~7E~27 active").send(signal.SIGINT)
        assert again.ended() == 130
    assert service.emulator.agents_started == {"a": 1}


@pytest.mark.skipif(shutil.which("timeout") is None, reason="there is no timeout(1)")
def test_a_run_for_a_time(service: EmulatorThread, tmp_path: Path) -> None:
    """timeout(1) with SIGINT ends a run in order: as Ctrl-C does, and a resume loses and doubles none."""
    service.live(duration=3600)
    journal = tmp_path / "run.db"
    limits = ("timeout", "--foreground", "--preserve-status", "--signal=INT", "5h")
    become = ("-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *limits, sys.executable)
    arguments = ("-m", "agentjobs_async", "run", "--yes", "a", "b", "--max-active", "1", "--journal", str(journal))
    with Child(*arguments, command=become, env=service.environment) as child:
        service.wait_for_polls(1)
        child.send(signal.SIGALRM)  # by which it learns that the time is up
        assert child.ended() == 130
    assert "Resume with:" in child.stderr
    assert states(journal) == {State.ACTIVE: 1, State.PLANNED: 1}
    service.live(prompt="b", duration=0)
    service.complete(prompt="a")
    assert main(["resume", str(journal)]) == 0
    assert service.emulator.agents_started == {"a": 1, "b": 1}


def test_a_stop_before_the_view(service: EmulatorThread) -> None:
    """A signal that comes as soon as the first job is created ends the run as any later one does."""
    service.live(duration=3600)
    with Child("run", "a x", env=service.environment, before=stop_before_the_view) as child:
        assert child.ended() == 143
    assert "1 active\n" in child.stdout
    assert "Resume with this; the same run again would create all of them again:\n" in child.stderr


def test_wait_is_stopped(service: EmulatorThread) -> None:
    """A signal stops a wait, and the jobs that have ended are not waited for again."""
    service.live(prompt="a", job_id="quick")
    service.live(prompt="b", job_id="slow", duration=3600)
    for prompt in "ab":
        assert main(["create", prompt]) == 0
    with Child("wait", "quick", "slow", "--json", env=service.environment) as child:
        child.until('"state": "completed"').until('"status": "active"').send(signal.SIGTERM)
        assert child.ended() == 143
    assert child.stderr.endswith("--json 'docs~.slow'\n")
    *_, ended, summary = map(json.loads, child.stdout.splitlines())
    assert (ended["state"], ended["error"]) == ("active", "stopped")
    assert summary == {"event": "summary", "states": {"active": 1, "completed": 1}, "exit_code": 143}


def test_unknown_creates_are_listed(service: EmulatorThread) -> None:
    """A create without an answer is listed as unknown; what was not started stands in the table as planned."""
    service.live(duration=3600)
    service.live(duration=3600, prompt="a", job_id="known")
    service.inject("reset", prompt="unknown \x1b[31m")
    with Child("run", "--max-active", "2", "a", "unknown \x1b[31m", "c", "d", env=service.environment) as child:
        child.until("known created").until("prompt 2 unknown").send(signal.SIGINT)
        assert child.ended() == 130
    assert "May have started an agent; look at the project" in child.stderr
    shown = re.escape("unknown \\x1b[31m")
    assert re.search(rf"\n  item 2, docs, sent {LOCAL_TIME}: {shown}\n", child.stderr)
    assert re.search(r"\nunknown +2 +unknown", child.stdout)
    assert "1 active, " in child.stdout or "1 unknown, 2 planned" in child.stdout


def test_one_request_is_stopped(service: EmulatorThread) -> None:
    """A create that is cut off says that an agent may have been started; a read ends with one line."""
    for arguments, number, words in (
        (["create", "a"], signal.SIGINT, "Error: the session was closed meanwhile; an agent may have been started"),
        (["get", "job_1"], signal.SIGTERM, "Error: stopped\n"),
    ):
        service.inject("hang")
        asked = len(service.emulator.requests)
        with Child(*arguments, env=service.environment) as child:
            service.wait_for_requests(asked + 1)
            child.send(number)
            assert child.ended() == 128 + number
        assert said(child).startswith(words)
        assert said(child).count("\n") == 1


def test_create_is_stopped_before_it_is_sent(service: EmulatorThread) -> None:
    """A create that reaches nobody says so after a while, and when it is stopped, that nothing was sent."""
    nowhere = service.environment | {"AGENTJOBS_BASE_URL": "http://127.0.0.1:1"}
    with Child("create", "a", env=nowhere, before=impatience) as child:
        child.until_error("No answer from http://127.0.0.1:1 so far; still trying.\n").send(signal.SIGINT)
        assert child.ended() == 130
    assert child.stderr.endswith("Error: stopped; nothing was sent\n")


def test_a_lookup_that_hangs(service: EmulatorThread) -> None:
    """A name lookup that hangs in its thread doesn't keep a signal from ending the command."""
    arguments = ("create", "--base-url", "https://api.example.com", "a")
    with Child(*arguments, env=service.environment, before=hanging_lookup) as child:
        child.until("looking up").send(signal.SIGINT)
        assert child.ended() == 130
    assert said(child) == "Error: stopped; nothing was sent\n"


def test_the_terminal_is_closed(held: HeldEmulator, tmp_path: Path) -> None:
    """A run whose terminal is closed waits for the answers to its creates, as at SIGTERM, though it cannot write."""
    journal = tmp_path / "run.db"
    arguments = ("run", *TEN, "--journal", str(journal))
    with Child(*arguments, env=held.environment("docs"), terminal=True, before=own_terminal) as child:
        held.call(until(lambda: held.agents_started.total() == 10))
        child.close_stdout()
        release(held)
        assert child.ended() == 129
    assert states(journal) == {State.ACTIVE: 10}


def test_a_second_hangup_changes_nothing(held: HeldEmulator, tmp_path: Path) -> None:
    """SIGHUP stops a run, and a second one, which a shell sends as well, or one after a SIGTERM, cuts no create."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        journal = tmp_path / f"{number}.db"
        held.call(held.hold())
        agents = held.agents_started.total() + 10
        with Child("run", *TEN, "--journal", str(journal), env=held.environment("docs")) as child:
            held.call(until(lambda: held.agents_started.total() == agents))  # noqa: B023 - awaited in this iteration
            child.send(number).until_error("Stopping: up to 10 s").send(signal.SIGHUP)
            release(held)
            assert child.ended() == 128 + number
        assert states(journal) == {State.ACTIVE: 10}


def test_the_end_of_a_login(held: HeldEmulator, tmp_path: Path) -> None:
    """A SIGTERM right after a SIGHUP, as a service manager sends to the processes of a login, cuts no create."""
    journal = tmp_path / "run.db"
    with Child("run", *TEN, "--journal", str(journal), env=held.environment("docs")) as child:
        held.call(until(lambda: held.agents_started.total() == 10))
        child.send(signal.SIGHUP).until_error("Stopping: up to 10 s").send(signal.SIGTERM)
        release(held)
        assert child.ended() == 128 + signal.SIGHUP
    assert states(journal) == {State.ACTIVE: 10}


def test_a_run_under_nohup(held: HeldEmulator, tmp_path: Path) -> None:
    """A run that ignores SIGHUP from its start on goes on to its end when its terminal is closed."""
    journal = tmp_path / "run.db"
    held.script(JobScript(duration=0))
    arguments = ("run", *TEN, "--journal", str(journal))
    with Child(*arguments, env=held.environment("docs"), terminal=True, before=own_terminal_under_nohup) as child:
        held.call(until(lambda: held.agents_started.total() == 10))
        child.close_stdout()
        release(held)
        assert child.ended() == 0
    assert states(journal) == {State.COMPLETED: 10}
