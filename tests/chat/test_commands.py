"""What each command does, and what it answers."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from agentjobs_async import AgentJobsSession, InvalidInputError
from agentjobs_async.batch import Journal, State
from agentjobs_async.chat import ChatJobs, Place, Texts
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.chat.conftest import OPERATOR
from tests.chat.said import Said
from tests.held import HeldEmulator
from tests.until import until

Bot = Callable[..., ChatJobs]

ANNA, BEN = 7, 17
CHAT = 50


def place(message: str | int = 103, user: str | int = ANNA, chat: str | int = CHAT) -> Place:
    """Return where a user has written a message."""
    return Place(chat, user, message)


async def test_job(bot: Bot, emulator: Emulator) -> None:
    """A job is planned before its command is answered, and its prompt is sent as it was written."""
    prompt = "  two\n\n lines & <b> äöü 🎉\t\n"
    async with bot() as chat:
        assert await chat.answer(place(), "job", prompt) == "103 is noted, and its end will be told."
        entry = await chat.jobs.get("7/50/103")
        assert entry is not None
        await until(lambda: emulator.agents_started)
    assert emulator.agents_started == {prompt: 1}


async def test_redelivery(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A command that is delivered again, at once, after a restart and after the end, starts one agent."""
    emulator.script(JobScript(duration=0.2), prompt="Fix it")
    async with bot() as chat:
        answers = await asyncio.gather(*(chat.answer(place(), "job", "Fix it") for _ in range(8)))
        await said.until("103 completed: ")
        late = await chat.answer(place(), "job", "Fix it")
    assert set(answers) <= {"103 is noted, and its end will be told.", late}  # the job may have ended by the last one
    async with bot() as chat:
        assert await chat.answer(place(), "job", "Fix it") == late
    assert late.startswith("103 completed: ")
    assert [text.startswith("103 completed: ") for text in said.words] == [True]
    assert emulator.agents_started == {"Fix it": 1}


async def test_other_prompts(bot: Bot) -> None:
    """A message that was edited starts no second agent, and a blank one none at all."""
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        edited = await chat.answer(place(), "job", "Fix that")
        blank = await chat.answer(place(104), "job", " \n")
        entries = await chat.jobs.active()
    assert edited == "103 was asked for before you edited it. Write a new message."
    assert blank == "What is to be done? /job PROMPT"
    assert [entry.key for entry in entries] == ["7/50/103"]


async def test_same_message_elsewhere(bot: Bot, emulator: Emulator) -> None:
    """Messages of the same id are different jobs in another chat, and of another user."""
    async with bot() as chat:
        for where in (place(), place(chat=51), place(user=BEN)):
            await chat.answer(where, "job", "Fix it")
        await until(lambda: emulator.agents_started["Fix it"] == 3)
        assert [entry.key for entry in await chat.jobs.active()] == ["7/50/103", "7/51/103", "17/50/103"]


async def test_limit(bot: Bot, emulator: Emulator) -> None:
    """A user has only so many jobs under way; what was asked for before is not refused, nor is another user."""
    async with bot(most_open=2) as chat:
        answers = [await chat.answer(place(number, chat=number), "job", "Fix it") for number in range(3)]
        again = await chat.answer(place(0, chat=0), "job", "Fix it")
        other = await chat.answer(place(user=BEN), "job", "Fix it")
        await until(lambda: emulator.agents_started["Fix it"] == 3)
        await chat.answer(place(chat=1), "cancel", "1")
    assert answers[2] == "You have 2 jobs under way, as many as you may. Ask again when one has ended: /jobs"
    assert [again[:10], other[:12]] == ["0 is noted", "103 is noted"]


