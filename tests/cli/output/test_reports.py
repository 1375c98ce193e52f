import json

import pytest

from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow


def test_status_changes(service: EmulatorThread) -> None:
    """Each change of the status is a line; an unknown status is shown escaped; the end has its pull request."""
    service.inject('document status="queu\\u001bed" on=get')
    with Child("run", "Tidy up", env=service.environment) as child:
        assert child.ended() == 0
    assert child.stdout.splitlines()[:3] == [
        "docs/job_000001 created: Tidy up",
        "docs/job_000001 queu\\x1bed",
        "docs/job_000001 completed: https://code.example/acme/docs/pull/job_000001",
    ]


def test_no_pull_request(service: EmulatorThread) -> None:
    """A job that changed nothing says so."""
    service.live(pull_request=False)
    with Child("run", "Tidy up", env=service.environment) as child:
        assert child.ended() == 0
    assert "\ndocs/job_000001 completed, no pull request\n" in child.stdout


def test_long_prompts(service: EmulatorThread) -> None:
    """A prompt is told by its beginning."""
    with Child("run", "word " * 100, env=service.environment) as child:
        assert child.ended() == 0
    line = child.stdout.splitlines()[0]
    assert line.endswith("…")
    assert len(line) == 200


@pytest.mark.parametrize("machine", [False, True])
def test_trouble(machine: bool, service: EmulatorThread) -> None:  # noqa: FBT001 - a parameter of the test
    """A job that can't be read twice in a row is told once; when it can again, its changes are told as ever."""
    service.inject("503 x2 on=get")
    options = ["--json"] * machine
    with Child("run", "Tidy up", *options, env=service.environment) as child:
        assert child.ended() == 0
    if machine:
        events = [json.loads(line) for line in child.stdout.splitlines()]
        (trouble,) = [event for event in events if event["event"] == "trouble"]
        assert trouble["job"] == "docs/job_000001"
        assert trouble["error"].startswith("HTTP 503")
    else:
        assert child.stdout.count("docs/job_000001 no news, still polling: HTTP 503") == 1
        assert "\ndocs/job_000001 completed: " in child.stdout


def test_json_when_it_fails(service: EmulatorThread) -> None:
    """An `ended` event without a job has its error and its outcome."""
    service.inject("500")
    with Child("run", "Tidy up", "--json", env=service.environment) as child:
        assert child.ended() == 4
    ended = json.loads(child.stdout.splitlines()[0])
    assert ended["job"] is None
    assert ended["status"] is None
    assert ended["outcome"] == "unknown"
    assert "an agent may have been started" in ended["error"]
