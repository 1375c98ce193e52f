"""A lifespan around an application that has none: when its block is entered and left, and what a server is told."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentjobs_async import JournalError
from agentjobs_async.web import Lifespan
from tests.web.asgi import Message, exchanged

STARTUP: Message = {"type": "lifespan.startup"}
SHUTDOWN: Message = {"type": "lifespan.shutdown"}
LIFE: Mapping[str, Any] = {"type": "lifespan", "state": {}}


async def shown(scope: Any, _receive: object, send: Any) -> None:
    """Send the state of the scope."""
    await send({"type": "state", "state": scope["state"]})


async def test_state() -> None:
    """What the block yields is in the state of each request, beside the server's own, also where that has none."""
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict[str, Any]]:
        steps.append("entered")
        yield {"jobs": 7}
        steps.append("left")

    app = Lifespan(shown, lifespan)
    assert steps == []
    started, ended = await exchanged(app, STARTUP, SHUTDOWN, scope=LIFE)
    assert (started["type"], ended["type"]) == ("lifespan.startup.complete", "lifespan.shutdown.complete")
    assert steps == ["entered", "left"]
    (bare,), (full,) = await exchanged(app), await exchanged(app, scope={"state": {"of": "the server"}})
    assert (bare["state"], full["state"]) == ({"jobs": 7}, {"jobs": 7, "of": "the server"})


async def test_block_is_open_while_requests_are_served() -> None:
    """The server is told to begin once the block was entered, and to end once it was left."""
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        steps.append("entered")
        yield
        steps.append("left")

    messages = [SHUTDOWN, STARTUP]

    async def receive() -> Message:
        steps.append("received")
        return messages.pop()

    async def send(message: Message) -> None:
        steps.append(message["type"])

    await Lifespan(shown, lifespan)(dict(LIFE), receive, send)
    assert steps == [
        *("received", "entered", "lifespan.startup.complete"),
        *("received", "left", "lifespan.shutdown.complete"),
    ]


@pytest.mark.parametrize("phase", ["startup", "shutdown"])
async def test_errors(phase: str) -> None:
    """The server is told an error of ours as one line, and any other with its traceback; it does not start then."""
    errors: list[Exception] = [LookupError("a bug"), JournalError("another process owns it", "locked")]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if phase == "startup":
            raise errors.pop()
        yield
        raise errors.pop()

    for words in ("JournalError: another process owns it", "Traceback"):
        *_, failed = await exchanged(Lifespan(shown, lifespan), STARTUP, SHUTDOWN, scope=LIFE)
        assert failed["type"] == f"lifespan.{phase}.failed"
        assert failed["message"].startswith(words)
        assert ("\n" in failed["message"]) == (words == "Traceback")
