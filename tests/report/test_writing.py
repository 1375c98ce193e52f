import json
from io import StringIO
from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.report import write_report
from agentjobs_async.report.writing import FORMATS, format_of
from agentjobs_async.testing import Emulator
from tests.report.stage import report_of


async def test_empty_journal(tmp_path: Path) -> None:
    """A journal without items has a report in every format; one of a line per item is empty."""
    async with Journal.open(tmp_path / "run.db"):
        pass
    assert [form for form in FORMATS if await report_of(tmp_path / "run.db", format=form) == ""] == ["jsonl"]


async def test_unknown_format(tmp_path: Path) -> None:
    """A format that does not exist is refused before anything is read."""
    with pytest.raises(InvalidInputError, match="format must be one of html, markdown, csv, jsonl, not"):
        await write_report(Journal.open(tmp_path / "run.db"), StringIO(), format="pdf")


async def test_beside_a_run(tmp_path: Path) -> None:
    """A journal can be reported on while a batch goes on with it."""
    items = [BatchItem(f"k{number}", "p") for number in range(3)]
    async with (
        Emulator() as emulator,
        emulator.session(project_id="docs") as session,
        Journal.open(tmp_path / "run.db") as journal,
    ):
        async with run_batch(session, items, journal=journal) as results:
            await anext(results)
            assert (await report_of(tmp_path / "run.db", format="csv")).count("\n") == 4


async def test_postgresql(database: str) -> None:
    """A journal on PostgreSQL has the same report, whose commands name no password."""
    async with Journal.open(database) as journal:
        await journal.add([BatchItem("k", "p", "docs")])
    async with Journal.open(database, read_only=True) as journal:
        stream = StringIO()
        await write_report(journal, stream, format="jsonl")
        assert json.loads(stream.getvalue())["key"] == "k"
        await write_report(journal, page := StringIO())
        assert "1 item<" in page.getvalue()


def test_format_of_a_file() -> None:
    """The suffix of a file names the format; a page is the default."""
    wanted = {"a.html": "html", "a": "html", "A.CSV": "csv", "summary.md": "markdown", "t.jsonl": "jsonl"}
    assert {file: format_of(file) for file in wanted} == wanted
