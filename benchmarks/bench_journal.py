"""What does the journal of a batch cost per item, and how long does it take to resume a long one?

Four questions, each measured in processes of their own:

- planning many items, new ones and the same again: microseconds by the clock and of CPU per item;
- a batch over jobs in memory, with a journal, and as a plain bounded fan-out without one: milliseconds and CPU per item;
- a journal of many ended rows and twenty active ones: seconds and memory until a run of it has ended, without items and
  with all items passed again; the longest time for which the loop used the CPU without a pause;
- the same journal through a life: planned, resumed, some thousand items run and read, the longest hold of the loop in each.
"""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import cast

from measuring import Figures, Rounds, Ticker, arguments, chosen, in_own_process, print_table, resident_bytes

from agentjobs_async import AgentJob, AgentJobsSession, JobRef
from agentjobs_async._polling.pace import PollLimits
from agentjobs_async.batch import BatchItem, Journal, run_batch

BASE = "without"
CANDIDATES = (BASE, "journal")
ACTIVE = 20


class MemorySession:
    """Creates jobs in memory that have ended by the time they are watched."""

    project_id: str | None = None

    def __init__(self) -> None:
        self._created = 0
        self._limits = PollLimits(None)  # which a run gives its part of the journal's polls

    def mask(self, text: str) -> str:
        """Return the text: there is no API key here."""
        return text

    async def create_job(self, prompt: str, *, project_id: str | None = None, **_: object) -> AgentJob:
        """Create a job, after a turn of the loop."""
        del prompt
        self._created += 1
        await asyncio.sleep(0)
        return AgentJob(f"job_{self._created}", project_id or "docs", "active")

    def watch(self, job: AgentJob | JobRef | str, **_: object) -> asyncio.Future[AgentJob]:
        """Return the ended job at the next turn of the loop."""
        found: asyncio.Future[AgentJob] = asyncio.get_running_loop().create_future()
        job_id = job.id if isinstance(job, AgentJob) else job.job_id if isinstance(job, JobRef) else job
        asyncio.get_running_loop().call_soon(found.set_result, AgentJob(job_id, "docs", "completed"))
        return found


def items(count: int) -> Iterator[BatchItem]:
    """Return `count` items, lazily."""
    return (BatchItem(f"key-{number}", f"Document page {number}") for number in range(count))


def session() -> AgentJobsSession:
    """Return a session in memory."""
    return cast("AgentJobsSession", MemorySession())


async def without(count: int) -> None:
    """Fan out without a journal."""
    jobs, places = session(), asyncio.Semaphore(ACTIVE)

    async def run(item: BatchItem) -> None:
        async with places:
            await jobs.watch(await jobs.create_job(item.prompt))

    await asyncio.gather(*map(run, items(count)))


async def run(path: Path, todo: Iterator[BatchItem]) -> int:
    """Run a batch on a journal, and return the number of its results."""
    results = 0
    async with (
        Journal.open(path) as journal,
        run_batch(session(), todo, journal=journal, max_active=ACTIVE, create_rate=None) as batch,
    ):
        async for _ in batch:
            results += 1
    return results


async def per_item(candidate: str, count: int) -> Figures:
    """Measure one batch."""
    with TemporaryDirectory() as directory:
        wall, cpu = perf_counter(), process_time()
        if candidate == BASE:
            await without(count)
        else:
            await run(Path(directory) / "run.db", items(count))
        return {"wall": (perf_counter() - wall) / count, "cpu": (process_time() - cpu) / count}


async def planned(count: int) -> Figures:
    """Measure the planning of items, and of the same items once more."""
    figures = {}
    with TemporaryDirectory() as directory:
        async with Journal.open(Path(directory) / "run.db") as journal:
            await journal.add([BatchItem("warm", "up")])
            for name in ("new", "again"):
                wall, cpu = perf_counter(), process_time()
                await journal.add(items(count))
                figures[f"{name}_wall"] = (perf_counter() - wall) / count
                figures[f"{name}_cpu"] = (process_time() - cpu) / count
    return figures


async def prepare(path: Path, count: int, left: int = 0) -> None:
    """Make a journal of ended rows, twenty active ones and `left` planned ones, by SQL: runs would take an hour."""
    async with Journal.open(path) as journal:
        await journal.add(items(count))
        database = journal._entries._database  # noqa: SLF001 - only to prepare
        states = f"CASE WHEN number % {max(count // ACTIVE, 1)} = 0 THEN 'active' ELSE 'completed' END"
        values = "job_id = 'job_' || number, project_id = 'docs', sent_at = 1.0"
        update = f"UPDATE agentjobs_entries SET state = {states}, {values} WHERE number > {left}"  # noqa: S608 - its own words
        await database.once(lambda connection: connection.exec_driver_sql(update))


async def resumed(path: Path, count: int, *, given: bool) -> Figures:
    """Measure a run that resumes a journal."""
    before = resident_bytes()
    ticker = Ticker(asyncio.get_running_loop())
    started = perf_counter()
    await run(path, items(count if given else 0))
    seconds = perf_counter() - started
    await asyncio.sleep(0.1)
    pauses = ticker.stop()
    return {
        "seconds": seconds,
        "mebibytes": (resident_bytes() - before) / 2**20,
        "late_worst": pauses["late_worst"],
        "busy_worst": pauses["busy_worst"],
    }


