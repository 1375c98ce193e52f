import io
import os
import pty
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread


def test_standard_input(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--file -` reads standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert main(["run", "--file", "-"]) == 0
    assert service.emulator.agents_started == {"one": 1, "two": 1}


def test_closed_standard_input() -> None:
    """Prompts from a standard input that is closed are wrong usage, in one line."""
    with Child("run", "--emulator", "--file", "-", before=lambda: os.close(0), fresh=True) as child:
        assert child.ended() == 2
    assert child.stderr == "Error: --file: standard input can't be read: it is closed\n"


def test_forgotten_quotes(
    service: EmulatorThread, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several prompts of one word each are refused without a terminal, unless they are in a file or --yes is given."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["run", "Fix", "it"]) == 2
    assert "put a prompt of several words in quotes, or say --yes" in capsys.readouterr().err
    assert service.emulator.agents_started == {}
    assert main(["run", "--yes", "Fix", "it"]) == 0
    (tmp_path / "words").write_text("Document\nTest\n")
    assert main(["run", "--file", str(tmp_path / "words")]) == 0
    assert main(["run", "Fix it", "Tidy"]) == 0
    assert "quotes" not in capsys.readouterr().err
    assert service.emulator.agents_started == {"Fix": 1, "it": 1, "Document": 1, "Test": 1, "Fix it": 1, "Tidy": 1}


def test_questions_at_a_terminal(service: EmulatorThread, tmp_path: Path) -> None:
    """A terminal is asked about prompts of one word, and before more than 100 creates; only a yes starts the agents.

    Lines of a file that the journal has already are no creates.
    """
    file = tmp_path / "pages.csv"
    file.write_text("id,title\n" + "".join(f"k{number},page {number}\n" for number in range(101)))
    many = ("--file", str(file), "--prompt", "{title}", "--journal", str(tmp_path / "run.db"))
    for arguments, answer, agents in (
        (("Fix", "it"), "", 0),
        (("Fix", "it"), "no", 0),
        (("Fix", "it"), "y", 2),
        (many, "n", 0),
        (many, "yes", 101),
    ):
        before = service.emulator.agents_started.total()
        leader, follower = pty.openpty()
        with Child("run", *arguments, env=service.environment, terminal=True, stdin=follower) as child:
            os.close(follower)
            child.until("Start them? [y/N] ")
            os.write(leader, f"{answer}\n".encode())
            assert child.ended() == (0 if agents else 2), (arguments, answer)
        os.close(leader)
        assert ("101 would be sent, 0 refused." in child.stdout) is (arguments == many)
        assert service.emulator.agents_started.total() - before == agents, (arguments, answer)
    leader, follower = pty.openpty()
    with Child("run", *many, env=service.environment, terminal=True, stdin=follower) as child:
        assert child.ended() == 0
    for descriptor in (leader, follower):
        os.close(descriptor)
