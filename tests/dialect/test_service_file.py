"""The service file: what a session and a dialect read of it."""

from pathlib import Path
from typing import Any

import pytest

from agentjobs_async import AgentJobsSession, Dialect, InvalidInputError, JobStatus
from agentjobs_async._dialect.service_file import read_service_file
from agentjobs_async.testing import Emulator
from tests.contract.sinks import Log, leaks
from tests.rows import failures

SECRET = "sk/topsecret+123456"

TEXT = """
base_url = "https://api.example.com/own"
key_env = "OTHER_KEY"
create_path = "/runs"
get_path = "/runs/{job_id}"
integer_ids = true
create_refusals = [503]
idempotency_header = "Idempotency-Key"

[body.input]
text = "{prompt}"
tags = ["{extra.tag}"]

[fields]
pr_link = "links.0.href"
source.repository = "repo"
"source.ref" = "branch"

[statuses]
done = "completed"

[headers]
X-Team = "docs"
X-Token = { env = "TEAM_TOKEN" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "service.toml"
    path.write_text(TEXT)
    return path


def test_dialect(file: Path) -> None:
    """A dialect has the settings of the file, and leaves what is the session's."""
    assert Dialect.from_toml(file) == Dialect(
        create_path="/runs",
        get_path="/runs/{job_id}",
        integer_ids=True,
        create_refusals=[503],
        idempotency_header="Idempotency-Key",
        body={"input": {"text": "{prompt}", "tags": ["{extra.tag}"]}},
        fields={"pr_link": "links.0.href", "source.repository": "repo", "source.ref": "branch"},
        statuses={"done": JobStatus.COMPLETED},
    )


