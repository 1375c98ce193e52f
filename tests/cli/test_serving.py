import asyncio
import re
import signal
from pathlib import Path

import pytest
from aiohttp import ClientSession

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import Child
from tests.report.served import Served, status_of
from tests.report.stage import OUTCOMES, run_some

pytestmark = pytest.mark.slow

ADDRESS = re.compile(r"^(http://\S+?/)(?:#token=(\S+))?$", re.MULTILINE)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The journal of a real run."""
    asyncio.run(run_some(tmp_path / "run.db"))
    return str(tmp_path / "run.db")


def address_of(child: Child) -> tuple[str, str]:
    found = ADDRESS.search(child.until("\n").stdout)
    assert found
    return found[1], found[2]


def test_signal_with_an_open_stream(run: str) -> None:
    """A signal ends it, however many streams are open; without the option there is no token."""
    with Child("serve", run, "--port", "0") as child:
        address, token = address_of(child)
        assert token is None

        async def streamed() -> None:
            async with ClientSession() as client, client.get(f"{address}events") as response:
                assert response.status == 200
                child.send(signal.SIGTERM)
                await response.read()

        asyncio.run(streamed())
        assert child.ended() == 143
    assert "The live page of" in child.stderr
    assert "Traceback" not in child.stderr


def test_action_is_shown(run: str) -> None:
    """With the option and the token, an action changes the item, and is a line on standard error; the token is none."""
    with Child("serve", "--journal", run, "--port", "0", "--allow-actions") as child:
        address, token = address_of(child)

        async def act() -> None:
            async with ClientSession() as client:
                page, failed = Served(address, token, client), OUTCOMES.index("failed") + 1
                assert (await page.act("retry", failed, headers={}))[0] == 401
                assert (await page.act("retry", failed))[0] == 200

        asyncio.run(act())
        child.until_error("1 done").send(signal.SIGINT)
        assert child.ended() == 130
    assert re.search(r"\d\d:\d\d:\d\d retry of row 3 for 127.0.0.1: 1 done, 0 refused", child.stderr)
    assert "an action for 127.0.0.1 was refused: This needs the token" in child.stderr
    assert token not in child.stderr


def test_another_address(run: str) -> None:
    """On an address that others reach, nothing is shown without the token."""
    with Child("serve", run, "--port", "0", "--host", "0.0.0.0") as child:
        address, token = address_of(child)

        async def read() -> None:
            async with ClientSession() as client:
                assert "Document the page" not in await (await client.get(address)).text()
                assert await status_of(client.get(f"{address}rows")) == 401
                headers = {"Authorization": f"Bearer {token}"}
                assert "Document the page" in await (await client.get(f"{address}rows", headers=headers)).text()
                headers |= {"Host": "evil.example"}
                assert await status_of(client.get(f"{address}rows", headers=headers)) == 403

        asyncio.run(read())
        child.send(signal.SIGINT).ended()
    assert "Other machines reach it, unencrypted" in child.stderr


def test_refused_arguments(run: str, capsys: Captured) -> None:
    """What can't be served gets one clear line."""
    with Child("serve", run, "--port", "0") as child:
        port = address_of(child)[0].rstrip("/").rpartition(":")[2]
        assert main(["serve", run, "--port", port]) == 2
    assert f"127.0.0.1 port {port}: Address already in use; give another --port" in capsys.readouterr().err
    assert main(["serve", run, "--host", "no.such.host.invalid"]) == 2
    assert "no.such.host.invalid port 8765: " in capsys.readouterr().err
