import asyncio
import csv
import json
import re
import signal
import stat
from pathlib import Path

import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.__main__ import main
from agentjobs_async.batch import Journal
from agentjobs_async.cli._input.own_journals import left_journals, new_journal
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread, endless_opening, lasting_emulator, without_power
from tests.until import PATIENCE_SECONDS


def left(state_directory: Path) -> list[Path]:
    """Return everything that runs have left."""
    return sorted(state_directory.iterdir()) if state_directory.exists() else []


def the_journal(state_directory: Path) -> Path:
    (journal,) = state_directory.glob("run-*.db")
    return journal


def interrupted(service: EmulatorThread, number: signal.Signals) -> Child:
    """Run three prompts, two at once, and end the run when both have their jobs, which take an hour."""
    service.live(duration=3600)
    with Child("run", "a x", "b x", "c x", "--max-active", "2", env=service.environment) as child:
        child.until("_000001 created").until("_000002 created")
        child.send(number)
        assert child.ended() == {signal.SIGKILL: -number}.get(number, 128 + number)
    return child


def test_what_leaves_nothing(service: EmulatorThread, state_directory: Path, tmp_path: Path, db: str) -> None:
    """A journal whose jobs have all ended is removed with all files beside it; one that has a name stays."""
    assert main(["run", "a x", "b x"]) == 0
    assert main(["run", "a x", "--journal", db]) == 0
    service.live("failed")
    assert main(["run", "a x", "b x"]) == 1
    assert left(state_directory) == []
    assert (tmp_path / "run.db").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_lost(
    number: signal.Signals, service: EmulatorThread, state_directory: Path, capsys: Captured
) -> None:
    """However a run ends, its journal has the rest: resume goes on with it, doubles nothing, and removes it."""
    child = interrupted(service, number)
    journal = the_journal(state_directory)
    if number != signal.SIGKILL:
        words = "Resume with this; the same run again would create all of them again:\n"
        options = f"--base-url {service.emulator.base_url}"
        assert re.search(rf"{words}  \S.* -m agentjobs_async resume {journal} {options}\n$", child.stderr)
        assert "2 active, 1 planned\n" in child.stdout
    assert stat.S_IMODE(state_directory.stat().st_mode) == 0o700  # prompts are in there
    assert {stat.S_IMODE(file.stat().st_mode) for file in left(state_directory)} == {0o600}
    assert main(["status"]) == 4
    shown, address = capsys.readouterr().out, f"--base-url {service.emulator.base_url}"
    assert re.fullmatch(rf"2 active, 1 planned: continue with\n  \S.* resume {journal} {re.escape(address)}\n", shown)
    service.inject("document status=completed on=get forever")
    assert main(["resume", str(journal)]) == 0
    assert service.emulator.agents_started == {"a x": 1, "b x": 1, "c x": 1}
    written = capsys.readouterr().out
    assert f"docs~.{service.job_ids[2]} created: c x" in written
    assert "\n3 completed\n" in written
    assert left(state_directory) == []


