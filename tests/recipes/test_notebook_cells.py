"""The recipe for notebooks, cell by cell, as a kernel runs it."""

import ast
import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import RECIPES
from tests.until import until

CELLS = (RECIPES / "notebook_cells.py").read_text(encoding="utf-8").split("# %%")[1:]


async def run(cell: str, names: dict[str, Any]) -> None:
    code = compile(f"#{cell}", "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)  # noqa: S307 - the notebook is what is tested
    if inspect.isawaitable(result):
        await result


async def interrupt(cell: str, names: dict[str, Any], condition: Callable[[], object]) -> None:
    """Run a cell until a condition holds."""
    running = asyncio.create_task(run(cell, names))
    await until(condition)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_cells(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The cells run one after the other; those that wait or create many can be interrupted and run again."""
    monkeypatch.chdir(tmp_path)
    endless = JobScript(duration=float("inf"))
    async with Emulator(script=JobScript(duration=0)) as emulator:
        emulator.script(endless, prompt="Document the v2 endpoints")
        emulator.script(endless, prompt="Fix the broken links")
        await emulator.inject("hang agent=yes on=create", prompt="Translate the glossary")
        for name, value in emulator.environment().items():
            monkeypatch.setenv(name, value)
        names: dict[str, Any] = {}
        _title, opening, creating, waiting, many, running, showing, closing = CELLS
        await run(opening, names)
        await run(creating, names)
        for _ in range(2):
            await interrupt(waiting, names, lambda: capsys.readouterr().out.startswith("active"))
        await run(many, names)
        await interrupt(running, names, lambda: emulator.agents_started.total() == 3)
        await run(showing, names)
        assert capsys.readouterr().out.splitlines()[0].startswith("links active")
        await emulator.inject("document status=completed prLink=https://code.example/1 forever on=get")
        await run(running, names)
        await run(showing, names)
        assert "links completed https://code.example/1\nglossary unknown " in capsys.readouterr().out
        await run(running, names)
        await run(closing, names)
    assert set(emulator.agents_started.values()) == {1}
    assert len(emulator.agents_started) == 3
