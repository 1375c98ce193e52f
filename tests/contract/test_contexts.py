"""Context variables: what belongs to a caller runs in his context, what belongs to a job in none."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar, Token, copy_context
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    CreateFailed,
    JobChanged,
    JobCreated,
    JobPolled,
    JobRef,
    JobTracker,
    PollFailed,
    WaitEnded,
    WaitStarted,
    wait_for_job,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.polled import REF, every

pytestmark = pytest.mark.looptime

CALLER: ContextVar[Any] = ContextVar("CALLER")
OF_CALLERS = JobCreated | CreateFailed | WaitStarted | WaitEnded
OF_JOBS = JobPolled | JobChanged | PollFailed
SLOW = JobScript(duration=10, stages=((4, "reviewing"),))
ENDLESS = JobScript(duration=float("inf"))


class Caller:
    """Somebody with data of his own, held by his context only."""


class Told:
    """A hook that notes who was the caller at each event."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, Any]] = []

    def __call__(self, event: Any) -> None:
        self.events.append((event, CALLER.get(None)))

    def callers(self, kinds: Any) -> set[Any]:
        return {caller for event, caller in self.events if isinstance(event, kinds)}

    def caller_of(self, kind: Any, ref: JobRef) -> list[Any]:
        return [caller for event, caller in self.events if type(event) is kind and event.ref == ref]


async def in_the_name_of(caller: object, call: Callable[[], Awaitable[Any]]) -> Any:
    CALLER.set(caller)
    return await call()


async def test_four_requests_on_one_session() -> None:
    """Each of four requests sees its own events and updates; polls and what they show belong to none of them."""
    told, updates = Told(), list[tuple[str, Any]]()
    async with (
        Emulator(script=SLOW, faults="500 x4 on=get") as emulator,
        emulator.session(project_id="docs", policy=every(2), hooks=[told]) as session,
    ):

        async def request() -> None:
            job = await session.create_job("Fix it")
            await session.wait_for_job(job, on_update=lambda job: updates.append((job.id, CALLER.get(None))))

        names = ["first", "second", "third", "fourth"]
        await asyncio.gather(*(in_the_name_of(name, request) for name in names))
    assert told.callers(OF_JOBS) == {None}
    assert {type(event) for event, _ in told.events} == {
        *(JobCreated, WaitStarted, JobPolled, JobChanged, PollFailed, WaitEnded)
    }
    owners = {event.job.ref: caller for event, caller in told.events if isinstance(event, JobCreated)}
    assert sorted(owners.values()) == sorted(names)
    for ref, name in owners.items():
        assert told.caller_of(WaitStarted, ref) == told.caller_of(WaitEnded, ref) == [name]
        assert [caller for job_id, caller in updates if job_id == ref.job_id] == [name] * 3


@pytest.mark.parametrize("end", ["completed", "cancelled", "timed out", "closed", "ended before"])
async def test_whoever_ends_a_wait(end: str) -> None:
    """However a wait ends, and in whatever context somebody ends it, its events are told in that of its beginning."""
    told = Told()
    done = AgentJob("job_1", "docs", "completed")
    tracker = JobTracker(Reader("active", "completed" if end == "completed" else "active"), hooks=[told])
    target = done if end == "ended before" else REF

    async def begin() -> asyncio.Future[AgentJob]:
        return tracker.watch(target, timeout=5 if end == "timed out" else 100)

    watch = await asyncio.create_task(in_the_name_of("caller", begin))
    CALLER.set("somebody else")
    await asyncio.sleep(1)
    if end == "cancelled":
        watch.cancel()
    if end == "closed":
        await tracker.aclose()
    await asyncio.wait([watch])
    await tracker.aclose()
    assert told.caller_of(WaitStarted, REF) == told.caller_of(WaitEnded, REF) == ["caller"]
    assert told.callers(OF_JOBS) <= {None}


@pytest.mark.parametrize("way", ["as_completed", "updates", "lazy", "async"])
async def test_other_ways_to_wait(way: str) -> None:
    """The waits of a group or of an iteration are told in the context in which each began."""
    told = Told()

    def lazily() -> Iterator[JobRef]:
        yield REF

    async def stream() -> Any:
        yield REF

    async with JobTracker(Reader("active", "completed"), policy=every(1), hooks=[told]) as tracker:
        jobs: dict[str, Any] = {"as_completed": [REF], "lazy": lazily(), "async": stream()}
        face: Any = tracker.updates(REF) if way == "updates" else tracker.as_completed(jobs[way])

        async def read() -> None:
            async with face as results:
                async for _ in results:
                    pass

        await asyncio.create_task(in_the_name_of("caller", read))
    assert told.caller_of(WaitStarted, REF) == told.caller_of(WaitEnded, REF) == ["caller"]
    assert told.callers(OF_JOBS) == {None}


async def test_cut_poll_belongs_to_nobody() -> None:
    """A poll that is cut since its last waiter leaves is not told in the context of him who left."""
    told = Told()
    async with JobTracker(Reader(asyncio.Event().wait), hooks=[told]) as tracker:
        CALLER.set("caller")
        watch = tracker.watch(REF)
        await asyncio.sleep(1)
        watch.cancel()
    assert [(type(event), caller) for event, caller in told.events] == [
        (WaitStarted, "caller"),
        (PollFailed, None),
        (WaitEnded, "caller"),
    ]


