"""A Discord on loopback: its gateway, and the few requests that the bot makes."""

import json
from typing import Any

from aiohttp import WSMsgType, web

from tests.recipes.chat import RETRY_SECONDS, Chat

_BOT = {"id": "1", "username": "jobs", "discriminator": "0", "avatar": None, "bot": True}
_OWNER = {"id": "2", "username": "owner", "discriminator": "0", "avatar": None, "global_name": None}
_CHANNEL = {"id": "50", "type": 1, "recipients": [_OWNER], "last_message_id": None}
_NAMED = {"id": "1", "name": "jobs", "description": "", "icon": None, "flags": 0, "verify_key": "", "owner": _OWNER}
_APPLICATION = {**_NAMED, "bot_public": False, "bot_require_code_grant": False}
_HELLO, _IDENTIFY, _HEARTBEAT, _ACKNOWLEDGED = 10, 2, 1, 11
_COMMAND, _SUBMIT, _MODAL = 2, 5, 9  # types of interactions, and of an answer to one
_REFUSALS: dict[str, tuple[int, dict[str, object]]] = {
    "429": (429, {"message": "You are being rate limited.", "retry_after": RETRY_SECONDS, "global": False}),
    "500": (500, {"message": "Internal Server Error", "code": 0}),
    "blocked": (403, {"message": "Missing Access", "code": 50001}),
}


class DiscordApi(Chat):
    """A Discord with one channel.

    Attributes:
        commands: The names of the commands that the bot has registered.
        pinged: Whom the messages that the bot has sent may mention.
    """

    name = "50"

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []
        self.pinged: list[dict[str, Any]] = []
        self._gateways: set[web.WebSocketResponse] = set()
        self._boxes: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._command_of: dict[str, str] = {}
        self._last: dict[str, Any] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self._gateway),
            web.get("/users/@me", self._me),
            web.get("/oauth2/applications/@me", self._application),
            web.put("/applications/1/commands", self._register),
            web.post("/interactions/{interaction}/t/callback", self._callback),
            web.post("/channels/50/messages", self._send),
        ]

    def settings(self) -> dict[str, str]:
        return {"DISCORD_TOKEN": "abc"}

    async def say(self, user: int, command: str, text: str = "") -> str:
        names = {"settle": "text", "cancel": "job"}
        options = [{"name": names[command], "type": 3, "value": text}] if command in names else []
        number = await self._interact(
            user, _COMMAND, {"id": "9", "name": command, "type": 1, "options": options, "resolved": {}}
        )
        if command != "job":
            return ""
        await self.wait_for(lambda: number in self._boxes)
        box = self._boxes[number]
        field = {"type": 4, "custom_id": box["components"][0]["components"][0]["custom_id"], "value": text}
        rows = [{"type": 1, "components": [field]}]
        submitted = {"custom_id": box["custom_id"], "components": rows}
        await self._interact(user, _SUBMIT, submitted, command=number)
        return number

    async def deliver_again(self) -> None:
        await self.wait_for(lambda: self._gateways)
        for socket in self._gateways:
            await socket.send_json({"op": 0, "t": "INTERACTION_CREATE", "s": 2, "d": self._last})

    async def _interact(self, user: int, kind: int, data: dict[str, Any], command: str | None = None) -> str:
        """Deliver an interaction; return its id. `command` is that of the command whose box it submits."""
        number = str(next(self.numbers))
        self._command_of[number] = command or number
        sender = {"id": str(user), "username": "user", "discriminator": "0", "avatar": None, "global_name": None}
        origin = {"user": sender, "channel": _CHANNEL, "channel_id": _CHANNEL["id"], "attachment_size_limit": 0}
        head = {"id": number, "application_id": "1", "type": kind, "token": "t", "version": 1}
        self._last = self._asked[number] = {**head, **origin, "data": data}
        await self.deliver_again()
        return number

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
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
                    async with self.changed:
                        self._gateways = {socket}
                        self.changed.notify_all()
        self._gateways.discard(socket)
        return socket

    async def _me(self, _request: web.Request) -> web.Response:
        return _answer(_BOT)

    async def _application(self, _request: web.Request) -> web.Response:
        return _answer(_APPLICATION)

    async def _register(self, request: web.Request) -> web.Response:
        self.commands = [command["name"] for command in await request.json()]
        return _answer([])

    async def _callback(self, request: web.Request) -> web.Response:
        number, answer = request.match_info["interaction"], await request.json()
        asked = self._asked[number]
        if answer["type"] == _MODAL:
            async with self.changed:
                self._boxes[number] = answer["data"]
                self.changed.notify_all()
        else:
            if asked["type"] == _SUBMIT:
                await self.on_confirm(self._command_of[number])
            await self.receive(answer["data"]["content"])
        return _answer({"interaction": {"id": number}})

    async def _send(self, request: web.Request) -> web.Response:
        message = await request.json()
        refusal = await self.receive(message["content"])
        if refusal is not None:
            status, document = _REFUSALS[refusal]
            return _answer(document, status)
        self.pinged.append(message["allowed_mentions"])
        lists: dict[str, Any] = {name: [] for name in ("attachments", "embeds", "mentions", "mention_roles")}
        plain = {"type": 0, "pinned": False, "mention_everyone": False, "tts": False, "edited_timestamp": None}
        head = {"id": str(next(self.numbers)), "content": message["content"], "channel_id": _CHANNEL["id"]}
        return _answer({**head, "author": _BOT, **lists, **plain})


def _answer(document: object, status: int = 200) -> web.Response:
    """Return a response whose type names no charset, as the bot expects."""
    headers = {"Via": "1.1 google"}  # without it, a 429 is taken for one of Cloudflare's
    body = json.dumps(document).encode()
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")
