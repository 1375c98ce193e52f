import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentjobs_async import policy
from tests.cli.stage import POLL_SECONDS, EmulatorThread


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(policy.DEFAULT_WAIT), "__call__", lambda _wait, _state: POLL_SECONDS)


@pytest.fixture(autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs have journals of their own; children inherit it. No test writes to the home directory."""
    directory = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory / "agentjobs"


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Where a journal may be."""
    return str(tmp_path / "run.db")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file of three prompts."""
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"key": f"k{n}", "prompt": f"p{n}"}) + "\n" for n in range(3)))
    return file


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorThread]:
    """An emulated service that the environment leads to; its jobs have ended when they are read first."""
    with EmulatorThread() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running
