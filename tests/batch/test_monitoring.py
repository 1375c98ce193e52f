"""How long the active jobs of a journal have left, seen from outside."""

from pathlib import Path
from typing import Any

import pytest

from agentjobs_async import Estimate
from agentjobs_async.batch import Journal
from agentjobs_async.batch._monitoring import ActiveJobs
from tests.aged import aged_journal


async def seen_from_outside(path: Path) -> Estimate | None:
    async with Journal.open(path, read_only=True) as journal:
        return await ActiveJobs(journal).time_left()


async def test_active_jobs_of_a_journal(path: Path) -> None:
    """How long the active jobs have left is known from outside, too, by the durations in the journal."""
    await aged_journal(path, [290.0 + number for number in range(20)], ages=[100.0, 101.0])
    found = await seen_from_outside(path)
    assert found is not None
    assert found.p50 == pytest.approx(198, rel=0.1)
    assert found.p50 < found.p90 < 300


async def test_jobs_that_are_polled(tmp_path: Path) -> None:
    """Active jobs of which one was seen of late, or has just been created, count as polled; others by no process."""
    cases: list[tuple[tuple[float, ...], float, object]] = [
        ((), 0.0, None),
        ((1000.0,), 0.0, None),
        ((1000.0, 2.0), 900.0, None),
        ((1000.0, 950.0), 900.0, pytest.approx(900.0, abs=100.0)),
    ]
    for number, (ages, unseen_seconds, expected) in enumerate(cases):
        path = tmp_path / f"{number}.db"
        await aged_journal(path, [], ages=ages, unseen_seconds=unseen_seconds)
        async with Journal.open(path, read_only=True) as journal:
            assert await ActiveJobs(journal).unseen_for() == expected, ages


async def test_nothing_is_known_of_active_jobs(tmp_path: Path) -> None:
    """Nothing is known without active jobs, with fewer than 20 durations, and of jobs that nobody polls any more."""
    few: list[dict[str, Any]] = [{"ages": ()}, {"durations": 19}, {"unseen_seconds": 900.0}]
    for number, changed in enumerate(few):
        given = {"durations": 20, "ages": [1000.0], **changed}
        path = tmp_path / f"{number}.db"
        await aged_journal(path, [300.0] * given.pop("durations"), **given)
        assert await seen_from_outside(path) is None, changed
