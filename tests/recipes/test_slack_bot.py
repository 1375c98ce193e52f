"""The Slack app, as a process, against a Slack API on loopback."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS, Program, complete, program
from tests.recipes.slack_api import SECRET, SlackApi, mention, slack
from tests.until import until

pytestmark = pytest.mark.slow


@pytest.fixture
async def api() -> AsyncIterator[SlackApi]:
    async with slack() as api:
        yield api


@pytest.fixture
async def service() -> AsyncIterator[Emulator]:
    async with Emulator(script=ENDLESS) as service:
        yield service


@pytest.fixture
async def app(api: SlackApi, service: Emulator, tmp_path: Path) -> AsyncIterator[Program]:
    settings = {"SLACK_TOKEN": "xoxb-1", "SLACK_SECRET": SECRET, "SLACK_API": api.address}
    environment = {**service.environment(), **settings, "JOURNAL": str(tmp_path / "bot.db")}
    async with program("slack_bot", environment) as app:
        yield app


async def test_a_mention(app: Program, api: SlackApi, service: Emulator) -> None:
    """Its message is edited on changes, though Slack refuses some edits; a redelivery starts no second agent."""
    api.refusals = 2
    async with app.serving() as process:
        assert await mention(process.address, "Fix the links") == 200
        assert await mention(process.address, "Forged", secret="another") == 401
        await process.watch(api.until(1, "active"))
        assert await mention(process.address, "Fix the links") == 200
        assert await mention(process.address, "", stamp="100.2") == 200
        await process.watch(api.until(1, "Say what is to be done"))
        await complete(service)
        await process.watch(api.until(1, "completed: https://"))
        process.interrupt(signal.SIGTERM)
        await process.end()
    assert "Traceback" not in process.output
    assert service.agents_started == {"Fix the links": 1}
    ended, empty = api.texts.values()
    assert [text.split(":")[0] for text in ended] == ["starting ...", "active ...", "completed"]
    assert len(empty) == 1


async def test_kills(app: Program, api: SlackApi, service: Emulator) -> None:
    """After a restart, the app tells the end of a job at work, and that the outcome of a create is not known."""
    async with app.serving() as process:
        await mention(process.address, "Fix the links")
        await process.watch(api.until(1, "active"))
        process.interrupt(signal.SIGKILL)
    await service.inject("hang on=create")
    async with app.serving() as process:
        assert await mention(process.address, "Fix the images", stamp="100.2") == 200
        await process.watch(until(lambda: service.agents_started["Fix the images"]))
        process.interrupt(signal.SIGKILL)
    await complete(service)
    async with app.serving() as process:
        await process.watch(api.until(1, "completed"))
        await process.watch(api.until(1, "This did not work"))
    assert service.agents_started == {"Fix the links": 1, "Fix the images": 1}
