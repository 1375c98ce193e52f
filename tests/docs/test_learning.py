from pathlib import Path

import pytest

from agentjobs_async import History
from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory: the samples read a file of it."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_folder")
async def test_learning_session(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The session of the first sample runs its prompts."""
    await run_page("learning")["document"](["Document one", "Document two"])
    assert emulator.agents_started == {"Document one": 1, "Document two": 1}
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["completed", "completed"]


@pytest.mark.usefixtures("in_folder")
async def test_estimate(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy of the sample adds to its history, and the other sample estimates by it from the twentieth job on."""
    names = run_page("learning")
    history: History = names["history"]
    async with emulator.session(project_id="docs", policy=names["policy"]) as session:
        await names["show_estimate"](session, "Document the v2 endpoints")
        assert len(history) == 1
        for _ in range(19):
            history.add(100, 110)
        await names["show_estimate"](session, "Document the v2 endpoints")
    nothing, found = capsys.readouterr().out.splitlines()
    assert nothing == "None"
    assert found == "about 2 min, 9 of 10 within 2 min"


@pytest.mark.usefixtures("in_folder")
def test_history_in_a_file(tmp_path: Path) -> None:
    """A stored history is loaded at the next start; without a file, an empty one."""
    names = run_page("learning")
    path = tmp_path / "history.pickle"
    assert names["load"](path) == History()
    history = History()
    history.add(1, 2)
    names["store"](history, path)
    assert names["load"](path) == history
