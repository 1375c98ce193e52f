import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tenacity import wait_fixed

from agentjobs_async import PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page
from tests.until import until


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


async def test_cancel(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample takes back what is planned, unfollows what is at work, and says which; what is held is shown."""
    monkeypatch.chdir(tmp_path)
    names = run_page("bots")
    emulator.script(JobScript(duration=float("inf")), prompt="At work")
    await emulator.inject("429 retry-after=900 on=create", prompt="Wait")
    async with (
        emulator.session(project_id="docs") as session,
        Journal.open("bot.db") as journal,
        DurableJobs(session, journal, on_change=names["show_hold"]) as jobs,
    ):
        assert await names["cancel"](jobs, "none") == "It is not under way."
        await jobs.submit("active", "At work")
        await jobs.submit("planned", "Wait", wait_for_create=False)
        await until(lambda: "planned waits to be sent: " in capsys.readouterr().out)
        assert (await names["cancel"](jobs, "planned")).startswith("It is taken back")
        assert (await names["cancel"](jobs, "active")).startswith("It is at work")
        assert await jobs.active() == []
    assert emulator.agents_started == {"At work": 1}


async def test_webhook(emulator: Emulator, tmp_path: Path) -> None:
    """The sample has the job of a webhook polled, whose end is told then; that of another program changes nothing."""
    ended, rare = asyncio.Event(), PollPolicy(wait=wait_fixed(86_400))
    emulator.script(JobScript(duration=1e6), prompt="long")
    on_webhook = run_page("bots")["on_webhook"]
    async with (
        emulator.session(project_id="docs", policy=rare) as session,
        Journal.open(tmp_path / "bot.db") as journal,
        DurableJobs(session, journal, on_end=lambda *_: ended.set()) as jobs,
    ):
        await jobs.submit("k", "long")
        await until(lambda: session.stats().polls == 1)
        await emulator.inject("document status=completed forever on=get", prompt="long")
        await on_webhook(journal, jobs, "docs", "another")
        assert session.stats().polls == 1
        await on_webhook(journal, jobs, "docs", *emulator.jobs)
        await ended.wait()
