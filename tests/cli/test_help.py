import os
import re
from itertools import product

import pytest
from click.testing import CliRunner

from agentjobs_async.__main__ import main
from agentjobs_async.cli.main import COMMANDS, _agentjobs
from tests.cli.checks import Captured
from tests.cli.stage import Child


def test_help_names_commands_and_codes() -> None:
    """The program's help names every command and every exit code."""
    shown = CliRunner().invoke(_agentjobs, ["--help"], terminal_width=80)
    assert shown.exit_code == 0
    assert all(f"\n  {name} " in shown.output for name in COMMANDS)
    assert all(f"\n    {code:<5}" in shown.output for code in (0, 1, 2, 3, 4, 130))


def test_help_of_a_command(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command has a help, on standard output, that fits; that of `status` says what each format is for."""
    shown = {}
    for columns, command in product((40, 60, 80), COMMANDS):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([command, "--help"]) == 0
        shown[command] = capsys.readouterr().out
        assert max(map(len, shown[command].splitlines())) <= columns, (command, columns)
    assert "\n    0 " not in shown["serve"]
    usage = {command: text.partition(" [OPTIONS]")[0] for command, text in shown.items()}
    assert usage == {command: f"Usage: agentjobs {command}" for command in shown}
    assert "A table for people, one in Markdown, or a JSON object per row." in " ".join(shown["status"].split())


def test_json_is_documented(capsys: Captured) -> None:
    """The help of what writes JSON lines tells the name of each event that the command writes."""
    for command, events in {
        "run": ["created", "status", "trouble", "ended"],
        "wait": ["status", "trouble", "ended"],
    }.items():
        assert main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert re.findall(r"^    (created|status|trouble|ended|summary) ", shown, re.MULTILINE) == [*events, "summary"]


def test_help_whose_reader_left() -> None:
    """A help that nobody reads to its end is no error worth a word."""
    reader, writer = os.pipe()
    os.close(reader)
    with Child("run", "--help", stdout=writer, fresh=True) as child:
        assert child.ended() == 141
    assert child.stderr == ""


def test_a_full_disk() -> None:
    """Help or a version that can't be written is one line, and 4; where no error can be, the exit code still tells."""
    words = "Error: the output can't be written: No space left on device\n"
    for argument in ("--help", "--version"):
        with Child(argument, stdout=os.open("/dev/full", os.O_WRONLY), fresh=True) as child:
            assert (child.ended(), child.stderr) == (4, words)
    for arguments in (["gte"], ["get", "a/b"]):
        with Child(*arguments, stderr=os.open("/dev/full", os.O_WRONLY), fresh=True) as child:
            assert child.ended() == 2


def test_shell_completion(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A shell may ask how a command goes on."""
    monkeypatch.setenv("_AGENTJOBS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "agentjobs em")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match=r"^0$"):
        main([])
    assert capsys.readouterr().out == "plain,emulator\n"
