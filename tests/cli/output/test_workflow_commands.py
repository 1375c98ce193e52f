import json
import os
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.cli._output.streams import without_commands, without_commands_in_json
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow

HOSTILE = "::add-mask::a"


@pytest.fixture
def _on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def is_command(line: str) -> bool:
    """Return whether the runner of GitHub Actions takes a line for a command."""
    return line.lstrip().startswith("::") or "##[" in line


@pytest.mark.usefixtures("_on_github")
def test_commands_are_escaped() -> None:
    """The first sign of a command is escaped; anything else stays as it is."""
    assert without_commands("::error::x") == "\\x3a:error::x"
    assert without_commands(" \t ::error::x") == " \t \\x3a:error::x"
    assert without_commands("a ##[add-mask]b ##[error]c") == "a \\x23#[add-mask]b \\x23#[error]c"
    for harmless in ("std::vector", "a ::error::", "# [x]", ":", ""):
        assert without_commands(harmless) == harmless


@pytest.mark.usefixtures("_on_github")
def test_json_reads_the_same() -> None:
    """A line of JSON gives no command, and its meaning stays."""
    document = {"prompt": "##[add-mask]a", "key": "##["}
    line = without_commands_in_json(json.dumps(document))
    assert "##[" not in line
    assert json.loads(line) == document


def test_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere no line is changed."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert without_commands("::a ##[b]") == without_commands_in_json("::a ##[b]") == "::a ##[b]"


@pytest.mark.usefixtures("_on_github")
def test_a_file_is_not_changed(service: EmulatorThread, tmp_path: Path, db: str) -> None:
    """What is written to a file is data: a command there is none."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"key": HOSTILE, "prompt": f"a\n{HOSTILE}"}), encoding="utf-8")
    main(["run", "--file", str(tasks), "--journal", db])
    out = os.open(tmp_path / "out.csv", os.O_WRONLY | os.O_CREAT)
    with Child("export", db, stdout=out, env={"GITHUB_ACTIONS": "true"}) as child:
        assert child.ended() == 0
    assert main(["export", db, "--out", str(tmp_path / "same.csv")]) == 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()
    assert f"\n{HOSTILE}" in (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert service.emulator.agents_started.total() == 1


@pytest.mark.usefixtures("_on_github")
def test_trace_stays_json(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """A trace in a log gives no command, and is JSON."""
    assert main(["run", "--yes", "##[add-mask]b c", "--journal", db]) == 0
    capsys.readouterr()
    assert main(["report", db, "--format", "trace"]) == 0
    written = capsys.readouterr().out
    assert "##[" not in written
    assert "##[add-mask]b" in json.dumps(json.loads(written))
    assert service.emulator.agents_started.total() == 1


@pytest.mark.usefixtures("_on_github")
def test_no_command_of_a_key(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """In the log of a step no key, prompt, place or error gives a command; the annotations are all there is."""
    service.live("failed", prompt="two ##[add-mask]b")
    records = [
        {"key": HOSTILE, "prompt": f"{HOSTILE}\n{HOSTILE}"},
        {"key": f" {HOSTILE}", "prompt": "two ##[add-mask]b"},
        {"key": f"{HOSTILE}\n{HOSTILE}", "prompt": "refused"},
    ]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    main(["plan", "--file", str(tasks)])
    main(["run", "--file", str(tasks), "--journal", db, "--yes"])
    for form in ("table", "markdown", "jsonl"):
        main(["status", db, "--format", form])
    main(["run", "--file", str(tasks), "--yes", "--json"])
    main(["retry", "--journal", db, "--dry-run"])
    main(["resolve", "--journal", db, HOSTILE, "--abandon"])
    main(["export", db])
    for form in ("html", "csv", "trace", "junit", "markdown"):
        main(["report", db, "--format", form])
    main(["get", HOSTILE])
    printed = capsys.readouterr()
    lines = [*printed.out.splitlines(), *printed.err.splitlines()]
    commands = [line for line in lines if is_command(line)]
    assert len(lines) > 20
    assert commands
    assert [line for line in commands if not line.startswith("::error::")] == []
