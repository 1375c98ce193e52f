from pathlib import Path

import pytest

from agentjobs_async.batch import BatchItem, Journal
from tests.docs.samples import blocks, run_page, shell


@pytest.mark.parametrize(("number", "written"), [(0, ["again.html", "report.html"]), (1, ["results.csv"])])
async def test_shell(number: int, written: list[str], tmp_path: Path) -> None:
    """The lines write the reports that they name."""
    code, _ = await shell(blocks("reports", "sh")[number], tmp_path)
    assert code == 0
    assert [name for name in written if "Document" in (tmp_path / name).read_text(encoding="utf-8")] == written


async def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample writes a page without prompts."""
    monkeypatch.chdir(tmp_path)
    async with Journal.open("run.db") as journal:
        await journal.add([BatchItem("page-7", "Document it", "docs")])
    await run_page("reports")["write_page"]("run.db")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Document it" not in page
