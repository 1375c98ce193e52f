import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from agentjobs_async import InvalidInputError, JobRef, JournalError
from agentjobs_async.batch import FleetLimits, Journal, State
from agentjobs_async.batch import _fleet as fleet
from agentjobs_async.batch.entries import Entries
from tests.batch.stage import items
from tests.postgresql import execute

SOON = 1.0
LATER = 3.0
WHY = ValueError("because")


@asynccontextmanager
async def owner(database: str, patience: float = SOON) -> AsyncIterator[Journal]:
    async with Journal.open(database, owner_timeout=patience) as journal:
        yield journal


def silence(journal: Journal) -> None:
    """Let an owner give no sign of life any more, as one does that was stopped."""
    assert journal._presence is not None
    assert journal._presence._beating is not None
    journal._presence._beating.cancel()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.01)


async def state_of(journal: Journal, key: str) -> State:
    return (await journal.entries.named([key]))[key].state


async def claimed(journal: Journal, key: str) -> str:
    claim = await journal.entries.claim(key)
    assert isinstance(claim, str)
    return claim


async def test_many_owners(database: str) -> None:
    """Many owners claim at once, each row goes to one of them, and nothing of the living becomes unknown."""
    async with owner(database, LATER) as one, owner(database, LATER) as two:
        await one.add(items(40))
        claims = await asyncio.gather(
            *(journal.entries.claim(f"k{number}") for number in range(40) for journal in (one, two))
        )
        assert sum(isinstance(claim, str) for claim in claims) == 40
        await asyncio.sleep(1.2 * LATER)
        assert (await one.counts())[State.SENDING] == 40


async def test_a_silent_owner(database: str) -> None:
    """What a silent owner was sending becomes unknown, and is told to those who are there; nothing else does."""
    async with owner(database) as silent, owner(database) as living:
        await living.add(items(3))
        await claimed(silent, "k0")
        await claimed(living, "k1")
        silence(silent)
        await until(lambda: _is(living, "k0", State.UNKNOWN))
        assert [row.key for row in await living.unknown()] == ["k0"]
        assert await state_of(living, "k1") is State.SENDING
        await until(lambda: _told(living))


async def _is(journal: Journal, key: str, state: State) -> bool:
    return await state_of(journal, key) is state


async def _holds(condition: bool) -> bool:  # noqa: FBT001 - it is the condition itself
    return condition


async def _told(journal: Journal) -> bool:
    return journal.take_interrupted() == ("k0",)


async def test_late_answers(database: str) -> None:
    """Whatever a stalled owner gets to know late is kept, though its rows have become unknown meanwhile."""
    async with owner(database) as stalled, owner(database) as living:
        await living.add(items(4))
        claims = {key: await claimed(stalled, key) for key in ("k0", "k1", "k2", "k3")}
        silence(stalled)
        await until(lambda: _is(living, "k3", State.UNKNOWN))
        assert await stalled.entries.created("k0", JobRef("docs", "job_1"))
        assert await stalled.entries.refused("k1", WHY, claim=claims["k1"])
        assert await stalled.entries.not_sent("k2", WHY, claim=claims["k2"])
        assert {row.key: str(row.state) async for row in living.rows()} == {
            "k0": "created",
            "k1": "rejected",
            "k2": "planned",
            "k3": "unknown",
        }


async def test_what_somebody_else_has_claimed_since(database: str) -> None:
    """What a stalled owner gets to know does not touch the claim of another one."""
    async with owner(database) as stalled, owner(database) as living:
        await living.add(items(1))
        old = await claimed(stalled, "k0")
        silence(stalled)
        await until(lambda: _is(living, "k0", State.UNKNOWN))
        await living.resolve("k0", send_again=True)
        await claimed(living, "k0")
        assert not await stalled.entries.not_sent("k0", WHY, claim=old)
        assert not await stalled.entries.refused("k0", WHY, claim=old)
        assert not await stalled.entries.lost("k0", WHY, claim=old)
        assert await state_of(living, "k0") is State.SENDING


async def test_an_end_is_written_once(database: str) -> None:
    """Of all who waited for one job, one writes its end."""
    from agentjobs_async import AgentJob  # noqa: PLC0415 - only here

    async with owner(database) as one, owner(database) as two:
        await one.add(items(1))
        await claimed(one, "k0")
        await one.entries.created("k0", JobRef("docs", "job_1"))
        ends = [AgentJob("job_1", "docs", status) for status in ("completed", "failed")]
        assert await one.entries.ended("k0", ends[0])
        assert not await two.entries.ended("k0", ends[1])
        assert await state_of(one, "k0") is State.COMPLETED


async def test_an_owner_that_left(database: str) -> None:
    """What an owner was sending when it left in good order becomes unknown as soon as somebody looks."""
    async with Journal.open(database) as journal:
        await journal.add(items(1))
        await claimed(journal, "k0")
    async with Journal.open(database) as journal:
        assert journal.take_interrupted() == ("k0",)


async def test_a_server_that_was_down(database: str) -> None:
    """After a start of the server nobody is taken for dead before he could give a sign of life."""
    async with Journal.open(database) as journal:
        await journal.add(items(1))
        await claimed(journal, "k0")
        execute(database, "UPDATE agentjobs_owners SET seen_at = 0")
        assert await journal.entries.orphaned(1e6) == ()
        assert await journal.entries.orphaned(0.0) == ("k0",)


async def test_beating_goes_on(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sign of life that could not be given is logged, and the next one is given."""
    async with owner(database) as journal:

        async def broken(patience: float) -> tuple[str, ...]:
            raise JournalError(f"no answer in {patience} s", "io")

        monkeypatch.setattr(journal.entries, "orphaned", broken)
        await until(lambda: _holds("no answer" in caplog.text))
        monkeypatch.undo()
        execute(database, "DELETE FROM agentjobs_owners")
        await until(lambda: _holds(bool(execute(database, "SELECT * FROM agentjobs_owners"))))


async def test_leaving_a_broken_server(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An owner that can't say good-bye leaves all the same."""
    async with owner(database) as journal:

        async def broken(statement: object) -> None:
            raise JournalError(f"no answer to {type(statement)}", "io")

        assert journal._presence is not None
        monkeypatch.setattr(journal._presence._database, "write", broken)
    assert "no answer" in caplog.text


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan"), True])
def test_wrong_timeouts(timeout: float) -> None:
    """A timeout of owners that makes no sense is refused before anything happens."""
    with pytest.raises(InvalidInputError, match="owner_timeout"):
        Journal.open("run.db", owner_timeout=timeout)


async def test_a_stalled_transaction(database: str) -> None:
    """An owner that stalls within a transaction, with the lock of all claims, holds up the others for a while only."""
    async with owner(database) as stalled, owner(database) as living:
        await living.add(items(1))
        await living.set_limits(FleetLimits(max_active=5))
        assert stalled._database is not None
        async with stalled._database._engine.connect() as connection:
            await connection.execute(fleet.locked())
            await claimed(living, "k0")
            await connection.invalidate()


async def test_an_opening_that_fails(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal whose first sign of life could not be given is not opened, and leaves nothing behind."""

    async def broken(entries: object, patience: float) -> tuple[str, ...]:
        raise JournalError(f"{entries} gave no answer in {patience} s", "io")

    monkeypatch.setattr(Entries, "orphaned", broken)
    with pytest.raises(JournalError, match="gave no answer"):
        await Journal.open(database).__aenter__()
