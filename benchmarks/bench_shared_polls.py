"""Do processes that share a limit of polls per second stay within it, and use it?

Each process is an owner of one journal on PostgreSQL, with a worker on it, and polls jobs that never end, far more often
than its part allows. One server counts all polls. First all processes start at once; in the middle, some are killed
by SIGKILL, as many are ended by SIGTERM, and as many start. Printed for each span: the polls of a sliding second (most,
99 of 100 seconds, mean), and the share of the limit that was used.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from argparse import Namespace
from bisect import bisect_left
from pathlib import Path

from measuring import arguments, print_table
from tenacity import wait_fixed

sys.path.insert(0, str(Path(__file__).parents[1]))
from agentjobs_async import AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.batch import BatchWorker, FleetLimits, Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.postgresql import Server

PROJECT = "docs"


def work(url: str, key: str, database: str, jobs: list[str], options: Namespace) -> None:
    """Poll the jobs as one of the processes, until SIGTERM."""
    asyncio.run(_work(url, key, database, jobs, options))


async def _work(url: str, key: str, database: str, jobs: list[str], options: Namespace) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    policy = PollPolicy(wait=wait_fixed(options.interval))
    session = AgentJobsSession(url, key, project_id=PROJECT, policy=policy)
    journal = Journal.open(database, owner_timeout=options.owner_timeout)
    async with session, journal, BatchWorker(session, journal):
        watches = [session.watch(JobRef(PROJECT, job), timeout=None) for job in jobs]
        await stop.wait()
        for watch in watches:
            watch.cancel()


class Fleet:
    """The processes: forks of one that has imported everything, so that they can start at once."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", "sqlalchemy.ext.asyncio", "psycopg"])
        self._running: list[int] = []

    def start(self, count: int) -> None:
        """Start so many."""
        for _ in range(count):
            process = self._context.Process(target=work, args=self._arguments, daemon=True)
            process.start()
            self._running.append(process.pid or 0)

    def end(self, count: int, sign: signal.Signals) -> None:
        """Send the signal to the oldest ones."""
        for process in self._running[:count]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, sign)
        del self._running[:count]

    def close(self) -> None:
        """Kill all of them."""
        self.end(len(self._running), signal.SIGKILL)


async def prepare(emulator: Emulator, database: str, options: Namespace) -> list[str]:
    """Set the limit, and make the jobs; return their ids."""
    async with Journal.open(database) as journal:
        await journal.set_limits(FleetLimits(polls_per_second=options.limit))
    async with emulator.session(project_id=PROJECT) as session:
        return [(await session.create_job(f"Job {number}")).id for number in range(options.jobs)]


def run(options: Namespace) -> tuple[list[float], list[tuple[str, float, float]]]:
    """Return when the polls arrived, and the spans with their begins and ends."""
    spans = []
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(stack.enter_context(Server()).database())
        emulator = stack.enter_context(Emulator.in_thread(script=JobScript(duration=10_000_000.0)))
        jobs = asyncio.run(prepare(emulator, database, options))
        fleet = Fleet(emulator.base_url, emulator.api_key, database, jobs, options)
        stack.callback(fleet.close)

        def span(title: str) -> None:
            begin = time.monotonic()
            time.sleep(options.seconds)
            spans.append((title, begin, time.monotonic()))

        fleet.start(options.processes)
        span(f"{options.processes} start")
        span("settled")
        changed = options.processes // 4
        fleet.end(changed, signal.SIGKILL)
        fleet.end(changed, signal.SIGTERM)
        fleet.start(changed)
        span(f"{changed} killed, {changed} leave, {changed} start")
        span("settled")
        return [request.at for request in emulator.requests if request.method == "GET"], spans


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--limit", type=float, default=50.0, help="polls per second of all processes")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two polls of a job in one process")
    parser.add_argument("--owner-timeout", type=float, default=12.0, help="seconds until an owner is taken for dead")
    parser.add_argument("--seconds", type=float, default=45.0, help="of each span")
    options = parser.parse_args()
    polls, spans = run(options)
    rows = []
    for title, begin, end in spans:
        arrived = [at for at in polls if begin <= at < end]
        counts = sorted(bisect_left(polls, at + 1.0) - bisect_left(polls, at) for at in arrived) or [0]
        mean = len(arrived) / (end - begin)
        p99 = counts[int(len(counts) * 0.99)] if len(counts) > 1 else counts[0]
        rows.append([title, f"{counts[-1]}", f"{p99}", f"{mean:.1f}", f"{mean / options.limit:.0%}"])
    print_table(f"A limit of {options.limit:g} polls/s", ["", "most", "p99", "mean", "used"], rows)


if __name__ == "__main__":
    main()
