import io
import os
import pty
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
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
    service: EmulatorThread, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize(("answer", "code", "agents"), [("y", 0, {"Fix": 1, "it": 1}), ("", 2, {}), ("no", 2, {})])
def test_forgotten_quotes_at_a_terminal(
    answer: str, code: int, agents: dict[str, int], service: EmulatorThread
) -> None:
    """A terminal is asked, and only a yes starts the agents."""
    leader, follower = pty.openpty()
    with Child("run", "Fix", "it", env=service.environment, terminal=True, stdin=follower) as child:
        os.close(follower)
        child.until("Start them? [y/N] ")
        os.write(leader, f"{answer}\n".encode())
        assert child.ended() == code
    os.close(leader)
    assert service.emulator.agents_started == agents
