"""What does the journal of a batch cost per item, and for how long does a long one block the event loop?

A batch over jobs in memory, with a journal and as a plain bounded fan-out without one: CPU per item. Then a journal
through its life: planned, resumed, some thousand of its items run, all given again, and read; the longest time between
two iterations of the loop in each part, by the clock and by the CPU of the loop's thread. The garbage collector does
not look through what was imported (`gc.freeze()`), as in the `agentjobs` command; `--unfrozen` shows what it takes
otherwise.

docs/batches.md quotes both.

    python benchmarks/bench_journal.py
"""

import asyncio
import gc
import json
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from measuring import Figures, Rounds, Ticker, arguments, chosen, in_own_process, parsed, print_table

from agentjobs_async import AgentJob, AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.batch import BatchItem, Journal, run_batch

BASE = "without"
CANDIDATES = (BASE, "journal")
ACTIVE = 20


class MemorySession(AgentJobsSession):
    """Creates jobs in memory that have ended by their first poll."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "no-key", get_job=self._completed, policy=PollPolicy(wait=lambda _: 1.0))
        self._created = 0

    async def create_job(self, *_: object, project_id: str | None = None, **__: object) -> AgentJob:
        """Create a job, after an iteration of the loop."""
        self._created += 1
        await asyncio.sleep(0)
        return AgentJob(f"job_{self._created}", project_id or "docs", "active")

    async def _completed(self, ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, ref.project_id, "completed")


def items(count: int) -> Iterator[BatchItem]:
    """Return `count` items, lazily."""
    return (BatchItem(f"key-{number}", f"Document page {number}", "docs") for number in range(count))


async def without(count: int) -> None:
    """Fan out without a journal."""
    slots = asyncio.Semaphore(ACTIVE)
    async with MemorySession() as session:

        async def run(item: BatchItem) -> None:
            async with slots:
                await session.watch(await session.create_job(item.prompt, project_id="docs"))

        await asyncio.gather(*map(run, items(count)))


async def run(path: Path, todo: Iterator[BatchItem]) -> None:
    """Run a batch on a journal."""
    async with (
        MemorySession() as session,
        Journal.open(path) as journal,
        run_batch(session, todo, journal=journal, max_active=ACTIVE, create_rate=None) as batch,
    ):
        async for _ in batch:
            pass


async def one(candidate: str, options: Namespace) -> Figures:
    """Measure one batch."""
    with TemporaryDirectory() as directory:
        begin = process_time()
        await (without(options.items) if candidate == BASE else run(Path(directory) / "run.db", items(options.items)))
        return {"cpu": (process_time() - begin) / options.items}


async def leave_only(path: Path, rows: int, left: int) -> None:
    """Change all rows of a journal by SQL, since runs would take an hour: twenty active, `left` planned, others ended."""
    async with Journal.open(path) as journal:
        is_active = f"number % {max(rows // ACTIVE, 1)} = 0"
        states = f"CASE WHEN {is_active} THEN 'active' ELSE 'completed' END"
        values = f"job_id = 'job_' || number, sent_at = 1.0, ended_at = CASE WHEN {is_active} THEN NULL ELSE 2.0 END"
        update = f"UPDATE agentjobs_items SET state = {states}, {values} WHERE number > {left}"  # noqa: S608 - its own words
        await journal.store._database.once(lambda connection: connection.exec_driver_sql(update))  # noqa: SLF001 - only to prepare


async def life(options: Namespace) -> Figures:
    """Measure how long the loop is blocked in each part of the life of a journal."""
    found: Figures = {}

    @asynccontextmanager
    async def part(name: str) -> AsyncIterator[None]:
        gc.collect()
        ticker = Ticker()
        yield
        await asyncio.sleep(0.05)
        found.update({f"{name}, {what}": seconds for what, seconds in ticker.stop().items()})

    with TemporaryDirectory() as directory:
        path = Path(directory) / "run.db"
        async with part("planned"), Journal.open(path) as journal:
            await journal.add(items(options.rows))
        await leave_only(path, options.rows, options.run)
        async with part("resumed and run"):
            await run(path, items(0))
        async with part("given again"):
            await run(path, items(options.rows))
        async with part("read"), Journal.open(path, read_only=True) as journal:
            await journal.counts()
            async for _ in journal.rows():
                pass
    return found


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--items", type=int, default=500, help="items of a batch (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the long journal (default: %(default)s)")
    parser.add_argument("--run", type=int, default=3_000, help="of these, how many are run (default: %(default)s)")
    parser.add_argument("--unfrozen", action="store_true", help="the collector looks through what was imported")
    options = parsed(parser, items=200, rows=5_000, run=200)
    if options.one:
        if not options.unfrozen:
            gc.collect()
            gc.freeze()
        print(json.dumps(asyncio.run(life(options) if options.one == ["life"] else one(*options.one, options))))
        return
    names, rounds = chosen(CANDIDATES, BASE, options), Rounds(BASE)
    rounds.measure(names, options.rounds, in_own_process)
    rows = [[name, f"{rounds.ratio(name, 'cpu'):.2f}", f"{rounds.median(name, 'cpu') * 1e3:.2f}"] for name in names]
    print_table(f"One item of {options.items}, {ACTIVE} active", ["batch", f"CPU / {BASE}", "ms"], rows)
    rounds.measure(["life"], options.rounds, in_own_process)
    parts = ("planned", "resumed and run", "given again", "read")
    print_table(
        f"The longest time that blocks the loop, {options.rows:,} rows, {options.run:,} items run, ms",
        ["", "by the clock", "CPU of the loop's thread"],
        [
            [name, *(f"{rounds.median('life', f'{name}, {what}') * 1e3:.0f}" for what in ("late", "busy"))]
            for name in parts
        ],
    )
    rounds.save(options)


if __name__ == "__main__":
    main()
