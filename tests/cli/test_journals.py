import re
import sqlite3
from contextlib import closing

import pytest
from attrs import fields
from sqlalchemy import make_url

from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal, Limits
from agentjobs_async.cli._input.options import LIMITS
from tests.cli.checks import Captured, plan
from tests.cli.stage import EmulatorThread

pytestmark = pytest.mark.slow

DEFAULTS = """--max-active 20
--max-sending 10
--create-rate none
--polls-per-second none
--unknown-for 600
--timeout 1800
"""


@pytest.mark.parametrize("name", ["run", "resume", "submit", "worker", "limits"])
def test_every_limit_is_an_option(name: str, capsys: Captured) -> None:
    """Each command that has limits has all of those of `Limits`, by these names, with their defaults in its help."""
    assert set(LIMITS) == {field.name for field in fields(Limits)}
    assert main([name, "--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    option = r"(--[a-z-]+) [A-Z/]+ (?:(?! --)[^\[])*\[default: as the journal keeps it, else ([^\]]+)\]"
    assert sorted(f"{found[1]} {found[2]}" for found in re.finditer(option, page)) == sorted(DEFAULTS.splitlines())


def test_limits_are_shown_and_changed(db: str, capsys: Captured) -> None:
    """Without options the limits of the journal are shown, each as the option that sets it; those given are kept."""
    plan(db, BatchItem("1", "p", "docs"))
    assert main(["limits", db]) == 0
    assert capsys.readouterr().out == DEFAULTS
    changed = ["--max-active", "none", "--max-sending", "none", "--create-rate", "5/2h/all"]
    changed += ["--polls-per-second", "0.5", "--unknown-for", "0", "--timeout", "none"]
    assert main(["limits", db, *changed]) == 0
    written = capsys.readouterr().out
    assert written.split() == changed
    assert main(["limits", db, *written.split()]) == 0
    assert main(["limits", db, "--timeout", "90.25"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "--timeout 90.25"


def test_a_run_without_limits(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """`none` is no limit for a run, which keeps it; the next run says so."""
    options = ["--max-active", "none", "--max-sending", "none", "--polls-per-second", "none"]
    assert main(["run", "one", "two words", "three", "--yes", "--journal", db, *options, "--limit", "2"]) == 4
    capsys.readouterr()
    assert main(["resume", db]) == 0
    words = "any number of jobs at once, any number of creates in flight"
    assert f"With the limits that the journal keeps: {words}.\n" in capsys.readouterr().err
    assert service.emulator.agents_started.total() == 3


SECRET = "hunter2-very-secret"


@pytest.fixture
def url(database: str) -> str:
    """The address of an empty journal, with a password that nobody may see."""
    return make_url(database).set(password=SECRET).render_as_string(hide_password=False)


@pytest.fixture
def begun(service: EmulatorThread, db: str, capsys: Captured) -> str:
    """A journal with one item that has ended and two that are planned."""
    del service
    assert main(["run", "one", "two words", "three", "--yes", "--journal", db, "--limit", "1"]) == 4
    capsys.readouterr()
    return db


def cut_off(path: str, target: str) -> None:
    """Leave a file as a kill does between the two steps of its move: closed, while the database has nothing of it."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE agentjobs_journal SET moved_to = ?", (Journal.open(target).address,))
        database.commit()


def test_moving(
    service: EmulatorThread, url: str, begun: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal moves to a database, where the batch goes on; the old one names the new one, without its password."""
    monkeypatch.setenv("AGENTJOBS_JOURNAL", url)
    assert main(["move", begun]) == 0
    printed = capsys.readouterr().err
    assert "3 items moved to PostgreSQL/test_" in printed
    assert "2 planned, 1 completed" in printed
    assert " resume 'postgresql+psycopg://postgres@" in printed
    assert main(["resume", begun]) == 4
    printed += capsys.readouterr().err
    assert f"journal {begun}: it was moved to postgresql+psycopg://postgres@" in printed
    assert main(["status", begun]) == 4
    printed += capsys.readouterr().err
    assert "This journal was moved to postgresql+psycopg://postgres@" in printed
    assert main(["move", "--undo", begun]) == 2
    printed += capsys.readouterr().err
    assert "which has all of its rows" in printed
    assert SECRET not in printed
    assert main(["resume", "--journal", url]) == 0
    assert service.emulator.agents_started == {"one": 1, "two words": 1, "three": 1}


def test_a_move_that_was_cut_off(service: EmulatorThread, database: str, begun: str, capsys: Captured) -> None:
    """What was cut off is finished by the same command, and `status` says so; nothing is sent from the file before."""
    cut_off(begun, database)
    assert main(["status", begun]) == 4
    assert "A move that was cut off: the same command finishes it" in capsys.readouterr().err
    assert main(["resume", begun]) == 4
    assert main(["move", begun, database]) == 0
    assert main(["resume", database]) == 0
    assert service.emulator.agents_started == {"one": 1, "two words": 1, "three": 1}


def test_a_move_that_is_taken_back(
    service: EmulatorThread, database: str, begun: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that was cut off is taken back, whatever the environment names; the file goes on. Another one is none."""
    assert main(["move", "--undo", begun]) == 2
    assert "was not moved" in capsys.readouterr().err
    monkeypatch.setenv("AGENTJOBS_JOURNAL", database)
    cut_off(begun, database)
    assert main(["move", "--undo", begun]) == 0
    written = capsys.readouterr().err
    assert f"{begun} is open again, with all of its items. Continue with:\n" in written
    assert f" resume {begun} --base-url" in written.splitlines()[-1]
    assert main(["resume", begun]) == 0
    assert service.emulator.agents_started == {"one": 1, "two words": 1, "three": 1}
