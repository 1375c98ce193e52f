import sys
from pathlib import Path
from time import time
from types import ModuleType
from typing import Any, Self

import pytest

from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.testing import Emulator, Fault, JobScript
from tests.batch.stage import unknown_by_hand
from tests.docs.samples import run_page


class Bar:
    """What the sample uses of tqdm's bar, which is not installed everywhere."""

    total: int | None
    n: int
    postfix: str

    def __init__(self, *, unit: str) -> None:
        self.unit = unit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        Bar.total, Bar.n = self.total, self.n

    def set_postfix_str(self, words: str) -> None:
        Bar.postfix = words


@pytest.fixture(autouse=True)
def tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that has just what the sample takes from tqdm."""
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    monkeypatch.setattr(sys.modules["tqdm"], "tqdm", Bar, raising=False)


async def test_batch(
    emulator: Emulator, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sample runs every item once, and does nothing the second time."""
    monkeypatch.chdir(tmp_path)
    document = run_page("batches")["document"]
    async with emulator.session(project_id="docs") as session:
        await document(session, ["one", "two"])
        assert sorted(line.split()[:2] for line in capsys.readouterr().out.splitlines()) == [
            ["one", "completed"],
            ["two", "completed"],
        ]
        await document(session, ["one", "two"])
    assert capsys.readouterr().out == ""
    assert emulator.agents_started == {"Document one": 1, "Document two": 1}


async def test_unknown_items(emulator: Emulator, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of unknown items lists and settles them: one by its job, one by another create, one as given up."""
    keys = ("page-7", "page-8", "page-9")
    for key in keys:
        await emulator.inject(Fault.parse("500"), prompt=f"Document {key}")
    path = tmp_path / "run.db"
    items = [BatchItem(key, f"Document {key}") for key in keys]
    async with emulator.session(project_id="docs") as session, Journal.open(path) as journal:
        async with run_batch(session, items, journal=journal) as results:
            assert {result.outcome async for result in results} == {"unknown"}
    await run_page("batches")["settle"](str(path))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(keys)
    async with Journal.open(path, read_only=True) as journal:
        rows = await journal.rows(all_tries=True)
    assert [(row.key, row.tries, str(row.state)) for row in rows] == [
        ("page-7", 1, "active"),
        ("page-8", 1, "unknown"),
        ("page-8", 2, "planned"),
        ("page-9", 1, "abandoned"),
    ]
    assert rows[0].job_id == "job_42"


@pytest.fixture
async def failed(emulator: Emulator, tmp_path: Path) -> Path:
    """A journal of three items of the project docs whose jobs failed; the prompt of two says that it timed out."""
    path = tmp_path / "run.db"
    prompts = {"page-7": "Document it", "page-8": "Why it timed out", "page-9": "What timed out"}
    emulator.script(JobScript(duration=0, outcome="failed"))
    async with emulator.session(project_id="docs") as session, Journal.open(path) as journal:
        async with run_batch(session, list(map(BatchItem, prompts, prompts.values())), journal=journal) as results:
            assert {result.outcome async for result in results} == {"failed"}
    return path


async def test_rows(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The samples of rows print what failed; nothing of it is an hour old."""
    page = run_page("batches")
    await page["show_rows"](str(failed))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["page-7", "page-8", "page-9"]
    async with Journal.open(failed) as journal:
        await page["show_old_failures"](journal)
    assert capsys.readouterr().out == ""
    async with Journal.open(failed, clock=lambda: time() + 3700) as journal:
        await page["show_old_failures"](journal)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["page-8", "page-9"]


async def test_trying_again(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of another try plans one item by its key, and others by what they say."""
    await run_page("batches")["try_again"](str(failed))
    assert capsys.readouterr().out == "2 more items are planned again\n"
    async with Journal.open(failed, read_only=True) as journal:
        rows = await journal.rows()
    assert [(row.key, row.tries, str(row.state)) for row in rows] == [
        ("page-7", 2, "planned"),
        ("page-8", 2, "planned"),
        ("page-9", 2, "planned"),
    ]


async def test_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of one row reads it by its key and by its job, and gives it another context."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("page-7", "Document it", "docs")])
        await unknown_by_hand(journal, "page-7")
        await journal.resolve("page-7", job_id="job_42")
        await run_page("batches")["read_back"](journal, "page-7", "job_42")
        row = await journal.get("page-7")
    assert capsys.readouterr().out == "active job_42 None None\npage-7\n"
    assert row is not None
    assert row.context == {"seen": True}


async def test_limits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of limits keeps them in the journal."""
    await run_page("batches")["keep_limits"](str(tmp_path / "run.db"))
    assert "count=100, per=3600.0, scope='project'" in capsys.readouterr().out


async def test_progress(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples of progress bars show all items, and have shown the end of each when the run is over."""
    monkeypatch.chdir(tmp_path)
    shown: list[tuple[float | None, float]] = []
    page = run_page("batches")
    stop = page["Progress"].stop

    def stopped(progress: Any) -> None:
        shown.extend((task.total, task.completed) for task in progress.tasks)
        stop(progress)

    monkeypatch.setattr(page["Progress"], "stop", stopped)
    async with emulator.session(project_id="docs") as session:
        await page["show"](session, [BatchItem(key, f"Document {key}") for key in ("one", "two")])
        assert shown == [(2, 2)]
        async with Journal.open("run.db") as journal:
            await journal.add([BatchItem("three", "Document three", "docs")])
            async with run_batch(session, (), journal=journal) as results:
                await page["show_bar"](results)
    assert (Bar.total, Bar.n, Bar.postfix) == (1, 1, "")
