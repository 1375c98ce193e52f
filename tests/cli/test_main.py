import json
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.cli import main as command_line
from agentjobs_async.cli._input import prompts
from tests.cli.checks import Captured
from tests.cli.stage import Child

pytestmark = pytest.mark.slow

WITHOUT = """
import contextlib, importlib, io, json, sys

def imported(package):
    return {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith(f"{package}.")}

found = []
for missing, arguments, *_ in json.loads(sys.argv[1]):
    imported("agentjobs_async")
    removed = imported(missing)
    sys.modules[missing] = None
    with contextlib.redirect_stderr(io.StringIO()) as written, contextlib.redirect_stdout(io.StringIO()):
        code = importlib.import_module("agentjobs_async.__main__").main(arguments)
    del sys.modules[missing]
    sys.modules |= removed
    found.append([code, written.getvalue()])
print(json.dumps(found))
"""
"""A program that calls the command line without one module after the other, and prints how that ends."""


def needs(extra: str) -> str:
    return f"agentjobs needs the extra {extra}: pip install 'agentjobs-async[{extra}]'\n"


def test_missing_libraries(tmp_path: Path) -> None:
    """A command says on one line what to install for what it needs, before it does anything, and needs no more."""
    (journal := tmp_path / "run.db").touch()
    service = ["--project", "x", "--base-url", "http://127.0.0.1:1"]
    rows: list[tuple[str, list[str], int, str]] = [
        ("sqlalchemy", ["--help"], 0, ""),
        ("sqlalchemy", ["create", *service, "--timeout", "0.1", "x"], 4, "Error: nothing was sent"),
        ("sqlalchemy", ["get", *service, "--timeout", "0.1", "x"], 4, "Error: "),
        ("sqlalchemy", ["wait", *service, "--timeout", "0.1", "x"], 4, ""),
        ("sqlalchemy", ["run", *service, "x"], 2, needs("batch")),
        ("sqlalchemy.dialects.postgresql", ["run", "--emulator", "x"], 0, ""),
        *((module, ["run", "x"], 2, needs("cli")) for module in ("click", "rich", "platformdirs")),
        ("jinja2", ["serve", str(journal)], 2, needs("report")),
    ]
    command = ("-W", "error", "-c", WITHOUT, json.dumps(rows))
    with Child(command=command, env={"AGENTJOBS_API_KEY": "secret"}, fresh=True) as child:
        assert child.ended() == 0, child.stderr
    for (missing, arguments, code, words), (ended, written) in zip(rows, json.loads(child.stdout), strict=True):
        assert ended == code, (missing, arguments, written)
        assert written.startswith(words), (missing, arguments)
        assert written == words or code != 2, (missing, arguments)


def test_another_module_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing module that is none of the extra's is not blamed on the extra."""
    monkeypatch.setitem(sys.modules, "agentjobs_async.cli.main", None)
    with pytest.raises(ModuleNotFoundError):
        main(["run"])


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while prompts are typed, or outside of any command, ends with 130, without a traceback."""

    def interrupted(*_: object, **_options: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(prompts, "read_records", interrupted)
    assert main(["run", "--file", "-"]) == 130
    monkeypatch.setattr(command_line, "run_command", interrupted)
    assert main(["run"]) == 130


def test_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Without arguments it takes those of the process."""
    monkeypatch.setattr(sys, "argv", ["agentjobs", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("agentjobs ")
