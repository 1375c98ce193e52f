"""What does a batch by workers on PostgreSQL cost, beside the plain runner on SQLite, and a claim in a long journal?

A batch over HTTP, each job created and polled three times: CPU per job, including all processes of the database, with
one worker and with two, and with limits, which the database enforces. Then one `claim` in journals of several lengths,
while 500 rows are unknown, 1,000 active, and 2,000 were sent within the hour: milliseconds by the clock.

docs/many-machines.md names both.

    pip install -e '.[test]'
    python benchmarks/bench_workers.py
    python benchmarks/bench_workers.py --jobs 0 --rows 1000000
"""

import asyncio
import json
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from os import sysconf
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep

from measuring import Figures, Rounds, arguments, chosen, in_own_process, parsed, print_table
from server import server

from agentjobs_async import AgentJobsSession, PollPolicy
from agentjobs_async.batch import BatchItem, BatchWorker, Journal, Limits, Rate, run_batch
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch.states import open_in
from agentjobs_async.engines.procrastinate import submit, work_off

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.postgresql import Server as PostgreSQL
from tests.postgresql import execute, shared_server, stop_shared_server

BASE = "plain runner on SQLite"
WORKERS = {"1 worker": 1, "2 workers": 2, "1 worker, with limits": 1}
ACTIVE = 200
POLLS = 3
CLAIMS = 100
ROWS = """
INSERT INTO agentjobs_items
    (key, prompt, project_id, state, job_id, planned_at, counted_at, updated_at, changed_at, ended_at)
SELECT n, 'p', 'docs', CASE WHEN n <= 500 THEN 'unknown' WHEN n <= 1500 THEN 'active' ELSE 'completed' END,
    CASE WHEN n > 500 THEN 'job' END, 0, now.at - CASE WHEN n <= 3500 THEN n / 3500.0 ELSE 7200 + n / 10.0 END, now.at,
    0, CASE WHEN n > 1500 THEN now.at END
FROM generate_series(1, {rows}) AS n, (SELECT date_part('epoch', clock_timestamp()) AS at) AS now
"""


@contextmanager
def postgresql() -> Iterator[tuple[PostgreSQL, int]]:
    """Run a server of the tests; return it, and the id of its first process."""
    with TemporaryDirectory() as folder:
        try:
            yield shared_server(Path(folder)), int(next(Path(folder).rglob("postmaster.pid")).read_text().split()[0])
        finally:
            stop_shared_server(Path(folder))


def cpu_of(leader: int) -> float:
    """Return the CPU seconds of a process and its children, including those that have ended."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        if process.name == str(leader):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(leader):
            ticks += sum(map(int, fields[11:13]))
    return ticks / sysconf("SC_CLK_TCK")


def items(count: int) -> Iterator[BatchItem]:
    """Return `count` items, lazily."""
    return (BatchItem(f"key-{number}", f"Document page {number}") for number in range(count))


def session(url: str) -> AgentJobsSession:
    """Return a session that polls each job every 0.2 s."""
    return AgentJobsSession(url, "key-of-this-benchmark", project_id="docs", policy=PollPolicy(wait=lambda _: 0.2))


async def plain(location: str, url: str, count: int) -> None:
    """Run all items by the batch runner."""
    async with (
        session(url) as jobs,
        Journal.open(location) as journal,
        run_batch(jobs, items(count), journal=journal, max_active=ACTIVE, create_rate=None) as batch,
    ):
        async for _ in batch:
            pass


async def worker(location: str, url: str) -> None:
    """Run submitted items until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with session(url) as jobs, Journal.open(location) as journal, BatchWorker(jobs, journal) as batch:
        await work_off(batch, stop=stop)


async def hand_out(location: str, count: int, limits: Limits) -> None:
    """Submit all items."""
    async with Journal.open(location) as journal:
        await journal.set_limits(limits)
        await submit(items(count), journal=journal)


async def until_all_have_ended(location: str) -> None:
    """Wait until every item has ended."""
    async with Journal.open(location, read_only=True) as journal:
        while open_in(await journal.counts()):
            await asyncio.sleep(0.05)


