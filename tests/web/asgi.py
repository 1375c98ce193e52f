"""A client of ASGI applications, of whose messages each is the test's own."""

import asyncio
from collections.abc import Mapping
from typing import Any

from agentjobs_async.web._asgi import Application

Message = dict[str, Any]


async def exchanged(app: Application, *messages: Message, scope: Mapping[str, Any] | None = None) -> list[Message]:
    """Return what an application sends to a client that sends some messages, and then nothing any more."""
    left, sent = list(messages), []

    async def receive() -> Message:
        return left.pop(0) if left else await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    async with asyncio.timeout(60):
        await app({"type": "http", "headers": [], **(scope or {})}, receive, send)
    return sent
