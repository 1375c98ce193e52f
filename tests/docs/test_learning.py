from pathlib import Path

import pytest

from agentjobs_async import History
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page


async def test_session_learns(capsys: pytest.CaptureFixture[str]) -> None:
    """The session of the sample adds to the history, and estimates by it from the twentieth job on."""
    names = run_page("learning")
    history: History = names["history"]
    async with Emulator(script=JobScript(duration=0)) as emulator:
        async with emulator.session(project_id="docs", policy=names["policy"]) as session:
            await names["document"](session, "Document the v2 endpoints")
            assert len(history) == 1
            for _ in range(19):
                history.add(100, 110)
            await names["document"](session, "Document the v2 endpoints")
    nothing, found = capsys.readouterr().out.splitlines()
    assert nothing == "None"
    assert found == "about 2 min, 9 of 10 within 2 min"


def test_history_in_a_file(tmp_path: Path) -> None:
    """A stored history is loaded at the next start; without a file, an empty one."""
    names = run_page("learning")
    path = tmp_path / "history.pickle"
    assert names["load"](path) == History()
    history = History()
    history.add(1, 2)
    names["store"](history, path)
    assert names["load"](path) == history
