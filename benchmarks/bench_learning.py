"""How late do waits that learn notice an end, against the default at as many requests? How good are the estimates?

Pure arithmetic, no sleeping. A history of 50 durations comes from one draw, the jobs from another. The jobs run one
after the other, as through one session: each is polled at once, then after the delays of the strategy, and its duration
is learned as the interval between the last two polls. The default is slowed down or sped up by one factor, so that it
makes as many requests for the same jobs; a ratio is that of the mean lateness. Each figure is the median of all seeds.
The best that is possible is that of one who knows the law, with gaps from half to twice the default's and as many polls.

docs/learning.md has the table and the plot.

    python benchmarks/bench_learning.py --svg benchmarks/plots/learning.svg
    python benchmarks/bench_learning.py --durations FILE    (real durations in seconds, more than 50, one in each line)
"""

import json
import random
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import log
from pathlib import Path
from statistics import NormalDist, mean, median

import tenacity
from attrs import frozen
from measuring import arguments, parsed, print_table
from plotting import lines

from agentjobs_async import AgentJob, History, wait_learned
from agentjobs_async.learning.gaps import default_gap
from agentjobs_async.learning.history import MOST_DURATIONS

LONGEST = 7_200.0
HISTORY = 50
AFTER_A_CHANGE = 100
STEP = 0.5  # s: of the ages for which the best gap is found
FACTORS = (0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)
"""Of the default's gaps, in the plot."""
BEST_FACTORS = [0.5 * 4 ** (step / 24) for step in range(25)]
"""Of the default's gaps, of which the best are chosen."""


@frozen
class Law:
    """A law of durations: how to draw one, and the share of jobs that has ended at an age above 0."""

    draw: Callable[[random.Random], float]
    ended_by: Callable[[float], float]

    def draws(self, count: int, dice: random.Random, factor: float = 1.0) -> list[float]:
        """Return `count` durations in seconds, none above two hours."""
        return [min(self.draw(dice) * factor, LONGEST) for _ in range(count)]


LAWS = {
    "20 s or 8 min, sigma 0.25": Law(
        lambda dice: dice.lognormvariate(log(dice.choice((20, 480))), 0.25),
        lambda age: mean(NormalDist(log(middle), 0.25).cdf(log(age)) for middle in (20, 480)),
    ),
    "lognormal, 3 min, sigma 0.8": Law(
        lambda dice: dice.lognormvariate(log(180), 0.8),
        lambda age: NormalDist(log(180), 0.8).cdf(log(age)),
    ),
    "Pareto, 30 s, alpha 1.1": Law(
        lambda dice: 30 * dice.paretovariate(1.1),
        lambda age: 1 - (30 / max(age, 30)) ** 1.1,
    ),
}


@frozen
class Noticed:
    """The polls of one job, and how late the last of them was in seconds."""

    polls: int
    late: float


class Simulated:
    """A strategy that is fed with the ends of simulated jobs, one after the other."""

    def __init__(self, strategy: wait_learned) -> None:
        self._strategy = strategy
        self._state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
        self._state.outcome = tenacity.Future.construct(1, AgentJob("job", "docs", "active"), has_exception=False)
        self._now = 0.0

    def run(self, duration: float) -> Noticed:
        """Wait for one job."""
        state, age, polls, before = self._state, 0.0, 1, 0.0
        state.start_time = self._now
        while age < duration:
            before, polls = age, polls + 1
            state.outcome_timestamp = self._now + age
            age += self._strategy(state)
        self._now += age
        self._strategy.learn("docs", None, before, age)
        return Noticed(polls, age - duration)

    def ratio(self, jobs: Sequence[float]) -> float:
        """Wait for some jobs; return the mean lateness as a multiple of the default's at as many requests."""
        found = [self.run(job) for job in jobs]
        wanted = mean(one.polls for one in found)
        low, high = 0.2, 5.0
        for _ in range(30):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if of_default(jobs, middle)[0] > wanted else (low, middle)
        return mean(one.late for one in found) / of_default(jobs, high)[1]


