"""The issues that the nightly search opens, by the output of a search and a `gh` that writes down what it is told."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.checkout import ROOT

PRINTED = """\
seed 17: P1: 2 agents for 'a b'
seed 23: Durable: on_end was told [] for k
seed 24: P1: 3 agents for 'c'
3 worlds, 9 creates; 3 broke a promise, explained with --seed: [17, 23, 24]
"""
GH = """\
#!/bin/sh
case "$2" in
    list) printf '%s\\n' "$OPEN" ;;
    create) { printf '%s\\n' "$4"; cat; } > "$ISSUES/$4" ;;
esac
"""
EXPLAIN = """\
#!/bin/sh
echo 'world of' "$3, $1;" 'a block: ```'
yes 'an event' | head -n 100
exit 1
"""
RUN = {"GITHUB_SERVER_URL": "forge:", "GITHUB_REPOSITORY": "us/it", "GITHUB_RUN_ID": "7", "GITHUB_SHA": "abc123"}


def program(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def issues(folder: Path, printed: str, titles: Sequence[str] = ()) -> dict[str, str]:
    """Return the issues that are opened for what a search printed, by title, while some are open."""
    program(folder / "gh", GH)
    (folder / "issues").mkdir()
    (folder / "found.txt").write_text(printed, encoding="utf-8")
    found = {"PATH": f"{folder}:{os.environ['PATH']}", "OPEN": "\n".join(titles), "ISSUES": str(folder / "issues")}
    command = [program(folder / "explain", EXPLAIN), "--postgresql"]
    whole = [sys.executable, "-m", "tests.simulation.findings", str(folder / "found.txt"), *command]
    subprocess.run(whole, env={**os.environ, **RUN, **found}, cwd=ROOT, check=True)  # noqa: S603 - our own program
    return {file.name: file.read_text(encoding="utf-8") for file in (folder / "issues").iterdir()}


def test_an_issue_for_each_promise(tmp_path: Path) -> None:
    """Each broken promise gets one issue: the commit, the seeds, the printed line, and the first lines of the world."""
    opened = issues(tmp_path, PRINTED)
    assert set(opened) == {"Search: P1 is broken", "Search: Durable is broken"}
    lines = opened["Search: P1 is broken"].splitlines()
    assert lines[1:9] == [
        f"At abc123, `{tmp_path}/explain --postgresql --seed 17` explains it.",
        "",
        "Other seeds that break it: 24",
        "",
        "```text",
        "seed 17: P1: 2 agents for 'a b'",
        "",
        "world of 17, --postgresql; a block: '''",
    ]
    assert lines.count("an event") == 59
    assert lines[-3:] == ["```", "", "Found by forge:/us/it/actions/runs/7"]


def test_no_second_issue(tmp_path: Path) -> None:
    """A promise that an open issue names gets no other one."""
    assert set(issues(tmp_path, PRINTED, ["Docs", "Search: P1 is broken"])) == {"Search: Durable is broken"}


def test_nothing_found(tmp_path: Path) -> None:
    """A search that broke down opens no issue."""
    assert issues(tmp_path, "Traceback (most recent call last):\n") == {}
