"""Wrong usage: what the command line refuses before it sends or makes anything."""

import shlex
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import EmulatorThread

SECRET = "a-very-secret-key"
MYSQL = f"mysql://user:{SECRET}@host/work"
WRONG = {
    "": "Usage: agentjobs [OPTIONS] COMMAND",
    "gte job_1": "No such command 'gte'",
    "'\x1b[31mred\x1b[0m\r'": "No such command",
    "run --help-me": "No such option",
    f"run --api-key {SECRET} x": "No such option",
    "wait": "Missing argument 'JOB...'",
    # prompts
    "run": "there is no prompt",
    "run --file empty": "--file: empty has no prompt",
    "run --file missing": "missing can't be read: No such file",
    "run --file binary": 'binary is not UTF-8 at line 1, which reads "abÿ" in cp1252: use --encoding cp1252',
    "run --file wide": "wide is not UTF-8 at line 1: use --encoding utf-16-le",
    "run --file binary --encoding rot13": "'--encoding': rot13 is no encoding of text",
    "plan --file pages.csv --prompt {title} --delimiter ;;": "'--delimiter': ;; is no delimiter",
    "submit --journal postgresql://h/d --file pages.csv --prompt {title} --delimiter ;": "use --delimiter ,",
    "run x --delimiter ;": "--delimiter and --encoding need --file",
    "plan x --encoding cp1252": "--delimiter and --encoding need --file",
    "run -": "- is no prompt: for prompts from standard input say --file -",
    "create ' \n'": "the prompt is blank",
    "run --emulator ''": "the prompt is blank",
    "run fine ''": "prompt 2 is blank",
    "run fine '  \n'": "prompt 2 is blank",
    "run fine 'half \udcff'": "prompt 2 is",
    "run pages.csv": "the prompt pages.csv is the path of a file, whose text would not be sent: to send what is in it,"
    " say --file pages.csv",
    "run --yes --emulator fine ./pages.csv empty": "the prompt ./pages.csv (and 1 more) is the path of a file",
    "plan pages.csv": "say --file pages.csv",
    "submit pages.csv --journal postgresql://h/d": "say --file pages.csv",
    "create 'two words'": "say agentjobs run --file 'two words'",
    "run /dev/null": "say --file /dev/null",
    "run --file pages.csv": "is a table: give --prompt",
    "run x --key id --prompt {title}": "need --file",
    "run --file pages.csv --key id": "--key needs --prompt",
    "run --file pages.csv --prompt {titel}": "no column or field 'titel'; it has id, title",
    "run x --allow-empty": "--allow-empty needs --prompt",
    "run --file pages.csv --key nr --prompt {title}": "no column or field 'nr'",
    "run --file pages.csv --input-format lines --prompt {title}": "need columns or fields",
    # numbers and times
    "run --max-active 0 x": "'--max-active': 0 is not a whole number from 1 to 1,000,000,000",
    f"run --limit {10**20} x": "'--limit': 100000000000000000000 is not a whole number",
    f"run --max-failures {10**20} x": "'--max-failures': 100000000000000000000 is not",
    "run --timeout soon x": "'--timeout': soon is not a finite number of seconds above 0, or none",
    "run --timeout nan x": "'--timeout': nan is not",
    "wait --timeout inf x": "'--timeout': inf is not",
    "create --timeout none x": "'--timeout': none is not a finite number of seconds above 0\n",
    "get --timeout -1 x": "'--timeout': -1 is not",
    "run --unknown-for -1 x": "'--unknown-for': -1 is not a finite number of seconds from 0 on, or none without end",
    "worker postgresql://h/d --unknown-for soon": "'--unknown-for': soon is not",
    "status run.db --older-than soon": "is no time such as",
    "run --create-rate soon x": "'--create-rate': soon is no rate: write a count",
    "run --journal x.db --create-rate '' x": "'--create-rate': it is empty; is a variable unset?",
    "submit x --journal postgresql://h/d --max-active 0": "0 is not a whole number from 1 to 1,000,000,000, or none",
    "submit x --journal postgresql://h/d --max-active many": "'--max-active': many is not",
    "submit x --journal postgresql://h/d --polls-per-second 0": "0 is not a finite number above 0, or none for no",
    "submit x --journal postgresql://h/d --create-rate soon": "'--create-rate': soon is no rate",
    "emulator --speed nan": "'--speed': nan is no finite number.",
    "emulator --speed inf": "'--speed': inf is no finite number.",
    **{f"emulator --fail {share}": "'--fail'" for share in ("5", "101%", "-1%", "nan%", "many%")},
    "emulator --fault tsunami": "'--fault': no such fault: tsunami",
    # the service
    "run --project '' x": "'--project': it is empty; is a variable unset?",
    "run --emulator --base-url http://127.0.0.1:1 x": "--emulator brings its own address and key",
    "get --base-url http://api.example.com job_1": "use https, or pass --allow-insecure",
    "get --base-url ftp://127.0.0.1 job_1": "--base-url must be an address",
    "get --base-url http://user:pass@127.0.0.1 job_1": "--base-url must hold no user name or password",
    "run --key-file missing x": "missing can't be read: No such file or directory",
    # jobs
    "get a~.b~.c": "a token looks like project~.job, as agentjobs create prints it",
    "get docs~...": "not a job token",
    "wait job_1 a~.b~.c": "not a job token",
    # journals
    "resume": "give the journal: agentjobs resume FILE",
    "retry": "give the journal: agentjobs retry FILE",
    "serve": "give the journal: agentjobs serve FILE",
    "report": "give the journal: agentjobs report FILE",
    "worker": "give the journal: agentjobs worker ",
    "resolve --abandon": "give the journal: agentjobs resolve FILE KEY",
    "resolve run.db --abandon": "give the journal and the KEY of one item",
    "resolve key --journal run.db": "give either --job ID or --send-again",
    "resolve key --journal run.db --job abandon": "--job names a job: say --abandon",
    "resolve key --journal none.db": "there is no journal none.db",
    "run --max-tries 3 x": "--max-tries is the bound of --retry-failed: give both",
    "resume run.db --retry-failed --max-tries 1": "'--max-tries': 1 is not in the range",
    "resume --journal none.db": "there is no journal none.db",
    "status --journal none.db": "there is no journal none.db",
    "serve none.db": "there is no journal none.db",
    "retry none.db key": "there is no journal none.db",
    "move none.db postgresql:///jobs": "there is no journal",
    "move --undo none.db": "there is no journal",
    "move run.db": "say where to: agentjobs move FILE URL",
    "move": "Missing argument 'FILE'",
    "move run.db x.db": "a journal is moved from a file to PostgreSQL: give a path and a URL",
    "move --undo run.db x.db": "--undo takes the file alone",
    "move --undo postgresql:///jobs": "only a file is moved: give its path",
    f"move x.db {MYSQL}": "neither the path of a file nor like",
    f"submit x --journal {MYSQL}": "neither the path of a file nor like",
    f"status --journal {MYSQL}": "neither the path of a file nor like",
    "submit x": "Missing option '--journal'",
    "submit x --journal run.db": "a file serves one machine",
    "worker --journal run.db": "a file serves one machine",
    # results
    "run --report /nowhere/page x": "--report: /nowhere/page is no file in a directory that exists",
}
"""Words of the error by the command."""


