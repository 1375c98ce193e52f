"""The recipes as a set: short, and listed on their page."""

from pathlib import Path

import pytest

from tests.recipes.processes import RECIPES

PROGRAMS = sorted(RECIPES.glob("*.py"))
MOST_LINES = 60


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_recipe(program: Path) -> None:
    """A recipe is short, begins with what it is, is listed and shown on the page, and has its own test file."""
    text = program.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert text.startswith(('"""', "# %% [markdown]\n"))
    page = (RECIPES / "index.md").read_text(encoding="utf-8")
    assert f"| [`{program.name}`]({program.name}) |" in page
    assert f"{{literalinclude}} {program.name}\n" in page
    assert (Path(__file__).parent / f"test_{program.name}").exists()
