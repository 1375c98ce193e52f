"""How do the costs of waiting grow from a thousand jobs to a hundred thousand?

With a get-job callable that reads from memory: CPU per poll, memory per job, the worst pause of a 10 ms ticker, and the
time of starting a wait, of `stats()` and of cancelling all. Ratios are to 10,000 jobs of the same candidate.
"""

import asyncio
import gc
import json
from argparse import Namespace
from contextlib import AsyncExitStack
from pathlib import Path
from time import process_time

from bench_waits import CANDIDATES, TIMEOUT, cancelled, polled_once, started
from jobs_in_memory import Jobs
from measuring import Figures, Rounds, Ticker, arguments, in_own_process, print_table, resident_bytes
from plotting import lines

from agentjobs_async import JobTracker

NAMES = ("naive loop", "tracker.watch", "tracker.wait_for_job")
SIZES = (1_000, 10_000, 100_000)
BASE_SIZE = 10_000
MEBIBYTE = 1_048_576
STATS = 1_000


async def at_rest(candidate: str, size: int) -> Figures:
    """Measure waits after their first poll: start, memory, `stats()`, and cancelling all."""
    jobs = Jobs(size, 1_000)
    async with AsyncExitStack() as stack:
        wait = await CANDIDATES[candidate](jobs, TIMEOUT / 2, stack)
        gc.collect()
        before, begin = resident_bytes(), process_time()
        handles = started(wait, jobs.refs)
        figures = {"start": (process_time() - begin) / size}
        await polled_once(jobs)
        figures["memory"] = (resident_bytes() - before) / size
        tracker = getattr(wait, "__self__", None)
        if isinstance(tracker, JobTracker):
            begin = process_time()
            for _ in range(STATS):
                tracker.stats()
            figures["stats"] = (process_time() - begin) / STATS
        return figures | {"cancel": await cancelled(handles) / size}


async def in_motion(candidate: str, size: int, options: Namespace, *, ticking: bool) -> Figures:
    """Run all waits to their end; return the CPU of one poll, or the pauses of a ticker, which takes CPU itself."""
    jobs = Jobs(size, options.polls)
    gc.collect()
    async with AsyncExitStack() as stack:
        wait = await CANDIDATES[candidate](jobs, options.interval, stack)
        begin = process_time()
        handles = started(wait, jobs.refs)
        await asyncio.sleep(0)
        ticker = Ticker(asyncio.get_running_loop()) if ticking else None
        for handle in handles:
            await handle
        return {"cpu": (process_time() - begin) / jobs.reads} if ticker is None else ticker.stop()


async def one(candidate: str, size: str, options: Namespace) -> Figures:
    """Measure one candidate at one size."""
    figures = await at_rest(candidate, int(size))
    for ticking in (False, True):
        figures |= await in_motion(candidate, int(size), options, ticking=ticking)
    return figures


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--polls", type=int, default=4)
    parser.add_argument("--interval", type=float, default=4.0, help="seconds between two polls of a job")
    parser.add_argument("--svg", type=Path, help="where to save the plot")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    points = {f"{name}, {size}": (name, str(size)) for size in SIZES for name in NAMES}
    rounds = Rounds("")
    rounds.take(list(points), options.rounds, lambda point: in_own_process(*points[point]))
    print_table(
        f"Waits of {options.polls} polls",
        [
            "",
            "jobs",
            "CPU/poll",
            "/ 10,000",
            "/ naive",
            "memory/job",
            "all",
            "pause",
            "start/job",
            "stats",
            "cancel/job",
        ],
        [_row(rounds, name, size) for name in NAMES for size in SIZES],
    )
    if options.svg:
        series = {name: [(size, rounds.median(f"{name}, {size}", "cpu") * 1e6) for size in SIZES] for name in NAMES}
        options.svg.write_text(lines("CPU of one poll", "jobs", "µs", series))
    rounds.save(options.json, polls=options.polls, interval=options.interval)


def _row(rounds: Rounds, name: str, size: int) -> list[str]:
    point = f"{name}, {size}"
    memory = rounds.median(point, "memory")
    return [
        name,
        f"{size:,}",
        f"{rounds.median(point, 'cpu') * 1e6:.1f} µs",
        f"{rounds.ratio(point, 'cpu', f'{name}, {BASE_SIZE}'):.2f}",
        f"{rounds.ratio(point, 'cpu', f'{NAMES[0]}, {size}'):.2f}",
        f"{memory:.0f} B",
        f"{memory * size / MEBIBYTE:.0f} MiB",
        f"{rounds.median(point, 'late_worst') * 1e3:.0f} ms",
        f"{rounds.median(point, 'start') * 1e6:.1f} µs",
        "" if name == NAMES[0] else f"{rounds.median(point, 'stats') * 1e6:.1f} µs",
        f"{rounds.median(point, 'cancel') * 1e6:.1f} µs",
    ]


if __name__ == "__main__":
    main()
