"""Answers that are sent by the bot, for which no command waits."""

import asyncio
from asyncio import CancelledError
from collections.abc import Callable

import pytest

from agentjobs_async.chat import ChatJobs, Place, Texts
from agentjobs_async.durable import RetryLater, Undeliverable
from agentjobs_async.testing import Emulator
from tests.chat.said import Said
from tests.durable.listener import complete
from tests.until import until

Bot = Callable[..., ChatJobs]

PLACE, OTHER = Place(50, 7, 1), Place(51, 17, 2)
NONE_LISTED = Texts().none_listed()


@pytest.fixture
def location(path: object) -> str:
    """A file: where the journal is makes no difference to what is sent."""
    return str(path)


async def test_reply(bot: Bot, said: Said) -> None:
    """An answer is sent to where its command was written; the job is planned before that."""
    said.held["is noted"] = asyncio.Event()
    async with bot() as chat:
        await chat.handle(PLACE, "job", "long")
        assert said.texts == []
        assert await chat.jobs.get("7/50/1") is not None
        said.held["is noted"].set()
        await said.until("1 is noted")
    assert said.texts == [(PLACE, "1 is noted, and its end will be told.")]


@pytest.mark.parametrize("failure", [ConnectionError("500"), Undeliverable("blocked"), CancelledError("closed")])
async def test_lost_replies(
    bot: Bot, emulator: Emulator, said: Said, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    """An answer that can't be sent is logged and lost; its job is started once, and its end told."""
    said.failures["is noted"] += [failure]
    async with bot() as chat:
        await chat.handle(PLACE, "job", "long")
        await chat.handle(PLACE, "job", "long")
        await complete(emulator)
        await said.until("1 completed: ")
    assert emulator.agents_started == {"long": 1}
    assert f"an answer to user 7 in chat 50 is lost: {failure}" in caplog.text


async def test_plain_send(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A function that is not async sends each text once: what it returns is no reason to send the text again."""
    texts: list[str] = []
    async with bot(send=lambda _, text: texts.append(text)) as chat:
        await chat.handle(PLACE, "job", "long")
        await complete(emulator)
        await until(lambda: len(texts) == 2)
    async with bot() as chat:  # which tells what was not told
        await chat.handle(OTHER, "jobs")
        await said.until(NONE_LISTED)
    assert [texts[0][:10], texts[1][:12], said.words] == ["1 is noted", "1 completed:", [NONE_LISTED]]


async def test_slow_replies(bot: Bot, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat that takes no answer, or asks to wait, holds up no other."""
    monkeypatch.setattr("agentjobs_async.durable.delivery._SHORTEST_SECONDS", 0.0)
    said.held["1 is noted"] = asyncio.Event()
    said.failures["2 is noted"] += [RetryLater(0.2), RetryLater(0.1)]
    async with bot() as chat:
        await chat.handle(PLACE, "job", "long")
        await chat.handle(OTHER, "job", "long")
        await said.until("2 is noted")
        assert [where for where, _ in said.texts] == [OTHER]
        said.held["1 is noted"].set()
    first, second, third = said.times["2 is noted, and its end will be told."]
    assert (second - first >= 0.2, third - second >= 0.1) == (True, True)
    assert [where for where, _ in said.texts] == [OTHER, PLACE]


async def test_leaving(
    bot: Bot, emulator: Emulator, said: Said, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Leaving waits for answers under way, for a bounded time, and logs those left; their jobs continue."""
    monkeypatch.setattr("agentjobs_async.chat._replies._CLOSING_SECONDS", 0.05)
    said.held["is noted"] = asyncio.Event()  # never set
    async with bot() as chat:
        await chat.handle(PLACE, "job", "long")
    assert said.texts == []
    assert "an answer to user 7 in chat 50 may be lost: the bot is ending" in caplog.text
    await complete(emulator)
    async with bot():
        await said.until("1 completed: ")
    assert emulator.agents_started == {"long": 1}


async def test_cancellation(bot: Bot, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation waits for no answer, and leaves no task."""
    monkeypatch.setattr("agentjobs_async.chat._replies._CLOSING_SECONDS", 1e6)
    said.held["is noted"] = asyncio.Event()  # never set
    handled = asyncio.Event()

    async def run() -> None:
        async with bot() as chat:
            await chat.handle(PLACE, "job", "long")
            handled.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await handled.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_answers_while_the_block_is_left(bot: Bot, said: Said) -> None:
    """Commands that are done while the block is left are answered, unless that takes too long; none is left behind."""
    said.held["1 is noted"] = asyncio.Event()
    said.held[NONE_LISTED] = asyncio.Event()
    async with bot() as chat:
        await chat.handle(PLACE, "job", "long")

        async def handle_late() -> None:
            await chat.handle(OTHER, "jobs")
            said.held["1 is noted"].set()
            await said.until("1 is noted")
            said.held[NONE_LISTED].set()

        late = asyncio.create_task(handle_late())
    await late
    assert said.words == ["1 is noted, and its end will be told.", NONE_LISTED]


async def test_answers_after_the_block(bot: Bot, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    """A command that comes once the block was left is not answered, and leaves no task: the chat may be closed."""
    async with bot() as chat:
        pass
    said.held["restarting"] = asyncio.Event()  # never set
    await chat.handle(PLACE, "job", "long")
    await asyncio.sleep(0)
    assert said.times == {}
    assert "an answer to user 7 in chat 50 is lost: the bot is ending" in caplog.text
