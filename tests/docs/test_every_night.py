import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, shell

GROWING, DATED, DAILY, CRON, RETRYING = blocks("every-night", "sh")
SERVICE, TIMER = blocks("every-night", "ini")


@pytest.fixture
def pages(emulator: Emulator, tmp_path: Path) -> Path:
    """A file of two rows, in the folder of the samples; jobs end at once."""
    emulator.script(JobScript(duration=0))
    path = tmp_path / "pages.csv"
    rewrite(path, "1,Start", "2,Install")
    return path


def rewrite(pages: Path, *rows: str) -> None:
    pages.write_text("\n".join(["id,title", *rows, ""]), encoding="utf-8")


async def test_new_rows_only(emulator: Emulator, pages: Path, tmp_path: Path) -> None:
    """A night sends the rows that were added; one that was changed under its key is refused, with exit code 1."""
    assert (await shell(GROWING, tmp_path))[0] == 0
    rewrite(pages, "1,Start", "2,Install", "3,Use")
    assert (await shell(GROWING, tmp_path))[0] == 0
    assert emulator.agents_started == {"Document Start": 1, "Document Install": 1, "Document Use": 1}
    rewrite(pages, "1,Begin", "4,Remove")
    assert (await shell(GROWING, tmp_path))[0] == 1
    rewrite(pages, "1,Begin")
    assert (await shell(GROWING, tmp_path))[0] == 1
    assert emulator.agents_started.keys() == {f"Document {title}" for title in ("Start", "Install", "Use", "Remove")}


async def test_a_removed_row_is_waited_for(emulator: Emulator, pages: Path, tmp_path: Path) -> None:
    """A row that one night left planned is sent by the next one, though the file has it no more."""
    assert (await shell(f"{GROWING.rstrip()} --limit 1", tmp_path))[0] == 4
    rewrite(pages, "3,Use")
    assert (await shell(GROWING, tmp_path))[0] == 0
    assert emulator.agents_started == {"Document Start": 1, "Document Install": 1, "Document Use": 1}


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("lines", [DATED, DAILY])
async def test_all_rows_again(emulator: Emulator, tmp_path: Path, lines: str) -> None:
    """Another day sends all rows again; a second start on the same day sends none."""

    def on(day: str) -> str:
        assert "$(date +%F)" in lines
        return lines.replace("$(date +%F)", day)

    for day, times in (("2030-01-01", 1), ("2030-01-01", 1), ("2030-01-02", 2)):
        assert (await shell(on(day), tmp_path))[0] == 0
        assert emulator.agents_started == {"Document Start": times, "Document Install": times}


@pytest.mark.usefixtures("pages")
async def test_what_a_day_left(emulator: Emulator, tmp_path: Path) -> None:
    """The second line of a journal of each day continues the days before."""
    run, resume = DAILY.splitlines()
    assert (await shell(f"{run.replace('$(date +%F)', '2030-01-01')} --limit 1", tmp_path))[0] == 4
    assert (await shell(resume, tmp_path))[0] == 0
    assert emulator.agents_started == {"Document Start": 1, "Document Install": 1}


@pytest.mark.usefixtures("pages")
@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock, of util-linux")
async def test_cron(emulator: Emulator, tmp_path: Path) -> None:
    """The line of cron runs, and is quiet while another one has its lock; without it, the journal's lock gives a 4."""
    assert (await shell(f"flock nightly.cron.lock sh -c '{CRON}'", tmp_path))[0] == 0
    assert emulator.agents_started == {}
    code, printed = await shell(f"flock nightly.db.lock {GROWING.rstrip()} 2>&1", tmp_path)
    assert (code, "another process owns it" in printed) == (4, True)
    assert await shell(CRON, tmp_path) == (0, "")
    assert emulator.agents_started == {"Document Start": 1, "Document Install": 1}
    assert "completed" in (tmp_path / "nightly.log").read_text(encoding="utf-8")


async def test_failed_rows(emulator: Emulator, pages: Path, tmp_path: Path) -> None:
    """One failed row makes each later night a 1; the line that tries it again shows what is left."""
    emulator.script(JobScript(duration=0, outcome="failed"), prompt="Document Start")
    assert (await shell(GROWING, tmp_path))[0] == 1
    rewrite(pages, "1,Start", "2,Install", "3,Use")
    assert (await shell(GROWING, tmp_path))[0] == 1
    code, printed = await shell(RETRYING, tmp_path)
    assert (code, "failed" in printed) == (1, True)
    assert emulator.agents_started["Document Start"] > 1
    emulator.script(JobScript(duration=0), prompt="Document Start")
    await shell("agentjobs retry nightly.db 1", tmp_path)
    assert await shell(RETRYING, tmp_path) == (0, "")


def unit(text: str) -> ConfigParser:
    """Return a unit file as systemd reads it: names with their case, and no interpolation."""
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read_string(text)
    return parser


UNITS = {text.splitlines()[0].rpartition("/")[2]: text for text in (SERVICE, TIMER)}


@pytest.mark.usefixtures("pages")
async def test_units(emulator: Emulator, tmp_path: Path) -> None:
    """The command of the service runs, and the timer is of that service."""
    assert list(UNITS) == ["nightly-agents.service", "nightly-agents.timer"]
    service, timer = map(unit, UNITS.values())
    assert (await shell(service["Service"]["ExecStart"].replace("/srv/agents/.venv/bin/", ""), tmp_path))[0] == 0
    assert emulator.agents_started == {"Document Start": 1, "Document Install": 1}
    assert (timer["Timer"]["OnCalendar"], timer["Install"]["WantedBy"]) == ("*-*-* 02:15", "timers.target")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_units_are_valid(tmp_path: Path) -> None:
    """Systemd finds no fault in the units."""
    for name, text in UNITS.items():
        (tmp_path / name).write_text(text.replace("/srv/agents/.venv/bin/agentjobs", "/bin/true"), encoding="utf-8")
    command = ["systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own files
    assert [line for line in done.stderr.splitlines() if "nightly-agents" in line] == []
