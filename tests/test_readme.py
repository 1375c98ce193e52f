"""The first sample runs as printed, on a machine without the service."""

import asyncio
import re
import tomllib

import pytest

from tests.docs.samples import PAGES, run_page


async def test_first_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """The first sample creates a job, waits for it, and prints its end, without any setting."""
    await asyncio.to_thread(run_page, "README")
    assert capsys.readouterr().out.startswith("completed http")


def test_names_every_page() -> None:
    """The README links to every page."""
    text = PAGES["README"].read_text(encoding="utf-8")
    assert [page for page in PAGES if page != "README" and f"](docs/{page}.md)" not in text] == []


def test_long_description() -> None:
    """What a package index shows of the README has no picture of the repository, no caption, and no link into it."""
    root = PAGES["README"].parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    text = PAGES["README"].read_text(encoding="utf-8")
    for substitution in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    assert re.findall(r"\]\((?!https?:)|!\[|^\*[^*]", text, re.MULTILINE) == []
    assert "| Waiting |" in text
