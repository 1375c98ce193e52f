from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from agentjobs_async.batch import BatchItem, BatchWorker, FleetLimits, Journal, State
from agentjobs_async.batch._store import heartbeat as beating
from agentjobs_async.batch._store.heartbeat import share_polls
from tests.batch.silence import NEVER, be_silent, heartbeat_of
from tests.batch.stage import FakeSession
from tests.postgresql import execute

LIMIT = 12.0
WHOLE = 0.95 * LIMIT  # what the owners share

Owners = tuple[Journal, Journal, Journal]
Polling = Callable[[Journal], Awaitable[FakeSession]]


@pytest.fixture
async def owners(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Owners]:
    """Three owners that give no sign of life within a test, but by `beat`."""
    monkeypatch.setattr(beating, "_LONGEST_GAP_SECONDS", NEVER)
    one, two, three = (Journal.open(laid_out, owner_timeout=NEVER) for _ in range(3))
    async with one, two, three:
        await one.set_limits(FleetLimits(polls_per_second=LIMIT))
        yield one, two, three


@pytest.fixture
async def polling(owners: Owners) -> AsyncIterator[Polling]:
    """Enters a worker of a journal, and returns its session."""
    assert owners
    async with AsyncExitStack() as stack:

        async def enter(journal: Journal) -> FakeSession:
            session = FakeSession()
            await stack.enter_async_context(BatchWorker(session.session, journal))
            return session

        yield enter


async def beat(*journals: Journal) -> None:
    """Ask for the share of polls of each of these owners, as each beat does."""
    for journal in journals:
        await heartbeat_of(journal).polls.renew()


async def test_a_connection_that_was_cut(laid_out: str) -> None:
    """A worker that is entered after the connections of an open journal were cut polls as if they had not been."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    async with Journal.open(laid_out, owner_timeout=NEVER) as journal:
        for key in ("k0", "k1"):
            async with BatchWorker(FakeSession().session, journal) as worker:
                await journal.add([BatchItem(key, "Hello")], project_id="docs")
                assert await worker.run([key]) == ()
            execute(laid_out, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608 - the tests' own words
            assert (await journal.counts())[State.COMPLETED] > 0


async def test_who_joins_waits(owners: Owners, polling: Polling) -> None:
    """An owner that joins polls nothing until the others have given up its share, each with its next beat.

    Owners that have the journal open to write, and poll nothing, have no share of the polls.
    """
    one, two, three = owners
    first = await polling(one)
    await beat(two, one)
    assert first.polls_per_second == pytest.approx(WHOLE)
    second = await polling(two)
    third = await polling(three)
    assert (second.polls_per_second, third.polls_per_second) == (0, 0)
    await beat(two)
    assert second.polls_per_second == 0
    await beat(one)
    assert first.polls_per_second == pytest.approx(WHOLE / 3)
    await beat(two, three)
    assert second.polls_per_second == third.polls_per_second == pytest.approx(WHOLE / 3)


async def test_who_leaves(owners: Owners, polling: Polling) -> None:
    """The share of an owner that leaves is free for the others at once."""
    one, two, _ = owners
    first = await polling(one)
    await polling(two)
    await beat(one, two)
    assert first.polls_per_second == pytest.approx(WHOLE / 2)
    await two.aclose()
    await beat(one)
    assert first.polls_per_second == pytest.approx(WHOLE)


async def test_a_worker_that_ends_before_its_journal(owners: Owners, polling: Polling) -> None:
    """Sessions of one owner take turns in its share; the next beat of an owner that polls no more gives it up."""
    one, two, _ = owners
    first, session, other = await polling(one), FakeSession(), FakeSession()
    async with BatchWorker(session.session, two):
        async with BatchWorker(other.session, two):
            await beat(one, two)
            shares = [share for each in (session, other) for share in each._limits._shares.values()]
            assert [share.per_second for share in shares] == pytest.approx([WHOLE / 4, WHOLE / 4])
            turns = [share.turn for share in shares if share.turn is not None]
            assert turns[1] - turns[0] == pytest.approx(2 / WHOLE)
        assert session.polls_per_second == pytest.approx(WHOLE / 2)
    assert session.polls_per_second is None
    await beat(one)
    assert first.polls_per_second == pytest.approx(WHOLE / 2)
    await beat(two, one)
    assert first.polls_per_second == pytest.approx(WHOLE)


async def test_a_changed_limit(owners: Owners, polling: Polling) -> None:
    """The beats after a change of the limit follow it; without a limit any number of polls may start."""
    one, *_ = owners
    await one.set_limits(FleetLimits())
    first = await polling(one)
    assert first.polls_per_second is None
    for limit in (4.0, 2.0, 8.0):
        await one.set_limits(FleetLimits(polls_per_second=limit))
        await beat(one)
        assert first.polls_per_second == pytest.approx(0.95 * limit)
    await one.set_limits(FleetLimits())
    await beat(one)
    assert first.polls_per_second is None


async def test_a_silent_owner(laid_out: str, owners: Owners, polling: Polling) -> None:
    """The share of a silent owner is in use until it counts as dead; before that it stops polling itself."""
    one, two, _ = owners
    first = await polling(one)
    second = await polling(two)
    await beat(one, two)
    assert second.polls_per_second == first.polls_per_second == pytest.approx(WHOLE / 2)
    (share,) = second._limits._shares.values()
    assert share.may_poll
    await be_silent(two, laid_out)
    assert not share.may_poll
    heartbeat_of(one).polls._patience = 1e9  # for which no server has run, so that it takes nobody for dead
    await beat(one)
    assert first.polls_per_second == pytest.approx(WHOLE / 2)
    heartbeat_of(one).polls._patience = 0.1  # for which the server has run by now: it may take owners for dead
    await beat(one)
    assert first.polls_per_second == pytest.approx(WHOLE)


async def test_turns_of_all(owners: Owners, polling: Polling) -> None:
    """Each polling owner gets a number of its own, from which its turns follow."""
    for journal in owners:
        await polling(journal)
    asked: list[Any] = []
    for journal in owners:
        store = journal._store
        asking = share_polls(store.owner, WHOLE, NEVER, 1.0, 1_000.0)
        asked += (await store._database.write(asking))[1]
    assert sorted(row.number for row in asked) == [0, 1, 2]
    assert {(row.share, row.pollers, row.moment) for row in asked} == {(4.0, 3, 1_000.0)}
