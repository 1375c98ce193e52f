import json
import re
import shlex
import signal
import sys

import pytest

from agentjobs_async.__main__ import main
from tests.cli.checks import LOCAL_TIME
from tests.cli.stage import Child, EmulatorThread, hanging_lookup, impatience, stop_before_the_view

pytestmark = pytest.mark.slow


def said(child: Child) -> str:
    """Return standard error without the line about a server that has not answered for 4 s."""
    return re.sub(r"^No answer from \S+ so far; still trying\.\n", "", child.stderr)


def test_the_printed_command_works(service: EmulatorThread) -> None:
    """The command that a stopped run prints takes up the wait, and creates nothing."""
    service.live(duration=3600, job_id="b~'")
    environment = service.environment | {"AGENTJOBS_PROJECT_ID": "-docs"}
    with Child("run", "a", env=environment) as child:
        child.until(" created").send(signal.SIGINT)
        assert child.ended() == 130
    *program, resume, journal, url, address = shlex.split(child.stderr.splitlines()[-1])
    assert program == [sys.executable, "-m", "agentjobs_async"]
    assert (url, address) == ("--base-url", service.emulator.base_url)
    with Child(resume, journal, url, address, env=environment) as again:
        again.until("-docs/b~%27 active").send(signal.SIGINT)
        assert again.ended() == 130
    assert service.emulator.agents_started == {"a": 1}


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
    assert child.stderr.endswith("--json docs/slow\n")
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
    assert re.search(r"\n2 +unknown +unknown", child.stdout)
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
