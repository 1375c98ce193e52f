"""A worker that ends at any point of its work: whatever ends it, others run all of its items to their ends."""

import asyncio
import gc
import signal
import tempfile
from contextlib import ExitStack
from typing import IO

import pytest

from agentjobs_async import PollPolicy
from agentjobs_async.batch import Journal, Limits, State
from agentjobs_async.batch._store import heartbeat
from agentjobs_async.engines.procrastinate import defer, run_worker, submit
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items
from tests.batch.wire import wired
from tests.engines.process import GATE, NEVER, POINTS, POINTS_OF_LEAVING
from tests.engines.stage import SOON, Worker, ended
from tests.postgresql import Server, execute
from tests.until import until

COUNT = 6
ENDLESS = JobScript(duration=float("inf"))
POLICY = PollPolicy(wait=lambda _: 0.05)
CANCELLED_AT = ("before it runs a chunk", "before it sends", "when it has recorded the id", *POINTS_OF_LEAVING)
"""Other points of a cancellation are those of a stop."""


@pytest.mark.parametrize(
    ("number", "points"),
    [(signal.SIGKILL, POINTS), (signal.SIGTERM, POINTS), (signal.SIGINT, CANCELLED_AT)],
    ids=["SIGKILL", "SIGTERM", "SIGINT"],
)
async def test_every_point(
    postgresql: Server, queue_template: str, number: signal.Signals, points: tuple[str, ...]
) -> None:
    """Wherever a worker ends, and by whatever signal, another one brings all of its items to their ends."""
    with ExitStack() as databases, tempfile.TemporaryFile("w+") as complaints:
        locations = [databases.enter_context(postgresql.database(queue_template)) for _ in points]
        ends = [_end_at(location, point, number, complaints) for location, point in zip(locations, points, strict=True)]
        failed = dict(zip(points, await asyncio.gather(*ends, return_exceptions=True), strict=True))
        complaints.seek(0)
        assert {point: error for point, error in failed.items() if error} == {}, complaints.read()


async def _end_at(database: str, point: str, number: signal.Signals, complaints: IO[str]) -> None:
    """Let a worker end at a point, let another one work on what is left, and check that all has come to its end."""
    async with (
        Emulator(script=ENDLESS if point in POINTS_OF_LEAVING else JobScript(duration=0)) as emulator,
        Journal.open(database, owner_timeout=NEVER) as journal,
        emulator.session(project_id="docs", policy=POLICY) as session,
    ):
        await submit(items(COUNT), journal=journal)
        worker = Worker(emulator, database, complaints, point, number)
        assert await worker.ended() == (-number if number is signal.SIGKILL else 0)
        await worker.killed()
        await emulator.inject("document status=completed forever on=get")
        stop = asyncio.Event()
        working = asyncio.ensure_future(run_worker(session, journal, stop=stop, **SOON))
        await until(lambda: ended(journal))
        stop.set()
        await working
        rows = await journal.rows()
        jobs = {job.prompt: job.job_id for job in emulator.jobs.values()}
        assert max(emulator.agents_started.values()) == 1
        assert {row.prompt: row.job_id for row in rows if row.job_id}.items() <= jobs.items()
        unknown = [row for row in rows if row.state is State.UNKNOWN]
        assert len(unknown) <= (GATE if number is signal.SIGKILL else 0)
        assert {row.state for row in rows} <= {State.COMPLETED, State.UNKNOWN}


@pytest.mark.parametrize("point", ["when it has claimed", "before it sends"])
async def test_a_worker_that_is_stopped_and_goes_on(database: str, journal: Journal, point: str) -> None:
    """What a worker claimed before its process was stopped, and others have sent since, it does not send."""
    with tempfile.TemporaryFile("w+") as complaints:
        async with (
            Emulator(script=JobScript(duration=0)) as emulator,
            emulator.session(project_id="docs", policy=POLICY) as session,
        ):
            await submit(items(COUNT), journal=journal, chunk=COUNT)
            stopped = Worker(emulator, database, complaints, point, signal.SIGSTOP)
            try:
                await until(lambda: stopped.is_stopped)
                stop = asyncio.Event()
                working = asyncio.ensure_future(run_worker(session, journal, stop=stop, **SOON))
                unknown = await _unknown_of(stopped, journal)
                for key in unknown:
                    await journal.resolve(key, send_again=True)
                await defer(unknown, journal=journal)
                await until(lambda: ended(journal))
                stopped.process.send_signal(signal.SIGCONT)
                await until(stopped.is_known)
                stopped.process.send_signal(signal.SIGTERM)
                assert await stopped.ended() == 0
                stop.set()
                await working
            finally:
                await stopped.killed()
            assert max(emulator.agents_started.values()) == 1
            assert {row.state for row in await journal.rows()} == {State.COMPLETED}


async def _unknown_of(stopped: Worker, journal: Journal) -> list[str]:
    """Record the silence of a stopped worker until another one finds that its claims are unknown."""

    async def found() -> bool:
        await stopped.record_silence()
        return bool(await journal.unknown())

    await until(found)
    return [row.key for row in await journal.unknown()]


@pytest.mark.parametrize("gone", ["silent", "torn"])
@pytest.mark.parametrize("by", ["a stop", "a cancellation"])
async def test_ending_without_a_database(
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    parting_seconds: float,
    by: str,
    gone: str,
) -> None:
    """A worker whose database does not answer any more ends within 30 s, and leaves no error that nobody sees."""
    monkeypatch.setattr(heartbeat, "_PARTING_SECONDS", parting_seconds)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    async def work(location: str, emulator: Emulator) -> None:
        policy = PollPolicy(wait=lambda _: 1.0)
        async with emulator.session(project_id="docs", policy=policy) as session:
            async with Journal.open(location, owner_timeout=NEVER) as journal:
                await run_worker(session, journal, stop=stop, **SOON)

    async with Journal.open(database, owner_timeout=NEVER) as journal:
        await journal.set_limits(Limits(max_active=GATE))
        await submit(items(COUNT), journal=journal, chunk=1)
    async with wired(database) as wire, Emulator(script=ENDLESS) as emulator:
        working = asyncio.ensure_future(work(wire.url, emulator))
        await until(lambda: len(emulator.jobs) >= GATE)
        wire.silence() if gone == "silent" else await wire.tear()
        loop.setup_looptime(start=loop.time(), _enabled=True)  # type: ignore[attr-defined] # of looptime: no real waiting
        await asyncio.sleep(SOON["polling"] + 1)
        began = loop.time()
        stop.set() if by == "a stop" else working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert loop.time() - began <= 30
        gc.collect()
        assert "never retrieved" not in caplog.text
        assert execute(database, "SELECT 1 FROM procrastinate_jobs WHERE status = 'doing'")