def errors_of(commands: Iterable[str], capsys: Captured) -> dict[str, str]:
    """Return what each command writes on standard error, or how it ended if not as wrong usage."""
    errors = {}
    for command in commands:
        code, written = main(shlex.split(command)), capsys.readouterr()
        ended_well = code == 2 and written.out == "" and written.err.replace("\n", "").isprintable()
        errors[command] = written.err if ended_well else f"{code}: {written}"
    return errors


def test_wrong_usage(
    service: EmulatorThread, tmp_path: Path, state_directory: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong usage ends with 2 and an error on standard error, printable and without a key; nothing is sent or made."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "run.db", "two words"):
        Path(name).touch()
    Path("binary").write_bytes(b"ab\xff")
    Path("wide").write_bytes("Fix it\n".encode("utf-16-le"))
    Path("pages.csv").write_text("id,title\n1,a\n")
    errors = errors_of(WRONG, capsys)
    assert {command: error for command, error in errors.items() if WRONG[command] not in error} == {}
    assert [error for error in errors.values() if SECRET in error] == []
    assert service.emulator.requests == ()
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "run.db", "two words", "binary", "wide", "pages.csv"}
    assert not state_directory.exists()


def test_without_a_setting(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Without a project, a key or an address the message names the ways to give it, in one line."""
    for variable, commands, words in (
        ("PROJECT_ID", ("create x", "run x"), "give --project ID or set AGENTJOBS_PROJECT_ID"),
        ("PROJECT_ID", ("get job_1",), "write project~.job, give --project, or set AGENTJOBS_PROJECT_ID"),
        ("API_KEY", ("get job_1", "run x"), "set AGENTJOBS_API_KEY or give --key-file FILE"),
        ("BASE_URL", ("run x", "create x", "get a~.b", "wait a~.b"), "or --base-url URL, or set AGENTJOBS_BASE_URL"),
        ("BASE_URL", ("run x", "create x", "get a~.b", "wait a~.b"), "agentjobs run --emulator"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"AGENTJOBS_{variable}", "")
            for command, error in errors_of(commands, capsys).items():
                assert (words in error, error.count("\n")) == (True, 1), (variable, command, error)
    assert service.emulator.requests == ()


def test_port_in_use(capsys: Captured) -> None:
    """The error of a port that is in use says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["emulator", "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"Error: --port {port}: Address already in use; give another one, 0 takes any that is free\n"
    )
