import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import Child

pytestmark = pytest.mark.slow

VARIABLE = re.compile(r"^export (\w+)=(\S+)$", re.MULTILINE)


@contextmanager
def emulator(*options: str, number: signal.Signals = signal.SIGINT) -> Iterator[Child]:
    """Run an emulator to which the commands of the block go; it is ended by the signal."""
    with pytest.MonkeyPatch.context() as patch, Child("emulator", "--port", "0", *options) as running:
        for name, value in VARIABLE.findall(running.until("PROJECT_ID=demo\n").stdout):
            patch.setenv(name, value)
        yield running
        running.send(number)
        assert running.ended() == 128 + number


def test_first_command() -> None:
    """The newcomer's first command needs no service and no key, and says in one line that nothing is real."""
    with Child("run", "--emulator", "Document the v2 endpoints", "Fix the broken links", fresh=True) as child:
        assert child.ended() == 0
    assert re.fullmatch(
        r"Emulator at http://127\.0\.0\.1:\d+: no real agents; jobs run 60 times as fast\.\n", child.stderr
    )
    assert len(re.findall(r"^demo~.job_\w{6}_000001 ", child.stdout, re.MULTILINE)) == 2
    assert child.stdout.endswith("\n2 completed\n")


def test_alone(capsys: Captured) -> None:
    """The emulator alone prints the lines that lead other commands to it, until a signal; `--fail` is a share.

    Another start gives other ids.
    """
    ended = list[str]()
    for share, outcome in (("0%", "completed"), ("100%", "failed")):
        with emulator("--speed", "1e9", "--fail", share, "--seed", "7") as running:
            assert main(["run", "Tidy up"]) == (outcome == "failed")
        ended += re.findall(rf"^demo~.(job_\w{{6}}_000001) {outcome}", capsys.readouterr().out, re.MULTILINE)
        assert "Ctrl-C stops it" in running.stderr
    assert len(set(ended)) == 2


def test_requests_are_shown(capsys: Captured) -> None:
    """Each request is one line on standard error, without the key."""
    with emulator("--fault", "503 on=get") as running:
        assert main(["create", "Tidy up"]) == 0
        token = capsys.readouterr().out.strip()
        assert main(["get", token]) == 4
        job_id = token.removeprefix("demo~.")
    lines = re.findall(r"^\d\d:\d\d:\d\d (.*)$", running.stderr, re.MULTILINE)
    path = "/v2/agent/demo/job"
    assert lines == [f"POST {path} 201 {job_id}", f"GET {path}/{job_id} 503 by 503 on=get"]
    assert dict(VARIABLE.findall(running.stdout))["AGENTJOBS_API_KEY"] not in running.stderr


def test_faults() -> None:
    """`--fault` makes it misbehave; with `--quiet` no request is shown."""
    with emulator("--fault", "400 then 401", "--quiet", number=signal.SIGTERM) as running:
        assert [main(["create", "Tidy up"]) for _ in range(2)] == [1, 3]
    assert "POST" not in running.stderr


def test_a_service_file(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--service` serves the file's dialect, and says how other commands get there; a bad file is refused."""
    monkeypatch.delenv("AGENTJOBS_API_KEY", raising=False)
    file = tmp_path / "our service.toml"
    lines = (
        'base_url = "https://api.example.com"',
        'key_env = "OUR_KEY"',
        'create_path = "/runs"',
        "integer_ids = true",
    )
    file.write_text("\n".join(lines))
    with emulator("--service", str(file)) as running:
        printed = running.until_error("--base-url http:").stderr
        needed = re.search(r"other commands need (--service .* --base-url \S+)", printed)
        address = dict(VARIABLE.findall(running.stdout))["AGENTJOBS_BASE_URL"]
        assert main(["create", "--service", str(file), "--base-url", address, "Tidy up"]) == 0
        assert re.fullmatch(r"demo~\.\d{15}\n", capsys.readouterr().out)
    assert needed is not None
    assert shlex.split(needed[1]) == ["--service", str(file), "--base-url", address]
    assert "POST /runs 201" in running.stderr
    file.write_text("create_pat = 1")
    assert main(["emulator", "--service", str(file)]) == 2
    assert "did you mean 'create_path'?" in capsys.readouterr().err


def test_quota_of_polls() -> None:
    """`--polls-per-second` refuses the polls beyond it, and no create."""
    with emulator("--polls-per-second", "1", "--speed", "1e-6") as running:
        with Child(
            "run", *map("Tidy up page {}".format, range(20)), env=dict(VARIABLE.findall(running.stdout))
        ) as child:
            running.until_error(" 429")
            child.send(signal.SIGINT)
            assert child.ended() == 130
    assert re.search("GET .* 429", running.stderr)
    assert not re.search("POST .* 429", running.stderr)
