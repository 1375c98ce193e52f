"""What the services share, in the test's own process."""

import asyncio
import runpy
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agentjobs_async import JobRef
from tests.extras import need_recipes
from tests.recipes.processes import RECIPES

pytestmark = pytest.mark.looptime

OLD, NEW = "an-old-secret-of-16-bytes", "a-new-secret-of-16-bytes"


def loaded(monkeypatch: pytest.MonkeyPatch, secrets: str) -> SimpleNamespace:
    """Return the names of the module, with some secrets."""
    need_recipes()
    monkeypatch.setenv("TOKEN_SECRETS", secrets)
    return SimpleNamespace(**runpy.run_path(str(RECIPES / "web_jobs.py")))


async def answer_to(app: Callable[..., Awaitable[None]], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an application sends to a client that sends some messages, and then nothing any more."""
    left, sent = list(messages), []

    async def receive() -> dict[str, Any]:
        return left.pop(0) if left else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(60):
        await app({"type": "http"}, receive, send)
    return sent


async def test_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body comes as it was sent, unless it is too large or too slow: a half one must not hold up a shutdown."""
    web_jobs = loaded(monkeypatch, NEW)

    async def app(
        _scope: object, receive: Callable[[], Awaitable[object]], send: Callable[..., Awaitable[None]]
    ) -> None:
        for _ in range(3):
            await send({"received": await receive()})

    limited = web_jobs.limited(app)
    pieces: list[dict[str, Any]] = [{"type": "http.request", "body": b"a" * 40_000, "more_body": True}]
    pieces += [{"type": "http.request", "body": b"b"}, {"type": "http.disconnect"}]
    assert [message["received"] for message in await answer_to(limited, *pieces)] == pieces
    begun = asyncio.get_running_loop().time()
    too_large, _ = await answer_to(limited, pieces[0], pieces[0])
    too_slow, _ = await answer_to(limited, pieces[0])
    assert asyncio.get_running_loop().time() - begun == pytest.approx(25)
    assert (too_large["status"], too_slow["status"]) == (413, 408)
    assert await answer_to(limited, pieces[0], {"type": "http.disconnect"}) == []


def test_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new secret signs, the old ones are accepted, and no token is another user's."""
    old, both, new = (loaded(monkeypatch, secrets) for secrets in (OLD, f"{OLD} {NEW}", NEW))

    def signed(module: SimpleNamespace) -> str:
        return str(module.TOKENS.dumps(["docs", "job_1"], salt="job of 'anna'"))

    job = JobRef("docs", "job_1")
    assert [module.ref_of("anna", signed(old)) for module in (old, both)] == [job, job]
    assert [module.ref_of("anna", signed(both)) for module in (both, new)] == [job, job]
    for module, user, token in ((new, "anna", signed(old)), (both, "ben", signed(both)), (both, "anna", "")):
        with pytest.raises(module.RequestError):
            module.ref_of(user, token)
