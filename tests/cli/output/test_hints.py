import shutil
import sys
from pathlib import Path

import pytest

from agentjobs_async import JobRef
from agentjobs_async.cli._output.hints import show_jobs
from agentjobs_async.cli._output.screen import Screen
from tests.cli.checks import Captured

REF = JobRef("docs", "job_1")


def told(capsys: Captured, refs: list[JobRef], *options: str) -> str:
    screen = Screen(lambda error: pytest.fail(str(error)))
    show_jobs(screen, refs, options)
    return capsys.readouterr().err


def installed(directory: Path, name: str) -> str:
    program = directory / name
    program.touch(mode=0o755)
    return str(program)


def test_program_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    """A program that the shell finds by its name is called by it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [installed(tmp_path, "agentjobs")])
    assert told(capsys, [REF], "--base-url", "https://a.example/x y").endswith(
        "  agentjobs wait --base-url 'https://a.example/x y' docs/job_1\n"
    )


def test_program_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    """A program that the shell would not find, or not this one, is called as it was."""
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert shutil.which("agentjobs") is None
    monkeypatch.setattr(sys, "argv", [installed(tmp_path, "agentjobs")])
    assert told(capsys, [REF]).endswith(f"  {tmp_path}/agentjobs wait docs/job_1\n")


def test_module(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """What was run as a module is called as a module of the same interpreter."""
    monkeypatch.setattr(sys, "argv", ["/somewhere/agentjobs_async/__main__.py"])
    assert told(capsys, [REF]).endswith(f"  {sys.executable} -m agentjobs_async wait docs/job_1\n")


def test_tokens_like_options(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Tokens that begin like an option are kept apart from the options."""
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert told(capsys, [JobRef("-x", "1")], "--json").endswith(" wait --json -- -x/1\n")


def test_nothing_left(capsys: Captured) -> None:
    """Nothing is said when nothing is left over."""
    assert told(capsys, []) == ""
