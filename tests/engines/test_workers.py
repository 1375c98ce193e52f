"""Workers in processes of their own, that die, stall, come and go: what holds whatever happens to them."""

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import IO

import pytest

from agentjobs_async.batch import Journal, Limits, Rate, State
from agentjobs_async.engines.procrastinate import defer, submit
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items
from tests.engines.process import GATE, NEVER
from tests.engines.stage import Worker, ended
from tests.postgresql import Server, execute
from tests.until import until

ROUNDS = int(os.environ.get("AGENTJOBS_COMING_AND_GOING", "7"))
"""How often a worker is stopped, dies or stalls; the whole sweep is AGENTJOBS_COMING_AND_GOING=70."""
LIFE = 0.4
LIMITS = Limits(max_active=6, create_rate=Rate(14, per=1.0), unknown_for=4.0)


class Fleet:
    """An emulator, a journal on it, and workers in processes of their own."""

    def __init__(self, emulator: Emulator, journal: Journal, location: str, complaints: IO[str]) -> None:
        self.emulator = emulator
        self.journal = journal
        self.deaths = 0
        self._location = location
        self._complaints = complaints
        self.workers: list[Worker] = []

    def start(self) -> Worker:
        worker = Worker(self.emulator, self._location, self._complaints)
        self.workers.append(worker)
        return worker

    async def kill(self, worker: Worker) -> None:
        self.deaths += 1
        await worker.killed()

    async def end(self, worker: Worker) -> None:
        """Ask a worker to stop; it has to end well."""
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0

    async def created(self, count: int) -> None:
        """Wait until so many agents were started."""
        await until(lambda: len(self.emulator.jobs) >= count)

    async def all_ended(self) -> None:
        """Wait until no item is left to do, and workers that stalled have recorded their answers."""
        await until(self._is_done)

    async def _is_done(self) -> bool:
        return len(await self.journal.unknown()) <= GATE * self.deaths and await ended(self.journal)

    async def check(self, count: int, *, ended_early: Collection[str] = ()) -> None:
        """See that no prompt has two agents, no id is lost, few are unknown, and never too many were active or sent.

        Jobs in `ended_early` did not take their `LIFE`.
        """
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
        starts = [job.started_at for job in self.emulator.jobs.values() if job.job_id not in ended_early]
        assert LIMITS.max_active is not None
        assert _most_within(starts, LIFE) <= LIMITS.max_active
        sent = [request.at for request in self.emulator.requests if request.method == "POST"]
        assert LIMITS.create_rate is not None
        assert _most_within(sent, LIMITS.create_rate.per) <= LIMITS.create_rate.count
        print(f"{self.deaths} deaths among {len(self.workers)} workers, {count} items: {len(unknown)} unknown")  # noqa: T201 - the figure is what it is run for


def _most_within(starts: list[float], seconds: float) -> int:
    return max(sum(at - seconds < start <= at for start in starts) for at in starts)


@asynccontextmanager
async def running(location: str, count: int, chunk: int = 10) -> AsyncIterator[Fleet]:
    """Submit so many items, and kill in the end what is left of the workers."""
    with tempfile.TemporaryFile("w+") as complaints:
        async with (
            Emulator(script=JobScript(duration=LIFE), latency=0.01) as emulator,
            Journal.open(location, owner_timeout=NEVER) as journal,
        ):
            await journal.set_limits(LIMITS)
            await submit(items(count), journal=journal, chunk=chunk)
            fleet = Fleet(emulator, journal, location, complaints)
            try:
                yield fleet
            finally:
                for worker in fleet.workers:
                    worker.process.kill()
                    await worker.ended()


async def test_a_worker_that_dies(database: str) -> None:
    """Of two workers one is killed with -9 in the middle and never started again; the other one does the rest."""
    async with running(database, 60) as fleet:
        doomed, _ = fleet.start(), fleet.start()
        await fleet.created(20)
        await fleet.kill(doomed)
        await fleet.all_ended()
        await fleet.check(60)


