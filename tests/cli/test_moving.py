import pytest
from sqlalchemy import make_url

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import EmulatorThread

pytestmark = pytest.mark.slow

SECRET = "hunter2-very-secret"


def test_moving(
    service: EmulatorThread, database: str, db: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal moves to a database, where the batch goes on; the old one names the new one, without its password."""
    url = make_url(database).set(password=SECRET).render_as_string(hide_password=False)
    assert main(["run", "one", "two words", "three", "--yes", "--journal", db, "--limit", "1"]) == 4
    monkeypatch.setenv("AGENTJOBS_JOURNAL", url)
    capsys.readouterr()
    assert main(["move", "--from", db]) == 0
    told = capsys.readouterr().err
    assert "3 items moved to PostgreSQL/test_" in told
    assert "2 planned, 1 completed" in told
    assert " resume 'postgresql+psycopg://postgres@" in told
    assert main(["resume", db]) == 4
    told += capsys.readouterr().err
    assert f"journal {db}: it was moved to postgresql+psycopg://postgres@" in told
    assert main(["status", db]) == 4
    told += capsys.readouterr().err
    assert "This journal was moved to postgresql+psycopg://postgres@" in told
    assert SECRET not in told
    assert main(["resume", "--journal", url]) == 0
    assert service.emulator.agents_started == {"one": 1, "two words": 1, "three": 1}
