import io
import os
from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.__main__ import main
from agentjobs_async.cli.prompts import numbered_prompts
from tests.cli.stage import Child, EmulatorThread


def test_lines_of_a_file(tmp_path: Path) -> None:
    """A file has one prompt per line, whatever ends it; blank lines and a byte order mark don't count."""
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffone\r\n\n \t\n two \x0b\u2028half\rthree".encode())
    assert numbered_prompts(["zero"], str(file)) == [(1, "zero"), (1, "one"), (4, " two \x0b\u2028half"), (5, "three")]


def test_standard_input(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--file -` reads standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert main(["run", "--file", "-"]) == 0
    assert service.emulator.agents_started == {"one": 1, "two": 1}


def test_closed_standard_input() -> None:
    """Prompts from a standard input that is closed are wrong usage, in one line."""
    with Child("run", "--emulator", "--file", "-", before=lambda: os.close(0)) as child:
        assert child.ended() == 2
    assert child.stderr == "Error: --file: standard input can't be read: it is closed\n"


def test_forgotten_quotes(service: EmulatorThread, capsys: pytest.CaptureFixture[str]) -> None:
    """Several prompts of one word each are run, and hint at the quotes of one with several words."""
    assert main(["run", "Fix", "it"]) == 0
    assert "2 prompts of one word each: put a prompt of several words in quotes" in capsys.readouterr().err
    assert main(["run", "Fix it", "Document"]) == 0
    assert "quotes" not in capsys.readouterr().err
    assert service.emulator.agents_started == {"Fix": 1, "it": 1, "Fix it": 1, "Document": 1}


def test_no_prompt(tmp_path: Path) -> None:
    """No prompt at all is wrong usage."""
    (tmp_path / "empty").touch()
    for file in (None, str(tmp_path / "empty")):
        with pytest.raises(InvalidInputError, match="there is no prompt"):
            numbered_prompts([], file)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that can't be read, or is no text, is named with what is wrong with it."""
    with pytest.raises(InvalidInputError, match=r"--file: .*missing can't be read: No such file"):
        numbered_prompts([], str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"ab\xff")
    with pytest.raises(InvalidInputError, match=r"--file: .*binary is not UTF-8 \(byte 2\)"):
        numbered_prompts([], str(tmp_path / "binary"))


@pytest.mark.parametrize("prompt", ["", "  \n", "half \udcff"])
def test_prompt_that_cannot_be_sent(prompt: str, service: EmulatorThread) -> None:
    """One prompt that can't be sent is refused before any other is."""
    with pytest.raises(InvalidInputError, match=r"^prompt 2 is"):
        numbered_prompts(["fine", prompt], None)
    assert main(["run", "fine", prompt]) == 2
    assert service.emulator.requests == ()
