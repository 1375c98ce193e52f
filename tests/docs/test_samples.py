"""Every sample of every page is run by the test file of its page, and fits one glance."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from tests.docs.samples import PAGES, ROOT, blocks

LONGEST = 12
UNRUN = {
    ("README", 0),  # installs from the package index; its `agentjobs` line is also on the page of the command line
    ("README", 1),  # the test suite itself: `.ci/run` runs this line on every Python
    (
        "many-machines",
        0,
    ),  # a server that does not exist, a command without end: tests/cli/test_fleet.py
}
"""The shell blocks that no test of its page runs, by page and number."""
METHODS = {"run", "serialize"}
"""Methods that the samples define; the tests call them on their objects."""
COMMAND = re.compile(r"\bagentjobs ((?:[a-z]+|COMMAND)\b[^`\n|)#]*)")


def file_testing(page: str) -> Path:
    name = f"test_{page.lower().replace('-', '_')}.py"
    return ROOT / "tests" / (name if page == "README" else f"docs/{name}")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_samples_fit_one_glance(page: str) -> None:
    """No sample is longer than twelve lines."""
    assert [sample for sample in blocks(page) if len(sample.splitlines()) > LONGEST] == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_sample_comes_first(page: str) -> None:
    """A page begins with what it is for and its shortest sample."""
    begin = PAGES[page].read_text(encoding="utf-8").split("\n## ")[0]
    assert re.search(r"^```(python|sh)$", begin, re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_samples_run(page: str) -> None:
    """The test file of a page runs the page, and calls every function that its samples define."""
    text = file_testing(page).read_text(encoding="utf-8")
    assert f'"{page}"' in text
    nodes = [node for sample in blocks(page) for node in ast.walk(ast.parse(sample))]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    methods = {name for name in defined if name.startswith("__") or name in METHODS}
    assert [name for name in defined - used - methods if f'"{name}"' not in text] == []


def test_shell_lines_run() -> None:
    """The test file of a page runs each shell block, but for those that the table names."""
    found = {(page, number) for page in PAGES for number in range(len(blocks(page, "sh")))}
    assert found >= UNRUN
    for page in {page for page, _ in found - UNRUN}:
        assert f'blocks("{page}", "sh")' in file_testing(page).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command and option that a page names is one of the command line."""
    for words in COMMAND.findall(PAGES[page].read_text(encoding="utf-8")):
        command, *rest = words.split()
        if command == "COMMAND":
            continue
        assert main([command, "--help"]) == 0, words
        shown = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", " ".join(rest)):
            assert option in shown, (page, words)


@pytest.mark.parametrize("page", PAGES)
def test_extras_exist(page: str) -> None:
    """Every extra that a page installs is one of the package."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"(?:agentjobs-async|\.)\[([a-z,]+)\]", PAGES[page].read_text(encoding="utf-8"))
    assert {extra for names in named for extra in names.split(",")} <= set(extras)
