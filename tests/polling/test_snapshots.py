"""What is kept of a job between two polls, wherever it is kept."""

import asyncio
import gc
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    JobChanged,
    JobPolled,
    JobRef,
    JobTracker,
    PollBudget,
    WaitTimeoutError,
    wait_for_job,
)
from agentjobs_async._polling.snapshots import snapshot
from tests.polled import every, in_memory, never, refs
from tests.rows import failures

KIB = 1024
SOURCE = {"repository": "https://code.example/x", "ref": "main", "labels": ["a", "b"], "count": 7}


def job_of(raw: Mapping[Any, Any], status: str = "active", **fields: Any) -> AgentJob:
    return AgentJob("job_1", "docs", status, raw=dict(raw), **fields)


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def test_small_documents() -> None:
    """A document of up to about 16 KiB is kept: the job is what it was."""

    def check(raw: dict[str, Any]) -> None:
        job = job_of(raw)
        assert snapshot(job) is job

    raws: list[dict[str, Any]] = [
        {},
        {"id": "job_1", "status": "active", "source": SOURCE, "archivedAt": None, "done": True, "share": 0.5},
        {"log": "x" * 16 * 1000},
        {"log": ["x" * 60] * 200},
        {"log": [{"at": number, "line": "so many characters"} for number in range(120)]},
    ]
    assert failures(check, *raws) == {}


def test_large_documents() -> None:
    """Of a job with a larger document all but that is kept, whatever makes it large, be it without end."""

    def check(raw: dict[str, Any]) -> None:
        job = job_of(raw, model="m", pr_link="https://code.example/pull/1")
        kept = snapshot(job)
        assert (kept, kept.raw, job.raw) == (job, {}, raw)

    raws: list[dict[str, Any]] = [
        {"log": "x" * 16 * KIB},
        {"log": b"x" * 16 * KIB},
        {"log": ["x" * 100] * 200},
        {"deep": {"deeper": [[{"log": "x" * 16 * KIB}]]}},
        {"empty": [[] for _ in range(300)]},
        {"numbers": list(range(3000))},
        {"x" * 16 * KIB: 1},
        {f"name {number}": None for number in range(2000)},
        {"nested": nested(300)},
        {"odd": MappingProxyType({1: ("x" * 8 * KIB, {"x" * 8 * KIB})})},
    ]
    assert failures(check, *raws) == {}
    endless: dict[str, Any] = {}
    endless["itself"] = endless
    assert snapshot(job_of(endless)).raw == {}


# Waits keep no more.


class Text(str):  # noqa: SLOT000 - without slots, it can be held weakly
    """A text that can be watched by the garbage collector's means."""


class Large:
    """A get-job callable whose jobs have large documents, and change at each poll, up to their ends.

    Attributes:
        alive: The texts that somebody holds.
    """

    def __init__(self, polls: int) -> None:
        self._polls = polls
        self._asked: dict[str, int] = {}
        self.alive: weakref.WeakSet[Text] = weakref.WeakSet()

    async def __call__(self, ref: JobRef) -> AgentJob:
        asked = self._asked[ref.job_id] = self._asked.get(ref.job_id, 0) + 1
        text = Text(f"{ref.job_id} {asked} " * 4_000)
        self.alive.add(text)
        status = "completed" if asked == self._polls else "active"
        return AgentJob(ref.job_id, "docs", status, model=f"m{asked}", raw={"log": text})


def held(get_job: Large) -> int:
    gc.collect()
    return len(get_job.alive)


@in_memory
async def test_large_documents_are_not_kept_between_polls() -> None:
    """However jobs are waited for, no large document is held between two polls; the last one comes whole."""
    get_job = Large(polls=4)
    policy = every(10)
    seen: list[int] = []

    def note(job: AgentJob) -> None:
        seen.append(len(job.raw["log"]))

    async def read(ref: JobRef) -> None:
        async with tracker.updates(ref) as changes:
            async for job in changes:
                note(job)
                del job

    async with JobTracker(get_job, policy=policy, budget=PollBudget(in_flight=50)) as tracker:
        watches = [tracker.watch(ref) for ref in refs(100)]
        tasks = [
            asyncio.ensure_future(tracker.wait_for_job(JobRef("docs", f"told_{number}"), on_update=note))
            for number in range(20)
        ]
        readers = [asyncio.ensure_future(read(JobRef("docs", f"read_{number}"))) for number in range(20)]
        free = asyncio.ensure_future(
            wait_for_job(JobRef("docs", "free"), get_job=get_job, policy=policy, on_update=note)
        )
        for _ in range(3):
            await asyncio.sleep(9)
            assert held(get_job) == 0
        for job in [*await asyncio.gather(*watches), *await asyncio.gather(*tasks), await free]:
            assert len(job.raw["log"]) > 25_000
        await asyncio.gather(*readers)
    assert len(seen) == 4 * (20 + 20 + 1)
    assert min(seen) > 25_000


@in_memory
async def test_document_of_the_poll_before() -> None:
    """A hook gets what a poll showed whole, and what was known before without its large document."""
    events: list[Any] = []
    async with JobTracker(Large(polls=3), policy=every(2), hooks=[events.append]) as tracker:
        await tracker.wait_for_job(JobRef("docs", "job_1"))
    assert all(event.job.raw["log"] for event in events if isinstance(event, JobPolled | JobChanged))
    previous = [event.previous for event in events if isinstance(event, JobChanged)]
    assert [(job.model, job.raw) for job in previous] == [("m1", {}), ("m2", {})]


@in_memory
async def test_last_document_of_a_timeout() -> None:
    """What a timeout tells of the job has no large document, be it a tracked wait or the free one."""
    get_job, ref = Large(polls=100), JobRef("docs", "job_1")
    async with JobTracker(get_job, policy=every(2)) as tracker:
        for wait in (tracker.wait_for_job(ref, timeout=5), wait_for_job(ref, get_job=get_job, timeout=5)):
            with pytest.raises(WaitTimeoutError) as caught:
                await wait
            assert caught.value.last_job is not None
            assert (caught.value.last_job.status, caught.value.last_job.raw) == ("active", {})


@in_memory
async def test_worker_keeps_no_answer() -> None:
    """While a poll hangs, nothing of the one before it is held."""
    get_job = Large(polls=4)

    async def hangs(ref: JobRef) -> AgentJob:
        return await never(ref) if ref.job_id == "hangs" else await get_job(ref)

    async with JobTracker(hangs, policy=every(100), budget=PollBudget(in_flight=1)) as tracker:
        watches = [tracker.watch(ref) for ref in (*refs(2), JobRef("docs", "hangs"))]
        await asyncio.sleep(0.5)
        assert tracker.stats().polls == 2
        assert tracker.stats().in_flight == 1
        assert held(get_job) == 0
        assert not any(watch.done() for watch in watches)
