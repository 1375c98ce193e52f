"""The Slack app, as a process, against a Slack API on loopback."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS, RECIPES, Process, complete, started, until
from tests.recipes.slack_api import SECRET, SlackApi, mention, slack

pytestmark = pytest.mark.slow


class Stage:
    """The Slack API, the service, and where the app's journal is."""

    def __init__(self, api: SlackApi, service: Emulator, journal: Path) -> None:
        self.api = api
        self.service = service
        settings = {"SLACK_TOKEN": "xoxb-1", "SLACK_SECRET": SECRET, "SLACK_API": api.address}
        self._environment = {**service.environment(), **settings, "JOURNAL": str(journal)}

    @asynccontextmanager
    async def app(self, ending: signal.Signals = signal.SIGTERM) -> AsyncIterator[Process]:
        """Return a block in which the app serves; it is ended by a signal."""
        async with started((str(RECIPES / "slack_bot.py"),), self._environment) as process:
            await process.read_address()
            yield process
            process.interrupt(ending)
            await process.end()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with slack() as api, Emulator(script=ENDLESS) as service:
        yield Stage(api, service, tmp_path / "bot.db")


async def test_a_mention(stage: Stage) -> None:
    """Its message is edited on changes, though Slack refuses some edits; a redelivery starts no second agent."""
    stage.api.refusals = 2
    async with stage.app() as app:
        assert await mention(app.address, "Fix the links") == 200
        assert await mention(app.address, "Forged", secret="another") == 401
        await stage.api.until(1, "active")
        assert await mention(app.address, "Fix the links") == 200
        assert await mention(app.address, "", stamp="100.2") == 200
        await stage.api.until(1, "Say what is to be done")
        await complete(stage.service)
        await stage.api.until(1, "completed: https://")
    assert "Traceback" not in app.output
    assert stage.service.agents_started == {"Fix the links": 1}
    ended, empty = stage.api.texts.values()
    assert [text.split(":")[0] for text in ended] == ["starting ...", "active ...", "completed"]
    assert len(empty) == 1


async def test_a_kill_while_the_job_is_at_work(stage: Stage) -> None:
    """After its restart, the app tells the end of the job."""
    async with stage.app(signal.SIGKILL) as app:
        await mention(app.address, "Fix the links")
        await stage.api.until(1, "active")
    await complete(stage.service)
    async with stage.app():
        await stage.api.until(1, "completed")
    assert stage.service.agents_started == {"Fix the links": 1}


async def test_a_kill_while_the_create_is_in_flight(stage: Stage) -> None:
    """The event was acknowledged; after its restart the app says that the outcome is not known, and starts no other."""
    await stage.service.inject("hang on=create")
    async with stage.app(signal.SIGKILL) as app:
        assert await mention(app.address, "Fix the links") == 200
        await until(lambda: stage.service.agents_started)
    async with stage.app():
        await stage.api.until(1, "This did not work")
    assert stage.service.agents_started == {"Fix the links": 1}
