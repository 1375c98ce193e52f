"""The recipe for notebooks, cell by cell, as a kernel runs it."""

import ast
import asyncio
import inspect
from typing import Any

import pytest

from agentjobs_async import RejectedError
from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import RECIPES
from tests.until import until

CELLS = (RECIPES / "notebook_cells.py").read_text(encoding="utf-8").split("# %%")[1:]


async def run(cell: str, names: dict[str, Any]) -> None:
    code = compile(f"#{cell}", "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)  # noqa: S307 - the notebook is what is tested
    if inspect.isawaitable(result):
        await result


async def test_cells(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The cells run one after the other; those that wait or create many can be interrupted and run again."""
    async with Emulator(script=JobScript(duration=0)) as emulator:
        emulator.script(JobScript(duration=float("inf")), prompt="Document the v2 endpoints")
        for name, value in emulator.environment().items():
            monkeypatch.setenv(name, value)
        names: dict[str, Any] = {}
        _title, opening, creating, waiting, many, creating_many, ends, closing = CELLS
        await run(opening, names)
        await run(creating, names)
        for _ in range(2):
            cell = asyncio.create_task(run(waiting, names))
            await until(lambda: capsys.readouterr().out.startswith("active"))
            cell.cancel()
            await asyncio.wait([cell])
        await run(many, names)
        await emulator.inject("422 on=create", prompt="Translate the glossary")
        with pytest.raises(RejectedError):
            await run(creating_many, names)
        await run(creating_many, names)
        await run(ends, names)
        assert capsys.readouterr().out.count(" completed") == 2
        await run(closing, names)
    assert set(emulator.agents_started.values()) == {1}
    assert len(emulator.agents_started) == 3
