"""Many at once: limits are ours, and a poisoned job disturbs no other."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Any, Final

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateOutcome,
    HttpTimeouts,
    PollBudget,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.tables import BAD_ANSWERS, BREAKS
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


async def test_one_place(waiting: Waiting) -> None:
    """Fifty waits with one place each get their turn: waiting for it is never mistaken for a slow server."""
    events: list[Any] = []
    async with (
        Emulator(script=JobScript(duration=0), latency=1.0) as emulator,
        waiting(
            emulator,
            budget=PollBudget(in_flight=1),
            timeouts=HttpTimeouts(request=1.5, connect=1.5),
            hooks=[events.append],
        ) as (session, wait),
    ):
        refs = [(await session.create_job(str(number))).ref for number in range(50)]
        ends = await asyncio.gather(*(wait(ref, timeout=60) for ref in refs))
    assert all(job.succeeded for job in ends)
    assert len(gets(emulator)) == 50
    assert [event for event in events if type(event).__name__ == "PollFailed"] == []
    at = [request.at for request in gets(emulator)]
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(at))


async def test_many_creates() -> None:
    """Two hundred creates at once, a third of which breaks, start each agent at most once, and none is misjudged."""
    faults = ("ok", "reset", "500", "429", "close:body", "body:html", "ok", "400", "hang", "ok agent=no code=503")
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        prompts = [f"{number} {faults[number % len(faults)]}" for number in range(200)]
        for prompt in prompts:
            await emulator.inject(prompt.partition(" ")[2], prompt=prompt)
        claims = dict(zip(prompts, await asyncio.gather(*(_claimed(session, p) for p in prompts)), strict=True))
    started = emulator.agents_started
    assert max(started.values()) == 1
    assert [p for p, claim in claims.items() if claim is CreateOutcome.CREATED and started[p] != 1] == []
    assert [p for p, claim in claims.items() if claim is CreateOutcome.REJECTED and started[p]] == []
    assert Counter(claims.values()) == {
        CreateOutcome.CREATED: 60,
        CreateOutcome.REJECTED: 20,
        CreateOutcome.UNKNOWN: 120,
    }
    sent = Counter(request.prompt for request in emulator.requests)
    assert {prompt for prompt, count in sent.items() if count > 1} == {p for p in prompts if p.endswith("429")}


async def _claimed(session: AgentJobsSession, prompt: str) -> CreateOutcome:
    try:
        job = await session.create_job(prompt, timeout=20)
    except AgentJobsError as error:
        outcome = error.outcome
    else:
        outcome = CreateOutcome.CREATED
        assert job.id.startswith("job_")
    assert outcome is not None
    return outcome


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


async def test_chaos() -> None:
    """Under faults drawn at random for every request, each wait ends with its own job, though it takes longer."""
    draw = random.Random(7)  # noqa: S311 - a script, not a secret
    faults = [*BREAKS, *BAD_ANSWERS, "500", "503 retry-after=1", "429", "408", "404"]
    plan = " then ".join(f"{draw.choice(faults)} on=get then ok x{draw.randint(1, 4)} on=get" for _ in range(150))
    async with (
        Emulator(script=lambda _, prompt: JobScript(duration=int(prompt)), faults=plan) as emulator,
        SESSION(emulator, policy=every(1, max_bad_answers=50), timeouts=HttpTimeouts(request=2)) as (session, wait),
    ):
        jobs = [await session.create_job(str(number)) for number in range(60)]
        ends = await asyncio.gather(*(wait(job.ref, timeout=600) for job in jobs))
    assert [end.id for end in ends] == [job.id for job in jobs]
    assert all(end.succeeded for end in ends)
