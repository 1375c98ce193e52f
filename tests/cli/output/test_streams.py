import io
import json
import os
import re
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.cli._output.streams import guarded, leave, without_commands, without_commands_in_json
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread

FULL = Path("/dev/full")
HOSTILE = "::add-mask::a"


def test_reader_leaves(service: EmulatorThread) -> None:
    """When the reader leaves, as `head` does, a run ends with 141, and says how to go on with what it created."""
    service.live(prompt="a", duration=3600)
    with Child("run", "--yes", "a", "b", env=service.environment, fresh=True) as child:
        child.close_stdout()
        assert child.ended() == 141
    assert "Resume with this" in child.stderr
    assert re.search(r" resume \S+/run-\S+\.db ", child.stderr)


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_full_disk(service: EmulatorThread) -> None:
    """Output that can't be written stops a run, which says so, and how to go on."""
    service.live(duration=3600)
    with Child("run", "a", env=service.environment, stdout=os.open(FULL, os.O_WRONLY), fresh=True) as child:
        assert child.ended() == 4
    assert child.stderr.startswith("Error: the output can't be written: No space left on device\n")
    assert re.search(r" resume \S+/run-\S+\.db [^\n]*\n$", child.stderr)


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_token_is_not_lost(service: EmulatorThread) -> None:
    """The token of a job that was created is written to standard error when standard output fails."""
    with Child("create", "a", env=service.environment, stdout=os.open(FULL, os.O_WRONLY), fresh=True) as child:
        assert child.ended() == 4
    assert child.stderr.endswith(f"The job was created: docs~.{service.job_ids[0]}\n")


def test_closed_stream() -> None:
    """A stream that the process was started without accepts everything."""
    stream = guarded(None)
    assert stream.write("text") == 4
    stream.flush()


def test_failure_is_told_once() -> None:
    """After its first failure a stream is silent, and the failure was shown once."""
    reader, writer = os.pipe()
    os.close(reader)
    failures: list[OSError] = []
    with open(writer, "w", encoding="ascii") as pipe:  # noqa: PTH123 - a descriptor, not a path
        stream = guarded(pipe, failures.append)
        assert stream.write("é") == 1
        stream.flush()
        stream.flush()
        assert stream.write("more") == 4
        assert not stream.isatty()
        assert stream.encoding == "ascii"
        assert stream.fileno() == writer
    assert [type(failure) for failure in failures] == [BrokenPipeError]


def test_failure_without_descriptor() -> None:
    """A stream without a descriptor may fail as well."""

    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(text)

    failures: list[OSError] = []
    assert guarded(Broken(), failures.append).write("text") == 4
    assert len(failures) == 1


def test_leave(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Leaving writes what is buffered, and ends the process with the code."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr("sys.stderr", None)
    leave(130)
    assert codes == [130]
    assert capsys.readouterr().out == ""


def test_encoding_without_the_character(service: EmulatorThread) -> None:
    """What the output's encoding can't say is escaped."""
    env = service.environment | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with Child("run", "Größe", env=env, fresh=True) as child:
        assert child.ended() == 0
    assert "created: Gr\\xf6\\xdfe\n" in child.stdout


@pytest.fixture
def _on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")


def is_command(line: str) -> bool:
    """Return whether the runner of GitHub Actions reads a line as a command."""
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


def test_elsewhere_no_line_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere no line is changed."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert without_commands("::a ##[b]") == without_commands_in_json("::a ##[b]") == "::a ##[b]"


@pytest.mark.slow
@pytest.mark.usefixtures("_on_github")
def test_a_file_is_not_changed(service: EmulatorThread, tmp_path: Path, db: str) -> None:
    """What is written to a file is data: a command there is none."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"key": HOSTILE, "prompt": f"a\n{HOSTILE}"}), encoding="utf-8")
    main(["run", "--file", str(prompts), "--journal", db])
    out = os.open(tmp_path / "out.csv", os.O_WRONLY | os.O_CREAT)
    with Child("export", db, stdout=out, env={"GITHUB_ACTIONS": "true"}) as child:
        assert child.ended() == 0
    assert main(["export", db, "--out", str(tmp_path / "same.csv")]) == 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()
    assert f"\n{HOSTILE}" in (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert service.emulator.agents_started.total() == 1


@pytest.mark.slow
@pytest.mark.usefixtures("_on_github")
def test_report_stays_json(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """A report of JSON Lines in a log gives no command, and is JSON."""
    assert main(["run", "--yes", "##[add-mask]b c", "--journal", db]) == 0
    capsys.readouterr()
    assert main(["report", db, "--format", "jsonl"]) == 0
    written = capsys.readouterr().out
    assert "##[" not in written
    assert "##[add-mask]b" in json.dumps(json.loads(written))
    assert service.emulator.agents_started.total() == 1


@pytest.mark.slow
@pytest.mark.usefixtures("_on_github")
def test_no_command_of_a_key(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """In the log of a step no key, prompt, path or error gives a command."""
    service.live("failed", prompt="two ##[add-mask]b")
    records = [
        {"key": HOSTILE, "prompt": f"{HOSTILE}\n{HOSTILE}"},
        {"key": f" {HOSTILE}", "prompt": "two ##[add-mask]b"},
        {"key": f"{HOSTILE}\n{HOSTILE}", "prompt": "refused"},
    ]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    main(["plan", "--file", str(prompts)])
    main(["run", "--file", str(prompts), "--journal", db, "--yes"])
    main(["status", db])
    main(["status", db, "--format", "jsonl"])
    main(["run", "--file", str(prompts), "--yes", "--json"])
    main(["resolve", "--journal", db, HOSTILE, "--abandon"])
    main(["export", db])
    for form in ("html", "markdown", "csv", "jsonl"):
        main(["report", db, "--format", form])
    main(["get", HOSTILE])
    printed = capsys.readouterr()
    lines = [*printed.out.splitlines(), *printed.err.splitlines()]
    assert len(lines) > 20
    assert [line for line in lines if is_command(line)] == []
