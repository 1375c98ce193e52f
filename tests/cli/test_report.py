import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from socket import gethostname

import pytest
from aiohttp import ClientSession

from agentjobs_async.__main__ import main
from agentjobs_async.report.writing import FORMATS
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread
from tests.report.served import Served, status_of
from tests.report.stage import OUTCOMES, run_some


@pytest.fixture
def journal(service: EmulatorThread, db: str) -> str:
    del service
    assert main(["run", "Document the first page", "Document the second page", "--journal", db]) == 0
    return db


def test_report_to_a_file(journal: str, tmp_path: Path, capsys: Captured) -> None:
    """The suffix of the file names the format."""
    for name, beginning in {
        "r.html": "<!doctype html>",
        "r.csv": "number,key",
        "r.md": "## ",
        "r.jsonl": '{"number": 1, "key":',
    }.items():
        capsys.readouterr()
        assert main(["report", journal, "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(beginning)
        assert capsys.readouterr().err == f"The report is in {tmp_path / name}.\n"


def test_report_to_standard_output(journal: str, capsys: Captured) -> None:
    """Without a file the report goes to standard output, and can leave out the prompts."""
    for form in FORMATS:
        capsys.readouterr()
        assert main(["report", "--journal", journal, "--format", form]) == 0
        assert capsys.readouterr().out != "", form
        assert main(["report", "--journal", journal, "--format", form, "--no-prompts"]) == 0
        assert "Document the" not in capsys.readouterr().out, form


def test_a_page_is_not_for_a_terminal(journal: str) -> None:
    """A terminal gets no page, but what to type instead."""
    with Child("report", journal, terminal=True) as child:
        assert child.ended() == 2
    assert "--out report.html" in child.stdout + child.stderr


def test_usage(journal: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library of pages, a page is refused before anything is read."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    from agentjobs_async.report import html  # noqa: PLC0415 - only here

    html._environment.cache_clear()
    assert main(["report", journal, "--out", str(tmp_path / "r.html")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("pip install 'agentjobs-async[report]'")


def test_report_of_a_run(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """A run writes its report at its end, though some have failed."""
    service.live("failed")
    report = tmp_path / "report.html"
    assert main(["run", "Document it", "--journal", db, "--report", str(report)]) == 1
    assert "Document it" in report.read_text(encoding="utf-8")
    assert f"The report is in {report}." in capsys.readouterr().err


def test_report_of_a_run_that_is_stopped(service: EmulatorThread, tmp_path: Path, db: str) -> None:
    """A run that a signal stops writes its report, too, and the command that resumes writes it again."""
    service.live(duration=1000)
    report = tmp_path / "report.jsonl"
    arguments = ("--journal", db, "--report", str(report), "--json")
    with Child("run", "Document it", *arguments, env=service.environment) as child:
        child.until("created").send(signal.SIGINT)
        assert child.ended() == 130
    assert json.loads(report.read_text())["state"] == "active"
    assert f"--report {report}" in child.stderr


def test_report_that_can_not_be_written(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """A report that can't be written changes nothing about the end of a run."""
    del service
    assert main(["run", "Document it", "--journal", db, "--report", "/dev/full"]) == 0
    assert "The report was not written: /dev/full can't be written" in capsys.readouterr().err


ADDRESS = re.compile(r"^(http://\S+?/)(?:#token=(\S+))?$", re.MULTILINE)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The journal of a real run."""
    asyncio.run(run_some(tmp_path / "run.db"))
    return str(tmp_path / "run.db")


def address_of(child: Child) -> tuple[str, str]:
    found = ADDRESS.search(child.until("\n").stdout)
    assert found
    return found[1], found[2]


@pytest.mark.slow
def test_signal_with_an_open_stream(run: str) -> None:
    """A signal ends it, however many streams are open; without the option there is no token."""
    with Child("serve", run, "--port", "0") as child:
        address, token = address_of(child)
        assert token is None

        async def streamed() -> None:
            async with ClientSession() as client, client.get(f"{address}events") as response:
                assert response.status == 200
                child.send(signal.SIGTERM)
                await response.read()

        asyncio.run(streamed())
        assert child.ended() == 143
    assert "The live page of" in child.stderr
    assert "Traceback" not in child.stderr


@pytest.mark.slow
def test_action_is_shown(run: str) -> None:
    """With the option and the token, an action changes the item, and is a line on standard error; the token is none."""
    with Child("serve", "--journal", run, "--port", "0", "--allow-actions") as child:
        address, token = address_of(child)

        async def act() -> None:
            async with ClientSession() as client:
                page, failed = Served(address, token, client), OUTCOMES.index("failed") + 1
                assert (await page.act("retry", failed, headers={}))[0] == 401
                assert (await page.act("retry", failed))[0] == 200

        asyncio.run(act())
        child.until_error("1 done").send(signal.SIGINT)
        assert child.ended() == 130
    assert re.search(r"\d\d:\d\d:\d\d retry of row 3 for 127.0.0.1: 1 done, 0 refused", child.stderr)
    assert "an action for 127.0.0.1 was refused: This needs the token" in child.stderr
    assert token not in child.stderr


@pytest.mark.slow
def test_other_names(run: str) -> None:
    """Only loopback is listened on, and a request that names another host is refused."""
    with Child("serve", run, "--port", "0") as child:
        address, _ = address_of(child)

        async def read() -> None:
            async with ClientSession() as client:
                assert await status_of(client.get(f"{address}rows")) == 200
                for host in ("evil.example", "0.0.0.0", gethostname()):
                    assert await status_of(client.get(f"{address}rows", headers={"Host": host})) == 403

        assert address.startswith("http://127.0.0.1:")
        asyncio.run(read())
        child.send(signal.SIGINT).ended()


@pytest.mark.slow
def test_refused_arguments(run: str, capsys: Captured) -> None:
    """What can't be served gets one clear line."""
    with Child("serve", run, "--port", "0") as child:
        port = address_of(child)[0].rstrip("/").rpartition(":")[2]
        assert main(["serve", run, "--port", port]) == 2
    assert f"port {port}: Address already in use; give another --port" in capsys.readouterr().err
