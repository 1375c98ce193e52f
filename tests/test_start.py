"""The start of the command line is quiet at Ctrl-C, by its own code; importing the package changes nothing."""

import signal
import sys
from pathlib import Path

import pytest

from tests.cli.stage import ROOT, Child, environment
from tests.first_process import run_first

SLOW = "import gc, threading; print('importing', gc.isenabled(), flush=True); threading.Event().wait()"
SCRIPT = "import sys; from agentjobs_async.__main__ import main; sys.exit(main())"
STOPPED = "import os, signal; os.kill(os.getpid(), signal.{}); print('goes on', flush=True); os._exit(7)"
HANDLERS = "import signal; print([signal.getsignal(each) for each in signal.valid_signals()])"
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


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_stopped_as_process_1(name: str, code: int, tmp_path: Path) -> None:
    """A signal ends the start of process 1 of a container, to which the system gives none that has no handler."""
    (tmp_path / "click.py").write_text(STOPPED.format(name))
    started = environment({"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    done = run_first(sys.executable, "-m", "agentjobs_async", "run", "a", "--emulator", env=started)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_imports_change_no_handler() -> None:
    """Importing the package, the module of the command line and that of the web changes no signal's handler."""
    imports = "import agentjobs_async.__main__, agentjobs_async.cli.process, agentjobs_async.web"
    shown = []
    for program in (HANDLERS, f"{imports}; {HANDLERS}"):
        with Child(command=("-c", program), fresh=True) as child:
            assert child.ended() == 0, child.stderr
        shown.append(child.stdout.replace("0x", ""))
    assert shown[0] == shown[1]
