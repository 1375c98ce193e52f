import json
import shlex
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import ClientSession, web

from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.report.serving import running
from tests.cli.stage import Child
from tests.docs.samples import blocks, run_page, shell


def run_reports() -> dict[str, Any]:
    """Run the page beside a stand-in for pandas, whose data frame is the list of its rows."""
    pandas = ModuleType("pandas")
    vars(pandas)["DataFrame"] = list[dict[str, Any]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", pandas)
        return run_page("reports")


async def test_shell(tmp_path: Path) -> None:
    """The lines write the reports that they name, one of them without prompts."""
    files = ("report.html", "again.html", "for-others.html", "results.csv")
    for lines, file in zip(blocks("reports", "sh"), files, strict=True):
        code, _ = await shell(lines, tmp_path)
        assert code == 0
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert ("Document the v2 endpoints" in text) is (file == "results.csv")  # a page has its rows compressed


async def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample writes a page without prompts."""
    monkeypatch.chdir(tmp_path)
    async with Journal.open("run.db") as journal:
        await journal.add([BatchItem("page-7", "Document it", "docs")])
    await run_reports()["write_page"]("run.db")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Document it" not in page


async def test_live_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines serve the page until Ctrl-C, and print what the page shows; with actions, the address has a token."""
    monkeypatch.chdir(tmp_path)
    async with Journal.open("run.db") as journal:
        await journal.add([BatchItem("page-7", "Document it", "docs")])
    reading, acting, _ = blocks("reports", "bash")
    words, address = blocks("reports", "console")[0].splitlines()
    for line in (reading, acting):
        with Child(*shlex.split(line)[1:], "--port", "0") as child:
            child.until("\n").send(signal.SIGINT)
            assert child.ended() == 130
        assert child.stdout.startswith(address.partition("8765")[0])
        assert ("#token=" in child.stdout) is (line == acting)
        assert words in child.stderr.replace(f"{tmp_path}/", "")


async def test_mounted_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample mounts the page under a path."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("page-7", "Document it", "docs")])
    app = web.Application()
    async with Journal.open(tmp_path / "run.db", read_only=True) as journal, ClientSession() as client:
        run_reports()["mount"](app, journal)
        async with running(app, 0) as port, client.get(f"http://127.0.0.1:{port}/board/rows") as response:
            assert "page-7" in await response.text()
    assert "/board/#token=" in capsys.readouterr().out


async def test_data_frame(tmp_path: Path) -> None:
    """The sample makes a data frame of all rows, each a dict of plain values."""
    path = str(tmp_path / "run.db")
    async with Journal.open(path) as journal:
        await journal.add([BatchItem(f"page-{number}", "Document it", "docs", {"n": number}) for number in range(3)])
    frame = await run_reports()["frame_of"](path)
    assert [(line["key"], line["state"], line["context"]) for line in frame] == [
        (f"page-{number}", "planned", {"n": number}) for number in range(3)
    ]
    assert json.loads(json.dumps(frame)) == frame
