from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.__main__ import main
from agentjobs_async.cli._input.service import Service
from tests.cli.checks import Captured
from tests.cli.stage import EmulatorThread


def test_key_file(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    """A key file wins over the environment; the white space around the key doesn't count."""
    monkeypatch.setenv("AGENTJOBS_API_KEY", "another-key")
    file = tmp_path / "key"
    file.write_text(f"\n{service.emulator.api_key}\r\n")
    assert main(["create", "--key-file", str(file), "a"]) == 0
    assert capsys.readouterr().out == f"docs~.{service.job_ids[0]}\n"


def test_key_file_of_others(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> None:
    """A key file that others can read is warned about, with what to do."""
    file = tmp_path / "key"
    file.write_text(service.emulator.api_key)
    for mode, warnings in ((0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)):
        file.chmod(mode)
        assert main(["create", "--key-file", str(file), "a"]) == 0
        words = f"--key-file: others can read {file} (mode {mode:04o}): use chmod 600 on it\n"
        assert capsys.readouterr().err == words * warnings


def test_bad_key_file(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> None:
    """A key file that is none is refused before any I/O, and what is in it is not quoted."""
    file = tmp_path / "key"
    for content, words in (
        (b" \n", "is empty"),
        (b"\xff\xfesecret-key", "is no text file"),
        (b"secret-key two", "the API key must be visible ASCII"),
        (b"Bearer secret-key", "leave out the word Bearer"),
    ):
        file.write_bytes(content)
        assert main(["get", "--key-file", str(file), "job_1"]) == 2
        shown = capsys.readouterr().err
        assert words in shown
        assert "secret" not in shown
    assert service.emulator.requests == ()


def test_insecure_when_asked_for(service: EmulatorThread) -> None:
    """`--allow-insecure` is handed on."""
    del service
    settings = Service.of(base_url="http://api.example.com", project_id=None, key_file="a key", allow_insecure=True)
    assert settings.options() == ["--base-url", "http://api.example.com", "--key-file", "a key", "--allow-insecure"]


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the options leave out comes from the environment, where an empty variable counts as none."""
    monkeypatch.setenv("AGENTJOBS_BASE_URL", "https://api.example.com")
    monkeypatch.setenv("AGENTJOBS_PROJECT_ID", "")
    settings = Service.of(base_url=None, project_id=None, key_file=None, allow_insecure=False)
    assert settings == Service("https://api.example.com")
    assert settings.options() == ["--base-url", "https://api.example.com"]
    assert Service(emulated=True).options() == ["--emulator"]


def test_ref() -> None:
    """A text with what separates the ids of a token is one; any other is an id as it is."""
    settings = Service(project_id="docs")
    assert settings.ref("a~2Fb~.job_1") == JobRef("a/b", "job_1")
    for job_id in ("job_123", "cmp7x/abc", "job%2F1", "v1.2~3"):
        assert settings.ref(job_id) == JobRef("docs", job_id)
    for text, words in (("..", "must not be"), ("docs~.job~.1", "not a job token")):
        with pytest.raises(InvalidInputError, match=words):
            settings.ref(text)
