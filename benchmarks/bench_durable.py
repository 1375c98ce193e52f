"""What do ten thousand durable jobs cost while they are followed, beside ten thousand watches of the same session?

With a get-job callable that reads from memory: CPU per poll, the CPU of taking all of them up (a watch needs no
journal, so that this is shown in µs), and memory per job, by tracemalloc. Ratios are of the same round.
"""

import asyncio
import gc
import json
import sqlite3
import tempfile
import tracemalloc
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import process_time

import tenacity
from jobs_in_memory import Jobs
from measuring import Figures, Rounds, arguments, in_own_process, print_table

from agentjobs_async import AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs

BASE = "session.watch"
DURABLE = {"durable, on_end": False, "durable, on_end and on_change": True}
ENDLESS_POLLS = 1_000_000
ROW = (
    "INSERT INTO agentjobs_entries (key, prompt, state, project_id, job_id, updated_at, changed_at, context, notified_state)"
    " VALUES (?, ?, 'active', 'docs', ?, 0, 0, ?, '')"
)


async def plan(path: Path, jobs: Jobs) -> None:
    """Make a journal in which all jobs are under way."""
    async with Journal.open(path):
        pass
    connection = sqlite3.connect(path)
    with connection:
        rows = [
            (f"chat-{number % 100}/{number}", "Document the endpoints", ref.job_id, json.dumps({"chat": number}))
            for number, ref in enumerate(jobs.refs)
        ]
        connection.executemany(ROW, rows)
    connection.close()


@asynccontextmanager
async def following(candidate: str, jobs: Jobs, session: AgentJobsSession, path: Path) -> AsyncIterator[None]:
    """Follow all jobs while the block lasts."""
    if candidate == BASE:
        # Of stored tokens, as the rows of a journal are.
        watches = [session.watch(JobRef.from_token(ref.to_token()), timeout=None) for ref in jobs.refs]
        yield
        for watch in watches:
            watch.cancel()
        return
    on_change = (lambda _entry, _job: None) if DURABLE[candidate] else None
    async with (
        Journal.open(path) as journal,
        DurableJobs(session, journal, on_change=on_change, on_end=lambda _entry, _ended: None),
    ):
        yield


async def one(what: str, candidate: str, options: Namespace) -> Figures:
    """Measure one candidate: its CPU, or its memory."""
    jobs = Jobs(options.jobs, ENDLESS_POLLS)
    policy = PollPolicy(wait=tenacity.wait_fixed(options.interval))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "durable.db"
        await plan(path, jobs)
        gc.collect()
        async with AsyncExitStack() as stack:
            session = AgentJobsSession("https://jobs.example", "key", get_job=jobs.get_job, policy=policy)
            await stack.enter_async_context(session)
            if what == "memory":
                tracemalloc.start()
            begin = process_time()
            await stack.enter_async_context(following(candidate, jobs, session, path))
            figures = {"start": (process_time() - begin) / options.jobs}
            await read(jobs, 2 * options.jobs)  # once each, and all that the first poll makes has been told
            gc.collect()
            if what == "memory":
                return {"memory": tracemalloc.get_traced_memory()[0] / options.jobs}
            begin, before = process_time(), jobs.reads
            await read(jobs, before + options.polls * options.jobs)
            return figures | {"cpu": (process_time() - begin) / (jobs.reads - before)}


async def read(jobs: Jobs, reads: int) -> None:
    """Wait for so many reads in all."""
    while jobs.reads < reads:
        await asyncio.sleep(0.01)


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--polls", type=int, default=5, help="polls of each job that are measured")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two polls of a job")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    names = [BASE, *DURABLE]
    rounds = Rounds(BASE)
    for what in ("cpu", "memory"):
        rounds.take(names, options.rounds, lambda name, what=what: in_own_process(what, name))
    print_table(
        f"{options.jobs} jobs that are followed, as multiples of {BASE}",
        ["", "CPU per poll", "memory per job", "CPU of the start (µs)"],
        [
            [
                name,
                *(f"{rounds.ratio(name, what):.2f}" for what in ("cpu", "memory")),
                f"{rounds.median(name, 'start') * 1e6:.0f}",
            ]
            for name in names
        ],
    )
    print(
        f"\n{BASE}: {rounds.median(BASE, 'cpu') * 1e6:.1f} µs per poll, {rounds.median(BASE, 'memory'):.0f} bytes per job."
    )
    rounds.save(options.json, jobs=options.jobs, polls=options.polls, interval=options.interval)


if __name__ == "__main__":
    main()
