import json

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import EmulatorThread


def test_status_changes(service: EmulatorThread, capsys: Captured) -> None:
    """Each change of the status is a line; an unknown status is shown escaped; the end has its pull request, if any."""
    service.inject('document status="queu\\u001bed" on=get')
    assert main(["run", "Tidy up"]) == 0
    (job_id,) = service.job_ids
    assert capsys.readouterr().out.splitlines()[:3] == [
        f"docs~.{job_id} created: Tidy up",
        f"docs~.{job_id} queu\\x1bed",
        f"docs~.{job_id} completed: https://code.example/acme/docs/pull/{job_id}",
    ]
    service.live(pull_request=False)
    assert main(["run", "Tidy up"]) == 0
    assert f"\ndocs~.{service.job_ids[1]} completed: no pull request\n" in capsys.readouterr().out


def test_long_prompts(service: EmulatorThread, capsys: Captured) -> None:
    """A prompt is shown by its beginning."""
    del service
    assert main(["run", "word " * 100]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith("…")
    assert len(line) == 200


def test_trouble(service: EmulatorThread, capsys: Captured) -> None:
    """A job that can't be read twice in a row is shown once; when it can again, its changes are shown as ever."""
    service.inject("503 x2 on=get")
    assert main(["run", "Tidy up"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(f"docs~.{service.job_ids[0]} no news, still polling: HTTP 503") == 1
    assert f"\ndocs~.{service.job_ids[0]} completed: " in shown
    service.inject("503 x2 on=get")
    assert main(["run", "Tidy up", "--json"]) == 0
    events = map(json.loads, capsys.readouterr().out.splitlines())
    (trouble,) = [event for event in events if event["event"] == "trouble"]
    assert trouble["job"] == f"docs~.{service.job_ids[1]}"
    assert trouble["error"].startswith("HTTP 503")


def test_json_when_it_fails(service: EmulatorThread, capsys: Captured) -> None:
    """An `ended` event without a job has its error and its state."""
    service.inject("500")
    assert main(["run", "Tidy up", "--json"]) == 4
    ended = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (ended["job"], ended["status"], ended["state"]) == (None, None, "unknown")
    assert ended["error"].startswith("HTTP 500 after the prompt was sent")
