"""A Bot API on loopback: the few methods that the bots call, with what they have written to each chat."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

TOKEN = "123:abc"
ENDS = ("completed: https://", "This did not work")
_LONGEST_SECONDS = 1.0  # of a request that waits for updates: a bot may end once it is answered
_BOT = {"id": 123, "is_bot": True, "first_name": "Bot", "username": "jobs_bot"}


class TelegramApi:
    """The server's state: updates not confirmed yet, and the texts of each message that the bot has sent."""

    def __init__(self) -> None:
        self.address = ""
        self.texts: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        self.refusals = 0
        self._updates: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._changed = asyncio.Condition()

    async def say(self, chat: int, text: str) -> None:
        """Have a user write to the bot."""
        sender = {"id": chat, "is_bot": False, "first_name": "User"}
        message = {**self._message(chat, next(self._numbers)), "from": sender, "text": text}
        message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split(maxsplit=1)[0])}]
        await self._change(self._updates.append, {"update_id": next(self._numbers), "message": message})

    async def until(self, messages: int, start: str, chat: int | None = None) -> None:
        """Wait until the newest text of so many messages, of one chat or all, starts like this."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count(start, chat) >= messages)

    async def until_ended(self, chat: int) -> None:
        """Wait until a chat was told the end of its job."""
        async with self._changed:
            await self._changed.wait_for(lambda: any(self._count(start, chat) for start in ENDS))

    def _count(self, start: str, chat: int | None) -> int:
        newest = [texts[-1] for (place, _), texts in self.texts.items() if chat in {place, None}]
        return sum(text.startswith(start) for text in newest)

    async def answer(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = dict(await request.post())
        method = request.match_info["method"]
        place = (int(form.get("chat_id", 0)), int(form.get("message_id", 0)))
        if method == "getMe":
            return _result(_BOT)
        if method == "getUpdates":
            return _result(await self._get_updates(int(form.get("offset", 0)), float(form.get("timeout", 0))))
        if method == "sendMessage":
            place = (place[0], next(self._numbers))
        elif method != "editMessageText":
            return _result(True)
        elif self.refusals > 0:
            self.refusals -= 1
            return _error(429, "Too Many Requests: retry after 1", {"retry_after": 1})
        elif self.texts[place][-1:] == [form["text"]]:
            return _error(400, "Bad Request: message is not modified")
        await self._change(self.texts[place].append, form["text"])
        return _result({**self._message(*place), "text": form["text"]})

    async def _get_updates(self, offset: int, seconds: float) -> list[dict[str, Any]]:
        self._updates = [update for update in self._updates if update["update_id"] >= offset]
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_SECONDS)), self._changed:
                await self._changed.wait_for(lambda: self._updates)
        return self._updates

    async def _change(self, append: Any, value: Any) -> None:
        async with self._changed:
            append(value)
            self._changed.notify_all()

    def _message(self, chat: int, number: int) -> dict[str, Any]:
        return {"message_id": number, "date": 1, "chat": {"id": chat, "type": "private", "first_name": "User"}}


def _result(value: object) -> web.Response:
    return web.json_response({"ok": True, "result": value})


def _error(code: int, text: str, parameters: dict[str, int] | None = None) -> web.Response:
    document = {"ok": False, "error_code": code, "description": text, "parameters": parameters or {}}
    return web.json_response(document, status=code)


@asynccontextmanager
async def telegram() -> AsyncIterator[TelegramApi]:
    """Return a block in which a Bot API serves on a free port of loopback."""
    api = TelegramApi()
    app = web.Application()
    app.router.add_route("*", "/bot{token}/{method}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
