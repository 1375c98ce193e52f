import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from agentjobs_async.testing import Emulator, JobScript
from tests.cli.stage import Child, EmulatorThread
from tests.docs.samples import blocks, lines_missing, shell

KILLED, STOPPED, UNKNOWN, REFUSED, OUTAGE, FULL, _ = blocks("my-batch-stopped", "console")


@pytest.fixture
def service() -> Iterator[EmulatorThread]:
    """A service whose jobs do not end by themselves."""
    with EmulatorThread() as service:
        service.live(duration=3600)
        yield service


def printed_by(child: Child) -> str:
    child.ended()
    return child.stdout + child.stderr


def test_killed(service: EmulatorThread, tmp_path: Path) -> None:
    """What the page shows after a kill is what `status` prints: each job that was started is in the journal."""
    journal = str(tmp_path / "run.db")
    prompts = [f"Document page {number}" for number in range(12)]
    with Child("run", *prompts, "--journal", journal, env=service.environment) as child:
        service.wait_for_polls(12)
        child.process.kill()
    with Child("status", journal, "--summary") as status:
        assert lines_missing(KILLED, printed_by(status)) == []


def test_ctrl_c(service: EmulatorThread, tmp_path: Path) -> None:
    """What the page shows after Ctrl-C is what the run prints, with its exit code."""
    service.live(prompt="Document page 0")
    prompts = [f"Document page {number}" for number in range(12)]
    with Child("run", *prompts, "--journal", str(tmp_path / "run.db"), env=service.environment) as child:
        service.wait_for_polls(12)
        child.until(" completed").send(signal.SIGINT)
        assert child.ended() == 130
        assert lines_missing(STOPPED, child.stdout + child.stderr) == []


def test_outage(service: EmulatorThread, tmp_path: Path) -> None:
    """What the page shows of a service that is gone is what the run prints; it goes on, and its items stay planned."""
    nowhere = service.environment | {"AGENTJOBS_BASE_URL": "http://127.0.0.1:1"}
    arguments = ("run", "Document page 1", "--journal", str(tmp_path / "run.db"))
    with Child(*arguments, env=nowhere) as child:
        child.until_error(OUTAGE.replace(":8091", ":1")).send(signal.SIGINT)
        assert child.ended() == 130
    assert "1 planned" in child.stdout + child.stderr


def little_room() -> None:
    """Let a journal's file have room for its tables, and for little else."""
    event.listen(Engine, "connect", lambda connection, _record: connection.execute("PRAGMA max_page_count = 40"))


def test_full_disk(service: EmulatorThread, tmp_path: Path) -> None:
    """What the page shows of a full disk is what the run prints; nothing was started."""
    table = tmp_path / "prompts.txt"
    table.write_text("".join(f"Document page {number} {'x' * 60_000}\n" for number in range(10)))
    arguments = ("run", "--file", str(table), "--journal", str(tmp_path / "run.db"))
    with Child(*arguments, env=service.environment, before=little_room) as child:
        printed = printed_by(child)
    assert lines_missing(FULL, printed) == []
    assert service.emulator.agents_started == {}


async def test_unknown(emulator: Emulator, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the page shows of an unknown item is what a run prints; the command beside it settles the item."""
    emulator.script(JobScript(duration=0))
    await emulator.inject("500", prompt="Document page 1")
    code, printed = await shell("agentjobs run 'Document page 1' --journal run.db", tmp_path)
    printed += capfd.readouterr().err
    assert (code, lines_missing(UNKNOWN, printed)) == (4, [])
    code, _ = await shell("agentjobs resolve run.db 1 --abandon", tmp_path)
    assert code == 0


async def test_refused_key(emulator: Emulator, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the page shows of a refused key is what a run prints, with its exit code; nothing was started."""
    line = "AGENTJOBS_API_KEY=wrong agentjobs run 'Document page 1' --journal run.db"
    code, printed = await shell(line, tmp_path)
    printed += capfd.readouterr().err
    assert (code, lines_missing(REFUSED, printed)) == (3, [])
    assert emulator.agents_started == {}
