import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentjobs_async.batch import BatchItem, Journal, State
from agentjobs_async.testing import Emulator
from tests.docs.samples import blocks, run_page, shell
from tests.until import until


def stand_in(**names: Any) -> ModuleType:
    """Return a module that has of an engine just what the recipe takes from it."""
    module = ModuleType("stand_in")
    vars(module).update(names)
    return module


class Client:
    """Dask's client, as far as the recipe knows it."""

    def map(self, function: Any, *columns: Any, **settings: Any) -> list[Any]:
        assert settings == {"pure": False, "retries": 10}
        return [function(*row) for row in zip(*columns, strict=True)]

    async def gather(self, futures: list[Any]) -> list[Any]:
        return list(await asyncio.gather(*futures))


ENGINES: dict[str, dict[str, Any]] = {
    "dask.distributed": {"Client": Client},
    "temporalio": {},
    "airflow.triggers.base": {"BaseTrigger": type("BaseTrigger", (), {}), "TriggerEvent": dict},
}


def run_many_machines(**activity: Any) -> dict[str, Any]:
    """Run the page beside stand-ins for the engines, of which Temporal's has this activity."""
    with pytest.MonkeyPatch.context() as patch:
        for full, names in ENGINES.items():
            parents = full.split(".")
            for depth in range(1, len(parents)):
                patch.setitem(sys.modules, ".".join(parents[:depth]), ModuleType(parents[0]))
            module = names or {"activity": stand_in(defn=lambda function: function, **activity)}
            patch.setitem(sys.modules, full, stand_in(**module))
        return run_page("many-machines")


async def test_fleet(emulator: Emulator, database: str) -> None:
    """The sample of many machines distributes a batch, and a worker completes it."""

    async def both_completed() -> bool:
        return (await journal.counts())[State.COMPLETED] == 2

    names = run_many_machines()
    await names["distribute"](database, ["one", "two"])
    working = asyncio.ensure_future(names["work"](database))
    async with Journal.open(database, read_only=True) as journal:
        await until(both_completed)
    working.cancel()
    await asyncio.wait([working])
    assert emulator.agents_started == {"Document one": 1, "Document two": 1}


async def test_moving(emulator: Emulator, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a batch that began on one machine move its journal to the database, and complete it there."""
    _, move = blocks("many-machines", "sh")
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("k0", "p0")], project_id="docs")
    monkeypatch.setenv("AGENTJOBS_JOURNAL", database)
    assert (await shell(move, tmp_path))[0] == 0
    async with Journal.open(database, read_only=True) as journal:
        assert (await journal.counts())[State.COMPLETED] == 1
    assert emulator.agents_started == {"p0": 1}


@pytest.fixture
async def chunk(database: str) -> tuple[str, list[str]]:
    """The URL of a journal of three items, and their keys."""
    async with Journal.open(database) as journal:
        await journal.add([BatchItem(f"k{number}", f"p{number}") for number in range(3)], project_id="docs")
    return database, ["k0", "k1", "k2"]


async def test_dask(emulator: Emulator, chunk: tuple[str, list[str]]) -> None:
    """The recipe for Dask maps the coroutine over chunks of keys, and returns what has not ended."""
    assert await run_many_machines()["run_on_dask"](Client(), *chunk) == []
    assert emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}


async def test_temporal(emulator: Emulator, chunk: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe for Temporal sends heartbeats while it runs, and fails when something has not ended."""
    beaten = asyncio.Event()
    names = run_many_machines(heartbeat=beaten.set)
    await names["agentjobs_chunk"](*chunk)
    assert emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}

    async def left(*_: object) -> list[str]:
        await beaten.wait()
        return ["k0"]

    names["run_chunk"] = left
    wait = asyncio.wait
    monkeypatch.setattr(asyncio, "wait", lambda tasks, timeout: wait(tasks, timeout=timeout / 1000))
    with pytest.raises(RuntimeError, match="1 have not ended"):
        await names["agentjobs_chunk"](*chunk)


async def test_airflow(emulator: Emulator, chunk: tuple[str, list[str]]) -> None:
    """The recipe for Airflow yields one event with what has not ended, and says how the trigger is made again."""
    url, keys = chunk
    trigger = run_many_machines()["ChunkTrigger"](url, keys)
    assert trigger.serialize() == ("my_triggers.ChunkTrigger", {"url": url, "keys": keys})
    assert [event async for event in trigger.run()] == [{"left": []}]
    assert emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}
