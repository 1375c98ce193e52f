"""The journal as the first argument of the commands that take one."""

from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import EmulatorThread

pytestmark = pytest.mark.slow


@pytest.fixture
def db(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> str:
    """The journal of two items that failed."""
    service.live("failed")
    path = str(tmp_path / "run.db")
    assert main(["run", "--yes", "one", "two", "--journal", path]) == 1
    capsys.readouterr()
    return path


def test_journal_comes_first(db: str, capsys: Captured) -> None:
    """`retry` and `resolve` take the journal as their first argument, before keys and without."""
    assert main(["retry", db, "1"]) == 0
    assert main(["retry", db, "--state", "failed"]) == 0
    told = capsys.readouterr().err
    assert told.count("1 item planned again") == 2
    assert main(["resolve", db, "1", "--abandon"]) == 2
    assert "only what is active or unknown is abandoned" in capsys.readouterr().err
    assert main(["status", db, "--summary"]) == 4
    assert capsys.readouterr().out == "2 planned\n"


def test_journal_named_otherwise(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the option or the environment names the journal, all arguments are keys."""
    assert main(["retry", "--journal", db, "1"]) == 0
    monkeypatch.setenv("AGENTJOBS_JOURNAL", db)
    assert main(["retry", "2"]) == 0
    assert main(["status"]) == 4
