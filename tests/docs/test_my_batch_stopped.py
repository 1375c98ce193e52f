from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, lines_missing, shell

UNKNOWN, REFUSED = blocks("my-batch-stopped", "console")[2:4]


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
