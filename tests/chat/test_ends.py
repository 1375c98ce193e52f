"""What is told at the end of a job, and that it is told until it was delivered."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from agentjobs_async.chat import ChatJobs, Place
from agentjobs_async.durable import RetryLater, Undeliverable
from agentjobs_async.testing import Emulator, JobScript
from tests.chat.said import Said
from tests.durable.listener import complete
from tests.until import until

Bot = Callable[..., ChatJobs]

PLACE = Place("C1", "U7", "1.5", thread=3)


async def test_place(bot: Bot, emulator: Emulator, said: Said) -> None:
    """An end is told where its job was asked for, thread included, by a process that did not see the command."""
    async with bot() as chat:
        await chat.answer(PLACE, "job", "long")
        await until(lambda: emulator.agents_started)
    await complete(emulator)
    async with bot():
        await said.until("1.5 completed: ")
    assert [where for where, _ in said.texts] == [PLACE]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [("completed", "1.5 completed: https://"), ("failed", "1.5 failed: no change"), ("archived", "1.5 archived: ")],
)
async def test_ended_jobs(bot: Bot, emulator: Emulator, said: Said, outcome: str, expected: str) -> None:
    """A job that has ended is told by its status and its pull request."""
    emulator.script(JobScript(duration=0.2, outcome=outcome), prompt="Fix it")  # type: ignore[arg-type]  # one of these
    async with bot() as chat:
        await chat.answer(PLACE, "job", "Fix it")
        await said.until(expected)
    assert len(said.words) == 1


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("422 on=create", "1.5 the service refused this; nothing was started"),
        ("410 forever on=get", "1.5 the job is gone, and I can't tell how it ended"),
        ("500 on=create", "1.5 I can't tell whether this was started; please look before you ask again."),
    ],
)
async def test_other_ends(bot: Bot, emulator: Emulator, said: Said, fault: str, expected: str) -> None:
    """What gave no job that has ended is told as what it is, and no word of the service is in it."""
    await emulator.inject(fault, prompt="Fix it")
    async with bot() as chat:
        await chat.answer(PLACE, "job", "Fix it")
        await said.until(expected)
        again = await chat.answer(PLACE, "job", "Fix it")
    assert said.words == [again]
    assert not any(word in text for text in said.words for word in ("HTTP", emulator.base_url, emulator.api_key))


async def test_held(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A job that can't be sent is said to wait, once, without a word of the service; later its end is told."""
    await emulator.inject("401 x3 on=create", prompt="long")
    async with bot() as chat:
        await chat.answer(PLACE, "job", "long")
        await said.until("1.5 waits to be sent: The agent service refused the request.")
        assert (await chat.answer(Place("C1", "U7", "1.6"), "job", "Fix it")) == "1.6 is noted, and waits."
        await chat.answer(PLACE, "cancel", "1.5")
        await said.until("1.5 was taken back; nothing was started")
    assert sum("1.5 waits" in text for text in said.words) == 1


async def test_after_a_restart(bot: Bot, emulator: Emulator, said: Said) -> None:
    """An end that could not be told is told by the next process, once."""
    said.failures["completed"] += [ConnectionError("the chat is down")] * 99
    async with bot() as chat:
        await chat.answer(PLACE, "job", "long")
        await complete(emulator)
        await said.until_refused(1)
    said.failures.clear()
    async with bot():
        await said.until("1.5 completed: ")
    async with bot() as chat:
        await chat.answer(Place("C1", "U7", "1.6"), "job", "long")
        await said.until("1.6 completed: ")
    assert [text.split()[0] for text in said.words] == ["1.5", "1.6"]


async def test_retry_later(bot: Bot, emulator: Emulator, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    """Where the chat asks to wait, the end is told after that time, never earlier, and no error is logged."""
    said.failures["completed"] += [RetryLater(1.2)]
    async with bot() as chat:
        await chat.answer(PLACE, "job", "long")
        with caplog.at_level(logging.WARNING):
            await complete(emulator)
            await said.until("1.5 completed: ")
    first, second = said.times[said.words[0]]
    assert second - first >= 1.2
    assert [record.message for record in caplog.records if record.name.startswith("agentjobs_async")] == []


async def test_undeliverable(bot: Bot, emulator: Emulator, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    """What can never be told is given up for good, and logged."""
    said.failures["1.5 completed"] += [Undeliverable("the user has blocked the bot")] * 99
    async with bot() as chat:
        await chat.answer(PLACE, "job", "long")
        await complete(emulator)
        await said.until_refused(1)
        await chat.answer(Place("C1", "U7", "1.6"), "job", "long")
        await said.until("1.6 completed: ")
    async with bot() as chat:
        await chat.answer(Place("C1", "U7", "1.7"), "job", "long")
        await said.until("1.7 completed: ")
    assert len(said.refused) == 1
    assert "the user has blocked the bot" in caplog.text


async def test_jobs_of_others(bot: Bot, emulator: Emulator, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    """The end of a job that was asked for in no chat is told to nobody, and logged."""
    async with bot() as chat:
        for number, context in enumerate([None, {"place": 7}, {"place": {"room": 1}}, {"place": {**_EMPTY}}]):
            await chat.jobs.submit(f"other-{number}", "long", context=context)
        await complete(emulator)
        await until(lambda: caplog.text.count("was not asked for in a chat") == 4)
        await chat.answer(PLACE, "job", "long")
        await said.until("1.5 completed: ")
    assert len(said.texts) == 1


_EMPTY = {"chat": "", "user": 1, "message": 1}


async def test_held_place(bot: Bot, emulator: Emulator, said: Said) -> None:
    """Leaving the block waits for an end that is being told."""
    said.held["completed"] = asyncio.Event()
    async with bot() as chat:
        await chat.answer(PLACE, "job", "long")
        await complete(emulator)
        await until(lambda: said.times)
        asyncio.get_running_loop().call_later(0.05, said.held["completed"].set)
    assert [text.split()[0] for text in said.words] == ["1.5"]
