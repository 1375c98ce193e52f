"""What a rate promises, by the record of a server that counts the creates of any span and refuses one too many."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async import AuthError
from agentjobs_async.batch import BatchItem, Journal, Rate, run_batch
from agentjobs_async.testing import Emulator, JobScript, RateLimit
from tests.batch.stage import items, run
from tests.polled import clock, gaps
from tests.until import until

pytestmark = pytest.mark.looptime

SLOW = 2.0
"""Seconds from the arrival of a create to its answer."""


def strict(count: int, per: float) -> Emulator:
    """Return a server that takes so many creates of a project in any span, from their arrivals on."""
    limit = RateLimit(creates=count, per=per)
    return Emulator(script=JobScript(duration=0), latency=SLOW, rate_limit=limit)


def arrivals(emulator: Emulator, project: str = "docs") -> list[float]:
    """Return when each create of a project arrived, those that were refused included."""
    return [one.at for one in emulator.requests if one.method == "POST" and one.project_id == project]


def most_within(times: list[float], per: float) -> int:
    """Return the most creates that any span of `per` seconds saw."""
    return max(sum(at - per < earlier <= at for earlier in times) for at in times)


async def test_the_first_go_at_once(virtual_journal: Journal) -> None:
    """Of 30 items at 20 a minute, 20 go at once, and the others a minute after the answers; none is refused."""
    async with strict(20, 60) as emulator, emulator.session(project_id="docs") as session:
        began = clock()
        results = await run(
            session, items(30), virtual_journal, max_active=30, max_sending=30, create_rate=Rate(20, 60)
        )
        sent = arrivals(emulator)
    assert {str(result.outcome) for result in results} == {"completed"}
    assert len(sent) == 30
    assert sent[19] - began < SLOW
    assert sent[20] - sent[0] >= 60 + SLOW
    assert sent[29] - began < 60 + 4 * SLOW


async def test_evenly_spaced(virtual_journal: Journal) -> None:
    """One create in any span of 3 s leaves at least 3 s between two, of each project; a late answer makes it longer."""
    async with strict(1, 3) as emulator, emulator.session() as session:
        todo = [BatchItem(f"{project}{number}", "p", project) for number in range(5) for project in ("docs", "web")]
        await run(session, todo, virtual_journal, create_rate=Rate(1, per=3))
        sent = [arrivals(emulator, project) for project in ("docs", "web")]
    assert [len(times) for times in sent] == [5, 5]
    assert min(gap for times in sent for gap in gaps(times)) >= 3 + SLOW


async def test_all_projects_together(virtual_journal: Journal) -> None:
    """A rate of all projects counts them together."""
    async with strict(99, 1) as emulator, emulator.session() as session:
        todo = [BatchItem(f"{project}{number}", "p", project) for number in range(4) for project in ("docs", "web")]
        await run(session, todo, virtual_journal, create_rate=Rate(3, per=30, scope="all"))
        sent = sorted(arrivals(emulator, "docs") + arrivals(emulator, "web"))
    assert len(sent) == 8
    assert most_within(sent, 30 + SLOW) == 3


async def test_what_was_refused_counts(path: Path) -> None:
    """A create that a 429 or 401 refused counts, in a later run too, and its repeat counts as another one."""
    settings: dict[str, Any] = {"max_sending": 4, "create_rate": Rate(2, per=100)}
    async with strict(99, 1) as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("429 retry-after=1 on=create x2 then 401 on=create x2")
        async with Journal.open(path, clock=clock) as journal:
            with pytest.raises(AuthError):
                await run(session, items(4), journal, **settings)
            assert len(arrivals(emulator)) == 4
        async with Journal.open(path, clock=clock) as journal:
            await run(session, (), journal, **settings)
        sent = arrivals(emulator)
        assert emulator.agents_started.total() == 4
    assert len(sent) == 8
    assert most_within(sent, 100 + SLOW) == 2


async def test_what_was_cut_counts(path: Path) -> None:
    """A create whose answer nobody waited for counts in the next run, from when it was given up."""
    async with strict(2, 100) as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("hang on=create x2")
        async with Journal.open(path, clock=clock) as journal:
            async with run_batch(session, items(4), journal=journal, create_rate=Rate(2, per=100)):
                await until(lambda: len(arrivals(emulator)) == 2)
                await asyncio.sleep(30)
            left = clock()
        async with Journal.open(path, clock=clock) as journal:
            await run(session, (), journal, create_rate=Rate(2, per=100))
        sent = arrivals(emulator)
    assert len(sent) == 4
    assert sent[2] >= left + 99