def default_schedule(factor: float) -> list[float]:
    """Return the ages at which the default polls, with all gaps longer by `factor`."""
    ages = [0.0]
    while ages[-1] < LONGEST:
        ages.append(ages[-1] + factor * default_gap(ages[-1]))
    return ages


def of_default(jobs: Sequence[float], factor: float) -> tuple[float, float]:
    """Return the mean polls and the mean lateness of the default; its jitter evens out."""
    ages = default_schedule(factor)
    indexes = [bisect_left(ages, duration) for duration in jobs]
    polls = mean(index + 1 for index in indexes)
    lateness = mean(ages[index] - job for index, job in zip(indexes, jobs, strict=True))
    return polls, lateness


def history_of(durations: Sequence[float]) -> History:
    """Return a history of durations as the default would have seen them."""
    history, ages = History(), default_schedule(1.0)
    for duration in durations:
        index = bisect_left(ages, duration)
        history.add(ages[index - 1], ages[index])
    return history


def best(law: Law) -> float:
    """Return the least ratio that is possible with the default's number of polls, by dynamic programming."""
    indexes = range(round(LONGEST / STEP))
    alive = [1.0, *(1 - law.ended_by(index * STEP) for index in indexes[1:]), 0.0]
    area = [*accumulate(((before + after) / 2 * STEP for before, after in pairwise(alive)), initial=0.0)]

    def at(values: Sequence[float], age: float) -> float:
        index, share = divmod(min(age / STEP, len(indexes)), 1)
        return values[-1] if age >= LONGEST else values[int(index)] * (1 - share) + values[int(index) + 1] * share

    def late(age: float, gap: float) -> float:
        return gap * at(alive, age) - at(area, age + gap) + at(area, age)

    def schedule(price: float) -> list[float]:
        """Return the ages of the polls that cost least, if each costs as much as `price` seconds of lateness."""
        cost, gaps = [0.0] * len(alive), [0.0] * len(alive)
        for index in reversed(indexes):
            age, gap = index * STEP, default_gap(index * STEP)
            choices = [(late(age, each * gap) + at(cost, age + each * gap), each * gap) for each in BEST_FACTORS]
            least, gaps[index] = min(choices)
            cost[index] = least + price * alive[index]
        ages = [0.0]
        while ages[-1] < LONGEST:
            ages.append(ages[-1] + gaps[int(ages[-1] / STEP)])
        return ages

    def figures(ages: Sequence[float]) -> tuple[float, float]:
        """Return the expected polls and lateness."""
        return 1 + sum(at(alive, age) for age in ages[:-1]), sum(late(age, end - age) for age, end in pairwise(ages))

    wanted, late_by_default = figures(default_schedule(1.0))
    low, high = 0.01, 100.0
    for _ in range(12):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if figures(schedule(middle))[0] > wanted else (low, middle)
    return figures(schedule(high))[1] / late_by_default


def learned(law: Law, seed: int, jobs: int, history: Law | None = None, factor: float = 1.0) -> float:
    """Return the ratio with a history of the same law, or of another one, its durations longer by `factor`."""
    dice = seeded(seed)
    waits = Simulated(wait_learned(history_of((history or law).draws(HISTORY, dice, factor))))
    return waits.ratio(law.draws(jobs, dice))


def worst_of_wrong(law: Law, options: Namespace) -> float:
    """Return the worst ratio with a history of another law, or of durations a quarter or four times as long."""
    histories = [(law, 0.25), (law, 4.0), *((other, 1.0) for other in LAWS.values() if other is not law)]
    return max(
        median(learned(law, seed, options.jobs, *history) for seed in range(options.seeds)) for history in histories
    )


