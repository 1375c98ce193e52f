"""Search simulated worlds until one breaks a promise: the process that `trial` starts in a copy.

Prints the seed of the first such world, the seconds of CPU time until then and the promise, and exits with 1; with 0
when the time is over.
"""

import argparse
import gc
import itertools
import signal
import sys
import time

from tests.simulation.cases import run
from tests.simulation.draws.worlds import case_of


def main() -> int:
    """Run worlds of one seed after the other."""
    parser = argparse.ArgumentParser("python -m tests.mutants.hunt")
    parser.add_argument("--seconds", type=float, required=True, help="of CPU time")
    parser.add_argument("--first", type=int, required=True, help="the first seed")
    parser.add_argument("--worlds", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--longest", type=float, required=True, help="the most seconds of CPU time for one world")
    arguments = parser.parse_args()
    began = time.process_time()
    gc.collect()
    gc.freeze()  # what is imported is never garbage: a collection after each world is cheap
    for seed in itertools.islice(itertools.count(arguments.first), arguments.worlds):
        if time.process_time() - began > arguments.seconds:
            break
        signal.setitimer(signal.ITIMER_PROF, arguments.longest)  # ends the process: a world may never give back
        if violations := run(case_of(seed)).violations:
            print(seed, f"{time.process_time() - began:.1f}", violations[0].partition("\n")[0])  # noqa: T201 - a command
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
