import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
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
    assert [(chat, text.partition(" ")[0]) for chat, text in sent] == [(7, "done:")]
    assert emulator.agents_started == {"Hello": 1}


async def test_bot_that_shows_changes(emulator: Emulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bot lists what is under way, and edits the message of a job at work."""
    names = run_page("bots")
    edited: list[tuple[int, int, str]] = []
    stop = asyncio.Event()

    async def edit(chat: int, message: int, text: str) -> None:
        await asyncio.sleep(0)
        edited.append((chat, message, text))
        stop.set()

    emulator.script(JobScript(duration=60))
    async with emulator.session(project_id="docs") as session, Journal.open(tmp_path / "bot.db") as journal:
        async with DurableJobs(session, journal) as jobs:
            await jobs.submit("message-1", "Hello", context={"chat": 7, "message": 70})
        await names["show_changes"](session, journal, edit, stop)
    assert capsys.readouterr().out == "['message-1']\n"
    assert edited == [(7, 70, "the agent is active")]


async def test_bot(emulator: Emulator) -> None:
    """The bot tells its user the token, and later the end, after a restart too."""
    names = run_page("bots")
    replies: list[str] = []

    async def reply(text: str) -> None:
        replies.append(text)
        await asyncio.sleep(0)

    async with emulator.session(project_id="docs") as session:
        await names["answer"](session, "Hello", reply)
    assert replies[1].startswith("completed: http")
    async with emulator.session() as session:
        await names["after_restart"](session, replies[0].removeprefix("started as "), reply)
    assert replies[2] == replies[1]


async def test_bot_whose_create_fails(emulator: Emulator) -> None:
    """The bot tells its user what went wrong."""
    replies: list[str] = []

    async def reply(text: str) -> None:
        replies.append(text)
        await asyncio.sleep(0)

    async with emulator.session(project_id="docs") as session:
        await run_page("bots")["answer"](session, " ", reply)
    assert [text.startswith("that did not work: ") for text in replies] == [True]
