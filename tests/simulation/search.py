"""Search worlds of new seeds for a broken promise, or explain one that was found.

.ci/run search --seconds 3600      # new seeds, in as many processes as there are cores
.ci/run search --seed 17           # one again: shrunk, and with what happened
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.cases import explanation, run
from tests.simulation.draws.worlds import case_of
from tests.simulation.shrinking import shrunk


def _search(first: int, step: int, until: float) -> tuple[Counter[str], list[int]]:
    """Run the seeds `first`, `first + step` and so on, until a time by the clock of the process."""
    totals: Counter[str] = Counter()
    failed, seed = [], first
    gc.collect()
    gc.freeze()  # what is imported is never garbage: a collection after each world is cheap
    while time.time() < until:
        result = run(case_of(seed))
        totals.update(
            {"worlds": 1, "creates": result.creates, "kills": result.kills, "virtual seconds": int(result.seconds)}
        )
        if result.violations:
            failed.append(seed)
            print(f"seed {seed}: {result.violations[0]}", flush=True)  # noqa: T201 - a command
        seed += step
    return totals, failed


def _explain(seed: int) -> bool:
    """Print what became of a seed; return whether it kept all promises."""
    case = case_of(seed)
    result = run(case)
    if result.violations:
        print(f"seed {seed}: {result.violations[0]}\nlooking for the least that still breaks it", flush=True)  # noqa: T201 - a command
        case = shrunk(case)
        result = run(case)
    print(explanation(case, result))  # noqa: T201 - a command
    return not result.violations


def main() -> bool:
    """Do what the command line says; return whether all promises were kept."""
    parser = argparse.ArgumentParser(".ci/run search", description="Search worlds for a broken promise.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search (default 60)")
    parser.add_argument("--first", type=int, default=time.time_ns() // 1_000_000, help="the first seed (default: new)")
    parser.add_argument("--seed", type=int, help="explain what becomes of this one")
    parser.add_argument("--postgresql", action="store_true", help="worlds of real processes that share a PostgreSQL")
    arguments = parser.parse_args()
    if arguments.postgresql:
        from tests.simulation.postgresql import command  # noqa: PLC0415 - simulated worlds need no server

        return command.main(arguments)
    if arguments.seed is not None:
        return _explain(arguments.seed)
    cores, until = os.cpu_count() or 1, time.time() + arguments.seconds
    with ProcessPoolExecutor(cores) as pool:
        firsts = range(arguments.first, arguments.first + cores)
        parts = list(pool.map(_search, firsts, [cores] * cores, [until] * cores))
    totals: Counter[str] = Counter()
    for part, _ in parts:
        totals.update(part)
    failed = sorted(seed for _, seeds in parts for seed in seeds)
    figures = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    print(f"{figures}; {len(failed)} broke a promise{f', explained with --seed: {failed}' * bool(failed)}")  # noqa: T201 - a command
    return not failed


if __name__ == "__main__":
    sys.exit(not main())
