from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from agentjobs_async.batch import BatchWorker, FleetLimits, Journal
from agentjobs_async.batch._store import shared
from agentjobs_async.batch.journal import entries_of
from tests.batch.silence import NEVER, be_silent, heartbeat_of
from tests.batch.stage import FakeSession

LIMIT = 12.0
WHOLE = 0.95 * LIMIT  # what the owners share


@asynccontextmanager
async def owner(database: str) -> AsyncIterator[Journal]:
    """An owner that gives no sign of life within a test, but by `beat`."""
    async with Journal.open(database, owner_timeout=NEVER) as journal:
        yield journal


async def beat(journal: Journal) -> None:
    """Ask for the share of polls, as each beat does."""
    await heartbeat_of(journal).polls.renew()


async def polling(stack: AsyncExitStack, journal: Journal) -> FakeSession:
    """Enter a worker of the journal, and return its session."""
    session = FakeSession()
    await stack.enter_async_context(BatchWorker(session.session, journal))
    return session


async def test_who_joins_waits(laid_out: str) -> None:
    """An owner that joins polls nothing until the others have given up its share, each with its next beat."""
    async with AsyncExitStack() as stack, owner(laid_out) as one, owner(laid_out) as two, owner(laid_out) as three:
        await one.set_limits(FleetLimits(polls_per_second=LIMIT))
        first = await polling(stack, one)
        assert first.polls_per_second == pytest.approx(WHOLE)
        second = await polling(stack, two)
        third = await polling(stack, three)
        assert (second.polls_per_second, third.polls_per_second) == (0, 0)
        await beat(two)
        assert second.polls_per_second == 0
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE / 3)
        await beat(two)
        await beat(three)
        assert second.polls_per_second == third.polls_per_second == pytest.approx(WHOLE / 3)


async def test_who_leaves(laid_out: str) -> None:
    """The share of an owner that leaves is free for the others at once."""
    async with AsyncExitStack() as stack, owner(laid_out) as one:
        await one.set_limits(FleetLimits(polls_per_second=LIMIT))
        first = await polling(stack, one)
        async with owner(laid_out) as two, BatchWorker(FakeSession().session, two):
            await beat(one)
            await beat(two)
            assert first.polls_per_second == pytest.approx(WHOLE / 2)
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE)


async def test_a_worker_that_ends_before_its_journal(laid_out: str) -> None:
    """The next beat of an owner that polls no more gives up its share."""
    async with AsyncExitStack() as stack, owner(laid_out) as one, owner(laid_out) as two:
        await one.set_limits(FleetLimits(polls_per_second=LIMIT))
        first = await polling(stack, one)
        session = FakeSession()
        async with BatchWorker(session.session, two):
            await beat(one)
            await beat(two)
            assert session.polls_per_second == pytest.approx(WHOLE / 2)
        assert session.polls_per_second is None
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE / 2)
        await beat(two)
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE)


async def test_owners_that_do_not_poll(laid_out: str) -> None:
    """Owners that have the journal open to write, and poll nothing, have no share of the polls."""
    async with AsyncExitStack() as stack, owner(laid_out) as one, owner(laid_out) as two:
        await two.set_limits(FleetLimits(polls_per_second=LIMIT))
        first = await polling(stack, one)
        await beat(two)
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE)


async def test_a_changed_limit(laid_out: str) -> None:
    """The beats after a change of the limit follow it; without a limit any number of polls may start."""
    async with AsyncExitStack() as stack, owner(laid_out) as one:
        first = await polling(stack, one)
        assert first.polls_per_second is None
        for limit in (4.0, 2.0, 8.0):
            await one.set_limits(FleetLimits(polls_per_second=limit))
            await beat(one)
            assert first.polls_per_second == pytest.approx(0.95 * limit)
        await one.set_limits(FleetLimits())
        await beat(one)
        assert first.polls_per_second is None


async def test_a_silent_owner(laid_out: str) -> None:
    """The share of a silent owner is in use until it is taken for dead; before that it stops polling itself."""
    async with AsyncExitStack() as stack, owner(laid_out) as one, owner(laid_out) as two:
        await one.set_limits(FleetLimits(polls_per_second=LIMIT))
        first = await polling(stack, one)
        second = await polling(stack, two)
        await beat(one)
        await beat(two)
        assert second.polls_per_second == first.polls_per_second == pytest.approx(WHOLE / 2)
        share = second._clock._share
        assert share is not None
        assert share.may_poll
        await be_silent(two, laid_out)
        assert not share.may_poll
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE / 2)
        heartbeat_of(one).polls._patience = 0.1  # for which the server has run by now: it may take owners for dead
        await beat(one)
        assert first.polls_per_second == pytest.approx(WHOLE)


async def test_turns_of_all(laid_out: str) -> None:
    """Each polling owner gets a number of its own, from which its turns follow."""
    async with AsyncExitStack() as stack, owner(laid_out) as one, owner(laid_out) as two, owner(laid_out) as three:
        journals = (one, two, three)
        await one.set_limits(FleetLimits(polls_per_second=LIMIT))
        for journal in journals:
            await polling(stack, journal)
        asked: list[Any] = []
        for journal in journals:
            entries = entries_of(journal)
            asking = shared.share_polls(entries.owner, WHOLE, NEVER, 1.0, 1_000.0)
            asked += (await entries._database.write(asking))[1]
        assert sorted(row.number for row in asked) == [0, 1, 2]
        assert {(row.share, row.pollers, row.moment) for row in asked} == {(4.0, 3, 1_000.0)}
