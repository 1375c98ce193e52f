"""A service file on the command line: the commands that use it, its check, and a key that changes."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.__main__ import main
from tests.another_service import GATEWAY_TOKEN, KEY, SECRETS, TOML, AnotherService, another_service
from tests.cli.checks import Captured
from tests.cli.stage import Child

FRAMING = {"Host", "Connection", "Content-Length"}
"""Header fields that the check does not show."""


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnotherService]:
    """Another service, whose secrets the environment holds."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with another_service() as service:
        yield service


@pytest.fixture
def file(other: AnotherService, tmp_path: Path) -> str:
    """The service file."""
    path = tmp_path / "service.toml"
    path.write_text(TOML.format(base_url=other.base_url))
    return str(path)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A file of the key."""
    path = tmp_path / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    return path


def test_commands_use_the_file(other: AnotherService, file: str, capsys: Captured) -> None:
    """Each command that talks to a service takes the paths, the body, the key and the headers from the file."""
    other.end_jobs()
    assert main(["create", "--service", file, "--project", "docs", "Tidy up"]) == 0
    assert capsys.readouterr() == ("docs~.1\n", "")
    assert main(["get", "--service", file, "docs~.1"]) == 0
    assert "https://code.example/pull/1" in capsys.readouterr().out
    assert main(["wait", "--service", file, "docs~.1"]) == 0
    assert main(["run", "--service", file, "--project", "docs", "Tidy more"]) == 0
    assert other.creates() == [{"input": "Tidy up"}, {"input": "Tidy more"}]
    first = other.requests[0]
    assert first.path == "/api/tasks?team=docs"
    sent = {name: first.headers[name] for name in ("X-Api-Key", "X-Team", "X-Gateway-Token")}
    assert sent == {"X-Api-Key": KEY, "X-Team": "docs", "X-Gateway-Token": GATEWAY_TOKEN}
    assert "Authorization" not in first.headers


def test_the_variable_of_the_file(
    other: AnotherService, file: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """AGENTJOBS_SERVICE names the file where the option does not; an emulator leaves it alone."""
    monkeypatch.setenv("AGENTJOBS_SERVICE", file)
    assert main(["create", "--project", "docs", "Tidy up"]) == 0
    monkeypatch.setenv("AGENTJOBS_SERVICE", "nowhere.toml")
    assert main(["create", "--service", file, "--project", "docs", "Tidy up"]) == 0
    assert main(["run", "--emulator", "Tidy up"]) == 0
    assert len(other.creates()) == 2
    capsys.readouterr()
    assert main(["run", "--emulator", "--service", file, "Tidy up"]) == 2
    assert "leave --service out" in capsys.readouterr().err


def test_an_option_before_the_file(
    other: AnotherService, file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--base-url and --key-file override the file, and the file the environment."""
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(TOML.format(base_url="http://127.0.0.1:1"))
    monkeypatch.setenv("AGENTJOBS_BASE_URL", "http://127.0.0.1:2")
    monkeypatch.setenv("AGENTJOBS_API_KEY", "another-key")
    assert main(["create", "--service", file, "--project", "docs", "a"]) == 0
    assert main(["create", "--service", str(elsewhere), "--base-url", other.base_url, "--project", "docs", "b"]) == 0
    other.change_key("newer-key-0002")
    key = tmp_path / "key"
    key.write_text("newer-key-0002")
    key.chmod(0o600)
    assert main(["create", "--service", file, "--key-file", str(key), "--project", "docs", "c"]) == 0
    assert other.creates() == [{"input": prompt} for prompt in "abc"]


BAD_FILES = {
    'bse_url = "https://x.example"': "unknown setting 'bse_url'; did you mean 'base_url'?",
    'base_url = "ftp://x.example"': "base_url must be an address such as https://api.example.com",
    'get_path = "/tasks"': "get_path must contain {job_id}",
    'body = {input = "a {prompt}"}': "body must have {prompt} as a whole text",
    'fields = {pr_lnk = "url"}': "did you mean 'pr_link'?",
    'statuses = {done = "finished"}': "statuses must have",
    'headers = {Host = "x.example"}': "must not be Host",
    'headers = {X-Token = {env = "A", more = "B"}}': "must be a text or",
    "base_url = ": "it is no TOML",
}


