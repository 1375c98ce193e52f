"""Runs that share a journal: each item is sent and polled by one of them, and told of by one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select
from tenacity import wait_fixed

from agentjobs_async import PollPolicy
from agentjobs_async.batch import Batch, BatchItem, BatchResult, BatchWorker, Journal, Limits, Rate, State, run_batch
from agentjobs_async.batch._database.schema import ITEMS
from tests.batch.silence import be_silent, heartbeat_of, server_is_up
from tests.batch.stage import FOREVER, FakeSession, PolledSession, items, outcomes, rejected, run, states

pytestmark = [pytest.mark.looptime, pytest.mark.slow]

KEYS = [f"k{number}" for number in range(10)]


@pytest.fixture
async def journals(laid_out: str) -> AsyncIterator[tuple[Journal, Journal]]:
    """One journal on PostgreSQL, opened twice, as by two processes."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        yield one, two


@pytest.fixture
async def twice(location: str) -> AsyncIterator[tuple[Journal, Journal]]:
    """The journals of two runs: one in a file that both use, or two of one database."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(Journal.open(location))
        yield one, await stack.enter_async_context(Journal.open(location)) if one.is_shared else one


def polling() -> PolledSession:
    """Return a session whose jobs take a minute and are polled every 7 s."""
    return PolledSession(60.0, PollPolicy(wait=wait_fixed(7.0)))


def keys_of(*told: Sequence[BatchResult]) -> list[str]:
    """Return the keys of all results, each as often as it was told."""
    return sorted(result.item.key for results in told for result in results)


async def test_two_runs_of_the_same_items(twice: tuple[Journal, Journal]) -> None:
    """Two runs at once share the items: each is created and told once, and polled as often as by one run alone."""
    one, two = polling(), polling()
    async with one.tracker, two.tracker:
        await run(one, items(10, first=100), twice[0])
        by_one = len(one.polled)
        assert by_one >= 80
        one.polled.clear()
        told = await asyncio.gather(
            run(one, items(10), twice[0], max_active=5), run(two, items(10), twice[1], max_active=5)
        )
    assert keys_of(*told) == KEYS
    assert all(told)
    assert {str(result.outcome) for results in told for result in results} == {"completed"}
    assert len(one.polled) + len(two.polled) == by_one
    assert sum((one.agents + two.agents)[f"p{number}"] for number in range(10)) == 10


async def test_a_run_waits_for_another(twice: tuple[Journal, Journal]) -> None:
    """A run that finds all rows under way elsewhere ends when they have ended, and tells none of them."""
    first, second = FakeSession(duration=100.0), FakeSession()
    loop = asyncio.get_running_loop()
    began = loop.time()
    running = asyncio.create_task(run(first, items(3), twice[0]))
    await first.creates(3)
    assert await run(second, items(3), twice[1]) == []
    assert loop.time() - began >= 100
    assert keys_of(await running) == KEYS[:3]
    assert second.agents.total() == 0


async def test_a_row_that_a_run_left_by_a_timeout(twice: tuple[Journal, Journal]) -> None:
    """A job that takes longer than its item's time in one run is taken by another, which tells of its end.

    The first run has told of it, and does not wait for the other.
    """
    first, second = FakeSession(duration=100.0), FakeSession(duration=100.0)
    first.answers = {"p1": [50.0]}
    loop = asyncio.get_running_loop()
    began = loop.time()
    running = asyncio.create_task(run(first, items(2), twice[0], timeout=10.0))
    await first.creates(2)
    waiting = asyncio.create_task(run(second, (), twice[1], timeout=None))
    assert outcomes(await running) == {"k0": "timed_out", "k1": "timed_out"}
    assert loop.time() - began < 60
    assert not waiting.done()
    assert outcomes(await waiting) == {"k0": "completed", "k1": "completed"}


async def test_a_row_that_both_left_by_a_timeout(twice: tuple[Journal, Journal]) -> None:
    """Two runs, each of which has given up a job, do not wait for one another: each tries the other's, and ends."""
    sessions = FakeSession(duration=FOREVER), FakeSession(duration=FOREVER)
    async with asyncio.timeout(3600):
        told = await asyncio.gather(
            *(
                run(session, items(2), journal, timeout=10.0, max_active=1)
                for session, journal in zip(sessions, twice, strict=True)
            )
        )
    assert {str(result.outcome) for results in told for result in results} == {"timed_out"}
    assert [keys_of(results) for results in told] == [KEYS[:2], KEYS[:2]]
    later = FakeSession()
    assert outcomes(await run(later, (), twice[0])) == {"k0": "completed", "k1": "completed"}


