"""A Bot API on loopback: the few methods that the bots call."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from aiohttp import web

from tests.recipes.chat import RETRY_SECONDS, Chat

_GROUP, _SUPERGROUP = 50, -1001
_LONGEST_SECONDS = 1.0  # of a request that waits for updates: a bot may end once it is answered
_BOT = {"id": 123, "is_bot": True, "first_name": "Bot", "username": "jobs_bot"}
_REFUSALS: dict[str, tuple[int, str, dict[str, int]]] = {
    "429": (429, "Too Many Requests: retry later", {"retry_after": RETRY_SECONDS}),
    "500": (500, "Internal Server Error", {}),
    "moved": (400, "Bad Request: group chat was upgraded to a supergroup chat", {"migrate_to_chat_id": _SUPERGROUP}),
    "blocked": (403, "Forbidden: bot was blocked by the user", {}),
}


class TelegramApi(Chat):
    """A Telegram with one group. Updates are delivered until a request for later ones confirms them.

    Attributes:
        sent: How many messages the bot has sent to each chat.
    """

    name = str(_GROUP)

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[int] = Counter()
        self._updates: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/bot{token}/{method}", self._answer)]

    def settings(self) -> dict[str, str]:
        return {"TELEGRAM_TOKEN": "123:abc", "TELEGRAM_API": self.address}

    async def say(self, user: int, command: str, text: str = "") -> str:
        return await self.write(user, f"/{command} {text}".rstrip(" "))

    async def write(self, user: int, text: str) -> str:
        """Have a user write a text that begins with a command, and return its id."""
        sender = {"id": user, "is_bot": False, "first_name": "User"}
        message = {**self._message(next(self.numbers)), "from": sender, "text": text}
        message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split(maxsplit=1)[0])}]
        self._last = message
        await self.deliver_again()
        return str(message["message_id"])

    async def deliver_again(self) -> None:
        async with self.changed:
            self._updates.append({"update_id": next(self.numbers), "message": self._last})
            self.changed.notify_all()

    async def edit(self, text: str) -> None:
        """Have a user edit the last command."""
        async with self.changed:
            update = {"update_id": next(self.numbers), "edited_message": {**self._last, "edit_date": 2, "text": text}}
            self._updates.append(update)
            self.changed.notify_all()

    async def _answer(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = dict(await request.post())
        method = request.match_info["method"]
        if method == "getMe":
            return _result(_BOT)
        if method == "getUpdates":
            return _result(await self._get_updates(int(form.get("offset", 0)), float(form.get("timeout", 0))))
        if method != "sendMessage":
            return _result(True)
        refusal = await self.receive(form["text"])
        if refusal is None:
            self.sent[int(form["chat_id"])] += 1
            return _result({**self._message(next(self.numbers)), "text": form["text"]})
        code, text, parameters = _REFUSALS[refusal]
        document = {"ok": False, "error_code": code, "description": text, "parameters": parameters}
        return web.json_response(document, status=code)

    async def _get_updates(self, offset: int, seconds: float) -> list[dict[str, Any]]:
        for update in [update for update in self._updates if update["update_id"] < offset]:
            self._updates.remove(update)
            if "message" in update:
                await self.on_confirm(str(update["message"]["message_id"]))
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_SECONDS)), self.changed:
                await self.changed.wait_for(lambda: self._updates)
        return self._updates

    def _message(self, number: int) -> dict[str, Any]:
        return {"message_id": number, "date": 1, "chat": {"id": _GROUP, "type": "group", "title": "Group"}}


def _result(value: object) -> web.Response:
    return web.json_response({"ok": True, "result": value})
