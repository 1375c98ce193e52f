import json
import re
from pathlib import Path

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured, plan
from tests.cli.stage import Child, EmulatorThread


def table(directory: Path, rows: int) -> str:
    file = directory / "pages.csv"
    file.write_text("id,title\n" + "".join(f"k{number},page {number}\n" for number in range(rows)))
    return str(file)


def test_plan(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> None:
    """A plan names the first prompts, the count, the hours with what decides them, the end and the cost."""
    arguments = ["--file", table(tmp_path, 3000), "--key", "id", "--prompt", "Document {title}"]
    assert main(["plan", *arguments, "--create-rate", "100/h", "--minutes", "3", "--price", "0.40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        *(f"k{number} would be sent: Document page {number}" for number in range(3)),
        "3,000 would be sent, 0 refused.",
    ]
    assert lines[4] == "This takes about 30 h: --create-rate 100/h decides."
    assert re.fullmatch(r"Begun now, it ends about \w+ \d\d \w+ \d\d:\d\d.", lines[5])
    assert lines[6:] == ["This costs 1,200.00: 0.40 for each job."]
    assert service.emulator.requests == ()


def test_a_plan_for_a_journal(tmp_path: Path, db: str, capsys: Captured) -> None:
    """A journal knows items by their projects: an emulator's names that by itself, any other has to be told."""
    arguments = ["--file", table(tmp_path, 3), "--prompt", "Document {title}", "--journal", db]
    plan(db)
    assert main(["plan", *arguments]) == 2
    assert "there is no project: give --project ID or set AGENTJOBS_PROJECT_ID" in capsys.readouterr().err
    assert main(["plan", *arguments, "--project", "docs"]) == 0
    assert main(["run", *arguments, "--emulator", "--limit", "1"]) in {1, 4}
    capsys.readouterr()
    assert main(["plan", *arguments]) == 0
    assert "2 would be sent, 0 refused." in capsys.readouterr().out


def test_hours_without_minutes(tmp_path: Path, capsys: Captured) -> None:
    """Without the time of a job only a rate gives hours, as a lower bound; a small price is not shown as none."""
    arguments = ["plan", "--file", table(tmp_path, 101), "--prompt", "{title}"]
    assert main(arguments) == 0
    assert "takes" not in capsys.readouterr().out
    assert main([*arguments, "--create-rate", "100/h", "--price", "0.004"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "This takes at least 1 h: --create-rate 100/h decides. Begun now, it ends at the earliest on" in told
    assert told.endswith("This costs 0.404: 0.004 for each job.")


def test_refusals_and_repeats(tmp_path: Path, capsys: Captured) -> None:
    """Ten refusals are shown with their reasons, the others are counted; a prompt that occurred before is named."""
    file = tmp_path / "a.csv"
    file.write_text("id,title\n" + "1,a\n" * 13 + "2,a\n")
    assert main(["plan", "--file", str(file), "--key", "id", "--prompt", "{title}"]) == 1
    written = capsys.readouterr()
    assert written.err.splitlines() == [
        *(f"item 1 refused: line {line} repeats the key of line 2" for line in range(3, 13)),
        "… and 2 more are refused",
        "The same prompt as an earlier item (1): 2",
    ]
    assert written.out.splitlines()[-1] == "2 would be sent, 12 refused."


def test_prompts_on_a_narrow_terminal(service: EmulatorThread, tmp_path: Path) -> None:
    """On a terminal the key and the beginning of each of the first prompts are one line, of whole words."""
    words = "Fix the broken links in every page of the manual"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"key": f"docs/{'x' * 60}/7", "prompt": words}), encoding="utf-8")
    with Child("plan", "--file", str(tasks), terminal=True, env=service.environment) as child:
        assert child.ended() == 0
    (line,) = [line for line in child.stdout.splitlines() if "would be sent: " in line]
    assert re.fullmatch(r"docs/x+…x+/7 would be sent: Fix the broken links in[ a-z]*…\s*", line)
