"""What a user of either Telegram bot sees: the bots as processes, against a Bot API on loopback."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import ENDLESS, RECIPES, complete, started
from tests.recipes.telegram_api import TOKEN, TelegramApi, telegram

ENDED: Final = ["starting ...", "active ...", "completed"]


class Stage:
    """One bot, its Bot API, the service and its journal.

    Attributes:
        bot: The name of the recipe.
        created: Set as soon as the service has got a create.
    """

    def __init__(self, bot: str, api: TelegramApi, service: Emulator, created: asyncio.Event, journal: Path) -> None:
        self.bot = bot
        self.api = api
        self.service = service
        self.created = created
        settings = {"TELEGRAM_TOKEN": TOKEN, "TELEGRAM_API": api.address, "JOURNAL": str(journal)}
        self._environment = {**service.environment(), **settings}

    async def run(self, until: Coroutine[Any, Any, object], ending: signal.Signals) -> str:
        """Run the bot until the coroutine returns, then send a signal to it; return what it wrote."""
        async with started((str(RECIPES / f"{self.bot}.py"),), self._environment) as process:
            waiting = asyncio.ensure_future(until)
            ended = asyncio.ensure_future(process.end())
            await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
            assert waiting.done(), process.output
            process.interrupt(ending)
            await ended
            return process.output


async def stage(stack: AsyncExitStack, bot: str, journal: Path) -> Stage:
    api = await stack.enter_async_context(telegram())
    created = asyncio.Event()

    def script(_project: str, _prompt: str) -> JobScript:
        created.set()  # the create has arrived, and is not answered yet
        return ENDLESS

    service = await stack.enter_async_context(Emulator(script=script))
    return Stage(bot, api, service, created, journal)


async def check_many_users(bot: str, folder: Path) -> None:
    """Each of 100 users sees its own job change and end, though Telegram refuses some edits."""
    async with AsyncExitStack() as stack:
        play = await stage(stack, bot, folder / "bot.db")
        play.api.refusals = 3
        for user in range(1, 101):
            await play.api.say(user, f"/job Fix page {user}")
        await play.api.say(101, "/job")

        async def ended() -> None:
            await play.api.until(100, "active")
            await complete(play.service)
            await play.api.until(100, "completed: https://")
            await play.api.until(1, "Say what is")

        output = await play.run(ended(), signal.SIGTERM)
    assert "Traceback" not in output
    assert set(play.service.agents_started.values()) == {1}
    assert len(play.service.agents_started) == 100
    told = [[text.split(":")[0] for text in texts] for texts in play.api.texts.values()]
    assert told.count(["Say what is to be done"]) == 1
    assert told.count(ENDED) == 100


async def sent(play: Stage) -> None:
    """Wait until the bot has answered the command, and has planned no job yet or has just done so."""
    await play.api.until(1, "starting")


async def creating(play: Stage) -> None:
    """Wait until the service has got the create, which it has not answered yet."""
    await play.created.wait()


async def seen(play: Stage) -> None:
    """Wait until the user was told that the job is at work."""
    await play.api.until(1, "active")


async def check_kill(bot: str, folder: Path, moment: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Kill the bot at a moment: after its restart it tells the end of the job, and starts none twice."""
    async with AsyncExitStack() as stack:
        play = await stage(stack, bot, folder / "bot.db")
        await play.api.say(7, "/job Fix the links")
        await play.run(moment(play), signal.SIGKILL)
        await complete(play.service)

        async def told() -> None:
            ends = [asyncio.ensure_future(play.api.until(1, start)) for start in ("completed", "This did not work")]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()

        await play.run(told(), signal.SIGTERM)
    completed = any(texts[-1].startswith("completed") for texts in play.api.texts.values())
    agents = play.service.agents_started["Fix the links"]
    # None where the kill came between the claim and the first byte of the create, whose outcome is then not known.
    assert agents == 1 or (agents == 0 and not completed)
