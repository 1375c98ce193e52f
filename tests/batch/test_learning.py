"""Waits that learn from the journal."""

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest

from agentjobs_async.batch import Journal, run_batch
from tests.batch.stage import PolledSession, items, run

pytestmark = pytest.mark.looptime

JOB_SECONDS = 300.0


@pytest.fixture
async def session() -> AsyncIterator[PolledSession]:
    session = PolledSession(JOB_SECONDS)
    session.project_id = "docs"
    async with session.tracker:
        yield session


async def test_journal_of_an_earlier_run_is_learned_from(virtual_journal: Journal, session: PolledSession) -> None:
    """A run whose journal holds 20 durations polls its jobs when the earlier ones ended."""
    await run(session, items(20), virtual_journal)
    assert session.history_of("docs") is None
    by_default = early_polls(session) / 20
    session.polled.clear()
    await run(session, items(21), virtual_journal)
    history: Any = session.history_of("docs")
    assert history.quantile(0.5) == pytest.approx(JOB_SECONDS, rel=0.05)
    assert early_polls(session) < 0.85 * by_default


def early_polls(session: PolledSession) -> int:
    """Count the polls of jobs in the first half of their durations."""
    return sum(age < JOB_SECONDS / 2 for age in session.polled)


async def test_too_few_to_learn_from(virtual_journal: Journal, session: PolledSession) -> None:
    """With fewer than 20 durations a run waits as by default."""
    for count in (19, 20):
        await run(session, items(count), virtual_journal)
        assert session.history_of("docs") is None


async def test_time_outs_are_kept(virtual_journal: Journal, session: PolledSession) -> None:
    """A later run knows of the jobs whose waits timed out that they take longer."""
    await run(session, items(20), virtual_journal, timeout=50.0)
    await run(session, items(21), virtual_journal, timeout=50.0)
    assert {latest for _, latest in session.history_of("docs") or ()} == {inf}
    assert all(40 < earliest < 100 for earliest, _ in session.history_of("docs") or ())


async def test_abandoned_jobs_are_kept(virtual_journal: Journal, session: PolledSession) -> None:
    """A later run knows of jobs that a person gave up how long they were seen active, not when they were given up."""
    await run(session, items(20), virtual_journal, timeout=150.0)
    await asyncio.sleep(1_000)
    for row in await virtual_journal.rows():
        await virtual_journal.abandon(row.key)
    await run(session, items(21), virtual_journal, timeout=50.0)
    known = list(session.history_of("docs") or ())
    assert {latest for _, latest in known} == {inf}
    assert all(40 < earliest < 160 for earliest, _ in known)


async def test_rows_whose_end_was_recorded_late(virtual_journal: Journal, session: PolledSession) -> None:
    """Jobs that ended while no process polled them say nothing about durations."""
    async with run_batch(session.session, items(20), journal=virtual_journal) as results:
        await asyncio.sleep(10)
    assert results.stats().outcomes == {}
    await asyncio.sleep(30_000)
    await run(session, (), virtual_journal)
    await run(session, items(21), virtual_journal)
    assert session.history_of("docs") is None
