import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tenacity import wait_fixed

from agentjobs_async import PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.chat import ChatJobs, Place
from agentjobs_async.durable import DurableJobs, RetryLater, Undeliverable
from agentjobs_async.testing import Emulator, JobScript
from tests.chat.said import Said
from tests.docs.samples import run_page
from tests.until import until

PLACE = Place(50, 7, 103)


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for the journal."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_folder")
async def test_bot(emulator: Emulator) -> None:
    """The bot starts one job for a message that comes twice, and tells its user of the end after a restart."""
    said = Said()
    run = run_page("bots")["bot"]

    async def messages(count: int) -> AsyncIterator[tuple[Place, str]]:
        for _ in range(count):
            yield PLACE, "/job@my_bot Hello"
        await said.until("103 is noted" if count else "103 completed: ")

    emulator.script(JobScript(duration=float("inf")))
    await run(messages(2), said.send)
    await emulator.inject("document status=completed forever on=get")
    await run(messages(0), said.send)
    assert emulator.agents_started == {"Hello": 1}
    assert [text.split(":")[0] for text in said.words][-1] == "103 completed"


@pytest.mark.usefixtures("_folder")
async def test_settings(emulator: Emulator) -> None:
    """The samples acknowledge with an answer, limit users, name operators, and speak German."""
    names, said = run_page("bots"), Said()
    emulator.script(JobScript(duration=float("inf")))
    async with names["limited"](said.send) as jobs:
        answers = [
            await names["acknowledge"](jobs, Place(50, 7, number), "job", f"Fix page {number}") for number in range(4)
        ]
        assert (await jobs.answer(Place(1, 42, 1), "settle")).endswith("Unknown: none")
    assert answers[-1].startswith("You have 3 jobs under way")
    async with ChatJobs(said.send, journal="other.db", texts=names["German"]()) as jobs:
        assert (await jobs.answer(PLACE, "job", "Hallo")).startswith("103 ist notiert.")
        await emulator.inject("document status=completed prLink=https://code.example/1 forever on=get")
        await said.until("103: completed https://code.example/1")


@pytest.mark.parametrize(("status", "expected"), [(200, None), (429, RetryLater), (403, Undeliverable)])
async def test_send(status: int, expected: type[Exception] | None) -> None:
    """The sample says what the chat's answer means for the text."""

    async def write(*_: object) -> int:
        return status

    with pytest.raises(expected) if expected else nullcontext():
        await run_page("bots")["send_by"](write, PLACE, "Hello")


@pytest.mark.usefixtures("_folder")
async def test_end(emulator: Emulator) -> None:
    """The sample ends at a signal, however often that comes, and tells the end of what it was told to do later."""
    said = Said()
    async with ChatJobs(said.send, journal="bot.db") as jobs:
        await jobs.answer(PLACE, "job", "Hello")
    serving = asyncio.create_task(run_page("bots")["serve"](said.send))
    await said.until("103 completed: ")
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    await serving
    assert emulator.agents_started == {"Hello": 1}


@pytest.mark.usefixtures("_folder")
async def test_submit(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample plans a job and leaves; the next start tells of its end."""
    names = run_page("bots")
    async with emulator.session(project_id="docs") as session, Journal.open("bot.db") as journal:
        entry = await names["submit"](session, journal)
        assert entry.key == "message-1"
        async with DurableJobs(session, journal, on_end=names["on_end"]):
            await until(lambda: "7 completed" in capsys.readouterr().out)


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
