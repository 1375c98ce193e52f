"""Workers in processes of their own, that die, stall, come and go: what holds whatever happens to them."""

import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import IO

import pytest

from agentjobs_async.batch import FleetLimits, Journal, Rate, State
from agentjobs_async.engines.procrastinate import defer, submit
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items
from tests.contract.children import ROOT, environment
from tests.postgresql import Server, execute

SECONDS = float(os.environ.get("AGENTJOBS_COMING_AND_GOING", "6"))
"""For how long workers come and go; the whole sweep takes a minute."""
GATE = 4
LIFE = 0.4
LIMITS = FleetLimits(max_active=6, create_rate=Rate(14, per=1.0), unknown_for=2.0)
PATIENCE = 120.0

WORKER = f"""
import asyncio, signal, sys
from agentjobs_async import AgentJobsSession, PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.engines.procrastinate import run_worker

async def main(base_url, key, place):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    policy = PollPolicy(wait=lambda _: 0.05)
    async with AgentJobsSession(base_url, key, project_id="docs", policy=policy) as session:
        async with Journal.open(place, owner_timeout=2.0) as journal:
            await run_worker(session, journal, max_sending={GATE}, stalled_after=1.0, polling=0.2, stop=stop)

asyncio.run(main(*sys.argv[1:]))
"""


class Fleet:
    """An emulator, a journal on it, and workers in processes of their own."""

    def __init__(self, emulator: Emulator, journal: Journal, place: str, complaints: IO[str]) -> None:
        self.emulator = emulator
        self.journal = journal
        self.deaths = 0
        self._place = place
        self._complaints = complaints
        self.workers: list[asyncio.subprocess.Process] = []

    async def start(self) -> asyncio.subprocess.Process:
        arguments = [self.emulator.base_url, self.emulator.api_key, self._place]
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", WORKER),
            *arguments,
            stderr=self._complaints,
            cwd=ROOT,
            env=environment(),
        )
        self.workers.append(worker)
        return worker

    async def kill(self, worker: asyncio.subprocess.Process) -> None:
        worker.kill()
        self.deaths += 1
        await worker.wait()

    async def end(self, worker: asyncio.subprocess.Process) -> None:
        """Ask a worker to stop; it has to end well, within the time that is stated."""
        worker.terminate()
        async with asyncio.timeout(30):
            assert await worker.wait() == 0

    async def created(self, count: int) -> None:
        """Wait until so many agents were started."""
        await until(lambda: _holds(len(self.emulator.jobs) >= count))

    async def all_ended(self) -> None:
        await until(lambda: ended(self.journal))

    async def check(self, count: int) -> None:
        """See that no prompt has two agents, no id is lost, few are unknown, and the limits of all were kept."""
        self._complaints.seek(0)
        assert "never retrieved" not in self._complaints.read()
        rows = await self.journal.rows()
        jobs = {job.prompt: job.job_id for job in self.emulator.jobs.values()}
        assert max(self.emulator.agents_started.values()) == 1
        assert Counter(row.state for row in rows).keys() <= {State.COMPLETED, State.UNKNOWN}
        assert len(rows) == count
        unknown = {row.prompt for row in rows if row.state is State.UNKNOWN}
        assert {row.prompt: row.job_id for row in rows if row.job_id}.items() <= jobs.items()
        assert set(jobs) <= {row.prompt for row in rows if row.job_id} | unknown
        assert len(unknown) <= GATE * self.deaths
        starts = sorted(job.started_at for job in self.emulator.jobs.values())
        assert LIMITS.max_active is not None
        assert LIMITS.create_rate is not None
        assert _most_within(starts, LIFE) <= LIMITS.max_active
        assert _most_within(starts, LIMITS.create_rate.per) <= LIMITS.create_rate.count
        print(f"{self.deaths} deaths among {len(self.workers)} workers, {count} items: {len(unknown)} unknown")  # noqa: T201 - the figure is what it is run for


def _most_within(starts: list[float], seconds: float) -> int:
    return max(sum(at - seconds < start <= at for start in starts) for at in starts)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0.02)


async def _holds(condition: bool) -> bool:  # noqa: FBT001 - it is the condition itself
    return condition


async def ended(journal: Journal) -> bool:
    counts = await journal.counts()
    return not counts[State.PLANNED] + counts[State.SENDING] + counts[State.CREATED]


@asynccontextmanager
async def running(place: str, count: int, chunk: int = 10) -> AsyncIterator[Fleet]:
    """Submit so many items, and kill in the end what is left of the workers."""
    with tempfile.TemporaryFile("w+") as complaints:
        async with (
            Emulator(script=JobScript(duration=LIFE), latency=0.01) as emulator,
            Journal.open(place, owner_timeout=2.0) as journal,
        ):
            await journal.set_limits(LIMITS)
            await submit(items(count), journal=journal, chunk=chunk)
            fleet = Fleet(emulator, journal, place, complaints)
            try:
                yield fleet
            finally:
                for worker in fleet.workers:
                    if worker.returncode is None:
                        worker.kill()
                        await worker.wait()


