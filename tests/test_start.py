import gc
import signal
import sys
from pathlib import Path

import pytest

from agentjobs_async._start import collect_garbage, quiet_interrupts
from tests.cli.stage import ROOT, Child

SLOW = "import threading; print('importing', flush=True); threading.Event().wait()"
SCRIPT = "import sys; from agentjobs_async.__main__ import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("module", "as_script"), [("aiohttp", False), ("aiohttp", True), ("click", False), ("sqlalchemy", True)]
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


@pytest.mark.parametrize("command", [("-c", "import agentjobs_async"), ("-m", "other"), ("other.py",)])
def test_other_programs(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program that only imports the package, Ctrl-C is what it always is."""
    (tmp_path / "aiohttp.py").write_text(SLOW)
    (tmp_path / "other.py").write_text("import agentjobs_async")
    monkeypatch.chdir(tmp_path)
    with Child(command=command, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, fresh=True) as child:
        child.until("importing").send(signal.SIGINT)
        assert child.ended() == -signal.SIGINT
    assert "KeyboardInterrupt" in child.stderr


def test_a_background_process_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who made the process ignore Ctrl-C is obeyed; what was there before comes back after the block."""
    monkeypatch.setattr(sys, "argv", ["agentjobs"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with quiet_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with quiet_interrupts():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_garbage_of_the_command_line(tmp_path: Path) -> None:
    """Nothing collects garbage while the program imports what it needs."""
    (tmp_path / "click.py").write_text("import gc; print('enabled' if gc.isenabled() else 'disabled', flush=True)")
    with Child("--help", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, fresh=True) as child:
        child.ended()
    assert child.stdout.startswith("disabled\n")


def test_garbage_of_a_command() -> None:
    """A command collects the garbage that it makes."""
    gc.disable()
    try:
        collect_garbage()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
