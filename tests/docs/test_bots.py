import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page


async def test_durable_bot(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bot starts one job for a message that comes twice, and tells its user of the end after a restart."""
    monkeypatch.chdir(tmp_path)
    names = run_page("bots")
    sent: list[tuple[int, str]] = []
    told = asyncio.Event()

    async def send(chat: int, text: str) -> None:
        await asyncio.sleep(0)
        sent.append((chat, text))
        told.set()

    async def messages(count: int) -> AsyncIterator[tuple[str, int, str]]:
        for _ in range(count):
            yield "message-1", 7, "Hello"
        if not count:
            await told.wait()

    emulator.script(JobScript(duration=float("inf")))
    await names["bot"](messages(2), send)
    assert sent == []
    await emulator.inject("document status=completed forever on=get")
    await names["bot"](messages(0), send)
    assert [(chat, text.partition(" ")[0]) for chat, text in sent] == [(7, "completed:")]
    assert emulator.agents_started == {"Hello": 1}


@pytest.mark.parametrize(("fault", "expected"), [("500", "I can't tell whether"), ("422", "no result: rejected")])
async def test_no_job(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, expected: str
) -> None:
    """The bot tells its user that an outcome is unknown, or that the create was refused."""
    monkeypatch.chdir(tmp_path)
    await emulator.inject(f"{fault} on=create")
    sent: list[str] = []
    ended = asyncio.Event()

    async def send(_chat: int, text: str) -> None:
        await asyncio.sleep(0)
        sent.append(text)
        ended.set()

    async def messages() -> AsyncIterator[tuple[str, int, str]]:
        yield "message-1", 7, "Hello"
        await ended.wait()

    await run_page("bots")["bot"](messages(), send)
    assert [text[: len(expected)] for text in sent] == [expected]
