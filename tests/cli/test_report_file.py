import json
import signal
import sys
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.report.writing import FORMATS
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread


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
        "r.xml": "<?xml",
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
    report = tmp_path / "report.json"
    arguments = ("--journal", db, "--report", str(report), "--json")
    with Child("run", "Document it", *arguments, env=service.environment) as child:
        child.until("created").send(signal.SIGINT)
        assert child.ended() == 130
    assert [event["cat"] for event in json.loads(report.read_text())["traceEvents"] if event["ph"] == "X"][:1] == [
        "active"
    ]
    assert f"--report {report}" in child.stderr


def test_report_that_can_not_be_written(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """A report that can't be written changes nothing about the end of a run."""
    del service
    assert main(["run", "Document it", "--journal", db, "--report", "/dev/full"]) == 0
    assert "The report was not written: /dev/full can't be written" in capsys.readouterr().err
