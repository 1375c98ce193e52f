import sys
from pathlib import Path

import pytest

from agentjobs_async import JobRef
from agentjobs_async.cli._output.hints import continuing_jobs
from agentjobs_async.cli._output.notices import show_hints
from tests.cli.checks import Captured, screen
from tests.polled import REF


def hint(capsys: Captured, refs: list[JobRef], *options: str) -> str:
    show_hints(screen(), continuing_jobs(refs, options))
    return capsys.readouterr().err


def test_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    """The program is called by its name if the shell finds it, else by its path; a module by the same interpreter."""
    program = tmp_path / "agentjobs"
    program.touch(mode=0o755)
    for path, begun_as, words in (
        (tmp_path, program, "agentjobs"),
        (tmp_path / "nowhere", program, str(program)),
        (tmp_path, "/somewhere/agentjobs_async/__main__.py", f"{sys.executable} -m agentjobs_async"),
    ):
        monkeypatch.setenv("PATH", str(path))
        monkeypatch.setattr(sys, "argv", [str(begun_as)])
        assert hint(capsys, [REF]).endswith(f"  {words} wait 'docs~.job_1'\n")


def test_options_and_tokens(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Options are quoted for the shell; tokens that begin like an option are kept apart from them."""
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    url = "https://a.example/x y"
    assert hint(capsys, [REF], "--base-url", url).endswith(" wait --base-url 'https://a.example/x y' 'docs~.job_1'\n")
    assert hint(capsys, [JobRef("-x", "1")], "--json").endswith(" wait --json -- '-x~.1'\n")


def test_nothing_left(capsys: Captured) -> None:
    """Nothing is said when nothing is left over."""
    assert hint(capsys, []) == ""
