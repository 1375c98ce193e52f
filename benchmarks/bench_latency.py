"""How late does each policy notice the end of a job, and how many requests does it take?

Pure arithmetic, no sleeping: each job has a duration; each policy polls at once and then after its own delays. The
lateness is the time from the end of a job to the first poll after it. The last column compares it with that of the
fixed interval that makes as many requests per job.

docs/waiting.md shows the plot and quotes the default's figures, as `PollPolicy` does.

    python benchmarks/bench_latency.py --svg benchmarks/plots/latency.svg
"""

import json
import random
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from statistics import mean, median, quantiles

import tenacity
from attrs import frozen
from measuring import arguments, parsed, print_table
from plotting import lines

from agentjobs_async import PollPolicy

Strategy = Callable[[tenacity.RetryCallState], float]

SEED = 20
LONGEST = 7_200.0


def smithy(state: tenacity.RetryCallState) -> float:
    """Return the delay of the waiters in Smithy's clients with their defaults, 2 s and 120 s.

    https://smithy.io/2.0/additional-specs/waiters.html#waiter-retries
    """
    return random.uniform(2, max(2, min(120, 2 * 2 ** (min(state.attempt_number, 10) - 1))))  # noqa: S311 - no secret


POLICIES: dict[str, Strategy] = {
    "default": PollPolicy().wait,
    "wait_fixed(2)": tenacity.wait_fixed(2),
    "wait_fixed(5)": tenacity.wait_fixed(5),
    "wait_fixed(10)": tenacity.wait_fixed(10),
    "wait_fixed(30)": tenacity.wait_fixed(30),
    "wait_random_exponential(1, 60)": tenacity.wait_random_exponential(1, 60),
    "Smithy waiters (2 s, 120 s)": smithy,
}

WORKLOADS: dict[str, Callable[[random.Random], float]] = {
    "median 20 s": lambda dice: dice.lognormvariate(log(20), 0.6),
    "median 3 min": lambda dice: dice.lognormvariate(log(180), 0.6),
    "median 8 min": lambda dice: dice.lognormvariate(log(480), 0.6),
    "20 s or 8 min": lambda dice: dice.lognormvariate(log(dice.choice((20, 480))), 0.3),
    "heavy tail": lambda dice: 30 * dice.paretovariate(1.1),
}


def durations(workload: str, jobs: int) -> list[float]:
    """Return `jobs` durations in seconds, none above two hours, from a fixed seed."""
    dice = random.Random(SEED)  # noqa: S311 - no secret
    return [min(WORKLOADS[workload](dice), LONGEST) for _ in range(jobs)]


@frozen
class Noticed:
    """How a strategy notices the ends of some jobs: requests per job, and seconds from each end to the poll after it."""

    requests: float
    late: list[float]


def noticed(strategy: Strategy, jobs: Sequence[float]) -> Noticed:
    """Return how a strategy notices the ends of jobs that run one by one."""
    random.seed(SEED)
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.start_time, requests, late = 0.0, 0, []
    for duration in jobs:
        now, polls = 0.0, 1
        while now < duration:
            state.attempt_number, state.outcome_timestamp = polls, now
            now += strategy(state)
            polls += 1
        requests += polls
        late.append(now - duration)
    return Noticed(requests / len(jobs), late)


def equal_interval(requests: float, jobs: Sequence[float]) -> float:
    """Return the fixed interval in seconds that makes as many requests per job."""
    shortest, longest = 0.01, LONGEST
    while longest - shortest > 0.001 * shortest:
        middle = (shortest + longest) / 2
        polls = mean(2 + duration // middle for duration in jobs)
        shortest, longest = (middle, longest) if polls > requests else (shortest, middle)
    return longest


COLUMNS = {
    "requests": "{:.1f}",
    "late, median": "{:.2f} s",
    "late, mean": "{:.2f} s",
    "late, p95": "{:.2f} s",
    "against equal fixed": "{:.2f} x",
}


def figures_of(strategy: Strategy, jobs: Sequence[float]) -> tuple[float, ...]:
    """Return the figures of the columns."""
    own = noticed(strategy, jobs)
    fixed = noticed(tenacity.wait_fixed(equal_interval(own.requests, jobs)), jobs)
    late = median(own.late)
    return own.requests, late, mean(own.late), quantiles(own.late, n=20)[-1], late / median(fixed.late)


def plot(rows: dict[str, tuple[float, ...]]) -> str:
    """Draw lateness against requests: the fixed intervals as a line, each other policy as a point."""
    fixed = [(row[0], row[1]) for name, row in rows.items() if name.startswith("wait_fixed")]
    others = {name: [(row[0], row[1])] for name, row in rows.items() if not name.startswith("wait_fixed")}
    series = {"fixed: 2, 5, 10, 30 s": fixed, **others}
    return lines("Jobs of 3 min: how late an end is noticed", "requests per job", "seconds (median)", series)


def main() -> None:
    """Compute, print, save."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--svg", type=Path, help="where to save the plot, of the jobs with a median of 3 min")
    options = parsed(parser, jobs=200)
    found = {}
    for workload in WORKLOADS:
        jobs = durations(workload, options.jobs)
        rows = found[workload] = {name: figures_of(strategy, jobs) for name, strategy in POLICIES.items()}
        cells = [
            [name, *(form.format(value) for form, value in zip(COLUMNS.values(), row, strict=True))]
            for name, row in rows.items()
        ]
        print_table(f"How late an end is noticed, durations: {workload}", ["", *COLUMNS], cells)
    if options.svg:
        options.svg.write_text(plot(found["median 3 min"]))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