def after_a_change(law: Law, seed: int) -> tuple[float, float]:
    """Return the ratio of the first 100 jobs after all take four times as long, and that of the next 100."""
    dice = seeded(seed)
    waits = Simulated(wait_learned(history_of(law.draws(HISTORY, dice))))
    for job in law.draws(MOST_DURATIONS, dice):
        waits.run(job)
    first, second = (law.draws(AFTER_A_CHANGE, dice, 4.0) for _ in range(2))
    return waits.ratio(first), waits.ratio(second)


def within_p90(law: Law, seed: int, jobs: int) -> tuple[float, float, float]:
    """Return the shares of jobs that end within their p90: at age 0, at the median, and asked every 30 s."""
    dice = seeded(seed)
    history, durations = history_of(law.draws(HISTORY, dice)), law.draws(jobs, dice)

    def in_time(age: float) -> list[bool]:
        longest = age + history.quantile(0.9, age)
        return [job <= longest for job in durations if job > age]

    return (
        mean(in_time(0)),
        mean(in_time(median(durations))),
        mean(found for age in range(0, 600, 30) for found in in_time(age)),
    )


def seeded(seed: int) -> random.Random:
    """Return the dice of the draws, and make the jitter follow from the seed as well."""
    random.seed(seed)
    return random.Random(seed)  # noqa: S311 - no secret


def medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [median(column) for column in zip(*rows, strict=True)]


COLUMNS = (
    "right history",
    "best possible",
    "worst of the wrong",
    "100 after a change",
    "the 100 after these",
    "in p90",
)


def row(law: Law, options: Namespace) -> list[str]:
    """Return the figures of one law, as the columns name them."""
    seeds = range(options.seeds)
    figures = [median(learned(law, seed, options.jobs) for seed in seeds), best(law), worst_of_wrong(law, options)]
    figures += medians([after_a_change(law, seed) for seed in seeds])
    shares = medians([within_p90(law, seed, options.jobs) for seed in seeds])
    return [*(f"{figure:.2f}" for figure in figures), f"{min(shares):.0%}-{max(shares):.0%}"]


def of_file(path: Path, options: Namespace) -> list[list[str]]:
    """Return the ratios for the durations of a file: in the order of its lines, and drawn from them."""
    durations = [float(line) for line in path.read_text().split()]
    law = Law(lambda dice: dice.choice(durations), lambda _age: 0.0)
    waits = Simulated(wait_learned(history_of(durations[:HISTORY])))
    drawn = median(learned(law, seed, options.jobs) for seed in range(options.seeds))
    return [["in their order", f"{waits.ratio(durations[HISTORY:]):.3f}"], ["drawn", f"{drawn:.3f}"]]


def plot(options: Namespace) -> str:
    """Draw lateness against requests, of the default and of waits that learn."""
    series = {}
    for name, law in list(LAWS.items())[:2]:
        dice = seeded(0)
        history, jobs = law.draws(HISTORY, dice), law.draws(options.jobs, dice)
        series[f"{name}: default"] = [of_default(jobs, factor) for factor in FACTORS]
        points = []
        for share in (0.7, 0.85, 1.0, 1.2, 1.4):
            wanted = share * of_default(jobs, 1.0)[0]
            waits = Simulated(wait_learned(history_of(history), polls_per_job=wanted))
            found = [waits.run(job) for job in jobs]
            points.append((mean(one.polls for one in found), mean(one.late for one in found)))
        series[f"{name}: learned"] = points
    return lines("How late an end is noticed", "requests per job", "mean lateness in s", series)


def main() -> None:
    """Compute, print, save."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=1_500)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--durations", type=Path, metavar="FILE", help="real durations, instead of those that are drawn"
    )
    parser.add_argument("--svg", type=Path, help="where to save the plot")
    options = parsed(parser, jobs=300, seeds=3)
    if options.durations:
        print_table("Late, against the default", ["durations", "ratio"], of_file(options.durations, options))
        return
    rows = [[name, *row(law, options)] for name, law in LAWS.items()]
    print_table("Mean lateness, as a multiple of the default's", ["jobs", *COLUMNS], rows)
    if options.svg:
        options.svg.write_text(plot(options))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
