"""What the chat servers on loopback share: commands of users, what the bot has said, and what it is refused."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from tests.recipes.processes import Process
from tests.until import PATIENCE_SECONDS

RETRY_SECONDS: Final = 2


async def _nothing(_message: str) -> None:
    pass


class Chat:
    """A chat's server, with one chat in which all users are.

    Attributes:
        address: Where it serves.
        texts: What the bot has said there, in order.
        refusals: What messages with a text are refused with, one after the other: 429, 500 or blocked.
        refused: The messages that were refused.
        too_early: Those that came again before the time after a 429 was over.
        on_confirm: Awaited with the message of each command that the bot confirms to have received.
    """

    name: str
    """What the bot calls the chat."""

    def __init__(self) -> None:
        self.address = ""
        self.texts: list[str] = []
        self.refusals: defaultdict[str, list[str]] = defaultdict(list)
        self.refused: list[str] = []
        self.too_early: list[str] = []
        self.on_confirm: Callable[[str], Awaitable[None]] = _nothing
        self._due: dict[str, float] = {}
        self.numbers = itertools.count(100)
        self.changed = asyncio.Condition()

    def routes(self) -> list[web.RouteDef]:
        """Return what it answers."""
        raise NotImplementedError

    def settings(self) -> dict[str, str]:
        """Return what the bot needs in its environment."""
        raise NotImplementedError

    async def connect(self, process: Process) -> None:
        """Wait until the bot can be reached, where the server calls it, and deliver what it has not acknowledged."""

    async def say(self, user: int, command: str, text: str = "") -> str:
        """Have a user enter a command, and return the id of its message."""
        raise NotImplementedError

    def user(self, number: int) -> str:
        """Return what the bot calls a user."""
        return str(number)

    def key(self, user: int, message: str) -> str:
        """Return the key of the job that a user has asked for by a message."""
        return f"{self.user(user)}/{self.name}/{message}"

    async def deliver_again(self) -> None:
        """Deliver the last command once more."""
        raise NotImplementedError

    async def until(self, *texts: str) -> None:
        """Wait until the bot has said each of the texts, within messages of any length."""
        await self.wait_for(lambda: all(any(text in said for said in self.texts) for text in texts))

    async def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition of what has arrived is met."""
        async with asyncio.timeout(PATIENCE_SECONDS), self.changed:
            await self.changed.wait_for(condition)

    async def receive(self, text: str) -> str | None:
        """Receive a message of the bot; return what it is refused with instead."""
        now = asyncio.get_running_loop().time()
        if now < self._due.get(text, now):
            self.too_early.append(text)
        refusal = next((refusals.pop(0) for part, refusals in self.refusals.items() if part in text and refusals), None)
        if refusal == "429":
            self._due[text] = now + RETRY_SECONDS
        async with self.changed:
            (self.texts if refusal is None else self.refused).append(text)
            self.changed.notify_all()
        return refusal


@asynccontextmanager
async def serve(chat: Chat) -> AsyncIterator[Any]:
    """Return a block in which a chat's server serves on a free port of loopback."""
    app = web.Application()
    app.add_routes(chat.routes())
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    chat.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield chat
    finally:
        await runner.cleanup()
