"""The start of the command line is quiet at Ctrl-C, by its own code; importing the package changes nothing."""

import signal
from pathlib import Path

import pytest

from tests.cli.stage import ROOT, Child

SLOW = "import gc, threading; print('importing', gc.isenabled(), flush=True); threading.Event().wait()"
SCRIPT = "import sys; from agentjobs_async.__main__ import main; sys.exit(main())"
OBEDIENT = "import os, signal; signal.raise_signal(signal.SIGINT); print('goes on', flush=True); os._exit(7)"


@pytest.mark.parametrize(
    ("module", "as_script"),
    [("attrs", False), ("aiohttp", False), ("aiohttp", True), ("click", False), ("sqlalchemy", True)],
)
def test_interrupted_while_importing(module: str, as_script: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case of the parameter list
    """Ctrl-C while the program is still importing what it needs ends with 130, and says nothing."""
    (tmp_path / f"{module}.py").write_text(SLOW)
    (tmp_path / "agentjobs").write_text(SCRIPT)
    command = [str(tmp_path / "agentjobs")] if as_script else ["-W", "error", "-m", "agentjobs_async"]
    arguments = ("run", "a", "--journal", str(tmp_path / "run.db"), "--emulator")
    with Child(*arguments, command=command, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, fresh=True) as child:
        child.until("importing").send(signal.SIGINT)
        assert child.ended() == 130
    assert child.stderr == ""


@pytest.mark.parametrize(
    "command",
    [("-c", "from agentjobs_async import AgentJobsSession"), ("-m", "agentjobs"), ("agentjobs.py",), ("agentjobs",)],
)
def test_other_programs(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program that only imports the package, whatever its name, Ctrl-C and garbage are what they always are."""
    (tmp_path / "aiohttp.py").write_text(SLOW)
    for name in ("agentjobs", "agentjobs.py"):
        (tmp_path / name).write_text("from agentjobs_async import AgentJobsSession")
    monkeypatch.chdir(tmp_path)
    with Child(command=command, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, fresh=True) as child:
        child.until("importing True").send(signal.SIGINT)
        assert child.ended() == -signal.SIGINT
    assert "KeyboardInterrupt" in child.stderr


def test_a_background_process_ignores_it(tmp_path: Path) -> None:
    """Who made the process ignore Ctrl-C is obeyed."""
    (tmp_path / "click.py").write_text(OBEDIENT)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a child takes it over
    try:
        with Child("--help", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, fresh=True) as child:
            assert child.ended() == 7, child.stderr
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.stdout == "goes on\n"
