"""The recipes as a set: listed on their page, and named by a test."""

import sys
from pathlib import Path

from tests.extras import FRAMEWORKS
from tests.recipes.processes import RECIPES, imports_of

PROGRAMS = sorted(RECIPES.glob("*.py"))
SHARED = {"web_jobs", "bot_jobs"}
"""What several recipes import, and their tests run."""
CORE = {"agentjobs_async", "aiohttp", "tenacity", "slack_sdk", *sys.stdlib_module_names, *FRAMEWORKS}


def test_recipes() -> None:
    """A recipe begins with what it is, is listed and shown on the page, and is named by a test."""
    page = (RECIPES / "index.md").read_text(encoding="utf-8")
    paths = set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)}
    tests = "".join(path.read_text(encoding="utf-8") for path in (*paths, Path(__file__).parent / "processes.py"))
    texts = {program.name: program.read_text(encoding="utf-8") for program in PROGRAMS}
    for name, text in texts.items():
        assert text.startswith(('"""', "# %% [markdown]\n")), name
        assert f"| [`{name}`]({name}) |" in page
        assert f"{{literalinclude}} {name}\n" in page
        stem = name.removesuffix(".py")
        if stem in SHARED:
            users = [other for other in texts.values() if f"from {stem} import" in other]
            assert len(users) > 1, name
        else:
            assert f'"{stem}"' in tests or f'"{name}"' in tests, name


def test_imports() -> None:
    """A recipe imports what the package has anyway, and frameworks, without which its test skips."""
    found = {program.stem: {name.split(".")[0] for name in imports_of(program.stem)} for program in PROGRAMS}
    assert {name: modules - CORE for name, modules in found.items() if modules - CORE} == {}
