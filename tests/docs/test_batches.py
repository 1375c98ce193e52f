import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.testing import Emulator, Fault, JobScript
from tests.batch.stage import unknown_by_hand
from tests.docs.samples import run_page


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
    """The sample of unknown items lists and settles them, and plans what failed once more."""
    for prompt in ("Document page-7", "Document page-8"):
        await emulator.inject(Fault.parse("500"), prompt=prompt)
    emulator.script(JobScript(outcome="failed"), prompt="Document page-9")
    path = tmp_path / "run.db"
    items = [BatchItem(key, f"Document {key}") for key in ("page-7", "page-8", "page-9")]
    async with emulator.session(project_id="docs") as session, Journal.open(path) as journal:
        async with run_batch(session, items, journal=journal) as results:
            assert {result.outcome async for result in results} == {"unknown", "failed"}
    await run_page("batches")["settle"](str(path))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["page-7", "page-8"]
    async with Journal.open(path, read_only=True) as journal:
        rows = await journal.rows(all_tries=True)
    assert [(row.key, row.tries, str(row.state)) for row in rows] == [
        ("page-7", 1, "active"),
        ("page-8", 1, "unknown"),
        ("page-8", 2, "planned"),
        ("page-9", 1, "failed"),
        ("page-9", 2, "planned"),
    ]
    assert rows[0].job_id == "job_42"


async def test_many_rows(emulator: Emulator, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of many rows lists what failed an hour ago, and plans again what its error names."""
    path = tmp_path / "run.db"
    items = [BatchItem("page-7", "Why it timed out"), BatchItem("page-8", "Document it")]
    emulator.script(JobScript(duration=0, outcome="failed"))
    async with emulator.session(project_id="docs") as session, Journal.open(path) as journal:
        async with run_batch(session, items, journal=journal) as results:
            assert {result.outcome async for result in results} == {"failed"}
    await run_page("batches")["try_again"](str(path))
    assert capsys.readouterr().out == "1 items are planned again\n"
    async with Journal.open(path, read_only=True) as journal:
        assert [(row.key, row.tries) for row in await journal.rows() if row.state == "planned"] == [("page-7", 2)]


async def test_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of one row reads it by its key and by its job, and gives it another context."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("page-7", "Document it", "docs")])
        await unknown_by_hand(journal, "page-7")
        await journal.resolve("page-7", job_id="job_42")
        await run_page("batches")["read_back"](journal, "page-7", "job_42")
        row = await journal.get("page-7")
    assert capsys.readouterr().out == "(<State.ACTIVE: 'active'>, 'job_42', None, None)\npage-7\n"
    assert row is not None
    assert row.context == {"seen": True}


async def test_limits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of limits keeps them in the journal."""
    await run_page("batches")["keep_limits"](str(tmp_path / "run.db"))
    assert "count=1, per=36.0, scope='project'" in capsys.readouterr().out


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
        monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
        monkeypatch.setattr(sys.modules["tqdm"], "tqdm", Bar, raising=False)
        async with Journal.open("run.db") as journal:
            await journal.add([BatchItem("three", "Document three", "docs")])
            async with run_batch(session, (), journal=journal) as results:
                await page["show_bar"](results)
    assert (Bar.total, Bar.n, Bar.postfix) == (1, 1, "")


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
