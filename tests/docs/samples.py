"""The samples of the pages: read from the Markdown, and run as printed."""

import asyncio
import os
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.docs.command import installed
from tests.until import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
TIME = re.compile(r"\b\w{3} \d\d \w{3} \d\d:\d\d:\d\d UTC\b")
"""A local time as texts show it, in the zone in which the samples run."""
PAGES = {page.stem: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def blocks(page: str, language: str = "python") -> list[str]:
    """Return the code blocks of a page, in order."""
    text = PAGES[page].read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run_page(page: str) -> dict[str, Any]:
    """Run all samples of a page as one program; return its names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for sample in blocks(page):
        exec(compile(sample, f"{page}.md", "exec"), names)  # noqa: S102 - the page is what is tested
    return names


def lines_missing(shown: str, printed: str) -> list[str]:
    """Return the lines of a page that a program did not print, whatever its times are.

    Commands, which name paths, are left out.
    """
    printed = TIME.sub("TIME", " ".join(printed.split()))
    lines = [line for line in shown.splitlines() if not line.lstrip().startswith("agentjobs")]
    return [line for line in lines if TIME.sub("TIME", line.strip()) not in printed]


async def shell(lines: str, folder: Path) -> tuple[int, str]:
    """Run lines in a shell in `folder`, with `agentjobs` on its path; return its exit code and output."""
    with installed(folder / "bin") as script:
        path = f"{script.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
        process = await asyncio.create_subprocess_exec(
            *("bash", "-uc", lines), cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                printed, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode is not None
    return process.returncode, printed.decode()


def script(name: str) -> ModuleType:
    """Load a script of the pages, which is no part of a package."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
