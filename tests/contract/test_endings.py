"""What waits on a session, in whatever room: none of it outlives a draining or a closing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from agentjobs_async import AgentJobsSession, CreateRetried, History, PollBudget, SessionClosedError
from agentjobs_async.batch import BatchItem, BatchWorker, Journal, Rate, run_batch
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator
from agentjobs_async.web import job_events, sse_events
from tests.contract.ways import ENDLESS, REF
from tests.until import until

ITEMS = [BatchItem(f"key-{number}", "Fix the links", "docs") for number in range(3)]


@define
class Stage:
    """A session with an endless job, an empty journal, and what tells that a caller waits."""

    emulator: Emulator
    session: AgentJobsSession
    journal: Journal
    caplog: pytest.LogCaptureFixture
    events: list[object]
    asked: asyncio.Event = field(factory=asyncio.Event)

    async def silent(self) -> AsyncIterator[Any]:
        """A source that never gives anything."""
        self.asked.set()
        await asyncio.Event().wait()
        yield REF

    async def endless(self) -> AsyncIterator[Any]:
        """A source that gives the same job for ever."""
        while True:
            yield REF
            self.asked.set()
            await asyncio.sleep(0)

    async def raising(self) -> AsyncIterator[Any]:
        """A source that raises when it is cancelled."""
        try:
            self.asked.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("not now") from None
        yield REF


Way = Callable[[Stage], Awaitable[object]]


async def updates(stage: Stage) -> None:
    async with stage.session.updates(REF, timeout=None) as changes:
        async for _ in changes:
            pass


def completed(source: str) -> Way:
    """Return the way to take results from a source, each of which may be an error."""

    async def way(stage: Stage) -> None:
        jobs = [REF] if source == "list" else getattr(stage, source)()
        async with stage.session.as_completed(jobs, timeout=None) as results:
            async for result in results:
                if source == "list":
                    result.result()

    return way


async def learned(stage: Stage) -> None:
    stage.session.learn_from(History())
    await stage.session.estimate(REF)


async def many_reads(stage: Stage) -> None:
    """Two reads, of which one waits for the slot of the other."""
    ends = await asyncio.gather(*(stage.session.get_job(REF) for _ in range(2)), return_exceptions=True)
    assert [type(end) for end in ends] == [SessionClosedError] * 2
    raise SessionClosedError("both")


def events(of: Callable[..., Any]) -> Way:
    """Return the way to read events, of which the last is to tell of the end of the session."""

    async def way(stage: Stage) -> None:
        *_, last = [event async for event in of(stage.session, REF, timeout=None)]
        assert "job_error" in str(last)
        raise SessionClosedError("told")

    return way


def batch(items: Any, **settings: Any) -> Way:
    """Return the way to run a batch."""

    async def way(stage: Stage) -> None:
        source = getattr(stage, items)() if isinstance(items, str) else items
        async with run_batch(stage.session, source, journal=stage.journal, **settings) as results:
            async for _ in results:
                pass

    return way


async def worker(stage: Stage) -> None:
    await stage.journal.add(ITEMS)
    async with BatchWorker(stage.session, stage.journal) as running:
        await running.run([item.key for item in ITEMS])


async def submitted(stage: Stage) -> None:
    async with DurableJobs(stage.session, stage.journal) as jobs:
        await jobs.submit("key", "Fix the links")


async def followed(stage: Stage) -> None:
    """A durable job that can't be read, and is to be read again after a minute."""
    async with DurableJobs(stage.session, stage.journal) as jobs:
        await jobs.submit("key", "Fix the links")
        await until(lambda: "tried again" in stage.caplog.text)
        stage.asked.set()
        await until(lambda: not jobs._following.under_way())
        raise SessionClosedError("not followed any more")


async def read_by_key(stage: Stage) -> None:
    async with DurableJobs(stage.session, stage.journal) as jobs:
        await jobs.submit("key", "Fix the links")
        async with jobs.updates("key", timeout=None) as changes:
            async for _ in changes:
                stage.asked.set()


