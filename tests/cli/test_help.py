import os
import re
import shlex
from contextlib import redirect_stdout
from io import StringIO

import click
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
    assert all(f"\n    {code:<5}" in shown.output for code in (0, 1, 2, 3, 4, 129))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The help page of each command on a terminal of 80 columns."""
    shown = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        for name in COMMANDS:
            with redirect_stdout(StringIO()) as page:
                assert main([name, "--help"]) == 0
            shown[name] = page.getvalue()
    return shown


def commands() -> dict[str, click.Command]:
    context = click.Context(_agentjobs)
    return {name: found for name in COMMANDS if (found := _agentjobs.get_command(context, name))}


def test_help_of_a_command(pages: dict[str, str]) -> None:
    """Every command has a help, on standard output, that fits."""
    wide = [name for name, page in pages.items() if max(map(len, page.splitlines())) > 80]
    assert wide == []
    assert "\n    0 " not in pages["serve"]
    usage = {name: pages[name].partition(" [OPTIONS]")[0] for name in COMMANDS}
    assert usage == {name: f"Usage: agentjobs {name}" for name in COMMANDS}


def test_no_name_is_torn(pages: dict[str, str]) -> None:
    """No page breaks a line within the name of an option or a hyphenated word."""
    torn = [name for name, page in pages.items() if re.search(r"\w-$", page, re.MULTILINE)]
    assert torn == []


def test_each_page_ends_with_an_example(pages: dict[str, str]) -> None:
    """The last line of each page is a command that is valid as it stands, in one line."""
    for name, command in commands().items():
        title, example = pages[name].splitlines()[-2:]
        program, named, *arguments = shlex.split(example)
        assert (title.strip(), program, named) == ("Example:", "agentjobs", name)
        context = command.make_context(name, arguments)
        assert context.params is not None


def test_the_example_of_run(pages: dict[str, str], capsys: Captured) -> None:
    """The first example that a newcomer sees runs without a service."""
    assert main(shlex.split(pages["run"].splitlines()[-1])[1:]) == 0
    assert capsys.readouterr().out.endswith("\n1 completed\n")


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


def test_help_in_words(pages: dict[str, str]) -> None:
    """Bounds and defaults are words, and a single job's page has the exit codes of a single job."""
    shown = {name: " ".join(pages[name].split()) for name in COMMANDS}
    assert [name for name, page in shown.items() if re.search(r"RANGE|INTEGER|\bx[<>]|\(as ", page)] == []
    assert "--port N 0 takes any that is free. [default: 8080; from 0 to 65535]" in shown["emulator"]
    assert "fewer than N tries. [from 2 on]" in shown["retry"]
    assert "Jobs active at once, or none. [default: as the journal keeps it, else 20]" in shown["run"]
    assert " 0 the job was read 2 wrong usage" in shown["get"]
    assert "4 nothing was sent, or an agent may have been started" in shown["create"]


def test_a_mistyped_command(capsys: Captured) -> None:
    """What looks like a command is proposed."""
    said = {"reusme": "Did you mean resume or resolve?", "x": "No such command 'x'.", "--nothing": "--nothing"}
    for typed, words in said.items():
        assert main([typed]) == 2
        assert words in capsys.readouterr().err


def test_shell_completion(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A shell may ask how a command goes on."""
    monkeypatch.setenv("_AGENTJOBS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "agentjobs em")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match=r"^0$"):
        main([])
    assert capsys.readouterr().out == "plain,emulator\n"