class Reader:
    """A get-job callable that notes what it sees, and leaves variables of its own behind."""

    def __init__(self, *steps: Any, leaves: object = None) -> None:
        self._steps = list(steps)
        self._leaves = leaves
        self.seen: list[dict[Any, Any]] = []

    async def __call__(self, ref: JobRef) -> Any:
        self.seen.append(dict(copy_context()))
        if self._leaves is not None:
            CALLER.set(self._leaves)
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return AgentJob(ref.job_id, ref.project_id, step) if isinstance(step, str) else await step()


@pytest.mark.parametrize("leaves", [None, "something"])
async def test_polls_of_a_tracker(leaves: object) -> None:
    """A get-job callable sees no variable through a tracker: neither a caller's nor what an earlier poll left."""
    reader, told = Reader(*["active"] * 40, "completed", leaves=leaves), Told()
    CALLER.set("caller")
    async with JobTracker(reader, policy=every(1), hooks=[told]) as tracker:
        watches = [tracker.watch(JobRef("docs", f"job_{number}")) for number in range(4)]
        await asyncio.sleep(5)
        tracker.notify(JobRef("docs", "job_1"))
        await asyncio.gather(*watches)
    assert len(reader.seen) > 40
    assert reader.seen == [{}] * len(reader.seen)
    assert told.callers(OF_JOBS) == {None}
    assert told.callers(OF_CALLERS) == {"caller"}


async def test_reads_of_a_caller() -> None:
    """The free wait, and a session's `get_job`, call the callable in the context of their caller."""
    reader = Reader("active", "completed")
    CALLER.set("caller")
    seen = list[Any]()
    await wait_for_job(REF, get_job=reader, policy=every(1), on_update=lambda _: seen.append(CALLER.get()))
    async with AgentJobsSession("http://127.0.0.1:1", "key-of-tests", get_job=reader) as session:
        await session.get_job(REF)
    assert [variables[CALLER] for variables in reader.seen] == ["caller"] * 3
    assert seen == ["caller"] * 2


async def test_one_context_for_a_wait() -> None:
    """What a hook sets when a wait starts it finds, and can take back, when that wait ends."""
    span: ContextVar[JobRef] = ContextVar("span")
    tokens: dict[JobRef, Token[JobRef]] = {}

    def traced(event: object) -> None:
        if isinstance(event, WaitStarted):
            tokens[event.ref] = span.set(event.ref)
        if isinstance(event, WaitEnded):
            assert span.get() == event.ref
            span.reset(tokens.pop(event.ref))

    async with JobTracker(Reader("active", "completed"), policy=every(1), hooks=[traced]) as tracker:
        await asyncio.gather(*(tracker.watch(JobRef("docs", f"job_{number}")) for number in range(3)))
        assert (tokens, span.get(None)) == ({}, None)


async def test_update_that_ends_its_own_wait(caplog: pytest.LogCaptureFixture) -> None:
    """An `on_update` that cancels its own wait runs in the wait's context, and so does the end that follows from it."""
    told = Told()
    async with JobTracker(Reader("active"), policy=every(1), hooks=[told]) as tracker:

        def leave(_job: AgentJob) -> None:
            assert CALLER.get() == "caller"
            task.cancel()

        task = asyncio.create_task(in_the_name_of("caller", lambda: tracker.wait_for_job(REF, on_update=leave)))
        await asyncio.wait([task])
    assert task.cancelled()
    assert told.caller_of(WaitEnded, REF) == ["caller"]
    assert caplog.records == []


@pytest.mark.parametrize("hooks", [[], [lambda _: None]])
async def test_contexts_are_let_go(hooks: list[Any]) -> None:
    """What the first request's context holds is gone with the request, while others still wait on the session."""
    async with (
        Emulator(script=ENDLESS) as emulator,
        emulator.session(project_id="docs", policy=every(2), hooks=hooks) as session,
    ):
        emulator.script(JobScript(duration=5), prompt="Fix it")

        async def request(prompt: str) -> "weakref.ref[Caller]":
            caller = Caller()
            CALLER.set(caller)
            job = await session.create_job(prompt)
            await session.get_job(job)
            with pytest.raises(TimeoutError):
                await session.wait_for_job(job, timeout=1)
            await session.get_job(job)
            if prompt == "Fix it":
                await session.wait_for_job(job, on_update=lambda _: None)
            return weakref.ref(caller)

        held = [await asyncio.create_task(request("Fix it"))]
        others = [session.watch(await session.create_job(f"Fix {number}")) for number in range(3)]
        held.append(await asyncio.create_task(request("Fix others")))
        await asyncio.sleep(60)  # longer than the loop keeps the timers of a request, which it only marks as cancelled
        gc.collect()
        assert [caller() for caller in held] == [None, None]
        assert session.stats().jobs == len(others)
        assert session.stats().polls >= 3 * 25