async def test_session(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session has the address, the key, the headers and the dialect; what is passed to it overrides the file."""
    monkeypatch.setenv("OTHER_KEY", "key-of-the-other")
    monkeypatch.setenv("TEAM_TOKEN", "t0k3n")
    async with AgentJobsSession.from_toml(file) as session:
        assert session.service.startswith("https://api.example.com/own /runs")
        assert session.dialect == Dialect.from_toml(file)
        assert session.mask("key-of-the-other, t0k3n, docs") == "***, ***, docs"
    async with (
        Emulator() as emulator,
        AgentJobsSession.from_toml(
            file, base_url=emulator.base_url, api_key="given-key", project_id="docs", headers={"X-Team": "other"}
        ) as session,
    ):
        with pytest.raises(Exception, match="404"):
            await session.create_job("Fix it")
        (request,) = emulator.requests
    assert (request.target, request.headers["Authorization"]) == ("/runs", "Bearer given-key")
    assert (request.headers["X-Team"], request.headers["X-Token"]) == ("other", "t0k3n")
    assert request.body == b'{"input": {"text": "Fix it", "tags": []}}'


def test_unset_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that the file names and that is not set is named, before any I/O; to check the file needs none."""
    monkeypatch.delenv("TEAM_TOKEN", raising=False)
    monkeypatch.setenv("OTHER_KEY", "key-of-the-other")
    with pytest.raises(InvalidInputError, match="header X-Token is read from TEAM_TOKEN, which is not set"):
        AgentJobsSession.from_toml(file)
    monkeypatch.setenv("TEAM_TOKEN", "t0k3n")
    monkeypatch.setenv("OTHER_KEY", "")
    with pytest.raises(InvalidInputError, match="key is read from OTHER_KEY, which is not set"):
        AgentJobsSession.from_toml(file)
    assert read_service_file(file).key_env == "OTHER_KEY"


BAD = {
    'create_pth = "/x"': r"unknown setting 'create_pth'; did you mean 'create_path'",
    "zzz = 1": "unknown setting 'zzz'; the settings are base_url,",
    'get_path = "/x"': "get_path must contain {job_id}",
    "base_url = 5": "base_url must be a text",
    'key_env = ""': "key_env must be the name of an environment variable",
    'key_env = "sk-live-0123456789"': "key_env must be the name of an environment variable, letters, digits and _",
    'api_key = "sk-live-0123456789"': "unknown setting 'api_key'; the key stays out of the file: key_env names",
    'project_id = "docs"': "the project is given by --project",
    '[headers]\nidempotency_header = "Idempotency-Key"': "idempotency_header stands in the table [headers]: move",
    '[statuses]\ndone = "completed"\ncreate_refusals = [503]': "create_refusals stands in the table [statuses]: move",
    "[fields]\ninteger_ids = true": "integer_ids stands in the table [fields]: move it above",
    '[statuses]\ncompleted = "done"': "not 'done'; the service's word comes first",
    "headers = 5": "headers must be a table",
    '[headers]\nHost = "x"': "must not be Host",
    '[headers]\nauthorization = "x"': "headers must not have authorization",
    "[headers]\nX-A = 5": "the header X-A must be a string",
    '[headers]\nX-A = { env = "sk-live-0123456789" }': "env of the header X-A must be the name of an environment",
    '[headers]\nX-A = { file = "x" }': 'the header X-A must be a text or {env = "NAME"}',
    '[fields]\nlink = "x"': "fields has 'link'",
    '[statuses]\ndone = "gone"': "statuses must have",
    "body = 5": "body must be an object",
    "[body]\nwhen = 2026-01-02\np = '{prompt}'": "body must be JSON",
    "= 5": "it is no TOML: ",
    f"idempotency_seconds = {'9' * 5000}": "it has a number or nesting out of bounds",
    f"body = {'[' * 5000}": "it has a number or nesting out of bounds",
}


def test_refused(tmp_path: Path) -> None:
    """What is wrong is named, after the name of the file, and with a hint where a name is misspelt."""
    path = tmp_path / "service.toml"

    def check(text: str, words: str) -> None:
        path.write_text(text)
        with pytest.raises(InvalidInputError) as caught:
            read_service_file(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert words in str(caught.value)
        assert "sk-live" not in str(caught.value)
        assert caught.value.__context__ is None

    assert failures(check, *BAD.items()) == {}


def test_secrets_beside_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with a file or a setting, the error's traceback with locals shows no key and no header."""
    monkeypatch.setenv("OTHER_KEY", SECRET)
    monkeypatch.setenv("TEAM_TOKEN", f"a\n{SECRET}")
    monkeypatch.setenv("GOOD_TOKEN", SECRET)
    broken, good = file.with_name("broken.toml"), file.with_name("good.toml")
    broken.write_text(f'[headers]\nX-B = "{SECRET}"\nX-A = 5')
    good.write_text(TEXT.replace("TEAM_TOKEN", "GOOD_TOKEN"))

    def check(path: Path, settings: dict[str, Any]) -> None:
        given = {"api_key": SECRET, "headers": {"X-Given": SECRET}, "proxy": f"http://a:{SECRET}@proxy:1"} | settings
        with Log() as log, pytest.raises(InvalidInputError) as caught:
            AgentJobsSession.from_toml(path, **given)
        assert leaks(SECRET, [caught.value], log) == []

    rows: list[tuple[Path, dict[str, Any]]] = [
        *((file, {}), (broken, {}), (file.with_name("nowhere"), {}), (file.with_name("a\0b"), {})),
        *((good, {"headers": 5}), (good, {"headers": {"X-team": SECRET}}), (good, {"base_url": "x"})),
    ]
    assert failures(check, *rows) == {}


def test_unreadable(tmp_path: Path) -> None:
    """A file that can't be read, or is no text, is refused by its name."""
    with pytest.raises(InvalidInputError, match=r"nowhere\.toml: it can't be read: No such file"):
        Dialect.from_toml(tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match=r"bytes\.toml: it is no text in UTF-8"):
        AgentJobsSession.from_toml(tmp_path / "bytes.toml")