async def lived(count: int, ran: int, *, frozen: bool) -> Figures:
    """Measure how long the loop is held while a batch is planned, resumed, run for some items, and read.

    With `frozen`, what was imported is not looked through by the garbage collector, as in `agentjobs run`.
    """
    found: Figures = {}
    if frozen:
        gc.collect()
        gc.freeze()

    @asynccontextmanager
    async def part(name: str) -> AsyncIterator[None]:
        gc.collect()
        ticker = Ticker(asyncio.get_running_loop())
        yield
        await asyncio.sleep(0.05)
        pauses = ticker.stop()
        found.update({f"{name} {what}": pauses[what] for what in ("late_worst", "held_worst", "busy_worst")})

    with TemporaryDirectory() as directory:
        path = Path(directory) / "run.db"
        async with part("planned"), Journal.open(path) as journal:
            await journal.add(items(count))
        await prepare(path, count, left=ran)
        async with part("resumed and run"):
            await run(path, items(0))
        async with part("given again"):
            await run(path, items(count))
        async with part("status"), Journal.open(path, read_only=True) as journal:
            await journal.counts()
            async for _ in journal.rows():
                pass
        async with Journal.open(path) as journal, run_batch(session(), [], journal=journal) as batch, part("stats"):
            async for _ in batch:
                batch.stats()
    return found


def one(what: str, *rest: str) -> Figures:
    """Measure one thing, in this process."""
    if what == "item":
        return asyncio.run(per_item(rest[0], int(rest[1])))
    if what == "plan":
        return asyncio.run(planned(int(rest[0])))
    if what == "life":
        return asyncio.run(lived(int(rest[0]), int(rest[1]), frozen=rest[2] == "frozen"))
    if what == "prepare":
        asyncio.run(prepare(Path(rest[0]), int(rest[1])))
        return {}
    return asyncio.run(resumed(Path(rest[0]), int(rest[1]), given=what == "given"))


def measure_resuming(sizes: list[int]) -> dict[str, Figures]:
    """Measure resuming journals of several sizes."""
    found = {}
    for count in sizes:
        for what in ("resume", "given"):
            with TemporaryDirectory() as directory:
                path = str(Path(directory) / "run.db")
                in_own_process("prepare", path, str(count))
                found[f"{count:,} rows, {'items given again' if what == 'given' else 'no items'}"] = in_own_process(
                    what, path, str(count)
                )
    print(file=sys.stderr)
    return found


def measure_life(rows: int, ran: int) -> dict[str, Figures]:
    """Measure the longest hold of the loop in each part of a long batch, and print it."""
    ways = {"as imported": "whole", "with gc.freeze()": "frozen"}
    found = {way: in_own_process("life", str(rows), str(ran), how) for way, how in ways.items()}
    parts = dict.fromkeys(name.rpartition(" ")[0] for name in found["as imported"])
    print_table(
        f"The longest hold of the loop, {rows:,} rows, {ran:,} items run, ms (goal: 20)",
        ["part", *(f"{way}: {what}" for way in ways for what in ("clock", "CPU of the loop", "CPU of all threads"))],
        [
            [part]
            + [
                f"{found[way][f'{part} {what}'] * 1e3:.0f}"
                for way in ways
                for what in ("late_worst", "held_worst", "busy_worst")
            ]
            for part in parts
        ],
    )
    return found


def main() -> None:
    """Measure, print the tables, and save the figures if an option says so."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--items", type=int, default=500, help="items of a batch (default: %(default)s)")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000], help="rows of a journal")
    parser.add_argument(
        "--run", type=int, default=3_000, help="items that the long journal runs (default: %(default)s)"
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    rounds = Rounds(BASE)
    names = chosen(CANDIDATES, BASE, options)
    rounds.take(names, options.rounds, lambda name: in_own_process("item", name, str(options.items)))
    print_table(
        f"One item of a batch of {options.items}, {ACTIVE} active",
        ["batch", "ms by the clock", "ms of CPU"],
        [[name, *(f"{rounds.median(name, what) * 1000:.2f}" for what in ("wall", "cpu"))] for name in names],
    )
    costs = [rounds.median(name, "cpu") * 1000 for name in ("journal", BASE)]
    print(f"\nA journal costs {costs[0] - costs[1]:.2f} ms of CPU for each item (goal: 1.5).")
    life = measure_life(max(options.rows), options.run)
    planning = in_own_process("plan", str(max(options.rows)))
    print_table(
        f"One of {max(options.rows):,} items planned",
        ["items", "µs by the clock", "µs of CPU"],
        [[name, *(f"{planning[f'{name}_{what}'] * 1e6:.0f}" for what in ("wall", "cpu"))] for name in ("new", "again")],
    )
    resuming = measure_resuming(options.rows)
    print_table(
        "Going on with a journal",
        ["journal", "s", "MiB more", "loop late at worst, ms", "of it CPU, ms"],
        [
            [name, f"{of['seconds']:.2f}", f"{of['mebibytes']:.1f}"]
            + [f"{of[what] * 1000:.0f}" for what in ("late_worst", "busy_worst")]
            for name, of in resuming.items()
        ],
    )
    rounds.save(options.json, items=options.items, planning=planning, life=life, resuming=resuming)


if __name__ == "__main__":
    main()
