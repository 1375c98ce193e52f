"""What a run says of itself: what is still to come, when it ends, and why nothing moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agentjobs_async import (
    AgentJobsSession,
    AuthError,
    CreateOutcomeUnknownError,
    JobRef,
    NotSentError,
    RateLimitedError,
)
from agentjobs_async.batch import Batch, BatchItem, BatchStats, BatchWorker, Journal, Limits, Rate, run_batch
from agentjobs_async.telemetry.metrics import ItemGauges
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import created_by_hand, unused
from tests.keyed import keyed
from tests.polled import every
from tests.until import until

QUICK, SLOW = JobScript(duration=0), JobScript(duration=float("inf"))


@asynccontextmanager
async def service(script: JobScript = QUICK) -> AsyncIterator[tuple[Emulator, AgentJobsSession]]:
    """A service, and a session with it that polls often."""
    async with Emulator(script=script) as emulator, emulator.session(project_id="docs", policy=every(0.05)) as session:
        yield emulator, session


def some(count: int, project: str = "docs") -> list[BatchItem]:
    return [BatchItem(f"{project}-{number}", f"{project} {number}", project) for number in range(count)]


def gauges(run: Batch | BatchWorker) -> ItemGauges:
    found = run._gauges()
    assert found is not None
    return found


def whole(stats: BatchStats) -> int:
    """Return how many items a run knows of, by its parts."""
    assert stats.planned is not None
    return stats.planned + stats.active + sum(stats.outcomes.values())


async def test_what_is_to_come(journal: Journal) -> None:
    """At each moment, what is planned, active and ended is the total; looking at it asks no journal."""
    async with service() as (_, session):
        await journal.add([*some(7), *some(5, "web")])
        ends = 0
        async with run_batch(session, (), journal=journal, max_active=2) as results:
            assert results.stats().total is None  # it has not looked yet
            async for _ in results:
                ends += 1
                with unused(journal):
                    stats = results.stats()
                assert (whole(stats), stats.total) == (12, 12)
                assert sum(stats.outcomes.values()) >= ends
            assert (results.stats().planned, results.stats().total) == (0, 12)


async def test_a_source_that_is_still_read(file_journal: Journal) -> None:
    """While its source is read, a run says neither how many items there are nor when they end."""
    is_last = asyncio.Event()

    async def source() -> AsyncIterator[BatchItem]:
        for item in some(3):
            yield item
        await is_last.wait()

    async with service() as (_, session), run_batch(session, source(), journal=file_journal) as results:
        for _ in range(3):
            await anext(results)
        assert (results.stats().total, results.stats().ends_in) == (None, None)
        is_last.set()
        with pytest.raises(StopAsyncIteration):
            await anext(results)
        assert results.stats().total == 3


async def test_a_limited_run(file_journal: Journal) -> None:
    """Of a run that may begin a few items only, the others are not to come."""
    await file_journal.add(some(9))
    async with service() as (_, session):
        async with run_batch(session, (), journal=file_journal, max_active=2, limit=4) as results:
            await anext(results)
            assert (whole(results.stats()), results.stats().total) == (4, 4)


async def test_a_run_that_stopped(file_journal: Journal) -> None:
    """What a run gives up by its failures stays planned, and is in its total."""
    await file_journal.add(some(9))
    async with service() as (emulator, session):
        await emulator.inject("400")
        async with run_batch(session, (), journal=file_journal, max_active=2, max_failures=1) as results:
            ends = [result async for result in results]
            stats = results.stats()
        assert stats.stopped
        assert stats.planned == 9 - len(ends)
        assert stats.total == 9


async def test_jobs_of_an_earlier_run(file_journal: Journal) -> None:
    """Jobs that are waited for again are in the total; a run that is resumed counts what is left."""
    await file_journal.add(some(5))
    async with service(SLOW) as (emulator, session):
        async with run_batch(session, (), journal=file_journal, max_active=3):
            await until(lambda: emulator.agents_started.total() == 3)
        emulator.script(JobScript(duration=0))
        async with run_batch(session, (), journal=file_journal, max_active=1) as results:
            await until(lambda: results.stats().total)
            assert (results.stats().total, results.stats().planned) == (5, 2)


async def test_the_end_of_a_run(file_journal: Journal) -> None:
    """A rate decides the end, at first of the last create; with the time of a job, the slots may."""
    await file_journal.add(some(41))
    async with service() as (_, session):
        async with run_batch(session, (), journal=file_journal, create_rate=Rate(10, per=3600)) as results:
            for _ in range(10):
                await anext(results)
            stats = results.stats()
            assert stats.usual is not None
            assert stats.usual[0] < 60
            assert stats.decided_by == "create_rate 10/h"
            assert stats.ends_in == pytest.approx(4 * 3600, abs=60)
        assert stats.planned == 31
        limits = Limits(max_active=4)
        async with run_batch(session, (), journal=file_journal, limits=limits) as results:
            await until(lambda: results.stats().ends_in is not None)
            assert results.stats().decided_by == "max_active 4"


async def test_an_end_before_a_job_has_ended(file_journal: Journal) -> None:
    """While no job has ended, the last create is the least that a run takes; without a rate nothing is known."""
    await file_journal.add(some(21))
    async with service(SLOW) as (_, session):
        async with run_batch(session, (), journal=file_journal, create_rate=Rate(10, per=3600)) as results:
            await until(lambda: results.stats().waiting == 10 and (results.stats().next_create or 0.0) > 3000)
            stats = results.stats()
            assert (stats.usual, stats.decided_by) == (None, "create_rate 10/h")
            assert stats.ends_in == pytest.approx(2 * 3600, abs=60)
            assert stats.next_create == pytest.approx(3600, abs=60)
            assert stats.paused_by is None  # a rate is no news
        async with run_batch(session, (), journal=file_journal, max_active=1) as results:
            await until(lambda: results.stats().total)
            assert (results.stats().ends_in, results.stats().decided_by) == (None, None)


@asynccontextmanager
async def paused(
    journal: Journal, plan: str, reason: type[Exception], session: AgentJobsSession | None = None, **limits: int
) -> AsyncIterator[Batch]:
    """A run of eight items that meet a plan of faults, once one of these reasons holds creates back."""
    await journal.add(some(8))
    async with service(SLOW) as (emulator, own):
        if plan:
            await emulator.inject(plan)
        async with run_batch(session or own, (), journal=journal, **limits) as results:  # type: ignore[arg-type]  # a count each
            await until(lambda: type(results.stats().paused_by) is reason and results.stats().active < 2)
            yield results


async def test_a_429(file_journal: Journal) -> None:
    """A 429 holds creates back for its time, which a later run knows as well."""
    async with paused(file_journal, "429 retry-after=600", RateLimitedError, max_active=1) as results:
        assert results.stats().next_create == pytest.approx(600, abs=60)
        await until(lambda: gauges(results).held == 8)
    async with service() as (_, session), run_batch(session, (), journal=file_journal) as results:
        await until(lambda: results.stats().waiting == 8)
        assert str(results.stats().paused_by).startswith("the service wants no creates of this project for now")
        assert results.stats().next_create == pytest.approx(600, abs=60)


async def test_an_outage(file_journal: Journal) -> None:
    """Creates that may have started agents hold back the others; when that ends, nobody knows."""
    async with paused(file_journal, "500 agent=no x8", CreateOutcomeUnknownError, max_sending=1) as results:
        await until(lambda: gauges(results).unknown == 3)
        assert results.stats().ends_in is None
        found = gauges(results)
        assert (found.unknown, found.planned, found.held) == (3, 5, 5)


async def test_a_server_that_is_gone(file_journal: Journal) -> None:
    """Where nothing can be sent, a run says why, and when it tries again."""
    async with AgentJobsSession("http://127.0.0.1:9", "key", project_id="docs") as session:
        async with paused(file_journal, "", NotSentError, session, max_active=1) as results:
            assert results.stats().next_create is not None
            await until(lambda: gauges(results).held == 8)


async def test_a_refused_key(file_journal: Journal) -> None:
    """A project whose creates are refused stays planned, and a run that goes on with another one says why."""
    await file_journal.add([*some(8), *some(1, "web")])
    async with service(SLOW) as (emulator, session):
        await emulator.inject("403 x8", project_id="docs")
        async with run_batch(session, (), journal=file_journal, max_active=3) as results:
            await until(lambda: isinstance(results.stats().paused_by, AuthError))
            await until(lambda: emulator.agents_started["web 0"])
            await until(lambda: (results.stats().active, results.stats().waiting) == (1, 0))
            stats = results.stats()
            assert isinstance(stats.paused_by, AuthError)
            assert stats.next_create is None
            assert (stats.planned, stats.total, stats.ends_in) == (8, 9, None)
            assert gauges(results) == ItemGauges(8, 0, 8, {"waiting": 0, "active": 1})


async def test_slots_that_are_used_up(file_journal: Journal) -> None:
    """A run whose slots are used up by active items says so in words: that is no fault, and nothing is held."""
    await file_journal.add(some(8))
    async with service(SLOW) as (_, session), run_batch(session, (), journal=file_journal, max_active=3) as results:
        await until(lambda: results.stats().active == 3)
        stats = results.stats()
        assert str(stats.paused_by) == "max_active is used up by this run: 3 active, 0 unknown"
        assert stats.next_create is None  # it depends on the end of a job
        assert (gauges(results).planned, gauges(results).held) == (5, 0)


async def test_items_held_beyond_a_limit(file_journal: Journal) -> None:
    """No more items are held than a run may begin, however many the journal has."""
    await file_journal.add(some(9))
    async with service() as (emulator, session):
        await emulator.inject("429 retry-after=600")
        async with run_batch(session, (), journal=file_journal, max_active=1, limit=4) as results:
            await until(lambda: gauges(results).held)
            await until(lambda: (gauges(results).planned, gauges(results).held) == (4, 4))
            assert results.stats().planned == 4


async def test_unknown_creates_beyond_a_limit(file_journal: Journal) -> None:
    """Of the unknown creates that may be repeated, those beyond the limit of a run are not to come."""
    async with keyed() as found, found.session(policy=every(0.05)) as session:
        found.script = {f"docs {number}": ["lost", *[409] * 1000] for number in range(5)}
        async with run_batch(session, some(5), journal=file_journal, max_sending=5):
            await found.posted(5)
        found.script.clear()
        async with run_batch(session, (), journal=file_journal, limit=2) as results:
            assert len([result async for result in results]) == 2
            assert (results.stats().total, results.stats().planned) == (2, 0)


@asynccontextmanager
async def full(location: str, limits: Limits) -> AsyncIterator[BatchWorker]:
    """A worker on a shared journal whose limits another owner has used up, with one item."""
    async with Journal.open(location) as other, Journal.open(location) as journal, service() as (_, session):
        await journal.set_limits(limits)
        await journal.add(some(2))
        await created_by_hand(other, "docs-0", JobRef("docs", "job_0"), is_polled=True)
        async with BatchWorker(session, journal) as worker:
            working = asyncio.ensure_future(worker.run(["docs-1"]))
            yield worker
            working.cancel()


@pytest.mark.slow
async def test_a_full_journal(laid_out: str) -> None:
    """A worker for which other owners leave no room says which limit is used up."""
    async with full(laid_out, Limits(max_active=1)) as worker:
        await until(lambda: worker.stats().paused_by)
        stats = worker.stats()
        assert str(stats.paused_by).startswith("max_active is used up: as many items are under way, over all")
        assert (stats.waiting, stats.planned, stats.total, stats.ends_in) == (1, None, None, None)
        assert (gauges(worker).planned, gauges(worker).held) == (1, 0)


@pytest.mark.slow
async def test_a_rate_of_all_owners(laid_out: str) -> None:
    """Where other owners have used up the rate, a worker says when the next create may go, as of a rate of its own."""
    async with full(laid_out, Limits(create_rate=Rate(1, per=3600))) as worker:
        await until(lambda: (worker.stats().next_create or 0.0) > 3000)
        assert worker.stats().paused_by is None
        assert gauges(worker).held == 0


@pytest.mark.slow
async def test_rows_that_others_take(laid_out: str) -> None:
    """A run that shares its journal learns at its next look that others have taken what it was to send."""
    async with Journal.open(laid_out) as other, Journal.open(laid_out) as journal, service(SLOW) as (_, session):
        await journal.add(some(8))
        async with run_batch(session, (), journal=journal, max_active=1) as results:
            await until(lambda: (results.stats().total, results.stats().active) == (8, 1))
            for key in ("docs-5", "docs-6", "docs-7"):
                await created_by_hand(other, key, JobRef("docs", key), is_polled=True)
            assert results.stats().total == 8
            assert results._source is not None
            await results._source._sweep()
            assert (results.stats().total, results.stats().planned) == (5, 4)
