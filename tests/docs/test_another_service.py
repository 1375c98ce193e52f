import asyncio
import json
import re
from pathlib import Path

import pytest

from agentjobs_async import Dialect
from agentjobs_async.__main__ import main
from tests.another_service import SECRETS, AnotherService, another_service
from tests.docs.samples import blocks, run_page, shell

SHORTEST, TOML = blocks("another-service", "toml")
(LINES,) = blocks("another-service", "sh")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's file, in which its samples run; its secrets are in the environment."""
    monkeypatch.chdir(tmp_path)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def write_file(folder: Path, service: AnotherService) -> None:
    """Write the page's file, with the address of a service that is there."""
    text, replaced = re.subn("https://tasks.example.com/api", service.base_url, TOML)
    assert replaced == 1
    (folder / "service.toml").write_text(text, encoding="utf-8")


async def test_lines(folder: Path) -> None:
    """The page's lines check its file, and run a prompt on a service that nothing but the file describes."""
    with another_service() as service:
        write_file(folder, service)
        service.end_jobs()
        code, printed = await shell(LINES, folder)
        assert service.creates() == [{"input": "Document the v2 endpoints"}]
    assert code == 0
    assert "POST http" in printed
    assert "completed: https://code.example/pull/1\n" in printed


async def test_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's program runs a prompt on the same service, with an extra."""
    with another_service() as service:
        write_file(folder, service)
        service.end_jobs()
        await asyncio.to_thread(run_page, "another-service")
        assert service.creates() == [{"input": "Document the v2 endpoints", "branch": "main"}]
    assert capsys.readouterr().out == "completed https://code.example/pull/1\n"


@pytest.mark.parametrize(("text", "integer_ids"), [(SHORTEST, False), (TOML, True)])
def test_file(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *, integer_ids: bool) -> None:
    """The page's files are valid as they stand."""
    (folder / "service.toml").write_text(text, encoding="utf-8")
    assert Dialect.from_toml("service.toml").integer_ids == integer_ids
    assert main(["service", "check", "service.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
