"""A worker that ends at any point of its work: whatever ends it, others follow all of its items."""

import asyncio
import signal
import sys
import tempfile

import pytest

from agentjobs_async import PollPolicy
from agentjobs_async.batch import FleetLimits, Journal, State
from agentjobs_async.engines.procrastinate import defer, run_worker, submit
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items
from tests.batch.wire import wired
from tests.contract.children import ROOT, environment
from tests.postgresql import execute

STALLED_AFTER = 1.0
FOLLOWED_AGAIN = STALLED_AFTER + 30.0
"""Within so many seconds all items of a worker that ended are followed again."""
COUNT = 6
GATE = 3

WORKER = f"""
import asyncio, os, signal, sys
from agentjobs_async import AgentJobsSession, PollPolicy
from agentjobs_async.batch import BatchWorker, Journal
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.engines._connector import QueueConnector
from agentjobs_async.engines.procrastinate import run_worker

point, number, timeout = sys.argv[4], int(sys.argv[5]), float(sys.argv[6])
owner, name, when = {{
    "before it runs a chunk": (BatchWorker, "run", "before"),
    "before it claims": (Entries, "claim", "before"),
    "when it has claimed": (Entries, "claim", "after"),
    "before it sends": (AgentJobsSession, "create_job", "before"),
    "when it has the answer": (AgentJobsSession, "create_job", "after"),
    "when it has recorded the id": (Entries, "mark_created", "after"),
    "before it records the end": (Entries, "mark_ended", "before"),
    "when it has recorded the end": (Entries, "mark_ended", "after"),
    "before it ends the chunk": (QueueConnector, "execute_query_async", "finish_job"),
    "before it gives the chunk back": (QueueConnector, "execute_query_async", "retry_job"),
    "before it says good-bye": (QueueConnector, "execute_query_async", "unregister"),
}}[point]
real = getattr(owner, name)

async def patched(self, *arguments, **settings):
    if when == "before" or when in str(settings.get("query")):
        end()
    result = await real(self, *arguments, **settings)
    if when == "after":
        end()
    return result

def end():
    if getattr(owner, name) is not real:
        setattr(owner, name, real)
        os.kill(os.getpid(), number)

setattr(owner, name, patched)

async def main(base_url, key, place):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    policy = PollPolicy(wait=lambda _: 0.05)
    if point in {{"before it gives the chunk back", "before it says good-bye"}}:
        asyncio.get_running_loop().call_later(0.5, stop.set)
    async with AgentJobsSession(base_url, key, project_id="docs", policy=policy) as session:
        async with Journal.open(place, owner_timeout=timeout) as journal:
            await run_worker(session, journal, max_sending={GATE}, stalled_after=timeout, polling=0.2, stop=stop)

asyncio.run(main(*sys.argv[1:4]))
"""

POINTS = [
    "before it runs a chunk",
    "before it claims",
    "when it has claimed",
    "before it sends",
    "when it has the answer",
    "when it has recorded the id",
    "before it records the end",
    "when it has recorded the end",
    "before it ends the chunk",
    "before it gives the chunk back",
    "before it says good-bye",
]


async def started(
    emulator: Emulator, place: str, point: str, number: signal.Signals, owner_timeout: float = STALLED_AFTER
) -> asyncio.subprocess.Process:
    with tempfile.TemporaryFile() as complaints:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORKER, emulator.base_url, emulator.api_key, place, point, str(int(number))),
            str(owner_timeout),
            stderr=complaints,
            cwd=ROOT,
            env=environment(),
        )


async def all_ended(journal: Journal) -> None:
    while (counts := await journal.counts())[State.PLANNED] + counts[State.SENDING] + counts[State.CREATED]:  # noqa: ASYNC110 - no event announces it
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("point", POINTS)
async def test_every_point(database: str, point: str, number: signal.Signals) -> None:
    """Wherever a worker ends, and by whatever signal, another one brings all of its items to their ends."""
    async with Emulator(script=JobScript(duration=1.0)) as emulator:
        async with Journal.open(database) as journal:
            await submit(items(COUNT), journal=journal)
        worker = await started(
            emulator, database, point, number, owner_timeout=60.0
        )  # a slow machine is no dead worker
        async with asyncio.timeout(60):
            assert await worker.wait() != 1  # it met its point, and no error before it
        await followed_again(emulator, database, number)


async def followed_again(emulator: Emulator, database: str, number: signal.Signals) -> None:
    """Work on what is left, and check that all of it has come to its end."""
    async with (
        Journal.open(database, owner_timeout=STALLED_AFTER) as journal,
        emulator.session(project_id="docs", policy=PollPolicy(wait=lambda _: 0.05)) as session,
    ):
        stop = asyncio.Event()
        working = asyncio.ensure_future(
            run_worker(session, journal, stalled_after=STALLED_AFTER, polling=0.2, stop=stop)
        )
        async with asyncio.timeout(FOLLOWED_AGAIN):
            await all_ended(journal)
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
async def test_a_worker_that_is_stopped_and_goes_on(database: str, point: str) -> None:
    """What a worker claimed before its process was stopped, and others have sent since, it does not send."""
    async with (
        Emulator(script=JobScript(duration=0.2)) as emulator,
        Journal.open(database, owner_timeout=STALLED_AFTER) as journal,
        emulator.session(project_id="docs", policy=PollPolicy(wait=lambda _: 0.05)) as session,
    ):
        await submit(items(COUNT), journal=journal, chunk=COUNT)
        stopped = await started(emulator, database, point, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while not (unknown := await journal.unknown()):  # noqa: ASYNC110 - no event announces it
                await asyncio.sleep(0.05)
        for row in unknown:
            await journal.resolve(row.key, send_again=True)
        await defer([row.key for row in unknown], journal=journal)
        stop = asyncio.Event()
        working = asyncio.ensure_future(
            run_worker(session, journal, stalled_after=STALLED_AFTER, polling=0.2, stop=stop)
        )
        async with asyncio.timeout(FOLLOWED_AGAIN):
            await all_ended(journal)
        stopped.send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            while not (await owners(database)) > 1:  # noqa: ASYNC110 - no event announces it
                await asyncio.sleep(0.05)
        stopped.terminate()
        async with asyncio.timeout(30):
            await stopped.wait()
        stop.set()
        await working
        assert max(emulator.agents_started.values()) == 1
        assert {row.state for row in await journal.rows()} == {State.COMPLETED}


async def owners(database: str) -> int:
    """Return how many owners give signs of life."""
    ((count,),) = execute(database, "SELECT count(*) FROM agentjobs_owners")
    return int(count)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_ending_without_a_database(database: str, number: signal.Signals) -> None:
    """A worker whose database does not answer any more ends within 30 s of a signal."""
    async with (
        wired(database) as wire,
        Emulator(script=JobScript(duration=1000.0)) as emulator,
        Journal.open(database, owner_timeout=30.0) as journal,
    ):
        await journal.set_limits(FleetLimits(max_active=GATE))
        await submit(items(COUNT), journal=journal, chunk=1)
        worker = await started(emulator, wire.url, "when it has recorded the end", signal.SIGUSR1)
        async with asyncio.timeout(60):
            while len(emulator.jobs) < GATE:  # noqa: ASYNC110 - no event announces it
                await asyncio.sleep(0.05)
        wire.silence()
        worker.send_signal(number)
        async with asyncio.timeout(30):
            await worker.wait()
        assert execute(database, "SELECT 1 FROM procrastinate_jobs WHERE status = 'doing'")
