"""Put each fault of the catalogue into a copy of the checkout, and print what finds it.

.ci/run mutants                          # all of them, 60 s of worlds for each
.ci/run mutants --only NAME --seconds 0  # one, by the tests of its room alone
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from fractions import Fraction
from typing import Final

from tests.mutants.catalogue import MUTANTS, problems
from tests.mutants.mutant import Mutant
from tests.mutants.trial import Verdict, summary, tried

_AGREED: Final = Fraction(28, 30)
"""The share of the faults that is found at least."""


def are_enough(verdicts: Sequence[Verdict]) -> bool:
    """Return whether as many faults were found as agreed; of a few, all have to be."""
    return sum(one.is_found for one in verdicts) >= _AGREED * len(verdicts)


def main(arguments: Sequence[str] | None = None) -> bool:
    """Do what the command line says; return whether enough faults were found."""
    parser = argparse.ArgumentParser(".ci/run mutants", description="Show which faults are found, and by what.")
    names = [one.name for one in MUTANTS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="only this fault; repeatable")
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU time in worlds for each (default 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once (default: the cores)")
    given = parser.parse_args(arguments)
    if found := problems():
        print("\n".join(found))  # noqa: T201 - a command
        return False
    chosen = [one for one in MUTANTS if given.only is None or one.name in given.only]
    verdicts = _all_tried(chosen, given.seconds, given.jobs)
    print(summary(verdicts))  # noqa: T201 - a command
    return len(verdicts) == len(chosen) and are_enough(verdicts)


def _all_tried(mutants: Sequence[Mutant], seconds: float, jobs: int) -> list[Verdict]:
    """Print each verdict as soon as it is there, and return all of them; a trial that can't run has none."""
    verdicts = []
    with ThreadPoolExecutor(jobs) as pool:
        for trial in as_completed([pool.submit(tried, one, seconds) for one in mutants]):
            try:
                verdicts.append(trial.result())
                print(verdicts[-1], flush=True)  # noqa: T201 - a command
            except RuntimeError as error:
                print(error, flush=True)  # noqa: T201 - a command
    return verdicts


if __name__ == "__main__":
    sys.exit(not main())