async def late_items(begin: asyncio.Event) -> AsyncIterator[BatchItem]:
    """Give the items once another run has begun them."""
    await begin.wait()
    for item in items(4):
        yield item


@pytest.mark.parametrize("gives", ["no items", "the same items"])
async def test_a_run_that_dies(journals: tuple[Journal, Journal], laid_out: str, gives: str) -> None:
    """A run that waits for another one takes over its jobs when that is dead, and tells what it was sending.

    The dead one, should it live after all, records and tells nothing of them.
    """
    one, two = journals
    dying, begun = FakeSession(duration=FOREVER), asyncio.Event()
    dying.answers = {"p3": [FOREVER]}
    living = FakeSession()
    with server_is_up():
        if gives == "the same items":  # it has begun before these had rows
            waiting = asyncio.create_task(run(living, late_items(begun), two))
        async with run_batch(dying.session, items(4), journal=one) as left:
            while (await one.counts())[State.ACTIVE] < 3:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.001)
            await dying.creates(4)
            begun.set()
            if gives == "no items":
                waiting = asyncio.create_task(run(living, (), two))
            await asyncio.sleep(100)
            assert not waiting.done()
            assert (await two.counts())[State.ACTIVE] == 3  # the living one has touched none of them
            await be_silent(one, laid_out)
            told = await waiting
            assert left.stats().outcomes == {}
    found = {"k0": "completed", "k1": "completed", "k2": "completed", "k3": "unknown"}
    assert (len(told), outcomes(told)) == (4, found)
    assert living.agents.total() == 0
    assert states(await two.rows()) == found


@pytest.mark.parametrize("kind", ["run", "worker"])
async def test_who_counted_as_dead_and_lives(journals: tuple[Journal, Journal], laid_out: str, kind: str) -> None:
    """Who has counted as dead leaves the jobs that others have taken over, and tells nothing of them."""
    one, two = journals
    stalled, living, told = FakeSession(duration=FOREVER), FakeSession(duration=100.0), list[BatchResult]()
    await one.add(items(3))
    with server_is_up():
        async with AsyncExitStack() as stack:
            if kind == "run":
                left: Batch | BatchWorker = await stack.enter_async_context(run_batch(stalled.session, (), journal=one))
            else:
                left = worker = BatchWorker(stalled.session, one, on_result=told.append)
                await stack.enter_async_context(worker)
                running = asyncio.create_task(worker.run(KEYS[:3]))
            while (await one.counts())[State.ACTIVE] < 3:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.001)
            await be_silent(one, laid_out)
            waiting = asyncio.create_task(run(living, (), two))
            await asyncio.sleep(20)
            await heartbeat_of(one).beat()
            await asyncio.sleep(10)
            assert left.active() == []
            if kind == "worker":
                assert await running == tuple(KEYS[:3])
            assert outcomes(await waiting) == dict.fromkeys(KEYS[:3], "completed")
            assert left.stats().outcomes == {}
    assert told == []
    assert stalled.agents.total() == 3


async def test_a_wait_that_ends_after_another_has_taken_its_job(
    journals: tuple[Journal, Journal], laid_out: str
) -> None:
    """Who has counted as dead, and ends its wait for a job in vain, does not take it from the one who polls it."""
    one, two = journals
    stalled, living = FakeSession(duration=FOREVER), FakeSession(duration=100.0)
    with server_is_up():
        async with run_batch(stalled.session, items(1), journal=one, timeout=40.0) as left:
            while (await one.counts())[State.ACTIVE] < 1:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.001)
            await be_silent(one, laid_out)
            waiting = asyncio.create_task(run(living, (), two))
            await asyncio.sleep(60)
            assert left.active() == []
            (owner,) = await two.store.read(select(ITEMS.c.owner))
            assert owner[0] in two._opened.owners.own
            assert outcomes(await waiting) == {"k0": "completed"}
            assert left.stats().outcomes == {}


async def test_a_run_after_another(path: Path) -> None:
    """What a run of a file leaves is taken by the next one, with the journal open all the time or opened again."""
    session = FakeSession(duration=FOREVER)
    async with Journal.open(path) as journal:
        async with run_batch(session.session, items(2), journal=journal):
            await session.creates(2)
        async with run_batch(session.session, items(3), journal=journal):
            await session.creates(3)
    async with Journal.open(path) as journal:
        session.duration = 0.0
        assert outcomes(await run(session, items(3), journal)) == dict.fromkeys(KEYS[:3], "completed")
    assert session.agents.total() == 3


