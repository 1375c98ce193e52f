"""Every sample of every page is run by the test file of its page, and fits one glance."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from tests.docs.samples import PAGES, ROOT, blocks

WITH_SAMPLES = [page for page in PAGES if blocks(page)]
LONGEST = 12
UNRUN = {
    ("README", 0),  # installs from the package index; its `agentjobs` line is also on the page of the command line
    ("README", 1),  # the test suite itself: `.ci/run` runs this line on every Python
    ("many-machines", 0),  # a server that does not exist, a command without end: tests/cli/test_fleet.py
}
"""The shell blocks that no test of its page runs, by page and number."""
METHODS = {"run", "serialize"}
"""Methods that the samples define; the tests call them on their objects."""
COMMAND = re.compile(r"\bagentjobs ((?:[a-z]+|COMMAND)\b[^`\n|)#]*)")


def file_testing(page: str) -> Path:
    name = f"test_{page.lower().replace('-', '_')}.py"
    return ROOT / "tests" / (name if page == "README" else f"docs/{name}")


def test_samples_fit_one_glance() -> None:
    """No sample is longer than twelve lines."""
    assert [sample for page in PAGES for sample in blocks(page) if len(sample.splitlines()) > LONGEST] == []


def test_sample_comes_first() -> None:
    """A page begins with what it is for and its shortest sample."""
    begins = {page: PAGES[page].read_text(encoding="utf-8").split("\n## ")[0] for page in WITH_SAMPLES}
    assert [page for page, begin in begins.items() if not re.search(r"^```(python|sh)$", begin, re.MULTILINE)] == []


def uncalled(page: str) -> set[str]:
    """Return the functions of a page's samples that no test of the page calls; the page itself if no test runs it."""
    text = file_testing(page).read_text(encoding="utf-8")
    nodes = [node for sample in blocks(page) for node in ast.walk(ast.parse(sample))]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    methods = {name for name in defined if name.startswith("__") or name in METHODS}
    return {name for name in {page, *(defined - used - methods)} if f'"{name}"' not in text}


def test_samples_run() -> None:
    """The test file of a page runs the page, and calls every function that its samples define."""
    assert {page: found for page in WITH_SAMPLES if (found := uncalled(page))} == {}


def test_shell_lines_run() -> None:
    """The test file of a page runs each shell block, but for those that the table names."""
    found = {(page, number) for page in PAGES for number in range(len(blocks(page, "sh")))}
    assert found >= UNRUN
    for page in {page for page, _ in found - UNRUN}:
        assert f'blocks("{page}", "sh")' in file_testing(page).read_text(encoding="utf-8"), page


def test_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command and option that a page names is one of the command line."""
    helps: dict[str, str] = {}
    wrong: list[tuple[str, str]] = []
    for page, path in PAGES.items():
        for words in COMMAND.findall(path.read_text(encoding="utf-8")):
            command, *rest = words.split()
            if command == "COMMAND":
                continue
            if command not in helps:
                helps[command] = capsys.readouterr().out if main([command, "--help"]) == 0 else ""
            options = re.findall(r"--[a-z-]+", " ".join(rest))
            if not helps[command] or any(option not in helps[command] for option in options):
                wrong.append((page, words))
    assert "run" in helps
    assert wrong == []


def test_extras_exist() -> None:
    """Every extra that a page installs is one of the package."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES.values())
    named = {extra for names in re.findall(r"(?:agentjobs-async|\.)\[([a-z,]+)\]", text) for extra in names.split(",")}
    assert "batch" in named
    assert named - set(extras) == set()
