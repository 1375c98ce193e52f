import json

import pytest

from agentjobs_async import AgentJob
from agentjobs_async.__main__ import main
from tests.cli.stage import EmulatorThread

Captured = pytest.CaptureFixture[str]


def test_create_prints_the_token(service: EmulatorThread, capsys: Captured) -> None:
    """`create` prints the token alone, so that a script can keep it."""
    assert main(["create", "Tidy up"]) == 0
    assert capsys.readouterr() == ("docs/job_000001\n", "")
    assert service.emulator.agents_started == {"Tidy up": 1}


def test_create_in_another_project(service: EmulatorThread, capsys: Captured) -> None:
    """`--project` wins over the environment; an id becomes one segment."""
    assert main(["create", "--project", "a/b c", "Tidy up"]) == 0
    assert capsys.readouterr().out == "a%2Fb%20c/job_000001\n"
    assert service.emulator.requests[0].project_id == "a/b c"


@pytest.mark.parametrize("arguments", [["create", "Tidy up"], ["run", "Tidy up"]])
def test_no_project(
    arguments: list[str], service: EmulatorThread, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Creating without a project is refused before anything is sent."""
    monkeypatch.delenv("AGENTJOBS_PROJECT_ID")
    assert main(arguments) == 2
    assert "give --project ID or set AGENTJOBS_PROJECT_ID" in capsys.readouterr().err
    assert service.emulator.requests == ()


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("400 error=nonsense", 1, "HTTP 400: nonsense"),
        ("401", 3, "check the API key"),
        ("403", 3, "check the API key"),
        ("429 retry-after=3600", 1, "nothing was done"),
        ("500", 4, "an agent may have been started"),
        ("reset", 4, "an agent may have been started"),
        (r'400 error="\u001b[31mred [bold]"', 1, r"\x1b[31mred [bold]"),
    ],
)
def test_create_that_fails(fault: str, code: int, words: str, service: EmulatorThread, capsys: Captured) -> None:
    """A create that fails is told on one line, and its outcome gives the exit code."""
    service.inject(fault)
    assert main(["create", "Tidy up"]) == code
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("Error: ")
    assert words in written.err
    assert written.err.count("\n") == 1
    assert written.err[:-1].isprintable()


def test_create_as_json(service: EmulatorThread, capsys: Captured) -> None:
    """`create --json` prints the job as one JSON object."""
    del service
    assert main(["create", "--json", "Tidy up"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"] == "docs/job_000001"
    assert document["status"] == "active"


def test_get_shows_the_job(service: EmulatorThread, capsys: Captured) -> None:
    """`get` shows each field of the job on its line, and ends with 0 whatever the status."""
    service.live("failed")
    assert main(["create", "Tidy up"]) == 0
    assert main(["get", "job_000001"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[:4] == [
        "job           docs/job_000001",
        "status        failed",
        "pull request  -",
        "repository    acme/docs",
    ]
    assert lines[-1] == "archived      -"


def test_get_as_json(service: EmulatorThread, capsys: Captured) -> None:
    """`get --json` prints the job's document under its token, missing fields as null; `from_dict` takes it back."""
    service.live("archived")
    assert main(["create", "Tidy up"]) == 0
    service.inject("document source=null model=null on=get")
    capsys.readouterr()
    assert main(["get", "--json", "docs/job_000001"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "archived"
    assert document["archived_at"].endswith("+00:00")
    assert document["source"] is None
    assert document["pr_link"] is None
    job = AgentJob.from_dict(document)
    assert document == {"job": "docs/job_000001"} | job.to_dict()


def test_get_hostile_text(service: EmulatorThread, capsys: Captured) -> None:
    """What the service says of a job never reaches the terminal raw, nor as markup."""
    assert main(["create", "Tidy up"]) == 0
    service.inject(r'document status="\u001b[2J" model="[red]\u202emodel" source.ref="a\nb" on=get')
    capsys.readouterr()
    assert main(["get", "job_000001"]) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert r"status        \x1b[2J" in shown
    assert r"model         [red]\u202emodel" in shown
    assert r"ref           a\nb" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["get", "job_typo"], 4, "HTTP 404: no such job"),
        (["get", "a/b/c"], 2, "a token looks like project/job, as agentjobs create prints it"),
        (["get", "docs/.."], 2, "not a job token"),
        (["wait", "job_1", "a/b/c"], 2, "not a job token"),
    ],
)
def test_wrong_job(arguments: list[str], code: int, words: str, service: EmulatorThread, capsys: Captured) -> None:
    """A mistyped job is told on one line."""
    del service
    assert main(arguments) == code
    written = capsys.readouterr()
    assert words in written.err
    assert written.err.count("\n") == 1


def test_get_gives_up(service: EmulatorThread, capsys: Captured) -> None:
    """`get --timeout` bounds the one read."""
    service.inject("hang")
    assert main(["get", "--timeout", "0.05", "job_1"]) == 4
    assert "no whole answer within 0.05 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "code", "end"),
    [
        ("completed", 0, "completed: https://code.example/acme/docs/pull/job_000001"),
        ("failed", 1, "failed"),
        ("archived", 1, "archived"),
    ],
)
def test_wait_exit_code(outcome: str, code: int, end: str, service: EmulatorThread, capsys: Captured) -> None:
    """`wait` ends with 0 when the job completed, with 1 when it ended otherwise, and says which."""
    service.live(outcome)
    assert main(["create", "Tidy up"]) == 0
    assert main(["wait", "job_000001"]) == code
    assert f"docs/job_000001 {end}" in capsys.readouterr().out.splitlines()


