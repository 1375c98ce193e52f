"""How late does each policy notice the end of a job, and how many requests does it take?

Pure arithmetic, no sleeping: each job has a duration; each policy polls at once and then after its own delays. The
lateness is the time from the end of a job to the first poll after it. The last column compares it with that of the
fixed interval that makes as many requests per job.
"""

import json
import random
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from statistics import mean, median, quantiles

import tenacity
from attrs import frozen
from measuring import arguments, print_table
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
    """The requests and the lateness of waiting for some jobs.

    Attributes:
        requests: Per job, on average.
        late: Seconds from each end to the poll that noticed it.
        share: The same as shares of the durations.
    """

    requests: float
    late: list[float]
    share: list[float]


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
    return Noticed(requests / len(jobs), late, [time / duration for time, duration in zip(late, jobs, strict=True)])


def equal_interval(requests: float, jobs: Sequence[float]) -> float:
    """Return the fixed interval in seconds that makes as many requests per job."""
    shortest, longest = 0.01, LONGEST
    while longest - shortest > 0.001 * shortest:
        middle = (shortest + longest) / 2
        polls = mean(2 + duration // middle for duration in jobs)
        shortest, longest = (middle, longest) if polls > requests else (shortest, middle)
    return longest


def main() -> None:
    """Compute, print, save."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--svg", type=Path, help="where to save the plot, of the jobs with a median of 3 min")
    options = parser.parse_args()
    figures = {workload: _figures(durations(workload, options.jobs)) for workload in WORKLOADS}
    for workload, rows in figures.items():
        print_table(
            f"How late an end is noticed, durations: {workload}",
            ["", "requests", "late, median", "share of duration", "late, mean", "late, p95", "against equal fixed"],
            [
                [name, *(form.format(value) for form, value in zip(_FORMS, row, strict=True))]
                for name, row in rows.items()
            ],
        )
    if options.svg:
        options.svg.write_text(_plot(figures["median 3 min"]))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


_FORMS = ("{:.1f}", "{:.2f} s", "{:.1%}", "{:.2f} s", "{:.2f} s", "{:.2f} x")

Row = tuple[float, float, float, float, float, float]


def _figures(jobs: Sequence[float]) -> dict[str, Row]:
    return {name: _row(strategy, jobs) for name, strategy in POLICIES.items()}


def _row(strategy: Strategy, jobs: Sequence[float]) -> Row:
    own = noticed(strategy, jobs)
    fixed = noticed(tenacity.wait_fixed(equal_interval(own.requests, jobs)), jobs)
    late = median(own.late)
    return (
        own.requests,
        late,
        median(own.share),
        mean(own.late),
        quantiles(own.late, n=20)[-1],
        late / median(fixed.late),
    )


def _plot(rows: dict[str, Row]) -> str:
    fixed = [row[:2] for name, row in rows.items() if name.startswith("wait_fixed")]
    others = {name: [row[:2]] for name, row in rows.items() if not name.startswith("wait_fixed")}
    series = {"fixed: 2, 5, 10, 30 s": fixed, **others}
    return lines("Jobs of 3 min: how late an end is noticed", "requests per job", "seconds (median)", series)


if __name__ == "__main__":
    main()
