"""Whether a process polls the active jobs of a journal, seen from outside."""

from pathlib import Path

import pytest

from agentjobs_async.batch import Journal
from agentjobs_async.batch._monitoring import unseen_for
from tests.aged import aged_journal


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
            assert await unseen_for(journal) == expected, ages
