"""A Slack API on loopback: the methods that the app calls, with the texts of each message."""

import asyncio
import hashlib
import hmac
import itertools
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, web

SECRET = "the signing secret"


class SlackApi:
    """The server's state: the texts of each message, and how many updates are to be refused."""

    def __init__(self) -> None:
        self.address = ""
        self.texts: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.refusals = 0
        self._numbers = itertools.count(1)
        self._changed = asyncio.Condition()

    async def answer(self, request: web.Request) -> web.Response:
        method, fields = request.match_info["method"], await _fields(request)
        if method == "auth.test":
            return web.json_response(
                {"ok": True, "bot_id": "B1", "user_id": "U1", "team_id": "T1", "bot_user_id": "U1"}
            )
        if method == "chat.update" and self.refusals > 0:
            self.refusals -= 1
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": "1"})
        stamp = fields["ts"] if method == "chat.update" else f"1.{next(self._numbers)}"
        async with self._changed:
            self.texts[fields["channel"], stamp].append(fields["text"])
            self._changed.notify_all()
        return web.json_response({"ok": True, "ts": stamp, "channel": fields["channel"]})

    async def until(self, messages: int, start: str) -> None:
        """Wait until the newest text of so many messages starts like this."""
        async with self._changed:
            await self._changed.wait_for(lambda: sum(t[-1].startswith(start) for t in self.texts.values()) >= messages)


async def mention(app: str, text: str, *, secret: str = SECRET, stamp: str = "100.1") -> int:
    """Have a user mention the app; return the status of its answer."""
    event = {"type": "app_mention", "user": "U7", "channel": "C1", "ts": stamp, "text": f"<@U1> {text}"}
    envelope = {"type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": "Ev1", "event": event}
    body, now = json.dumps(envelope), str(int(time.time()))
    signature = "v0=" + hmac.new(secret.encode(), f"v0:{now}:{body}".encode(), hashlib.sha256).hexdigest()
    headers = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": signature, "Content-Type": "application/json"}
    async with ClientSession() as client, client.post(f"{app}/slack/events", data=body, headers=headers) as response:
        return response.status


async def _fields(request: web.Request) -> dict[str, Any]:
    return dict(await request.json() if request.content_type == "application/json" else await request.post())


@asynccontextmanager
async def slack() -> AsyncIterator[SlackApi]:
    """Return a block in which a Slack API serves on a free port of loopback."""
    api = SlackApi()
    app = web.Application()
    app.router.add_post("/api/{method}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.address = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
    try:
        yield api
    finally:
        await runner.cleanup()
