"""A Discord on loopback: its gateway and the few requests that the bot makes, with the texts of each message."""

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

USER = {"id": "7", "username": "alice", "discriminator": "0", "avatar": None, "global_name": None}
_BOT = {"id": "1", "username": "jobs", "discriminator": "0", "avatar": None, "bot": True}
_CHANNEL = {"id": "50", "type": 1, "recipients": [USER], "last_message_id": None}
_NAMED = {"id": "1", "name": "jobs", "description": "", "icon": None, "flags": 0, "verify_key": "", "owner": USER}
_APPLICATION = {**_NAMED, "bot_public": False, "bot_require_code_grant": False}
_HELLO, _IDENTIFY, _HEARTBEAT, _ACKNOWLEDGED = 10, 2, 1, 11


class DiscordApi:
    """The server's state.

    Attributes:
        address: Where it serves.
        commands: The names of the commands that the bot has registered.
        texts: The texts of each message, by its number.
        is_expired: Whether the 15 min are over in which an answer to a command can be edited.
    """

    def __init__(self) -> None:
        self.address = ""
        self.commands: list[str] = []
        self.texts: defaultdict[int, list[str]] = defaultdict(list)
        self.is_expired = False
        self._gateways: set[web.WebSocketResponse] = set()
        self._numbers = itertools.count(100)
        self._changed = asyncio.Condition()

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": _HELLO, "d": {"heartbeat_interval": 3_600_000}})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                operation = message.json()["op"]
                if operation == _HEARTBEAT:
                    await socket.send_json({"op": _ACKNOWLEDGED})
                elif operation == _IDENTIFY:
                    ready = {"user": _BOT, "session_id": "s", "resume_gateway_url": self.address, "guilds": []}
                    await socket.send_json({"op": 0, "t": "READY", "s": 1, "d": {**ready, "application": _APPLICATION}})
                    async with self._changed:
                        self._gateways = {socket}
                        self._changed.notify_all()
        self._gateways.discard(socket)
        return socket

    async def command(self, prompt: str) -> None:
        """Have a user enter the command, once the bot is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._gateways)
        option = {"name": "prompt", "type": 3, "value": prompt}
        data = {"id": "9", "name": "job", "type": 1, "options": [option]}
        place = {"user": USER, "channel": _CHANNEL, "channel_id": _CHANNEL["id"], "attachment_size_limit": 0}
        number = {"id": str(next(self._numbers)), "application_id": "1", "type": 2, "token": "t", "version": 1}
        for socket in self._gateways:
            await socket.send_json({"op": 0, "t": "INTERACTION_CREATE", "s": 2, "d": {**number, **place, "data": data}})

    async def until(self, messages: int, start: str) -> None:
        """Wait until the newest text of so many messages starts like this."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: sum(texts[-1].startswith(start) for texts in self.texts.values()) >= messages
            )

    async def me(self, _request: web.Request) -> web.Response:
        return _answer(_BOT)

    async def application(self, _request: web.Request) -> web.Response:
        return _answer(_APPLICATION)

    async def register(self, request: web.Request) -> web.Response:
        self.commands = [command["name"] for command in await request.json()]
        return _answer([])

    async def defer(self, request: web.Request) -> web.Response:
        await self._say(next(self._numbers), "")
        return _answer({"interaction": {"id": request.match_info["interaction"]}})

    async def original(self, _request: web.Request) -> web.Response:
        return self._message(max(self.texts))

    async def edit(self, request: web.Request) -> web.Response:
        if self.is_expired:
            return _answer({"code": 50027, "message": "Invalid Webhook Token"}, status=401)
        return await self._say(int(request.match_info["message"]), (await request.json())["content"])

    async def send(self, request: web.Request) -> web.Response:
        return await self._say(next(self._numbers), (await request.json())["content"])

    async def _say(self, number: int, text: str) -> web.Response:
        async with self._changed:
            self.texts[number].append(text)
            self._changed.notify_all()
        return self._message(number)

    def _message(self, number: int) -> web.Response:
        lists: dict[str, Any] = {name: [] for name in ("attachments", "embeds", "mentions", "mention_roles")}
        plain = {"type": 0, "pinned": False, "mention_everyone": False, "tts": False, "edited_timestamp": None}
        message = {"id": str(number), "content": self.texts[number][-1], "channel_id": _CHANNEL["id"], "author": _BOT}
        return _answer({**message, **lists, **plain})


def _answer(document: object, status: int = 200) -> web.Response:
    """Return a response whose type names no charset, as the bot expects."""
    return web.Response(body=json.dumps(document).encode(), status=status, content_type="application/json")


@asynccontextmanager
async def discord() -> AsyncIterator[DiscordApi]:
    """Return a block in which a Discord serves on a free port of loopback."""
    api = DiscordApi()
    app = web.Application()
    app.router.add_get("/", api.gateway)
    app.router.add_get("/users/@me", api.me)
    app.router.add_get("/oauth2/applications/@me", api.application)
    app.router.add_put("/applications/1/commands", api.register)
    app.router.add_post("/interactions/{interaction}/t/callback", api.defer)
    app.router.add_get("/webhooks/1/t/messages/@original", api.original)
    app.router.add_patch("/webhooks/1/t/messages/{message}", api.edit)
    app.router.add_post("/channels/50/messages", api.send)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