async def test_list(bot: Bot, emulator: Emulator) -> None:
    """A user's last ten jobs of this chat are listed, and nothing of other chats and users."""
    emulator.script(JobScript(duration=0.2), prompt="Fix <it>\nnow")
    async with bot() as chat:
        assert await chat.answer(place(), "jobs") == Texts().none_listed()
        await chat.answer(place(99, chat=CHAT * 10), "job", "Private")
        await chat.answer(place(98, user=BEN), "job", "Of another")
        for number in range(12):
            await chat.answer(place(number), "job", f"Page {number} " + "long " * 99)
        await chat.answer(place(12), "job", "Fix <it>\nnow")
        await until(lambda: _state(chat, "7/50/12", State.COMPLETED))
        await until(lambda: _state(chat, "7/50/11", State.ACTIVE))
        lines = (await chat.answer(place(), "jobs")).splitlines()
    assert [line.split()[0] for line in lines] == [str(number) for number in range(3, 13)]
    assert lines[-1].startswith("12 completed https://")
    assert lines[-1].endswith(r"'Fix <it>\nnow'")
    assert lines[-2].startswith("11 active 'Page 11 long")
    assert all(len(line) <= 200 for line in lines)


async def _state(chat: ChatJobs, key: str, state: State) -> bool:
    entry = await chat.jobs.get(key)
    return entry is not None and entry.state is state


