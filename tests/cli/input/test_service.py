import ssl
import traceback
from pathlib import Path
from typing import Any

import pytest
import trustme

from agentjobs_async import InvalidInputError, JobRef, NotSentError
from agentjobs_async.__main__ import main
from agentjobs_async.cli._input.service import Service
from tests.cli.checks import Captured
from tests.cli.stage import EmulatorThread
from tests.http.tunnel import TunnelProxy
from tests.rows import failures
from tests.scripted import KEY, Scripted, job


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


OTHERS: dict[str, Any] = {"base_url": None, "project_id": None, "key_file": None, "allow_insecure": False}


def test_proxy_and_authorities() -> None:
    """The environment's proxy is the default; `--proxy` and `--ca-file` are in commands that are shown."""
    assert Service.of(**OTHERS) == Service(proxy="env", ca_file=None)
    direct = Service.of(**OTHERS, proxy="none", ca_file="own.pem")
    assert (direct.proxy, direct.options()) == (None, ["--proxy", "none", "--ca-file", "own.pem"])
    through = Service.of(**OTHERS, proxy="http://proxy:3128")
    assert (through.proxy, through.options()) == ("http://proxy:3128", ["--proxy", "http://proxy:3128"])


def test_options_that_are_refused(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> None:
    """A proxy with a password, one that is none, and a file without authorities are refused, with what to do."""
    text, absent = tmp_path / "text.pem", tmp_path / "absent.pem"
    text.write_text("no certificate")

    def check(words: str, *options: str) -> None:
        assert main(["get", *options, "job_1"]) == 2
        shown = " ".join(capsys.readouterr().err.split())
        assert words in shown
        assert "marmalade" not in shown

    rows = [
        ("others on this machine can read arguments", "--proxy", "http://clerk:marmalade@proxy:3128"),
        ("environment variable HTTPS_PROXY", "--proxy", "clerk:marmalade@proxy:3128"),
        ("SOCKS proxies are not supported", "--proxy", "socks5://marmalade:1080"),
        ("it is empty; is a variable unset?", "--proxy", ""),
        ("proxy must be an address", "--proxy", "marmalade"),
        (f"--ca-file: {absent} can't be read: No such file", "--ca-file", str(absent)),
        (f"--ca-file: {tmp_path} can't be read: Is a directory", "--ca-file", str(tmp_path)),
        (f"--ca-file: {text} has no certificate in PEM form", "--ca-file", str(text)),
    ]
    assert failures(check, *rows) == {}
    assert service.emulator.requests == ()


def test_an_emulator_without_them(capsys: Captured) -> None:
    """An emulator needs neither a proxy nor an authority: such options are refused."""
    for option, value in (("--proxy", "none"), ("--ca-file", "own.pem")):
        assert main(["run", "--emulator", option, value, "a"]) == 2
        assert "--emulator brings its own address and key" in capsys.readouterr().err


async def test_through_a_proxy_with_an_own_authority(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A session goes through the environment's proxy or the option's, and trusts a file beside the system's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("service.example").configure_cert(context)
    own, systems, key_file = tmp_path / "own.pem", tmp_path / "systems.pem", tmp_path / "key"
    authority.cert_pem.write_to_path(own)
    trustme.CA().cert_pem.write_to_path(systems)
    key_file.write_text(KEY)
    key_file.chmod(0o600)
    monkeypatch.setenv("SSL_CERT_FILE", str(systems))
    async with Scripted(job(), ssl=context) as server, TunnelProxy(server.base_url) as proxy:
        base_url = server.base_url.replace("127.0.0.1", "service.example")
        for way, through in (("environment", None), ("option", proxy.base_url)):
            monkeypatch.setenv("HTTPS_PROXY", proxy.base_url if way == "environment" else "broken")
            settings = Service.of(**OTHERS | {"base_url": base_url, "key_file": str(key_file)}, proxy=through)
            async with settings.session(pytest.fail) as session:
                with pytest.raises(NotSentError, match="--ca-file"):
                    await session.get_job(JobRef("docs", "job_1"))
            trusting = Service.of(
                **OTHERS | {"base_url": base_url, "key_file": str(key_file)}, proxy=through, ca_file=str(own)
            )
            async with trusting.session(pytest.fail) as session:
                assert (await session.get_job(JobRef("docs", "job_1"))).id == "job_1"
                assert session._transport._options["ssl"].cert_store_stats()["x509_ca"] == 2
    assert (len(proxy.heads), len(server.requests)) == (4, 2)


def test_ref() -> None:
    """A text with what separates the ids of a token is one; any other is an id as it is."""
    settings = Service(project_id="docs")
    assert settings.ref("a~2Fb~.job_1") == JobRef("a/b", "job_1")
    for job_id in ("job_123", "cmp7x/abc", "job%2F1", "v1.2~3"):
        assert settings.ref(job_id) == JobRef("docs", job_id)
    for text, words in (("..", "must not be"), ("docs~.job~.1", "not a job token")):
        with pytest.raises(InvalidInputError, match=words):
            settings.ref(text)


FILE = """
base_url = "https://api.example.com/v2"
[headers]
X-Password = "secret-of-the-file"
X-Token = {env = "TOKEN"}
"""


def test_options_of_a_file(tmp_path: Path) -> None:
    """A service file is among the options that lead to the service; so is an address that is not in it."""
    file = tmp_path / "service.toml"
    file.write_text(FILE)
    given: dict[str, Any] = {"project_id": None, "key_file": None, "allow_insecure": False, "service_file": str(file)}
    assert Service.of(base_url=None, **given).options() == ["--service", str(file)]
    elsewhere = ["--service", str(file), "--base-url", "https://other.example"]
    assert Service.of(base_url="https://other.example", **given).options() == elsewhere


async def test_nothing_private_in_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame of a refused session shows the key or a header, and the repr of a service shows none either."""
    file, key_file = tmp_path / "service.toml", tmp_path / "key"
    file.write_text(FILE)
    key_file.write_text("secret-key-1")
    key_file.chmod(0o600)
    monkeypatch.setenv("TOKEN", "secret-of-the-environment")
    monkeypatch.setenv("AGENTJOBS_API_KEY", "secret-key-2")
    for key in (None, str(key_file)):
        service = Service.of(base_url=None, project_id="..", key_file=key, allow_insecure=False, service_file=str(file))
        with pytest.raises(InvalidInputError, match="must not be") as caught:
            async with service.session(print):
                pass
        stack = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack[1:]
        assert len(stack) > 2
        assert "secret" not in str([frame.locals for frame in stack])
        assert "secret" not in repr(service)
