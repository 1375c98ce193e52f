"""The Discord bot, against a Discord in the same process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import simcord

from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.testing import Emulator
from tests.recipes.processes import ENDLESS, complete, until

Call = tuple[tuple[Any, ...], dict[str, Any], asyncio.Future[DurableEntry]]


class Outside:
    """Durable jobs whose creates no task of the bot sends: the bot's clock is virtual, the service's is not."""

    def __init__(self, jobs: DurableJobs) -> None:
        self._jobs = jobs
        self._calls: asyncio.Queue[Call] = asyncio.Queue()

    async def submit(self, *arguments: Any, **settings: Any) -> DurableEntry:
        answer: asyncio.Future[DurableEntry] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait((arguments, settings, answer))
        return await answer

    async def serve(self) -> None:
        """Send the creates, until cancelled."""
        while True:
            arguments, settings, answer = await self._calls.get()
            answer.set_result(await self._jobs.submit(*arguments, **settings))


@asynccontextmanager
async def following(bot: ModuleType, service: Emulator, journal: Path) -> AsyncIterator[None]:
    """Return a block in which the bot's jobs are followed, as its `main` does."""
    async with service.session(project_id="docs") as session, Journal.open(journal) as opened:
        async with DurableJobs(session, opened, on_change=bot.on_change, on_end=bot.on_end, least_gap=0) as jobs:
            bot.bot.jobs = outside = Outside(jobs)
            serving = asyncio.create_task(outside.serve())
            yield
            serving.cancel()


@pytest.fixture
async def service() -> AsyncIterator[Emulator]:
    async with Emulator(script=ENDLESS, speed=20) as service:
        yield service


async def test_a_command(bot: ModuleType, service: Emulator, tmp_path: Path) -> None:
    """The deferred answer shows that the job is at work, then its end."""
    async with simcord.run(bot.bot) as discord:
        channel, alice = a_channel(discord)
        async with following(bot, service, tmp_path / "bot.db"):
            await alice.slash(channel, "job", prompt="Fix the links")
            await until(lambda: channel.last_message.content == "active ...")
            await complete(service)
            await until(lambda: channel.last_message.content.startswith("completed: https://"))
        assert len(channel.history()) == 1
    assert service.agents_started == {"Fix the links": 1}


async def test_a_job_that_outlives_its_interaction(bot: ModuleType, service: Emulator, tmp_path: Path) -> None:
    """After 15 min, and a restart, the user is told the end in a message of its own."""
    async with simcord.run(bot.bot) as discord:
        channel, alice = a_channel(discord)
        async with following(bot, service, tmp_path / "bot.db"):
            await alice.slash(channel, "job", prompt="Fix the links")
            await until(lambda: channel.last_message.content == "active ...")
        await complete(service)
        await discord.advance_time(15 * 60)
        async with following(bot, service, tmp_path / "bot.db"):
            await until(lambda: channel.last_message.content.startswith(f"<@{alice.id}> completed: https://"))
        assert len(channel.history()) == 2
    assert service.agents_started == {"Fix the links": 1}


async def test_a_refused_prompt(bot: ModuleType, service: Emulator, tmp_path: Path) -> None:
    """A create that the service refuses is told, too."""
    await service.inject("422 on=create")
    async with simcord.run(bot.bot) as discord:
        channel, alice = a_channel(discord)
        async with following(bot, service, tmp_path / "bot.db"):
            await alice.slash(channel, "job", prompt="Fix the links")
            await until(lambda: channel.last_message.content == "This did not work, sorry.")
    assert service.agents_started == {}


def a_channel(discord: simcord.Env) -> tuple[Any, Any]:
    """Return a channel, and a member who may write there."""
    channel = discord.create_guild().create_text_channel("docs")
    return channel, discord.guild.add_member(discord.create_user("alice"))


@pytest.fixture
def bot(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("discord_bot")
