import sys
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.cli import commands
from tests.cli.stage import Child


@pytest.mark.parametrize("module", ["click", "rich", "platformdirs"])
def test_without_the_extra(module: str) -> None:
    """Without one module of the extra the program says on one line what to install, and ends with 2."""
    code = f"import sys; sys.modules[{module!r}] = None; from agentjobs_async.__main__ import main; sys.exit(main())"
    with Child("run", "Tidy up", command=("-c", code)) as child:
        assert child.ended() == 2
    assert child.stderr == "agentjobs needs the extra cli: pip install 'agentjobs-async[cli]'\n"


def test_without_the_batch_extra() -> None:
    """Without SQLAlchemy only what needs a journal says what to install."""
    code = "import sys; sys.modules['sqlalchemy'] = None; from agentjobs_async.__main__ import main; sys.exit(main())"
    with Child("run", "--project", "x", "--base-url", "http://127.0.0.1:1", "Tidy up", command=("-c", code)) as child:
        assert child.ended() == 2
    assert child.stderr == "agentjobs needs the extra batch: pip install 'agentjobs-async[batch]'\n"


@pytest.mark.parametrize("module", ["jinja2", "aiohttp_sse"])
def test_without_the_report_extra(module: str, tmp_path: Path) -> None:
    """Without a library of the live page, `serve` says what to install before it opens the journal."""
    journal = tmp_path / "run.db"
    journal.write_bytes(b"")
    code = f"import sys; sys.modules[{module!r}] = None; from agentjobs_async.__main__ import main; sys.exit(main())"
    with Child("serve", str(journal), command=("-c", code)) as child:
        assert child.ended() == 2
    assert child.stderr == "agentjobs needs the extra report: pip install 'agentjobs-async[report]'\n"


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("sqlalchemy", ["--help"]),
        ("sqlalchemy", ["create", "--project", "x", "--base-url", "http://127.0.0.1:1", "--timeout", "0.1", "Tidy up"]),
        ("sqlalchemy.dialects.postgresql", ["run", "--emulator", "Tidy up"]),
    ],
)
def test_imports_only_what_it_needs(module: str, arguments: list[str]) -> None:
    """A command that needs no journal loads no SQLAlchemy; a journal in a file needs nothing of PostgreSQL."""
    code = f"import sys; sys.modules[{module!r}] = None; from agentjobs_async.__main__ import main; sys.exit(main())"
    with Child(*arguments, command=("-c", code), env={"AGENTJOBS_API_KEY": "secret"}) as child:
        child.ended()
    assert "needs the extra" not in child.stderr


def test_another_module_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing module that is none of the extra's is not blamed on the extra."""
    monkeypatch.setitem(sys.modules, "agentjobs_async.cli.commands", None)
    with pytest.raises(ModuleNotFoundError):
        main(["run"])


def test_interrupted_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C outside of any command's loop ends with 130, without a traceback."""

    def interrupted(arguments: object) -> int:
        del arguments
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run_command", interrupted)
    assert main(["run"]) == 130


def test_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments it takes those of the process."""
    monkeypatch.setattr(sys, "argv", ["agentjobs", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("agentjobs ")


def test_library_does_not_load_it() -> None:
    """Importing the package loads neither the command line nor what it needs."""
    code = (
        "import sys, agentjobs_async;"
        " print([name for name in sys.modules if name.startswith(('click', 'rich', 'agentjobs_async.cli'))])"
    )
    with Child(command=("-c", code)) as child:
        assert child.ended() == 0
    assert child.stdout == "[]\n"
