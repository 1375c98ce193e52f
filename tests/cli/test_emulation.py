import re
import signal

import pytest

from tests.cli.stage import LASTING_EMULATOR, Child

pytestmark = pytest.mark.slow

VARIABLE = re.compile(r"^export (\w+)=(\S+)$", re.MULTILINE)


def test_first_command() -> None:
    """The newcomer's first command needs no service and no key, and says in one line that nothing is real."""
    with Child("run", "--emulator", "Document the v2 endpoints", "Fix the broken links", fresh=True) as child:
        assert child.ended() == 0
    assert re.fullmatch(
        r"Emulator at http://127\.0\.0\.1:\d+: no real agents; jobs run 60 times as fast\.\n", child.stderr
    )
    assert child.stdout.count("demo/job_000001 ") == 3
    assert child.stdout.endswith("\n2 completed\n")


def test_project_of_an_emulated_run() -> None:
    """An emulated run takes the project that is asked for."""
    with Child("run", "--emulator", "--project", "mine", "a", command=LASTING_EMULATOR) as child:
        assert child.until("mine/job_000001 created").send(signal.SIGINT).ended() == 130


def test_alone() -> None:
    """The emulator alone prints the lines that lead the other commands to it, until a signal ends it."""
    with Child("emulator", "--port", "0", "--speed", "1e9") as emulator:
        env = dict(VARIABLE.findall(emulator.until("PROJECT_ID=demo\n").stdout))
        with Child("run", "Tidy up", env=env) as child:
            assert child.ended() == 0
        emulator.send(signal.SIGINT)
        assert emulator.ended() == 130
    assert "demo/job_000001 completed" in child.stdout
    assert "Ctrl-C stops it" in emulator.stderr


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_requests_are_shown(options: tuple[str, ...]) -> None:
    """Each request is one line on standard error, without the key, unless the emulator is to be quiet."""
    with Child("emulator", "--port", "0", "--fault", "503 on=get", *options) as emulator:
        env = dict(VARIABLE.findall(emulator.until("PROJECT_ID=demo\n").stdout))
        with Child("create", "Tidy up", env=env) as child:
            assert child.ended() == 0
        with Child("get", "job_000001", env=env) as child:
            child.ended()
        emulator.send(signal.SIGINT)
        assert emulator.ended() == 130
    lines = re.findall(r"^\d\d:\d\d:\d\d (.*)$", emulator.stderr, re.MULTILINE)
    path = "/v2/agent/demo/job"
    assert lines == ([] if options else [f"POST {path} 201 job_000001", f"GET {path}/job_000001 503 by 503 on=get"])
    assert env["AGENTJOBS_API_KEY"] not in emulator.stderr


def test_faults() -> None:
    """`--fault` makes it misbehave."""
    with Child("emulator", "--port", "0", "--fault", "400 then 401") as emulator:
        env = dict(VARIABLE.findall(emulator.until("PROJECT_ID=demo\n").stdout))
        for code in (1, 3):
            with Child("create", "Tidy up", env=env) as child:
                assert child.ended() == code
        emulator.send(signal.SIGTERM)
        assert emulator.ended() == 143


@pytest.mark.parametrize(("share", "outcome"), [("100%", "failed"), ("0%", "completed")])
def test_failing_jobs(share: str, outcome: str) -> None:
    """`--fail` is the share of jobs that fail."""
    with Child("emulator", "--port", "0", "--speed", "1e9", "--fail", share, "--seed", "7") as emulator:
        env = dict(VARIABLE.findall(emulator.until("PROJECT_ID=demo\n").stdout))
        with Child("run", "Tidy up", env=env) as child:
            assert child.ended() == (0 if outcome == "completed" else 1)
    assert f"demo/job_000001 {outcome}" in child.stdout


def test_quota_of_polls() -> None:
    """`--polls-per-second` refuses the polls beyond it, and no create."""
    quota = ("--polls-per-second", "1", "--speed", "1e-6")
    with Child("emulator", "--port", "0", *quota) as emulator:
        env = dict(VARIABLE.findall(emulator.until("PROJECT_ID=demo\n").stdout))
        with Child("run", *map("Tidy up page {}".format, range(20)), env=env) as child:
            emulator.until_error(" 429")
            child.send(signal.SIGINT)
            assert child.ended() == 130
    assert re.search("GET .* 429", emulator.stderr)
    assert not re.search("POST .* 429", emulator.stderr)
