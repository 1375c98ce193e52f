"""The Discord bot, as a process, against a Discord on loopback."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator
from tests.recipes.discord_api import USER, DiscordApi, discord
from tests.recipes.processes import ENDLESS, Program, complete, program

pytestmark = pytest.mark.slow

ON_LOOPBACK = """
import sys, runpy, discord, yarl
_, address, recipe = sys.argv
discord.http.Route.BASE = address
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(address)
runpy.run_path(recipe, run_name="__main__")
"""


@pytest.fixture
async def api() -> AsyncIterator[DiscordApi]:
    async with discord() as api:
        yield api


@pytest.fixture
async def service() -> AsyncIterator[Emulator]:
    async with Emulator(script=ENDLESS) as service:
        yield service


@pytest.fixture
async def bot(api: DiscordApi, service: Emulator, tmp_path: Path) -> AsyncIterator[Program]:
    environment = {**service.environment(), "DISCORD_TOKEN": "abc", "JOURNAL": str(tmp_path / "bot.db")}
    async with program("discord_bot", environment, before=("-c", ON_LOOPBACK, api.address)) as bot:
        yield bot


async def test_a_command(bot: Program, api: DiscordApi, service: Emulator) -> None:
    """The deferred answer shows that the job is at work, then its end; a create that the service refuses is told."""
    await service.inject("422 on=create", prompt="Refuse me")
    async with bot.running() as process:
        await process.watch(api.command("Fix the links"))
        await process.watch(api.until(1, "active ..."))
        await process.watch(api.command("Refuse me"))
        await process.watch(api.until(1, "This did not work, sorry."))
        await complete(service)
        await process.watch(api.until(1, "completed: https://"))
    assert api.commands == ["job"]
    assert [texts[:-1] for texts in api.texts.values()] == [["", "active ..."], [""]]
    assert service.agents_started == {"Fix the links": 1}
    assert "Traceback" not in process.output


async def test_a_job_that_outlives_its_interaction(bot: Program, api: DiscordApi, service: Emulator) -> None:
    """After 15 min, and a restart, the user is told the end in a message of its own."""
    async with bot.running() as process:
        await process.watch(api.command("Fix the links"))
        await process.watch(api.until(1, "active ..."))
        process.interrupt(signal.SIGKILL)
    api.is_expired = True
    await complete(service)
    async with bot.running() as process:
        await process.watch(api.until(1, f"<@{USER['id']}> completed: https://"))
    assert len(api.texts) == 2
    assert service.agents_started == {"Fix the links": 1}