def test_second_signal(service: EmulatorThread, state_directory: Path, capsys: Captured) -> None:
    """The first signal tells what is waited for; a second one ends the run at once, after the command that resumes."""
    service.inject("hang forever")
    with Child("run", "a x", env=service.environment, fresh=True) as child:
        service.wait_for_requests(1)
        child.send(signal.SIGINT)
        child.until_error("Stopping: up to 10 s for the answers of creates under way (").send(signal.SIGINT)
        assert child.ended() == -signal.SIGINT
    journal = the_journal(state_directory)
    assert f" resume {journal} --base-url" in child.stderr.splitlines()[-1]
    assert main(["export", str(journal), "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "sending"


def test_unknown_items_are_kept(service: EmulatorThread, state_directory: Path, capsys: Captured) -> None:
    """A journal with an unknown item is kept until that is resolved and the rest has ended."""
    service.inject("500 agent=no x1", prompt="b x")
    assert main(["run", "a x", "b x"]) == 4
    assert "May have started an agent" in capsys.readouterr().err
    journal = str(the_journal(state_directory))
    assert main(["resolve", "2", "--journal", journal, "--send-again"]) == 0
    assert main(["resume", journal]) == 0
    assert service.emulator.agents_started == {"a x": 1, "b x": 1}
    assert left(state_directory) == []


def test_what_is_tried_again_is_kept(service: EmulatorThread, state_directory: Path, capsys: Captured) -> None:
    """A journal whose failed items have tries left is kept for the next one, and removed after the last."""
    service.live("failed")
    assert main(["run", "a x", "--retry-failed", "--max-tries", "2"]) == 4
    journal = the_journal(state_directory)
    assert capsys.readouterr().err.endswith(" --retry-failed --max-tries 2\n")
    assert main(["resume", str(journal), "--retry-failed", "--max-tries", "2"]) == 1
    assert left(state_directory) == []


def test_status_of_several(service: EmulatorThread, state_directory: Path, capsys: Captured) -> None:
    """All left journals are listed, one that a run is using and one that is broken too."""
    assert main(["status"]) == 0
    assert f"No run without --journal has left a journal in {state_directory}." in capsys.readouterr().err
    interrupted(service, signal.SIGINT)
    (state_directory / "run-broken.db").write_text("no journal")
    with Child("run", "d x", env=service.environment) as child:
        child.until(" created")
        assert main(["status", "--format", "jsonl"]) == 4
    written = capsys.readouterr()
    documents = [json.loads(line) for line in written.out.splitlines()]
    assert [(document["in_use"], document["states"]) for document in documents] == [
        (False, {"planned": 1, "active": 2}),
        (True, {"active": 1}),
    ]
    assert "run-broken.db: journal run-broken.db: the file is" in written.err


def test_status_of_an_empty_one(capsys: Captured) -> None:
    """A journal whose run was killed before it planned anything can be removed, and `status` says so."""
    with new_journal(temporary=False) as journal:
        asyncio.run(empty_journal(journal))
    assert main(["status"]) == 0
    assert capsys.readouterr().out == f"nothing planned: remove this, and run the prompts again\n  {journal}\n"


async def empty_journal(path: str) -> None:
    async with Journal.open(path):
        pass


def test_the_oldest_first(state_directory: Path) -> None:
    """Journals are listed in the order in which they were made, also those of one second."""
    made = []
    for _ in range(20):
        with new_journal(temporary=False) as journal:
            Path(journal).touch()
            made.append(Path(journal))
    assert left_journals() == made
    assert left(state_directory) == made


def test_nothing_is_created_without_a_journal(service: EmulatorThread, state_directory: Path) -> None:
    """Where the journal can't be written, nothing is sent, and the message says what to do."""
    state_directory.parent.chmod(0o555)
    for _ in range(2):
        with Child("run", "a x", env=service.environment, before=without_power) as child:
            assert child.ended() == 2
        assert child.stderr.startswith("Error: this run can't keep its journal (")
        assert str(state_directory) in child.stderr
        assert child.stderr.endswith("; say where: --journal FILE\n")
        state_directory.parent.chmod(0o755)
        state_directory.mkdir(exist_ok=True)
        state_directory.chmod(0o555)
    assert service.emulator.requests == ()
    assert left(state_directory) == []


def test_refused_prompts_leave_nothing(
    service: EmulatorThread, state_directory: Path, tmp_path: Path, db: str, capsys: Captured
) -> None:
    """A run whose prompts are all refused leaves no journal, unless it was there before; it says no more than that."""
    (prompts := tmp_path / "prompts").write_text('{"key": "", "prompt": "x"}\n{"key": "a", "prompt": " "}\n')
    (link := tmp_path / "link").symlink_to(db)
    for journal in ([], ["--journal", db], ["--journal", str(link)]):
        assert main(["run", "--file", str(prompts), *journal]) == 1
        assert "Nothing was planned.\n2 prompts were refused" in capsys.readouterr().err or not journal
        assert {path.name for path in tmp_path.iterdir()} == {"prompts", "link"}
    assert left(state_directory) == []
    assert main(["run", "a x", "--journal", db]) == 0
    assert main(["run", "--file", str(prompts), "--journal", db]) == 1
    assert "1 completed\n2 prompts were refused" in capsys.readouterr().err
    assert service.emulator.agents_started == {"a x": 1}


def test_a_stop_before_anything_is_planned(service: EmulatorThread, state_directory: Path) -> None:
    """A run that is stopped while it makes its own journal leaves none."""
    with Child("run", "a x", env=service.environment, before=endless_opening) as child:
        child.until("made").send(signal.SIGINT)
        assert child.ended() == 130
    assert child.stderr == "Stopped.\n"
    assert left(state_directory) == []


def test_an_emulator_leaves_nothing(state_directory: Path) -> None:
    """The jobs of an emulator end with it, in any project: its run offers no wait, and keeps no journal."""
    with Child("run", "--emulator", "--project", "mine", "a x", before=lasting_emulator) as child:
        child.until("_000001 created").send(signal.SIGINT)
        assert child.ended() == 130
    assert "The emulator ends with this command, and its jobs with it" in child.stderr
    assert "agentjobs_async " not in child.stderr
    assert not state_directory.exists()


def test_json_of_a_stopped_run(service: EmulatorThread) -> None:
    """With --json every prompt has its `ended` line in ASCII, those that the signal left open too."""
    service.live(duration=3600)
    with Child("run", "Größe x", "b x", "--max-active", "1", "--json", env=service.environment) as child:
        child.until('"created"').send(signal.SIGTERM)
        assert child.ended() == 143
    assert child.stdout.isascii()
    *_, first, second, summary = map(json.loads, child.stdout.splitlines())
    assert (first["key"], first["state"], first["prompt"]) == ("1", "active", "Größe x")
    assert (second["key"], second["state"], second["job"]) == ("2", "planned", None)
    assert summary == {"event": "summary", "states": {"active": 1, "planned": 1}, "exit_code": 143}


def test_a_job_whose_time_is_up(
    service: EmulatorThread, state_directory: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose time was up stands in the table and in the summary as that, and its journal is kept."""
    create = AgentJobsSession.create_job
    patience = {"timeout": PATIENCE_SECONDS}  # the create has more time than its job
    monkeypatch.setattr(AgentJobsSession, "create_job", lambda *given, **more: create(*given, **more | patience))
    service.live(duration=3600)
    assert main(["run", "a x", "--timeout", "0.05"]) == 4
    written = capsys.readouterr()
    assert "\n1 timed out\n" in written.out
    assert f" resume {the_journal(state_directory)} --base-url" in written.err


def test_tasks_of_a_file(service: EmulatorThread, state_directory: Path, tmp_path: Path) -> None:
    """JSON Lines, limits and a report work without --journal too."""
    prompts, table = tmp_path / "prompts", tmp_path / "out.csv"
    prompts.write_text('{"key": "k", "prompt": "a x"}\n{"key": "l", "prompt": "b x", "project": "web"}\n')
    assert main(["run", "--file", str(prompts), "--limit", "1"]) == 4
    assert main(["resume", str(the_journal(state_directory)), "--report", str(table)]) == 0
    assert [row["key"] for row in csv.DictReader(table.read_text().splitlines())] == ["k", "l"]
    assert {request.project_id for request in service.emulator.requests} == {"docs", "web"}
    assert left(state_directory) == []