def test_wait_for_the_same_twice(service: EmulatorThread, capsys: Captured) -> None:
    """A job named twice, as token and as id, is waited for once."""
    assert main(["create", "Tidy up"]) == 0
    assert main(["wait", "job_000001", "docs/job_000001"]) == 0
    assert len(service.emulator.requests) == 2
    assert "\n1 completed\n" in capsys.readouterr().out


def test_wait_times_out(service: EmulatorThread, capsys: Captured) -> None:
    """A wait whose time ran out ends with 4 and prints the command that goes on, with all its options."""
    service.live(duration=3600)
    assert main(["create", "Tidy up"]) == 0
    assert main(["wait", "--timeout", "0.05", "--json", "job_000001"]) == 4
    url = service.emulator.base_url
    assert f" wait --base-url {url} --timeout 0.05 --json docs/job_000001\n" in capsys.readouterr().err


def test_wait_for_a_job_that_was_never_seen(service: EmulatorThread, capsys: Captured) -> None:
    """A job that no poll has shown is not said to exist."""
    service.inject("404 forever")
    assert main(["wait", "--timeout", "0.05", "job_typo"]) == 4
    assert "1 job continues remotely, if it exists. Wait for it with:\n" in capsys.readouterr().err


def test_wait_for_a_job_that_is_gone(service: EmulatorThread, capsys: Captured) -> None:
    """A job that doesn't exist is not offered to be waited for again."""
    service.inject("410 forever")
    assert main(["wait", "job_typo"]) == 4
    written = capsys.readouterr()
    assert "docs/job_typo unfinished: HTTP 410" in written.out
    assert "agentjobs" not in written.err


def test_run_survives_failures(service: EmulatorThread, capsys: Captured) -> None:
    """One prompt's failure disturbs no other; each has its line, its row, and its part in the exit code."""
    service.live("failed", prompt="b")
    service.inject("500", prompt="c")
    service.inject("400", prompt="d")
    assert main(["run", "--yes", "a", "b", "c", "d", "e"]) == 4
    written = capsys.readouterr()
    table = written.out.split("\n\n")[1].splitlines()
    assert [line.split()[3] for line in table] == ["REQUEST", "a", "b", "c", "d", "e"]
    assert table[2].endswith("  the agent failed")
    assert [line.split()[1] for line in table[1:]] == ["completed", "failed", "unknown", "rejected", "completed"]
    assert "\n2 completed, 1 failed, 1 rejected, 1 unknown\n" in written.out
    assert "prompt 3 unknown: an agent may have been started" in written.out
    assert "May have started an agent; look at the project" in written.err
    assert "\n  3: c\n" in written.err


def test_run_bounds_active_jobs(service: EmulatorThread, capsys: Captured) -> None:
    """With `--max-active 1` a job is created only when the one before it has ended."""
    assert main(["run", "--yes", "--max-active", "1", "a", "b"]) == 0
    assert [request.method for request in service.emulator.requests] == ["POST", "GET", "POST", "GET"]
    assert "\n2 completed\n" in capsys.readouterr().out


def test_run_as_json(service: EmulatorThread, capsys: Captured) -> None:
    """`run --json` writes one JSON object per line and event, the summary last."""
    service.live(pull_request=False)
    assert main(["run", "--json", "Größe\x1b"]) == 0
    output = capsys.readouterr().out
    assert output.isascii()
    created, status, ended, summary = map(json.loads, output.splitlines())
    assert created == {
        "event": "created",
        "job": "docs/job_000001",
        "number": 1,
        "key": "1",
        "prompt": "Größe\x1b",
        "status": "active",
    }
    assert status == {"event": "status", "job": "docs/job_000001", "number": 1, "key": "1", "status": "completed"}
    assert ended["outcome"] == "completed"
    assert ended["pr_link"] is None
    assert ended["error"] is None
    assert summary == {"event": "summary", "outcomes": {"completed": 1}, "exit_code": 0}


def test_wrong_key_stops_the_run(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A key that is refused from the start is tried once, not for every prompt, and is in no output."""
    monkeypatch.setenv("AGENTJOBS_API_KEY", "wrong-key-0123456789")
    assert main(["run", "--yes", "--max-active", "1", "a", "b", "c"]) == 3
    written = capsys.readouterr()
    assert len(service.emulator.requests) == 1
    assert "3 not sent" in written.out
    assert " resume " in written.err
    assert "wrong-key" not in written.out + written.err


def test_wait_for_ever(service: EmulatorThread) -> None:
    """`--timeout none` waits for as long as it takes."""
    assert main(["create", "Tidy up"]) == 0
    assert main(["wait", "--timeout", "none", "job_000001"]) == 0
    assert len(service.emulator.requests) == 2
