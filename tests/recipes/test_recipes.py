"""The recipes as a set: listed on their page, and named by a test."""

import sys
from pathlib import Path

from tests.extras import FRAMEWORKS
from tests.recipes.processes import RECIPES, imports_of

RECIPE_NAMES = sorted({path.relative_to(RECIPES).parts[0].removesuffix(".py") for path in RECIPES.rglob("*.py")})
"""Each is a file, or a folder of files."""
CORE = {"agentjobs_async", "aiohttp", "tenacity", "slack_sdk", *sys.stdlib_module_names, *FRAMEWORKS}


def test_recipes() -> None:
    """A recipe begins with what it is, is listed and shown on the page, and is named by a test."""
    page = (RECIPES / "index.md").read_text(encoding="utf-8")
    paths = set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)}
    tests = "".join(path.read_text(encoding="utf-8") for path in (*paths, Path(__file__).parent / "processes.py"))
    texts = {path.relative_to(RECIPES).as_posix(): path.read_text(encoding="utf-8") for path in RECIPES.rglob("*.py")}
    for name, text in texts.items():
        assert text.startswith(('"""', "# %% [markdown]\n")), name
        assert f"[`{name}`]({name})" in page
        assert f"{{literalinclude}} {name}\n" in page
    for name in RECIPE_NAMES:
        assert f'"{name}"' in tests or f'"{name}.py"' in tests, name


def test_imports() -> None:
    """A recipe imports what the package has anyway, and frameworks, without which its test skips."""
    found = {name: {module.split(".")[0] for module in imports_of(name)} for name in RECIPE_NAMES}
    assert {name: modules - CORE for name, modules in found.items() if modules - CORE} == {}