async def test_a_worker_that_dies(database: str) -> None:
    """Of two workers one is killed with -9 in the middle and never started again; the other one does the rest."""
    async with running(database, 60) as fleet:
        doomed, _ = await fleet.start(), await fleet.start()
        await fleet.created(20)
        await fleet.kill(doomed)
        await fleet.all_ended()
        await fleet.check(60)


async def test_a_worker_that_stalls(database: str) -> None:
    """A worker that is stopped for longer than the heartbeat, and goes on, doubles nothing; its answers are kept."""
    async with running(database, 60) as fleet:
        stalled, _ = await fleet.start(), await fleet.start()
        await fleet.created(15)
        stalled.send_signal(signal.SIGSTOP)
        before = len(fleet.emulator.jobs)
        await until(lambda: _holds(len(fleet.emulator.jobs) >= before + 10))
        await until(lambda: _forgotten(database))
        stalled.send_signal(signal.SIGCONT)
        await fleet.all_ended()
        await fleet.check(60)
        assert fleet.deaths == 0


async def _forgotten(place: str) -> bool:
    """Return whether one of the owners, the test's own among them, is taken for dead."""
    return execute(place, "SELECT count(*) FROM agentjobs_owners") == [(2,)]


async def test_the_same_chunks_twice_at_once(database: str) -> None:
    """Chunks that are handed out several times, to two workers at once, start one agent for each item."""
    async with running(database, 40) as fleet:
        for _ in range(2):
            await defer([item.key for item in items(40)], journal=fleet.journal, chunk=15)
        workers = [await fleet.start() for _ in range(2)]
        await fleet.all_ended()
        for worker in workers:
            await fleet.end(worker)
        await fleet.check(40)


async def _registered(place: str, count: int) -> bool:
    ((workers,),) = execute(place, "SELECT count(*) FROM procrastinate_workers")
    return int(workers) >= count


async def test_a_restarted_database(own_postgresql: Server, own_database: str) -> None:
    """The database restarts twice under load; the workers go on with it, and nothing is unknown."""
    async with running(own_database, 60) as fleet:
        workers = [await fleet.start() for _ in range(2)]
        await until(lambda: _registered(own_database, 2))  # a worker that starts without a database ends with an error
        for count in (10, 35):
            await fleet.created(count)
            await asyncio.to_thread(own_postgresql.restart)
        await fleet.all_ended()
        assert [worker.returncode for worker in workers] == [None, None]
        await fleet.check(60)


async def test_stopping_in_good_order(database: str) -> None:
    """A worker that gets SIGTERM ends well in the stated time, leaves nothing unknown, and gives its chunks back."""
    async with running(database, 60) as fleet:
        fleet.emulator.script(JobScript(duration=float("inf")))  # no chunk is done before the worker is to stop
        worker = await fleet.start()
        await fleet.created(6)
        await fleet.end(worker)
        fleet.emulator.script(JobScript(duration=LIFE))
        for job_id in fleet.emulator.jobs:
            await fleet.emulator.inject("document status=completed forever on=get", job_id=job_id)
        assert (await fleet.journal.counts())[State.SENDING] == 0
        assert {status for (status,) in execute(database, "SELECT status::text FROM procrastinate_jobs")} == {"todo"}
        await fleet.start()
        await fleet.all_ended()
        await fleet.check(60)


@pytest.mark.parametrize("seed", [1])
async def test_coming_and_going(database: str, seed: int) -> None:
    """Workers come, are stopped, die and stall for a while: in the end, all that was promised holds."""
    draw = random.Random(seed)  # noqa: S311 - moments, no secrets
    count = max(int(SECONDS * 10), 60)
    loop = asyncio.get_running_loop()
    async with running(database, count) as fleet:
        over = loop.time() + SECONDS
        present = [await fleet.start(), await fleet.start()]
        while loop.time() < over:
            await asyncio.sleep(draw.uniform(0.3, 1.5))
            one = present.pop(draw.randrange(len(present)))
            match draw.choice(["kill", "end", "stall"]):
                case "kill":
                    await fleet.kill(one)
                case "end":
                    await _ended_early(fleet, one)
                case _:
                    one.send_signal(signal.SIGSTOP)
                    await asyncio.sleep(draw.uniform(0.5, 2.5))
                    one.send_signal(signal.SIGCONT)
                    present.append(one)
            while len(present) < 2:
                present.append(await fleet.start())
        await fleet.all_ended()
        await fleet.check(count)


async def _ended_early(fleet: Fleet, worker: asyncio.subprocess.Process) -> None:
    """Ask a worker to stop that may not have come so far yet as to take notice; it may have claimed nothing then."""
    worker.terminate()
    async with asyncio.timeout(30):
        assert await worker.wait() in {0, -signal.SIGTERM}
    del fleet


def test_windows() -> None:
    """The check of the limits counts what it is meant to count."""
    starts = [0.0, 0.1, 0.5, 1.05]
    assert _most_within(starts, 1.0) == 3
    assert [round(later - earlier, 2) for earlier, later in pairwise(starts)] == [0.1, 0.4, 0.55]