async def test_a_worker_that_stalls(database: str) -> None:
    """A worker that stalls for longer than the heartbeat doubles nothing when it continues, and records its answers."""
    async with running(database, 60) as fleet:
        stalled, _ = fleet.start(), fleet.start()
        await fleet.created(15)
        before = len(fleet.emulator.jobs)
        await _stopped(stalled)
        await fleet.created(before + 10)
        stalled.process.send_signal(signal.SIGCONT)
        await fleet.all_ended()
        await fleet.check(60)
        assert fleet.deaths == 0


async def _stopped(worker: Worker) -> None:
    """Stop a worker until it counts as dead for the others."""

    async def forgotten() -> bool:
        await worker.record_silence()
        return not await worker.is_known()

    worker.process.send_signal(signal.SIGSTOP)
    await until(lambda: worker.is_stopped)
    await until(forgotten)


async def test_the_same_chunks_twice_at_once(database: str) -> None:
    """Chunks that are handed out several times, to two workers at once, start one agent for each item."""
    async with running(database, 40) as fleet:
        for _ in range(2):
            await defer([item.key for item in items(40)], journal=fleet.journal, chunk=15)
        workers = [fleet.start() for _ in range(2)]
        await fleet.all_ended()
        for worker in workers:
            await fleet.end(worker)
        await fleet.check(40)


async def test_a_restarted_database(own_postgresql: Server, own_database: str) -> None:
    """The database restarts twice under load; the workers go on with it, and nothing is unknown."""
    async with running(own_database, 60) as fleet:
        workers = [fleet.start() for _ in range(2)]
        for worker in workers:  # one that starts without a database ends with an error
            await until(lambda worker=worker: worker.is_registered)  # type: ignore[misc] # mypy knows no default
        for count in (10, 35):
            await fleet.created(count)
            await asyncio.to_thread(own_postgresql.restart)
        await fleet.all_ended()
        assert [worker.process.poll() for worker in workers] == [None, None]
        await fleet.check(60)


async def test_stopping_in_good_order(database: str) -> None:
    """A worker that gets SIGTERM ends well, leaves nothing unknown, and gives its chunks back."""
    async with running(database, 60) as fleet:
        fleet.emulator.script(JobScript(duration=float("inf")))  # no chunk is done before the worker is to stop
        worker = fleet.start()
        await fleet.created(6)
        await fleet.end(worker)
        fleet.emulator.script(JobScript(duration=LIFE))
        left = list(fleet.emulator.jobs)
        for job_id in left:
            await fleet.emulator.inject("document status=completed forever on=get", job_id=job_id)
        assert (await fleet.journal.counts())[State.SENDING] == 0
        assert {status for (status,) in execute(database, "SELECT status::text FROM procrastinate_jobs")} == {"todo"}
        fleet.start()
        await fleet.all_ended()
        await fleet.check(60, ended_early=left)


@pytest.mark.parametrize("seed", [1])
async def test_coming_and_going(database: str, seed: int) -> None:
    """Workers come, are stopped, die and stall for a while: in the end, all that was promised holds."""
    draw = random.Random(seed)  # noqa: S311 - moments, no secrets
    count = 12 * ROUNDS
    async with running(database, count) as fleet:
        present = [fleet.start(), fleet.start()]
        for over in range(ROUNDS):
            await fleet.created(draw.randint(5 * over, 10 * over))
            one = present.pop(draw.randrange(len(present)))
            match draw.choice(["kill", "end", "stall"]):
                case "kill":
                    await fleet.kill(one)
                case "end":
                    await until(lambda one=one: one.is_registered)  # type: ignore[misc] # mypy knows no default
                    await fleet.end(one)
                case _:
                    await _stopped(one)
                    one.process.send_signal(signal.SIGCONT)
                    present.append(one)
            while len(present) < 2:
                present.append(fleet.start())
        await fleet.all_ended()
        await fleet.check(count)


def test_windows() -> None:
    """The check of the limits counts what it is meant to count."""
    assert _most_within([0.0, 0.1, 0.5, 1.05], 1.0) == 3
