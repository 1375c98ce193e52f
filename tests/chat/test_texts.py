"""What a bot says in other words."""

from collections.abc import Callable

import pytest

from agentjobs_async import AgentJob
from agentjobs_async.batch import State
from agentjobs_async.chat import ChatJobs, Place, Texts
from agentjobs_async.testing import Emulator, JobScript
from tests.chat.conftest import OPERATOR
from tests.chat.said import Said
from tests.durable.listener import complete
from tests.until import until

Bot = Callable[..., ChatJobs]

PLACE = Place(50, 7, 1)


class German(Texts):
    """Some texts in German."""

    def planned(self, job: str) -> str:
        return f"{job} ist notiert."

    def ended(self, job: str, end: AgentJob) -> str:
        return f"{job}: {end.status}"


async def test_translation(bot: Bot, emulator: Emulator, said: Said) -> None:
    """A subclass says some texts in its own words, and the others as they are."""
    async with bot(texts=German()) as chat:
        assert await chat.answer(PLACE, "job", "long") == "1 ist notiert."
        assert await chat.answer(PLACE, "job", " ") == Texts().no_prompt()
        await complete(emulator)
        await said.until("1: completed")


TEXTS = [name for name in vars(Texts) if not name.startswith("_")]


class Named(Texts):
    """Each text is its own name, so that none is said otherwise."""

    def __getattribute__(self, name: str) -> object:
        return (lambda *_: name) if name in TEXTS else super().__getattribute__(name)


async def test_every_text_can_be_overridden(bot: Bot, emulator: Emulator, said: Said) -> None:
    """Nothing is said but by the methods of the texts, and each of them is."""
    operator = Place(50, OPERATOR, 1)
    emulator.script(JobScript(duration=0.2), prompt="ended")
    faults = {"rejected": "422 on=create", "gone": "410 forever on=get"}
    faults |= {"unknown": "500 on=create", "held": "429 retry-after=900 on=create"}
    for prompt, fault in faults.items():
        await emulator.inject(fault, prompt=prompt)
    answers: list[str] = []

    async def say(place: Place, command: str, text: str = "") -> None:
        answers.append(await chat.answer(place, command, text))

    async with bot(texts=Named(), most_open=3) as chat:
        for place, command in ((PLACE, "jobs"), (PLACE, "job"), (PLACE, "cancel"), (PLACE, "settle")):
            await say(place, command)
        for number, prompt in enumerate(["rejected", "gone", "unknown", "ended"]):
            await say(Place(50, 7, number), "job", prompt)
            await until(lambda prompt=prompt: prompt in said.words)  # type: ignore[misc]  # of a lambda
        await say(PLACE, "job", "edited")
        await say(PLACE, "job", "\ud800")
        await say(PLACE, "jobs")
        await say(PLACE, "cancel", "0")
        await say(PLACE, "cancel", "2")
        await say(operator, "settle")
        await say(operator, "settle", "x job y")
        await say(operator, "settle", "7/50/2 abandon")
        await said.until("abandoned")
        await say(Place(50, 7, 4), "job", "long")
        await until(lambda: _is_active(chat, "7/50/4"))
        await say(PLACE, "cancel", "4")
        await say(Place(50, 7, 5), "job", "held")
        await said.until("held")
        await say(Place(50, 7, 6), "job", "Fix it")
        await say(Place(50, 7, 7), "job", "Too many")
        await say(PLACE, "cancel", "5")
        await said.until("withdrawn")
    await say(PLACE, "job", "Fix it")  # the block was left
    # The one that is missing needs a create that is under way.
    assert {word for text in (*answers, *said.words) for word in text.splitlines()} == {*TEXTS} - {"being_sent"}


async def _is_active(chat: ChatJobs, key: str) -> bool:
    entry = await chat.jobs.get(key)
    return entry is not None and entry.state is State.ACTIVE


async def test_long_texts(bot: Bot, emulator: Emulator, said: Said) -> None:
    """No text has more than 1,900 characters, whoever wrote it."""

    class Long(Texts):
        def planned(self, job: str) -> str:
            return f"{job}{'x' * 5000}"

        def ended(self, job: str, end: AgentJob) -> str:
            return f"{job}{end.status}{'x' * 5000}"

    async with bot(texts=Long()) as chat:
        answer = await chat.answer(PLACE, "job", "long")
        await complete(emulator)
        await said.until("1completed")
    assert {len(answer), *map(len, said.words)} == {1900}
    assert answer.endswith("x…")


@pytest.fixture
def location(path: object) -> str:
    """A file: where the journal is makes no difference to what is said."""
    return str(path)
