import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli._output.github import StepSummary
from tests.cli.checks import Captured, screen
from tests.cli.stage import EmulatorThread

pytestmark = pytest.mark.slow

MIB = 1_048_576


def row(number: int, state: State, error: str | None = None, key: str | None = None) -> JournalRow:
    return JournalRow(key or f"k{number}", "x", "docs", state, None, None, error, datetime.now(UTC), number)


def rows(count: int) -> Sequence[JournalRow]:
    return [row(number, State.REJECTED, "é" * 100) for number in range(count)]


def written(rows: Sequence[JournalRow], counts: dict[State, int], capsys: Captured) -> list[str]:
    """Return the lines on standard output; those of the summary are in its file."""
    gathered = StepSummary()
    gathered.add(rows)
    gathered.show(screen(), counts, "words", is_for_people=True)
    return capsys.readouterr().out.splitlines()


def test_annotations_are_escaped(capsys: Captured) -> None:
    """The text of an annotation can neither end it nor begin another command."""
    assert written([row(0, State.FAILED)], {}, capsys) == ["::error::k0 failed: the agent failed"]
    failed = row(1, State.FAILED, "100% wrong\n::set-output name=x::y\r\x1b[31m", "a,b:c\n::stop")
    (line,) = written([row(2, State.COMPLETED), failed], {}, capsys)
    assert line.startswith("::error::a,b:c")
    assert " failed: 100%25 wrong" in line
    assert "\x1b" not in line


def test_ten_annotations(capsys: Captured) -> None:
    """At most ten items are annotated: those that failed or were rejected, in this order."""
    found = written([*rows(12), row(99, State.UNKNOWN), row(98, State.FAILED)], {}, capsys)
    names = ["k98 failed", *(f"k{number} rejected" for number in range(9))]
    assert [line.split(": ")[0] for line in found] == [f"::error::{name}" for name in names]


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a step's summary, to which an earlier command has written."""
    file = tmp_path / "summary.md"
    file.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    return file


def test_a_summary(summary: Path, capsys: Captured) -> None:
    """A summary has the sum of all items, a chart, and a table of them, those first that need a person."""
    written([row(1, State.COMPLETED), row(2, State.FAILED, "no")], {State.FAILED: 1, State.COMPLETED: 1}, capsys)
    before, *lines = summary.read_text(encoding="utf-8").splitlines()
    assert (before, lines[:3]) == ("before", ["### agentjobs", "", "words"])
    assert lines[4:9] == ["```mermaid", "pie showData", '    "failed" : 1', '    "completed" : 1', "```"]
    assert lines[10].startswith("| key |")
    assert [line.split(" | ")[:2] for line in lines[12:]] == [["| k2", "failed"], ["| k1", "completed"]]


def test_a_summary_that_is_cut(summary: Path, capsys: Captured) -> None:
    """A summary has no more bytes than there is room for, ends with a whole row, and says how many it left out."""
    for room in (MIB, 10_000, 2_500):
        summary.write_bytes(b"x" * (MIB - room - 1) + b"\n")
        written(rows(10_000), {State.REJECTED: 10_000}, capsys)
        text = summary.read_text(encoding="utf-8")
        assert len(text.encode()) <= MIB
        shown = sum(line.startswith("| k") and "| key" not in line for line in text.splitlines())
        assert shown > 0
        assert text.endswith(f"\n… and {10_000 - shown:,} more\n")


def test_commands(service: EmulatorThread, summary: Path, db: str, capsys: Captured) -> None:
    """On GitHub Actions run, resume and status append a summary each, and annotate what failed."""
    service.live("failed", prompt="two words")
    assert main(["run", "one", "two words", "three", "--yes", "--journal", db, "--limit", "2"]) == 4
    assert main(["resume", db]) == 1
    assert main(["status", db]) == 1
    printed = capsys.readouterr().out
    assert printed.count("::error::item 2 failed: ") == 3
    assert printed.count("\n::error::") == printed.count("::error::")
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n### agentjobs\n")
    assert text.count("### agentjobs") == 3
    assert text.count("| 2 | failed |") == 3
    assert text.count('\n\n```mermaid\npie showData\n    "failed" : 1\n') == 3
    assert text.count("\n```\n\n| key |") == 3


@pytest.mark.usefixtures("summary")
def test_output_for_machines(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """Standard output that is for machines gets no annotation; standard error does."""
    service.live("failed")
    assert main(["run", "one", "--journal", db, "--json"]) == 1
    assert main(["status", db, "--format", "jsonl"]) == 1
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()]
    assert printed.err.count("::error::item 1 failed: ") == 2


def test_elsewhere(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """Elsewhere nothing of this is written."""
    service.live("failed")
    assert main(["run", "one", "--journal", db]) == 1
    printed = capsys.readouterr()
    assert "::error" not in printed.out + printed.err


def test_a_summary_that_can_not_be_written(
    service: EmulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, db: str
) -> None:
    """A summary that can't be written is told, and does not change the exit code."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert main(["run", "one", "--journal", db]) == 0
    assert "GITHUB_STEP_SUMMARY: the summary can't be written: Is a directory" in capsys.readouterr().err
    assert service.emulator.agents_started.total() == 1


def test_a_full_summary(service: EmulatorThread, summary: Path, db: str) -> None:
    """A file of summaries never grows beyond 1 MiB."""
    summary.write_text("x" * (MIB - 50), encoding="utf-8")
    assert main(["run", "one", "--journal", db]) == 0
    assert summary.stat().st_size == MIB - 50
    assert service.emulator.agents_started.total() == 1
