"""A Slack on loopback: the methods that the app calls, and the requests that Slack makes."""

import hashlib
import hmac
import json
import re
import time
from contextlib import suppress
from html import escape, unescape
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientError, ClientSession, web

from tests.recipes.chat import RETRY_SECONDS, Chat
from tests.recipes.processes import Process

SECRET = "the signing secret"
_CHANNEL = "C1"
_REFUSALS = {"429": (429, "ratelimited"), "500": (500, "internal_error"), "blocked": (200, "is_archived")}


class SlackApi(Chat):
    """A Slack with one channel. Events are delivered until the app acknowledges them."""

    name = _CHANNEL

    def __init__(self) -> None:
        super().__init__()
        self.app = ""
        self._pending: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/api/{method}", self._answer)]

    def settings(self) -> dict[str, str]:
        return {"SLACK_TOKEN": "xoxb-1", "SLACK_SECRET": SECRET, "SLACK_API": f"{self.address}/api/", "PORT": "0"}

    async def connect(self, process: Process) -> None:
        await process.read_address()
        self.app = process.address
        await self._deliver()

    async def say(self, user: int, command: str, text: str = "") -> str:
        if command == "job":
            return await self.mention(user, f"<@U1> {as_sent(text)}")
        form = {"command": f"/{command}", "text": text, "user_id": self.user(user), "channel_id": _CHANNEL}
        form |= {"team_id": "T1", "trigger_id": f"{next(self.numbers)}.1"}
        _, answer = await self.post(urlencode(form), "application/x-www-form-urlencoded")
        assert "<" not in answer  # else it may mention everyone
        await self.receive(unescape(answer))
        return ""

    async def mention(self, user: int, text: str) -> str:
        """Have a user mention the app with a text as Slack sends it, and return its id."""
        stamp = f"1.{next(self.numbers)}"
        self._last = {"type": "app_mention", "user": self.user(user), "channel": _CHANNEL, "ts": stamp, "text": text}
        await self.deliver_again()
        return stamp

    def user(self, number: int) -> str:
        return f"U{number}"

    async def deliver_again(self) -> None:
        self._pending.append(self._last)
        await self._deliver()

    async def post(self, body: str, content_type: str, secret: str = SECRET) -> tuple[int, str]:
        """Send the app a request of Slack's; return the status and the body of its answer."""
        now = str(int(time.time()))
        signature = "v0=" + hmac.new(secret.encode(), f"v0:{now}:{body}".encode(), hashlib.sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": signature, "Content-Type": content_type}
        async with (
            ClientSession() as client,
            client.post(f"{self.app}/slack/events", data=body, headers=headers) as response,
        ):
            return response.status, await response.text()

    async def _deliver(self) -> None:
        for event in list(self._pending):
            envelope = {"type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": "E", "event": event}
            with suppress(ClientError):
                status, _ = await self.post(json.dumps(envelope), "application/json")
                if status == web.HTTPOk.status_code:
                    self._pending.remove(event)
                    await self.on_confirm(event["ts"])

    async def _answer(self, request: web.Request) -> web.Response:
        if request.match_info["method"] == "auth.test":
            return web.json_response({"ok": True, "bot_id": "B1", "user_id": "U1", "team_id": "T1"})
        fields: dict[str, Any] = dict(
            await (request.json() if request.content_type == "application/json" else request.post())
        )
        assert fields["channel"] == _CHANNEL
        assert "<" not in fields["text"]  # as above
        refusal = await self.receive(unescape(fields["text"]))
        if refusal is None:
            return web.json_response({"ok": True, "ts": f"1.{next(self.numbers)}", "channel": _CHANNEL})
        status, error = _REFUSALS[refusal]
        return web.json_response(
            {"ok": False, "error": error}, status=status, headers={"Retry-After": f"{RETRY_SECONDS}"}
        )


def as_sent(text: str) -> str:
    """Return what Slack makes of the text of a user."""
    return re.sub(r"(?<!\S)(https?://[^\s<>]+)", r"<\1>", escape(text, quote=False))
