"""What a user of either Telegram bot sees: the bots as processes, against a Bot API on loopback."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import ENDLESS, complete, program
from tests.recipes.telegram_api import TOKEN, TelegramApi, telegram
from tests.until import until

pytestmark = pytest.mark.slow

USERS = 50


async def sent(api: TelegramApi, user: int, _created: set[str]) -> None:
    """Wait until the bot has answered the command, and has planned no job yet or has just done so."""
    await api.until(1, "starting", user)


async def creating(_api: TelegramApi, user: int, created: set[str]) -> None:
    """Wait until the service has got the create, which it has not answered yet."""
    await until(lambda: f"Fix page {user}" in created)


async def seen(api: TelegramApi, user: int, _created: set[str]) -> None:
    """Wait until the user was told that the job is at work."""
    await api.until(1, "active", user)


Moment = Callable[[TelegramApi, int, set[str]], Coroutine[Any, Any, None]]


@pytest.mark.parametrize(
    ("bot", "moments"),
    [
        ("aiogram_bot", [sent, creating, seen]),
        ("python_telegram_bot", [creating, seen]),  # not sent: it confirms a message before it handles it
    ],
)
async def test_bot(bot: str, moments: list[Moment], tmp_path: Path) -> None:
    """Each user sees the job change and end, though the bot is killed and Telegram refuses edits; none starts twice."""
    created: set[str] = set()

    def script(_project: str, prompt: str) -> JobScript:
        created.add(prompt)  # the create has arrived, and is not answered yet
        return ENDLESS

    killed = range(1, len(moments) + 1)
    others = range(len(moments) + 1, len(moments) + 1 + USERS)
    async with telegram() as api, Emulator(script=script) as service:
        settings = {"TELEGRAM_TOKEN": TOKEN, "TELEGRAM_API": api.address, "JOURNAL": str(tmp_path / "bot.db")}
        async with program(bot, {**service.environment(), **settings}) as started:
            for user, moment in zip(killed, moments, strict=True):
                async with started.running() as process:
                    await api.say(user, f"/job Fix page {user}")
                    await process.watch(moment(api, user, created))
                    process.interrupt(signal.SIGKILL)
            async with started.running() as process:
                api.refusals = 3
                for user in others:
                    await api.say(user, f"/job Fix page {user}")
                await api.say(others.stop, "/job")
                await process.watch(api.until(USERS, "active"))
                await complete(service)
                await process.watch(asyncio.gather(*(api.until_ended(user) for user in (*killed, *others))))
                await process.watch(api.until(1, "Say what is to be done", others.stop))
                process.interrupt(signal.SIGTERM)
                await process.end()
    assert "Traceback" not in process.output
    told = {user: [text.split(":")[0] for text in texts] for (user, _), texts in api.texts.items()}
    assert [told[user] for user in others] == [["starting ...", "active ...", "completed"]] * USERS
    for user in (*killed, *others):
        agents = service.agents_started[f"Fix page {user}"]
        # None where the kill came between the claim and the first byte of the create, whose outcome is not known then.
        assert agents == 1 or (user in killed and agents == 0 and told[user][-1] != "completed")