async def test_cancel_planned(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A job that waits is taken back, and never sent."""
    await emulator.inject("429 retry-after=900 on=create", prompt="Wait")
    async with bot() as chat:
        await chat.answer(place(), "job", "Wait")
        await said.until("103 waits to be sent: ")
        assert await chat.answer(place(104), "job", "Later") == "104 is noted, and waits."
        assert await chat.answer(place(), "cancel", " 103\n") == "103 is taken back."
        await said.until("103 was taken back; nothing was started")
        assert await chat.answer(place(), "cancel", "103") == "103 is not under way. Look at /jobs."
        assert (await chat.answer(place(), "jobs")).splitlines()[0] == "103 abandoned 'Wait'"
    assert emulator.agents_started == {}


async def test_cancels_at_once(bot: Bot, emulator: Emulator, said: Said) -> None:
    """Of two commands that take back a job at once, one does, and the other is not told that the job is being sent."""
    await emulator.inject("429 retry-after=900 on=create", prompt="Wait")
    async with bot() as chat:
        await chat.answer(place(), "job", "Wait")
        await said.until("103 waits to be sent: ")
        answers = await asyncio.gather(*(chat.answer(place(), "cancel", "103") for _ in range(3)))
    assert sorted(answers) == ["103 is not under way. Look at /jobs."] * 2 + ["103 is taken back."]


async def test_cancel_of_a_job_that_ends(
    bot: Bot, emulator: Emulator, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends while its user cancels it is not said to be at work: the answer says how it has ended."""
    set_context = DurableJobs.set_context

    async def set_late(jobs: DurableJobs, key: str, context: dict[str, object] | None) -> None:
        await emulator.inject("document status=completed forever on=get")
        await said.until("103 completed: ")  # too late for that end
        await set_context(jobs, key, context)

    monkeypatch.setattr(DurableJobs, "set_context", set_late)
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        await until(lambda: _state(chat, "7/50/103", State.ACTIVE))
        answers = [await chat.answer(place(), "cancel", "103") for _ in range(2)]
    assert answers == said.words * 2


async def test_redelivery_after_a_cancel(bot: Bot) -> None:
    """A command that is delivered again after its job was cancelled promises no end, since none will be told."""
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        await until(lambda: _state(chat, "7/50/103", State.ACTIVE))
        cancelled = await chat.answer(place(), "cancel", "103")
        assert await chat.answer(place(), "job", "Fix it") == cancelled
    assert cancelled.endswith("its end will not be told.")


async def test_cancel_active(bot: Bot, emulator: Emulator, said: Said) -> None:
    """The end of a job at work is told no more; its agent continues."""
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        await until(lambda: _state(chat, "7/50/103", State.ACTIVE))
        left = await chat.answer(place(), "cancel", "103")
        await chat.answer(place(104), "job", "Fix that")
        await emulator.inject("document status=completed forever on=get")
        await said.until("104 completed: ")
        await until(lambda: _state(chat, "7/50/103", State.COMPLETED))
    assert left == "103 is at work: its agent goes on, but its end will not be told."
    assert [text.split()[0] for text in said.words] == ["104"]
    assert emulator.agents_started == {"Fix it": 1, "Fix that": 1}


async def test_cancel_while_it_is_sent(said: Said, path: Path) -> None:
    """A job whose create is under way is left alone, and the user is told to ask again."""
    async with HeldEmulator(script=JobScript(duration=float("inf"))) as emulator:
        async with (
            emulator.session(project_id="docs") as session,
            ChatJobs(said.send, journal=path, session=session) as chat,
        ):
            await chat.answer(place(), "job", "Fix it")
            await emulator.arrived.wait()
            assert await chat.answer(place(), "cancel", "103") == "103 is being sent in this moment. Ask again."
            assert await _state(chat, "7/50/103", State.SENDING)
            emulator.release.set()
            await until(lambda: _state(chat, "7/50/103", State.ACTIVE))


async def test_cancelled_jobs_under_way(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A job whose user wants to hear no more counts as under way until its agent has ended, and no longer."""
    async with bot(most_open=1) as chat:
        await chat.answer(place(), "job", "Fix it")
        await until(lambda: _state(chat, "7/50/103", State.ACTIVE))
        await chat.answer(place(), "cancel", "103")
    async with bot(most_open=1) as chat:
        early = await chat.answer(place(104), "job", "Fix that")
        await emulator.inject("document status=completed forever on=get")
        await until(lambda: _state(chat, "7/50/103", State.COMPLETED))
        late = await chat.answer(place(104), "job", "Fix that")
        await said.until("104 completed: ")
    assert (early[:27], late[:12]) == ("You have 1 job under way, a", "104 is noted")
    assert [text.split()[0] for text in said.words] == ["104"]


async def test_cancel_in_a_shared_journal(bot: Bot, session: AgentJobsSession, location: str) -> None:
    """A job that another program has put under the same key of user and name is no job of the chat."""
    async with Journal.open(location) as journal, DurableJobs(session, journal) as jobs:
        await jobs.submit("7/50/103", "Fix it")
    async with bot() as chat:
        assert await chat.answer(place(), "cancel", "103") == "Which? Look at /jobs."
        assert await _state(chat, "7/50/103", State.ACTIVE)


async def test_settle_keys_with_spaces(bot: Bot, emulator: Emulator, said: Said) -> None:
    """An unknown job whose key has white space is settled by that key, as it is told."""
    await emulator.inject("500 on=create x2")
    async with bot() as chat:
        for message in ("my task", "job x again"):
            await chat.answer(place(message), "job", f"Fix {message}")
            await said.until(f"{message} I can't tell whether this was started")
        for message in ("my task", "job x again"):
            settled = await chat.answer(place(user=OPERATOR), "settle", f" 7/50/{message}  abandon\n")
            assert settled == f"7/50/{message} is settled, and its end will be told."
            await said.until(f"{message} an operator gave this up")


@pytest.mark.parametrize("job", ["103", "7/50/103", "50/103", "../7/103", "", "x" * 600, "\x00", "\ud800"])
async def test_cancel_of_others(bot: Bot, job: str) -> None:
    """Another user's job is refused as one that does not exist, however it is named."""
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        await until(lambda: _state(chat, "7/50/103", State.ACTIVE))
        assert await chat.answer(place(user=BEN), "cancel", job) == "Which? Look at /jobs."
        assert await chat.answer(place(chat=51), "cancel", job) == "Which? Look at /jobs."
        assert [entry.key for entry in await chat.jobs.active()] == ["7/50/103"]


async def test_cancel_unknown(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A job that may have been started is left to operators."""
    await emulator.inject("500 on=create")
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        await said.until("103 I can't tell whether this was started")
        assert await chat.answer(place(), "cancel", "103") == "103 may have been started: operators settle it."


SETTLEMENTS = [
    "7/50/103 again",
    "7/50/103 abandon",
    "7/50/103 job x",
    "7/50/103 job docs:x",
    "x",
    "",
    "\ud800 \x00 again",
]


@pytest.mark.parametrize("text", SETTLEMENTS)
async def test_settling_is_for_operators(bot: Bot, emulator: Emulator, said: Said, text: str) -> None:
    """Who is no operator is refused first: whatever is written, nothing is read, asked for or changed."""
    await emulator.inject("500 on=create")
    async with bot() as chat:
        await chat.answer(place(), "job", "Fix it")
        await said.until("103 I can't tell whether this was started")
        requests = len(emulator.requests)
        assert await chat.answer(place(), "settle", text) == "Only operators may do this."
        assert await _state(chat, "7/50/103", State.UNKNOWN)
        assert len(emulator.requests) == requests


async def test_settle(bot: Bot, session: AgentJobsSession, emulator: Emulator, said: Said) -> None:
    """An operator settles unknown jobs, by the keys that are told with them, in whatever chat."""
    keys = {"found": "7/50/1", "again": "7/50/2", "abandon": "7/50/3"}
    async with bot() as chat:
        for message, prompt in enumerate(keys, start=1):
            await emulator.inject("500 agent=no on=create", prompt=prompt)
            await chat.answer(place(message), "job", prompt)
            await said.until(f"{message} I can't tell whether this was started", f"/settle 7/50/{message} again")
        job = await session.create_job("By hand")
        operator = place(1, user=str(OPERATOR), chat="private")
        for text in (f"{keys['found']} job {job.id}", f" {keys['again']}\nagain ", f"{keys['abandon']} abandon"):
            settled = await chat.answer(operator, "settle", text)
            assert settled == f"{text.split()[0]} is settled, and its end will be told."
        await said.until("3 an operator gave this up; an agent may still be at work")
        await until(lambda: emulator.agents_started["again"] == 1)
        await emulator.inject("document status=completed forever on=get")
        await said.until("1 completed: ", "2 completed: ")
    assert {where.chat for where, _ in said.texts} == {CHAT}
    assert emulator.agents_started == {"By hand": 1, "again": 1}


async def test_settlement_that_is_delivered_again(bot: Bot, emulator: Emulator) -> None:
    """A message that sends a job again does so once, however often it is delivered; a new one does so once more."""
    await emulator.inject("500 agent=yes on=create x2", prompt="Lost")
    operator, other = place(1, user=OPERATOR, chat="x"), place(2, user=OPERATOR, chat="x")
    async with bot() as chat:
        await chat.answer(place(), "job", "Lost")
        await until(lambda: _state(chat, "7/50/103", State.UNKNOWN))
        assert (await chat.answer(operator, "settle", "7/50/103 again")).startswith("7/50/103 is settled")
        await until(lambda: emulator.agents_started["Lost"] == 2)
        await until(lambda: _state(chat, "7/50/103", State.UNKNOWN))
    async with bot() as chat:
        assert (await chat.answer(operator, "settle", "7/50/103 again")).endswith("Unknown: 7/50/103")
        assert await _state(chat, "7/50/103", State.UNKNOWN)
        assert (await chat.answer(other, "settle", "7/50/103 again")).startswith("7/50/103 is settled")
        await until(lambda: _state(chat, "7/50/103", State.ACTIVE))
        assert (await chat.answer(operator, "settle", "7/50/103 again")).endswith("Unknown: none")
    assert emulator.agents_started == {"Lost": 3}


async def test_settle_without_sense(bot: Bot, emulator: Emulator, said: Said) -> None:
    """An operator who writes what can't be done is told what can; a wrong id is refused with all that is known."""
    await emulator.inject("500 agent=no on=create", prompt="Lost")
    operator = place(1, user=OPERATOR)
    async with bot() as chat:
        assert (await chat.answer(operator, "settle", "")).endswith("Unknown: none")
        await chat.answer(place(1), "job", "Lost")
        await said.until("1 I can't tell whether this was started")
        await chat.answer(place(2), "job", "At work")
        await until(lambda: _state(chat, "7/50/2", State.ACTIVE))
        for text in ("x", "7/50/1 agian", "7/50/1 job a b", "no_such again", "7/50/2 abandon", "7/50/2 again"):
            assert (await chat.answer(operator, "settle", text)).endswith("/settle KEY abandon. Unknown: 7/50/1")
        assert "HTTP 404" in await chat.answer(operator, "settle", "7/50/1 job no_such")
        assert "JobRef.from_token" in await chat.answer(operator, "settle", "7/50/1 job docs~.x")
        assert "there is no job" in await chat.answer(operator, "settle", "no_such job x")
        assert await _state(chat, "7/50/1", State.UNKNOWN)
    assert emulator.agents_started == {"At work": 1}


async def test_failures(bot: Bot, caplog: pytest.LogCaptureFixture) -> None:
    """Of a command that failed, a user reads what anybody may, and the log has the rest."""
    async with bot() as chat:
        pass
    with caplog.at_level(logging.WARNING, "agentjobs_async.chat"):
        assert (await chat.answer(place(), "job", "Fix it")).startswith("The service is restarting.")
    assert ["a command /job failed: " in record.message for record in caplog.records] == [True]


async def test_mistakes_of_the_bot(bot: Bot, said: Said, emulator: Emulator) -> None:
    """Arguments of no sense are refused before anything is done, and the message says what is valid."""
    with pytest.raises(InvalidInputError, match="inside of async with ChatJobs"):
        await bot().answer(place(), "jobs")
    with pytest.raises(InvalidInputError, match="inside of async with ChatJobs"):
        _ = bot().jobs
    async with bot() as chat:
        with pytest.raises(InvalidInputError, match="one of job, jobs, cancel, settle, not '/job'"):
            await chat.answer(place(), "/job", "Fix it")
        with pytest.raises(InvalidInputError, match="place must be a Place, not dict"):
            await chat.answer({}, "job", "Fix it")  # type: ignore[arg-type]  # the wrong type is the test
        with pytest.raises(InvalidInputError, match="text must be a string, not NoneType"):
            await chat.handle(place(), "job", None)  # type: ignore[arg-type]  # as above
        with pytest.raises(InvalidInputError, match="entered once"):
            await chat.__aenter__()
        assert await chat.answer(place(), "jobs") == Texts().none_listed()
    async with emulator.session(project_id=None) as projectless:
        with pytest.raises(InvalidInputError, match="no project_id"):
            await bot(session=projectless).__aenter__()
    for wrong, words in (
        ({"operators": "42"}, "operators must be a collection"),
        ({"operators": 42}, "operators must be a collection"),
        ({"operators": b"42"}, "operators must be a collection"),
        ({"operators": [True]}, "each of operators must be a string or a whole number"),
        ({"operators": {None}}, "each of operators must be a string or a whole number"),
        ({"operators": [""]}, "each of operators must have 1 to 512 characters"),
        ({"most_open": 0}, "most_open must be a whole number of at least 1"),
        ({"session": said}, "session must be of type AgentJobsSession"),
        ({"texts": "German"}, "texts must be of type Texts"),
        ({"journal": "http://x"}, "neither the path"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            bot(**wrong)
    with pytest.raises(InvalidInputError, match="send must be a function of a place and a text"):
        ChatJobs(Said, journal="bot.db")  # type: ignore[arg-type]  # as above


async def test_own_journal_and_session(
    emulator: Emulator, said: Said, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that is open stays open; a session of its own comes from the environment, and is closed."""
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    async with Journal.open(location) as journal:
        async with ChatJobs(said.send, journal=journal) as chat:
            await chat.answer(place(), "job", "Fix it")
            await until(lambda: emulator.agents_started)
        assert [row.key for row in await journal.rows()] == ["7/50/103"]
