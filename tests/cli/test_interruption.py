import json
import re
import signal

import pytest

from tests.cli.stage import LASTING_EMULATOR, Child, EmulatorThread

pytestmark = pytest.mark.slow

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def said(child: Child) -> str:
    """Return standard error without the line about a server that has not answered for 4 s."""
    return re.sub(r"^No answer from \S+ so far; still trying\.\n", "", child.stderr)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_run_is_stopped(number: signal.Signals, code: int, service: EmulatorThread) -> None:
    """A signal stops a run: it shows what continues, prints the command that resumes, and exits by the signal."""
    service.live(duration=3600)
    with Child("run", "--yes", "a", "b", env=service.environment, fresh=True) as child:
        child.until("job_000001 created").until("job_000002 created").send(number)
        assert child.ended() == code
    assert "Resume with this; the same run again would create all of them again:\n" in child.stderr
    options = f"--base-url {service.emulator.base_url} --project docs"
    assert re.search(rf" -m agentjobs_async resume \S+\.db {options}\n$", child.stderr)
    assert "2 unfinished\n" in child.stdout
    assert "Traceback" not in child.stderr


def test_the_printed_command_works(service: EmulatorThread) -> None:
    """The command that a stopped run prints takes up the wait, and creates nothing."""
    service.live(duration=3600, job_id="b~'")
    environment = service.environment | {"AGENTJOBS_PROJECT_ID": "-docs"}
    with Child("run", "a", env=environment) as child:
        child.until(" created").send(signal.SIGINT)
        assert child.ended() == 130
    command = child.stderr.splitlines()[-1].strip()
    with Child(
        command=("-c", f"import os; os.execl('/bin/sh', 'sh', '-c', 'exec ' + {command!r})"), env=environment
    ) as again:
        again.until("-docs/b~%27 active").send(signal.SIGINT)
        assert again.ended() == 130
    assert service.emulator.agents_started == {"a": 1}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_wait_is_stopped(number: signal.Signals, code: int, service: EmulatorThread) -> None:
    """A signal stops a wait, and the jobs that have ended are not waited for again."""
    service.live(prompt="a", job_id="quick")
    service.live(prompt="b", job_id="slow", duration=3600)
    with Child("run", "--yes", "a", "b", env=service.environment) as run:
        run.until("quick completed").until("slow created").send(signal.SIGKILL)
        run.ended()
    with Child("wait", "quick", "slow", "--json", env=service.environment) as child:
        child.until('"outcome": "completed"').until('"status": "active"').send(number)
        assert child.ended() == code
    assert child.stderr.endswith("--json docs/slow\n")
    *_, ended, summary = map(json.loads, child.stdout.splitlines())
    assert ended["outcome"] == "unfinished"
    assert ended["error"] == "stopped"
    assert summary == {"event": "summary", "outcomes": {"completed": 1, "unfinished": 1}, "exit_code": code}


def test_unknown_creates_are_listed(service: EmulatorThread) -> None:
    """A create without an answer is listed as unknown; what was not started stands in the table as not sent."""
    service.live(duration=3600)
    service.live(duration=3600, prompt="a", job_id="known")
    service.inject("reset", prompt="unknown \x1b[31m")
    with Child("run", "--max-active", "2", "a", "unknown \x1b[31m", "c", "d", env=service.environment) as child:
        child.until("known created").until("prompt 2 unknown").send(signal.SIGINT)
        assert child.ended() == 130
    assert "May have started an agent; look at the project" in child.stderr
    assert "\n  2: unknown \\x1b[31m\n" in child.stderr
    assert re.search(r"\n- +unknown +- +unknown", child.stdout)
    assert "1 unfinished, " in child.stdout or "2 not sent, 1 unknown" in child.stdout


def test_create_is_stopped(service: EmulatorThread) -> None:
    """A create that is cut off says that an agent may have been started."""
    service.inject("hang")
    with Child("create", "a", env=service.environment) as child:
        service.wait_for_requests(1)
        child.send(signal.SIGINT)
        assert child.ended() == 130
    assert said(child).startswith("Error: an agent may have been started")


def test_create_is_stopped_before_it_is_sent(service: EmulatorThread) -> None:
    """A create that reaches nobody says so after a while, and when it is stopped, that nothing was sent."""
    nowhere = service.environment | {"AGENTJOBS_BASE_URL": "http://127.0.0.1:1"}
    with Child("create", "a", env=nowhere) as child:
        child.until_error("No answer from http://127.0.0.1:1 so far; still trying.\n").send(signal.SIGINT)
        assert child.ended() == 130
    assert child.stderr.endswith("Error: stopped; nothing was sent\n")


def test_get_is_stopped(service: EmulatorThread) -> None:
    """A read that is cut off ends with one line."""
    service.inject("hang")
    with Child("get", "job_1", env=service.environment) as child:
        service.wait_for_requests(1)
        child.send(signal.SIGTERM)
        assert child.ended() == 143
    assert child.stderr == "Error: stopped\n"


def test_emulated_run_is_stopped() -> None:
    """Where the emulator ends with the command, no wait is offered."""
    with Child("run", "--emulator", "a", command=LASTING_EMULATOR) as child:
        child.until("demo/job_000001 created").send(signal.SIGINT)
        assert child.ended() == 130
    assert "The emulator ends with this command, and its jobs with it" in child.stderr
    assert "agentjobs_async wait" not in child.stderr


BLOCKED = """
import asyncio, signal, sys
from agentjobs_async.cli.process import Interruption

async def main():
    with Interruption() as interruption:
        print("ready", flush=True)
        await interruption.stop_requested()
        print("asked", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_second_signal(number: signal.Signals, code: int) -> None:
    """A second signal ends the process at once, even when the first one's work hangs."""
    del code
    with Child(command=("-c", BLOCKED)) as child:
        child.until("ready").send(number).until("asked").send(number)
        assert child.ended() == -number


HANGING_LOOKUP = """
import socket, sys, threading
from agentjobs_async.__main__ import main

def hang(*arguments, **options):
    print("looking up", flush=True)
    threading.Event().wait()

socket.getaddrinfo = hang
sys.exit(main(["create", "--base-url", "https://api.example.com", "a"]))
"""


def test_a_lookup_that_hangs(service: EmulatorThread) -> None:
    """A name lookup that hangs in its thread doesn't keep a signal from ending the command."""
    with Child(command=("-c", HANGING_LOOKUP), env=service.environment) as child:
        child.until("looking up").send(signal.SIGINT)
        assert child.ended() == 130
    assert said(child) == "Error: stopped; nothing was sent\n"