def test_bad_files(tmp_path: Path, capsys: Captured) -> None:
    """A bad file ends `check` with 2 and one line that names the file and the setting, as the file names it."""
    path, found = tmp_path / "service.toml", {}
    for text, words in BAD_FILES.items():
        path.write_text(text)
        code, shown = main(["service", "check", str(path)]), capsys.readouterr()
        line = shown.err.removesuffix("\n")
        if (code, shown.out) != (2, "") or not line.startswith(f"Error: {path}: ") or words not in line:
            found[text] = shown
    assert found == {}


def test_a_bad_file_of_a_run(tmp_path: Path, capsys: Captured) -> None:
    """A command refuses a bad file in the words of the check, and leaves no journal."""
    path = tmp_path / "service.toml"
    path.write_text('base_ulr = "https://x.example"')
    assert main(["run", "--service", str(path), "--journal", str(tmp_path / "run.db"), "a"]) == 2
    assert capsys.readouterr().err == f"Error: {path}: unknown setting 'base_ulr'; did you mean 'base_url'?\n"
    assert not (tmp_path / "run.db").exists()


def test_missing_variables(other: AnotherService, file: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """A variable of the file that is not set ends a command by its name, and is a warning of the check."""
    words = {"TASKS_API_KEY": "the key is read from TASKS_API_KEY", "GATEWAY_TOKEN": "the header X-Gateway-Token is"}
    for name, expected in words.items():
        with monkeypatch.context() as patch:
            patch.delenv(name)
            assert main(["create", "--service", file, "--project", "docs", "a"]) == 2
            assert expected in capsys.readouterr().err
            assert main(["service", "check", file]) == 0
            assert f"Warning: {name} is not set" in capsys.readouterr().err
    assert other.requests == []


def test_check_of_variables(file: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """The check warns of a key that no command would take, unquoted, and of a header that looks like a variable."""
    monkeypatch.setenv("TASKS_API_KEY", "sk-live-0123\nmore")
    with Path(file).open("a") as stream:
        stream.write('\n"X-Own" = "$GATEWAY_TOKEN"\n')
    assert main(["service", "check", file]) == 0
    out, err = capsys.readouterr()
    assert "Warning: TASKS_API_KEY: api_key must be visible ASCII without spaces or line breaks" in err
    assert "Warning: The header X-Own is sent as it stands, with its $" in err
    assert "sk-live" not in out + err


def test_check_shows_what_is_sent(other: AnotherService, file: str, capsys: Captured) -> None:
    """Both requests of the check are those that a session sends, with its secrets masked; the check sends nothing."""
    assert main(["service", "check", file, "--project", "a/b c", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert other.requests == []

    async def use() -> None:
        async with AgentJobsSession.from_toml(file, project_id="a/b c") as session:
            await session.create_job("PROMPT", extra={"branch": "EXTRA"})
            await session.get_job("JOB_ID")

    with pytest.raises(Exception, match="HTTP 500"):  # the service has no job of that name
        asyncio.run(use())
    sent = []
    for request in other.requests[:2]:
        headers = {name: value for name, value in request.headers.items() if name not in FRAMING}
        masked = {name: "***" if value in SECRETS.values() else value for name, value in headers.items()}
        body = {} if request.body is None else {"body": request.body}
        sent.append(
            {"method": request.method, "url": f"{other.base_url[:-4]}{request.path}", "headers": masked, **body}
        )
    assert [shown["create"], shown["read"]] == sent


def test_check_shows_no_secret(file: str, capsys: Captured) -> None:
    """The check shows neither the variables' values nor a header of the file that is masked elsewhere."""
    with Path(file).open("a") as stream:
        stream.write('X-Password = "a-password-in-a-file"\n')
    for more in ([], ["--json"]):
        assert main(["service", "check", file, *more]) == 0
        shown = "".join(capsys.readouterr())
        assert [secret for secret in (KEY, GATEWAY_TOKEN, "a-password") if secret in shown] == []


def test_check_on_a_terminal(file: str) -> None:
    """On a terminal the check is coloured, unless NO_COLOR asks for none, and fits into 80 columns."""
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with Child("service", "check", file, env=env, terminal=True) as child:
            assert child.ended() == 0
        assert ("\x1b[" in child.stdout) is coloured
        plain = re.sub(r"\x1b\[[0-9;]*m", "", child.stdout)
        assert max(map(len, plain.splitlines())) <= 80
        assert re.search(r"^  id +task\.id  \(an integer\)\r$", plain, re.MULTILINE)
        assert re.search(r"^  succeeded +completed  \(ends a wait\)\r$", plain, re.MULTILINE)
        assert "  X-Gateway-Token: ***  (from GATEWAY_TOKEN)\r\n" in plain


def test_check_names_the_repeats(tmp_path: Path, capsys: Captured) -> None:
    """The check says which creates are sent again, where the file says that they may be."""
    path = tmp_path / "service.toml"
    path.write_text('base_url = "http://x.example"\ncreate_refusals = [503]\nidempotency_header = "Request-Id"\n')
    assert main(["service", "check", str(path)]) == 0
    shown = capsys.readouterr()
    assert "  after 503, which start no agent\n" in shown.out
    assert "  of an unknown outcome, with the same Request-Id, for 24 h\n" in shown.out
    assert shown.out.count("Request-Id: IDEMPOTENCY_KEY\n") == 1
    assert "--allow-insecure" in shown.err


@pytest.mark.slow
def test_an_extra_without_a_place(other: AnotherService, file: str, tmp_path: Path, capsys: Captured) -> None:
    """A run refuses an item whose extra has the name of a field of the body: planned, it could never be sent."""
    other.end_jobs()
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Tidy a", "extra": {"input": "x"}}\n{"prompt": "Tidy b"}\n')
    command = ["run", "--service", file, "--project", "docs"]
    assert main([*command, "--file", str(prompts), "--journal", str(tmp_path / "run.db")]) == 1
    assert "extra must not have 'input': the body of a create has that field already" in capsys.readouterr().err
    assert main([*command, "--extra", "input=x", "Tidy c"]) == 1
    assert "planned" not in capsys.readouterr().out
    assert other.creates() == [{"input": "Tidy b"}]


def test_a_killed_run(other: AnotherService, file: str, tmp_path: Path, capsys: Captured) -> None:
    """A run that was killed is resumed with the same file, and starts no second agent."""
    db = str(tmp_path / "run.db")
    with Child("run", "--service", file, "--project", "docs", "--journal", db, "Tidy up") as child:
        other.wait_for_reads(1)
        child.send(signal.SIGKILL).ended()
    other.end_jobs()
    assert main(["resume", "--service", file, "--journal", db]) == 0
    assert capsys.readouterr().err == "1 completed\n"
    assert other.creates() == [{"input": "Tidy up"}]


@pytest.mark.slow
def test_suggested_commands(other: AnotherService, file: str, tmp_path: Path, capsys: Captured) -> None:
    """A command that is printed leads to the same service by its file."""
    db = str(tmp_path / "run.db")
    with Child("run", "--service", file, "--project", "docs", "--journal", db, "Tidy up") as child:
        other.wait_for_reads(1)
        assert child.send(signal.SIGINT).ended() == 130
    assert f"resume {db} --service {file}\n" in child.stderr
    assert "--base-url" not in child.stderr
    assert main(["status", db]) == 4
    assert f"resume {db} --service FILE\n" in capsys.readouterr().err  # the journal does not know where the file is


@pytest.mark.slow
def test_a_key_that_changes(other: AnotherService, file: str, key_file: Path) -> None:
    """The key file is read again when the service refuses its key; one line says what came of it."""
    arguments = ("run", "--service", file, "--key-file", str(key_file), "--project", "docs", "Tidy up")
    with Child(*arguments) as child:
        other.wait_for_reads(1)
        key_file.write_text("")
        other.change_key("newer-key-0002")
        child.until_error(f"The service refused the API key; --key-file: {key_file} is empty.\n")
        key_file.write_text("newer-key-0002\n")
        child.until_error(f"The service refused the API key; {key_file} has another one now.\n")
        other.end_jobs()
        assert child.ended() == 0
    assert child.stderr.count("The service refused") == 2
    assert len(other.creates()) == 1
    assert "newer-key" not in child.stdout + child.stderr


def test_a_refused_key(other: AnotherService, file: str, key_file: Path, capsys: Captured) -> None:
    """Where the file has no other key, the command ends with 3, after a line that says so."""
    other.change_key("newer-key-0002")
    assert main(["create", "--service", file, "--key-file", str(key_file), "--project", "docs", "a"]) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"The service refused the API key; {key_file} has no other one."
    assert "check the API key" in second
    assert len(other.requests) == 1


def test_a_pipe_is_read_once(other: AnotherService, file: str) -> None:
    """A key from a pipe, which can't be read twice, is used for all requests."""
    reader, writer = os.pipe()
    os.write(writer, KEY.encode())
    os.close(writer)
    other.end_jobs()
    with Child("run", "--service", file, "--key-file", "/dev/stdin", "--project", "docs", "a", stdin=reader) as child:
        assert child.ended() == 0
    os.close(reader)
    assert "The service refused" not in child.stderr