def fleet(name: str, url: str, count: int) -> Figures:
    """Measure workers in processes of their own, and the database."""
    limits = Limits(max_active=ACTIVE) if "limits" in name else Limits()
    with postgresql() as (database_server, leader), database_server.database() as location:
        before, started = cpu_of(leader), process_time()
        asyncio.run(hand_out(location, count, limits))
        cpu, started = process_time() - started, perf_counter()
        command = [sys.executable, *sys.argv, "--one", "worker", location, url]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS[name])]  # noqa: S603 - this very script
        asyncio.run(until_all_have_ended(location))
        wall = perf_counter() - started
        for process in workers:
            process.send_signal(signal.SIGTERM)
            cpu += json.loads(process.communicate()[0].splitlines()[-1])["cpu"]
        sleep(0.2)  # the server's processes end
        return {"cpu": (cpu + cpu_of(leader) - before) / count, "rate": count / wall}


def measured(name: str, count: int) -> Figures:
    """Measure one candidate."""
    with server(POLLS) as url:
        if name != BASE:
            return fleet(name, url, count)
        with TemporaryDirectory() as directory:
            started = perf_counter()
            cpu = in_own_process("plain", str(Path(directory) / "run.db"), url, str(count))["cpu"]
            return {"cpu": cpu / count, "rate": count / (perf_counter() - started)}


async def claims(location: str, rows: int) -> list[float]:
    """Claim one row and release it, repeatedly; return the seconds of each claim, from the shortest on."""
    async with Journal.open(location) as journal:
        await journal.add([BatchItem("todo", "p")], project_id="docs")
        execute(location, ROWS.format(rows=rows))
        execute(location, "VACUUM ANALYZE agentjobs_items")
        await journal.set_limits(Limits(max_active=5_000, create_rate=Rate(10_000, per=3600)))
        records = Records(journal.store, "owner", str)
        seconds = []
        for _ in range(CLAIMS):
            started = perf_counter()
            claim = await records.claim("todo")
            seconds.append(perf_counter() - started)
            await records.released("todo", str(claim), None)
        return sorted(seconds)


def one(what: str, *rest: str) -> Figures:
    """Run one batch or one worker, in this process."""
    started = process_time()
    asyncio.run(plain(*rest[:2], int(rest[2])) if what == "plain" else worker(*rest))
    return {"cpu": process_time() - started}


def print_batches(options: Namespace) -> None:
    """Measure batches, print, save."""
    names, rounds = chosen([BASE, *WORKERS], BASE, options), Rounds(BASE)
    rounds.measure(names, options.rounds, lambda name: measured(name, options.jobs))
    figures = {
        name: (rounds.ratio(name, "cpu"), rounds.median(name, "cpu") * 1e3, rounds.median(name, "rate"))
        for name in names
    }
    print_table(
        f"{options.jobs:,} jobs of {POLLS} polls over HTTP",
        ["", f"CPU per job / {BASE}", "ms", "jobs/s"],
        [[name, f"{ratio:.2f}", f"{cpu:.2f}", f"{rate:.0f}"] for name, (ratio, cpu, rate) in figures.items()],
    )
    rounds.save(options)


def print_claims(lengths: list[int]) -> None:
    """Measure claims, and print them."""
    rows = []
    with postgresql() as (database_server, _):
        for length in lengths:
            with database_server.database() as location:
                seconds = asyncio.run(claims(location, length))
            rows.append([f"{length:,}", f"{median(seconds) * 1e3:.1f}", f"{quantiles(seconds, n=100)[98] * 1e3:.1f}"])
    print_table("One claim", ["rows", "ms, median", "ms, 99 of 100"], rows)


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument(
        "--jobs", type=int, default=1_000, help="jobs of a batch, or 0 for claims alone (default: %(default)s)"
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000], help="lengths of journals, or none")
    options = parsed(parser, jobs=200, rows=[10_000])
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    if options.jobs:
        print_batches(options)
    if options.rows:
        print_claims(options.rows)


if __name__ == "__main__":
    main()
