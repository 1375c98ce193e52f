"""The recipes as a set: short, and listed on their page."""

import sys
from pathlib import Path

from tests.extras import FRAMEWORKS
from tests.recipes.processes import RECIPES, imports_of

PROGRAMS = sorted(RECIPES.glob("*.py"))
MOST_LINES = 80
SHARED = {"web_jobs"}
"""What recipes share."""
MOST_SHARED_LINES = 150
CORE = {"agentjobs_async", "aiohttp", "tenacity", "slack_sdk", *sys.stdlib_module_names, *FRAMEWORKS}


def test_recipes() -> None:
    """A recipe is short, begins with what it is, is listed and shown on the page, and is named by a test."""
    page = (RECIPES / "index.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    for program in PROGRAMS:
        text = program.read_text(encoding="utf-8")
        assert program.stem in SHARED or len(text.splitlines()) <= MOST_LINES, program.name
        assert text.startswith(('"""', "# %% [markdown]\n")), program.name
        assert f"| [`{program.name}`]({program.name}) |" in page
        assert f"{{literalinclude}} {program.name}\n" in page
        if program.stem != "bot_jobs":  # all bots use it
            assert f'"{program.stem}"' in tests or f'"{program.name}"' in tests, program.name
    shared = [line for name in SHARED for line in (RECIPES / f"{name}.py").read_text(encoding="utf-8").splitlines()]
    assert len(shared) <= MOST_SHARED_LINES


def test_imports() -> None:
    """A recipe imports what the package has anyway, and frameworks, without which its test skips."""
    found = {program.stem: {name.split(".")[0] for name in imports_of(program.stem)} for program in PROGRAMS}
    assert {name: modules - CORE for name, modules in found.items() if modules - CORE} == {}
