import os

import pytest
from click.testing import CliRunner

from agentjobs_async.__main__ import main
from agentjobs_async.cli import commands, tasks
from tests.cli.stage import Child, EmulatorThread

COMMANDS = ["run", "resume", "status", "resolve", "create", "get", "wait", "emulator"]


def test_help_names_commands_and_codes() -> None:
    """The program's help fits 80 columns, names every command and every exit code."""
    shown = CliRunner().invoke(commands._agentjobs, ["--help"], terminal_width=80)
    assert shown.exit_code == 0
    assert all(f"\n  {name} " in shown.output for name in COMMANDS)
    assert all(f"\n    {code:<5}" in shown.output for code in (0, 1, 2, 3, 4, 130))
    assert max(map(len, shown.output.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command has a help, on standard output."""
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: agentjobs {command} [OPTIONS]")


@pytest.mark.parametrize("command", ["run", "wait"])
def test_json_is_documented(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The help of what writes JSON lines tells the name of each event that the command writes."""
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {event} " in shown for event in ("status", "trouble", "ended", "summary"))
    assert ("\n    created " in shown) is (command == "run")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Usage: agentjobs [OPTIONS] COMMAND"),
        (["gte", "job_1"], "No such command 'gte'"),
        (["run", "--api-key", "a-very-secret-key", "x"], "No such option"),
        (["wait"], "Missing argument 'JOB...'"),
        (["run", "--max-active", "0", "x"], "0 is not in the range"),
        (["run", "--timeout", "soon", "x"], "--timeout: soon is not a finite number of seconds above 0, or none"),
        (["run", "--timeout", "nan", "x"], "--timeout: nan is not"),
        (["wait", "--timeout", "inf", "x"], "--timeout: inf is not"),
        (["create", "--timeout", "none", "x"], "--timeout: none is not a finite number of seconds above 0\n"),
        (["get", "--timeout", "-1", "x"], "--timeout: -1 is not"),
        (["create", " \n"], "the prompt is blank"),
        (["run", "--emulator", ""], "the prompt is blank"),
        (["run", "--emulator", "one", ""], "prompt 2 is blank"),
        (["run", "--journal", "x.db", "--create-rate", "", "x"], "'--create-rate': it is empty; is a variable unset?"),
        (["run", "--project", "", "x"], "'--project': it is empty; is a variable unset?"),
        (["emulator", "--speed", "nan"], "'--speed': nan is no finite number."),
        (["emulator", "--speed", "inf"], "'--speed': inf is no finite number."),
        (["run", "-"], "- is no prompt: for prompts from standard input say --file -"),
        (["run", "--emulator", "--base-url", "http://127.0.0.1:1", "x"], "--emulator brings its own address and key"),
        (["run", "\x1b]0;title\x07"], r"there is no service address: give --base-url URL or set AGENTJOBS_BASE_URL"),
        (["\x1b[31mred\x1b[0m\r"], r"No such command"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage ends with 2 and says on standard error, in printable text without the key, what was wrong."""
    assert main(arguments) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert words in written.err
    assert written.err.replace("\n", "").isprintable()
    assert "secret" not in written.err


def test_interrupted_while_reading_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while prompts are typed ends with 130."""

    def interrupted(*arguments: object) -> list[str]:
        del arguments
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "read_text", interrupted)
    assert main(["run", "--file", "-"]) == 130


def test_help_whose_reader_left() -> None:
    """A help that nobody reads to its end is no error worth a word."""
    reader, writer = os.pipe()
    os.close(reader)
    with Child("run", "--help", stdout=writer, fresh=True) as child:
        assert child.ended() == 141
    assert child.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_on_a_full_disk(arguments: list[str]) -> None:
    """A help page or a version that can't be written is one line, and 4."""
    with Child(*arguments, stdout=os.open("/dev/full", os.O_WRONLY), fresh=True) as child:
        assert child.ended() == 4
    assert child.stderr == "Error: the output can't be written: No space left on device\n"


@pytest.mark.parametrize(("arguments", "code"), [(["run"], 2), (["gte"], 2), (["get", "a/b"], 2), (["--version"], 0)])
def test_errors_on_a_full_disk(arguments: list[str], code: int) -> None:
    """Where standard error can't be written, the exit code still says what was wrong."""
    with Child(*arguments, stderr=os.open("/dev/full", os.O_WRONLY), fresh=True) as child:
        assert child.ended() == code


def test_status_tells_of_its_formats(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of `status` says what each format is for."""
    assert main(["status", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "A table for people, one in Markdown, or a JSON object per row." in words


def test_shell_completion(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell may ask how a command goes on."""
    monkeypatch.setenv("_AGENTJOBS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "agentjobs em")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match=r"^0$"):
        main([])
    assert capsys.readouterr().out == "plain,emulator\n"


def test_bare_id_without_project(
    service: EmulatorThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bare id needs a project, and the message names the three ways to say it."""
    monkeypatch.delenv("AGENTJOBS_PROJECT_ID")
    assert main(["get", "job_1"]) == 2
    assert "write project/job, give --project, or set AGENTJOBS_PROJECT_ID" in capsys.readouterr().err
    assert service.emulator.requests == ()