def asked(stage: Stage) -> bool:
    return stage.asked.is_set()


def held_back(stage: Stage) -> bool:
    return "held back" in stage.caplog.text


def retried(stage: Stage) -> bool:
    return any(isinstance(event, CreateRetried) for event in stage.events)


def read(stage: Stage) -> bool:
    return any(request.method == "GET" for request in stage.emulator.requests)


def created(stage: Stage) -> bool:
    return bool(stage.emulator.agents_started) and read(stage)


LIMITED = "429 retry-after=30 forever on=create"
HUNG = "hang forever on=get"
WAYS: dict[str, tuple[str, Way, Callable[[Stage], bool]]] = {
    "wait": ("", lambda stage: stage.session.wait_for_job(REF, timeout=None), read),
    "watch": ("", lambda stage: stage.session.watch(REF, timeout=None), read),
    "updates": ("", updates, read),
    "as_completed, a list": ("", completed("list"), read),
    "as_completed, a silent source": ("", completed("silent"), asked),
    "as_completed, an endless source": ("", completed("endless"), asked),
    "as_completed, a raising source": ("", completed("raising"), asked),
    "reads": (HUNG, many_reads, read),
    "an estimate": (HUNG, learned, read),
    "a create between its tries": (LIMITED, lambda stage: stage.session.create_job("Fix it"), retried),
    "a run between its tries": (LIMITED, lambda stage: stage.session.run_job("Fix it"), retried),
    "server-sent events": ("", events(sse_events), read),
    "events": ("", events(job_events), read),
    "batch, a silent source": ("", batch("silent"), asked),
    "batch, a raising source": ("", batch("raising"), asked),
    "batch, a 429": (LIMITED, batch(ITEMS), held_back),
    "batch, a rate": ("", batch(ITEMS, create_rate=Rate(1, per=3600)), created),
    "batch, a slot": ("", batch(ITEMS, max_active=1), created),
    "worker, a 429": (LIMITED, worker, held_back),
    "durable, a 429": (LIMITED, submitted, held_back),
    "durable, a key that is read": ("", read_by_key, asked),
    "durable, a refused read": ("401 forever on=get", followed, asked),
}
"""By what waits: what the service does, the call, and what tells that it waits."""


@pytest.mark.parametrize("ending", ["drain", "aclose"])
@pytest.mark.parametrize("name", WAYS)
async def test_nothing_outlives_the_session(
    name: str, ending: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything that waits ends with a `SessionClosedError` at a draining, at once, and at a closing."""
    plan, way, waits = WAYS[name]
    events: list[object] = []
    async with Emulator(script=ENDLESS) as emulator, Journal.open(tmp_path / "run.db") as journal:
        budget = PollBudget(in_flight=1)
        async with emulator.session(project_id="docs", budget=budget, hooks=[events.append]) as session:
            await session.create_job("First")
            emulator.agents_started.clear()
            if plan:
                await emulator.inject(plan)
            stage = Stage(emulator, session, journal, caplog, events)
            waiting = asyncio.ensure_future(way(stage))
            await until(lambda: waits(stage))
            async with asyncio.timeout(20):  # less than the grace, and than the pause after a 429
                await (session.drain(60) if ending == "drain" else session.aclose())
                await asyncio.wait([waiting])
            assert isinstance(waiting.exception(), SessionClosedError)


async def test_results_come_before_the_end() -> None:
    """An iteration over a silent source gives the results of its waits first, and the error of the end once."""
    async with Emulator(script=ENDLESS) as emulator, emulator.session(project_id="docs") as session:
        job = await session.create_job("First")

        async def silent() -> AsyncIterator[Any]:
            yield job
            await asyncio.Event().wait()

        async with session.as_completed(silent(), timeout=None) as results:
            first = asyncio.ensure_future(anext(results))
            await until(lambda: any(request.method == "GET" for request in emulator.requests))
            await session.drain()
            assert isinstance((await first).error, SessionClosedError)
            with pytest.raises(SessionClosedError):
                await anext(results)
            with pytest.raises(StopAsyncIteration):
                await anext(results)