async def test_a_run_that_is_left_while_another_waits(twice: tuple[Journal, Journal]) -> None:
    """Leaving a run frees what it polled: a run that waits takes it, and tells of it."""
    first, second = FakeSession(duration=FOREVER), FakeSession()
    async with run_batch(first.session, items(3), journal=twice[0]):
        await first.creates(3)
        waiting = asyncio.create_task(run(second, (), twice[1]))
        await asyncio.sleep(100)
        assert not waiting.done()
    assert keys_of(await waiting) == KEYS[:3]


async def test_its_own_polls_per_second(twice: tuple[Journal, Journal]) -> None:
    """A run's own limit of polls counts; on PostgreSQL it only lowers what the journal's limit leaves to the run."""
    one, _ = twice
    await one.set_limits(Limits(polls_per_second=3.0))
    for own, of_all in ((2.0, 2.0), (8.0, 3.0), (None, 3.0)):
        session = FakeSession(duration=FOREVER)
        async with run_batch(session.session, (), journal=one, limits=Limits(polls_per_second=own)):
            assert session.polls_per_second == (of_all if one.is_shared else own or float("inf"))
    await one.set_limits(Limits())
    async with run_batch(session.session, (), journal=one, limits=Limits(polls_per_second=2.0)):
        assert session.polls_per_second == 2.0


async def test_a_worker_s_own_limits(twice: tuple[Journal, Journal]) -> None:
    """A worker that is given limits of its own sees to them beside those that the journal keeps."""
    session = FakeSession(duration=30.0)
    await twice[0].add(items(3))
    async with BatchWorker(session.session, twice[0], limits=Limits(max_active=1)) as worker:
        assert await worker.run(KEYS[:3]) == ()
    assert [round(later - earlier) for (earlier, _), (later, _) in pairwise(session.sent)] == [30, 30]


async def test_a_run_that_is_cut_off_while_another_waits(path: Path) -> None:
    """A create that is cut off as its run is cancelled is told by a run of the same open journal that waits for it."""
    first, second = FakeSession(), FakeSession()
    first.answers = {"p0": [FOREVER]}
    async with Journal.open(path) as journal:
        left = asyncio.create_task(run(first, items(2), journal))
        await first.creates(2)
        waiting = asyncio.create_task(run(second, items(2), journal))
        await asyncio.sleep(2)
        left.cancel()
        await asyncio.wait([left])
        assert outcomes(await waiting) == {"k0": "unknown"}
        assert await run(second, items(2), journal) == []


async def test_an_item_that_is_retried_while_its_run_goes_on(twice: tuple[Journal, Journal]) -> None:
    """A run that has told of an item leaves its next try to later runs, even where one of them has left its job."""
    first, second = FakeSession(duration=100.0), FakeSession(duration=FOREVER)
    first.answers = {"p0": [rejected()]}
    going_on = asyncio.create_task(run(first, items(2), twice[0]))
    await asyncio.sleep(5)
    assert await twice[0].retry("k0") == "k0"
    assert outcomes(await run(second, (), twice[1], timeout=10.0, max_active=1)) == {"k0": "timed_out"}
    assert keys_of(await going_on) == ["k0", "k1"]
    assert outcomes(await run(FakeSession(), (), twice[0])) == {"k0": "completed"}


async def test_an_item_that_is_retried_and_cut_off_while_its_run_goes_on(path: Path) -> None:
    """A run that has told of an item leaves it to the next one to tell that its next try is unknown."""
    first, second = FakeSession(duration=100.0), FakeSession()
    first.answers, second.answers = {"p0": [rejected()]}, {"p0": [FOREVER]}
    async with Journal.open(path) as journal:
        going_on = asyncio.create_task(run(first, items(2), journal))
        await asyncio.sleep(5)
        await journal.retry("k0")
        left = asyncio.create_task(run(second, (), journal))
        await second.creates(1)
        left.cancel()
        await asyncio.wait([left])
        assert keys_of(await going_on) == ["k0", "k1"]
        assert outcomes(await run(second, (), journal)) == {"k0": "unknown"}


async def test_an_item_that_is_withdrawn_while_two_runs_wait_to_send_it(twice: tuple[Journal, Journal]) -> None:
    """One of the runs that have read a planned item tells that it was abandoned."""
    one, two = FakeSession(10.0), FakeSession(10.0)
    rate = Rate(1, per=100.0)
    running = [
        asyncio.create_task(run(session, items(3), journal, create_rate=rate))
        for session, journal in zip((one, two), twice, strict=True)
    ]
    await asyncio.sleep(50.0)
    await twice[0].abandon("k2")
    told = await asyncio.gather(*running)
    assert keys_of(*told) == ["k0", "k1", "k2"]
    assert [str(result.outcome) for results in told for result in results if result.item.key == "k2"] == ["abandoned"]
