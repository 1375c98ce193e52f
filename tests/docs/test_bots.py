import asyncio

from agentjobs_async import JobRef
from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page


async def test_bot(emulator: Emulator) -> None:
    """The bot tells its user the token, and later the end, after a restart too."""
    names = run_page("bots")
    replies: list[str] = []

    async def reply(text: str) -> None:
        replies.append(text)
        await asyncio.sleep(0)

    async with emulator.session(project_id="docs") as session:
        await names["on_message"](session, "Hello", reply)
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
        await run_page("bots")["on_message"](session, " ", reply)
    assert [text.startswith("that did not work: ") for text in replies] == [True]


def test_button() -> None:
    """A button's data fits, and is of use to its user."""
    names = run_page("bots")
    tokens = names["SignedTokens"]("a secret of 16 bytes or more")
    ref = JobRef("docs", "job_0123456789abcdef")
    data = names["button_data"](tokens, ref, 42)
    assert len(data.encode()) <= 64
    assert names["pressed"](tokens, data, 42) == ref
