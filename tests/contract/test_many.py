"""Many at once: limits are ours, and a poisoned job disturbs no other."""

import asyncio
from collections import Counter
from typing import Any, Final

import pytest

from agentjobs_async import AgentJob, AgentJobsError, HttpTimeouts, PollBudget
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.ways import SESSION, Waiting, gets
from tests.polled import every
from tests.rows import failures_in_turn

pytestmark = pytest.mark.looptime

POISON: Final = (
    "hang",
    "hang:body",
    "drip",
    "reset",
    "close:body",
    "500",
    "503 retry-after=60",
    "429 retry-after=60",
    "401",
    "403",
    "404",
    "501",
    "302",
    "body:html",
    "gzip:cut",
    "document id=job_000001",
    "document status=weird",
    "surplus id=job_000002 status=completed",
    "endless:headers every=0.5",
)


async def test_poisoned_jobs(waiting: Waiting) -> None:
    """Of a thousand jobs a tenth is broken in every way; the others end, in time, each with its own result."""
    count = 1000 if waiting is SESSION else 200
    async with (
        Emulator(script=lambda _, prompt: JobScript(duration=1 + int(prompt) % 4)) as emulator,
        waiting(emulator, policy=every(2), timeouts=HttpTimeouts(request=3)) as (session, wait),
    ):
        for index, fault in enumerate(POISON):
            await emulator.inject(f"{fault} forever on=get", project_id=f"poison-{index}")
        projects = ["docs" if number % 10 != 5 else f"poison-{number // 10 % len(POISON)}" for number in range(count)]
        jobs = [await session.create_job(str(number), project_id=name) for number, name in enumerate(projects)]
        began = asyncio.get_running_loop().time()
        times = await asyncio.gather(*(_seconds_until_end(wait(job.ref, timeout=15), job, began) for job in jobs))
    healthy = [seconds for seconds, name in zip(times, projects, strict=True) if name == "docs"]
    assert None not in healthy
    assert max(filter(None, healthy)) <= 12
    assert len(healthy) == count * 9 / 10
    requests = Counter(request.job_id for request in gets(emulator))
    assert max(requests[job.id] for job in jobs if job.project_id == "docs") <= 5
    assert emulator.foreign.connections == 0


@pytest.mark.parametrize(
    ("places", "latency", "faults"),
    [
        (4, 0.04, ["503 retry-after=60", "429 retry-after=60", "401", "410", "hang"]),
        (6, 0.06, ["503 retry-after=60", "429 retry-after=60", "hang"]),
        (100, 0.04, ["503 retry-after=60", "hang"]),
    ],
    ids=["4", "6", "100"],
)
async def test_tenth_of_one_kind(places: int, latency: float, faults: list[str]) -> None:
    """A tenth of the jobs, each in a project of its own, all broken alike once they were seen: the others go on."""

    async def check(fault: str) -> None:
        async with (
            Emulator(script=JobScript(duration=30), latency=latency) as emulator,
            SESSION(emulator, policy=every(5), budget=PollBudget(in_flight=places)) as (session, wait),
        ):
            projects = [f"poison-{number}" if number % 10 == 5 else "docs" for number in range(200)]
            jobs = [await session.create_job(str(number), project_id=name) for number, name in enumerate(projects)]
            began = asyncio.get_running_loop().time()
            waits = [asyncio.ensure_future(_seconds_until_end(wait(job.ref, timeout=55), job, began)) for job in jobs]
            await asyncio.sleep(8)
            for name in set(projects) - {"docs"}:
                await emulator.inject(f"{fault} forever on=get", project_id=name)
            times = await asyncio.gather(*waits)
        healthy = [seconds for seconds, name in zip(times, projects, strict=True) if name == "docs"]
        assert None not in healthy
        assert max(filter(None, healthy)) <= 30 + 5 + 10
        assert {seconds for seconds, name in zip(times, projects, strict=True) if name != "docs"} == {None}

    assert await failures_in_turn(check, *faults) == {}


async def _seconds_until_end(waited: Any, job: AgentJob, began: float) -> float | None:
    try:
        ended = await waited
    except AgentJobsError:
        return None
    assert ended.id == job.id
    assert ended.succeeded
    return asyncio.get_running_loop().time() - began
