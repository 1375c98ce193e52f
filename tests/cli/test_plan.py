import json
import re
from pathlib import Path

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured, plan, run
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
    assert lines[4] == "This takes about 29.1 h: --create-rate 100/h decides."
    assert re.fullmatch(r"Begun now, it ends about \w+ \d\d \w+ \d\d:\d\d.", lines[5])
    assert lines[6:] == [
        "--create-rate 100/h: at most 100 creates of each project in any span of 1 h; 1/36s spaces them evenly.",
        "This costs 1,200.00: 0.40 for each job.",
    ]
    assert service.emulator.requests == ()


def test_a_plan_for_a_journal(tmp_path: Path, db: str, capsys: Captured) -> None:
    """A journal knows items by their projects: an emulator's names that by itself, any other needs --project."""
    arguments = ["--file", table(tmp_path, 3), "--prompt", "Document {title}", "--journal", db]
    plan(db)
    assert main(["plan", *arguments]) == 2
    assert "there is no project: give --project ID or set AGENTJOBS_PROJECT_ID" in capsys.readouterr().err
    assert main(["plan", *arguments, "--project", "docs"]) == 0
    assert main(["run", *arguments, "--emulator", "--limit", "1"]) in {1, 4}
    capsys.readouterr()
    assert main(["plan", *arguments]) == 0
    assert "2 would be sent, 0 refused." in capsys.readouterr().out


def test_what_a_run_would_send(service: EmulatorThread, prompts: Path, db: str, capsys: Captured) -> None:
    """A plan tells what a run of the same prompts would send and refuse, makes no journal and sends nothing."""
    arguments = ["plan", "--file", str(prompts), "--journal", db, "--project", "docs"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [f"k{n} would be sent: p{n}" for n in range(3)]
    assert not Path(db).exists()
    assert service.emulator.requests == ()
    assert run(prompts, db, "--limit", "1") == 4
    prompts.write_text('{"key": "k0", "prompt": "changed"}\n{"key": "new", "prompt": "x"}\n')
    capsys.readouterr()
    assert main(arguments) == 1
    written = capsys.readouterr()
    assert written.out.splitlines() == [
        *("k1 would be sent: p1", "k2 would be sent: p2", "new would be sent: x"),
        "3 would be sent, 1 refused.",
    ]
    assert "k0 refused: the key 'k0' is that of another prompt" in written.err


def test_what_would_be_tried_again(
    service: EmulatorThread, prompts: Path, db: str, database: str, capsys: Captured
) -> None:
    """An item that is tried again would be sent once, and a failed one where a run would try it again.

    Of a journal that was moved, which no run continues, nothing would be.
    """
    service.live("failed", prompt="p1")
    service.live("failed", prompt="p2")
    assert run(prompts, db) == 1
    assert main(["retry", db, "k1"]) == 0
    capsys.readouterr()
    again = ["--retry-failed", "--max-tries", "2"]
    for arguments, number in (([], 1), (["--retry-failed"], 2), (["--retry-failed", "--limit", "1"], 1), (again, 2)):
        assert main(["plan", "--file", str(prompts), "--journal", db, *arguments]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert (shown[0], shown[-1]) == ("k1 would be sent: p1", f"{number} would be sent, 0 refused.")
    assert main(["move", db, database]) == 0
    assert main(["plan", "p x", "--journal", db]) == 4
    assert "it was moved to" in capsys.readouterr().err


def test_hours_without_minutes(tmp_path: Path, capsys: Captured) -> None:
    """Without the time of a job only a rate gives hours, as a lower bound; a small price is not shown as none."""
    arguments = ["plan", "--file", table(tmp_path, 101), "--prompt", "{title}"]
    assert main(arguments) == 0
    assert "takes" not in capsys.readouterr().out
    assert main([*arguments, "--create-rate", "100/h", "--price", "0.004"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "This takes at least 1 h: --create-rate 100/h decides. Begun now, it ends at the earliest on" in printed
    assert printed.endswith("This costs 0.404: 0.004 for each job.")


def test_invalid_prompts_and_repeats(tmp_path: Path, capsys: Captured) -> None:
    """Ten invalid prompts are shown with their reasons, the others are counted; a repeated prompt is named."""
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
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"key": f"docs/{'x' * 60}/7", "prompt": words}), encoding="utf-8")
    with Child("plan", "--file", str(prompts), terminal=True, env=service.environment) as child:
        assert child.ended() == 0
    (line,) = [line for line in child.stdout.splitlines() if "would be sent: " in line]
    assert re.fullmatch(r"docs/x+…x+/7 would be sent: Fix the broken links in[ a-z]*…\s*", line)
