"""How late do waits that learn notice an end, against the default at as many requests? How good are the estimates?

Pure arithmetic, no sleeping. A history of 50 durations comes from one draw, the jobs from another. The jobs run one
after the other, as through one session: each is polled at once, then after the delays of the strategy, and its duration
is learned as the interval between the last two polls. The default is slowed down or sped up by one factor, so that it
makes as many requests for the same jobs; a ratio is that of the mean lateness. Each figure is the median of all seeds.
The best that is possible is that of one who knows the law, with gaps from half to twice the default's and as many polls.
The CPU of a decision is the median of the ratios of many short loops, those of the default and of the others in turn.
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
from time import process_time

import tenacity
from attrs import frozen
from measuring import arguments, print_table
from plotting import lines

from agentjobs_async import AgentJob, History, JobRef, PollPolicy, wait_learned
from agentjobs_async._polling.stats import Second
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.learning.gaps import default_gap
from agentjobs_async.learning.history import MOST_DURATIONS

Draw = Callable[[random.Random], float]

LONGEST = 7_200.0
HISTORY = 50
HUMPS, LOGNORMAL, PARETO = "two humps, sigma 0.25", "lognormal, sigma 0.8", "Pareto, alpha 1.1"
DRAWS: dict[str, Draw] = {
    HUMPS: lambda dice: dice.lognormvariate(log(dice.choice((20, 480))), 0.25),
    LOGNORMAL: lambda dice: dice.lognormvariate(log(180), 0.8),
    PARETO: lambda dice: 30 * dice.paretovariate(1.1),
}
ENDED_BY: dict[str, Callable[[float], float]] = {
    HUMPS: lambda age: mean(NormalDist(log(middle), 0.25).cdf(log(age)) for middle in (20, 480)),
    LOGNORMAL: lambda age: NormalDist(log(180), 0.8).cdf(log(age)),
    PARETO: lambda age: 1 - (30 / max(age, 30)) ** 1.1,
}
"""The share of jobs that has ended at an age above 0, of each draw."""

GOALS = {HUMPS: 0.60, LOGNORMAL: 0.82, PARETO: 0.77}
"""The lateness that is wanted."""

WRONG_GOAL, SHIFTED_GOAL, CALIBRATED, CPU_GOAL, TABLE_GOAL = 1.6, 1.1, (0.85, 0.95), 1.2, 5e-3
STEP = 0.5  # s: of the ages for which the best gap is found
SHIFTED_JOBS = 100
CPU_ROUNDS, CPU_DECISIONS = 25, 20_000
FACTORS = (0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)
"""Of the default's gaps, in the plot."""
BEST_FACTORS = [0.5 * 4 ** (step / 24) for step in range(25)]
"""Of the default's gaps, of which the best are chosen."""


def draws(name: str, count: int, dice: random.Random, factor: float = 1.0) -> list[float]:
    """Return `count` durations in seconds, none above two hours."""
    return [min(DRAWS[name](dice) * factor, LONGEST) for _ in range(count)]


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


def default_schedule(factor: float) -> list[float]:
    """Return the ages at which the default polls, with all gaps longer by `factor`."""
    ages = [0.0]
    while ages[-1] < LONGEST:
        ages.append(ages[-1] + factor * default_gap(ages[-1]))
    return ages


def of_default(jobs: Sequence[float], factor: float) -> tuple[float, float]:
    """Return the mean polls and the mean lateness of the default; its jitter evens out."""
    ages = default_schedule(factor)
    places = [bisect_left(ages, duration) for duration in jobs]
    return mean(place + 1 for place in places), mean(ages[place] - job for place, job in zip(places, jobs, strict=True))


def ratio(jobs: Sequence[float], found: Sequence[Noticed]) -> float:
    """Return the mean lateness as a multiple of the default's at as many requests."""
    wanted = mean(one.polls for one in found)
    low, high = 0.2, 5.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if of_default(jobs, middle)[0] > wanted else (low, middle)
    return mean(one.late for one in found) / of_default(jobs, high)[1]


def history_of(durations: Sequence[float]) -> History:
    """Return a history of durations as the default would have seen them."""
    history, ages = History(), default_schedule(1.0)
    for duration in durations:
        place = bisect_left(ages, duration)
        history.add(ages[place - 1], ages[place])
    return history


def best(name: str) -> float:
    """Return the least ratio that is possible with the default's number of polls, by dynamic programming."""
    places = range(round(LONGEST / STEP))
    alive = [1.0, *(1 - ENDED_BY[name](place * STEP) for place in places[1:]), 0.0]
    area = [*accumulate(((before + after) / 2 * STEP for before, after in pairwise(alive)), initial=0.0)]

    def at(values: Sequence[float], age: float) -> float:
        place, share = divmod(min(age / STEP, len(places)), 1)
        return values[-1] if age >= LONGEST else values[int(place)] * (1 - share) + values[int(place) + 1] * share

    def late(age: float, gap: float) -> float:
        return gap * at(alive, age) - at(area, age + gap) + at(area, age)

    def schedule(price: float) -> list[float]:
        """Return the ages of the polls that cost least, if each costs as much as `price` seconds of lateness."""
        cost, gaps = [0.0] * len(alive), [0.0] * len(alive)
        for place in reversed(places):
            age, gap = place * STEP, default_gap(place * STEP)
            choices = [(late(age, each * gap) + at(cost, age + each * gap), each * gap) for each in BEST_FACTORS]
            least, gaps[place] = min(choices)
            cost[place] = least + price * alive[place]
        ages = [0.0]
        while ages[-1] < LONGEST:
            ages.append(ages[-1] + gaps[int(ages[-1] / STEP)])
        return ages

    def figures(ages: Sequence[float]) -> tuple[float, float]:
        """Return the expected polls and lateness."""
        return 1 + sum(at(alive, age) for age in ages[:-1]), sum(late(age, end - age) for age, end in pairwise(ages))

    wanted, of_default = figures(default_schedule(1.0))
    low, high = 0.01, 100.0
    for _ in range(12):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if figures(schedule(middle))[0] > wanted else (low, middle)
    return figures(schedule(high))[1] / of_default


def simulated(history: History, jobs: Sequence[float]) -> float:
    """Return the lateness of waits that begin with `history`, as a multiple of the default's."""
    waits = Simulated(wait_learned(history))
    return ratio(jobs, [waits.run(job) for job in jobs])


def right(name: str, seed: int, count: int) -> float:
    """Return the ratio with a history of the same draw."""
    dice = seeded(seed)
    return simulated(history_of(draws(name, HISTORY, dice)), draws(name, count, dice))


def wrong(name: str, of: str, factor: float, seed: int, count: int) -> float:
    """Return the ratio with a history of another draw."""
    dice = seeded(seed)
    return simulated(history_of(draws(of, HISTORY, dice, factor)), draws(name, count, dice))


def shifted(name: str, seed: int) -> tuple[float, float]:
    """Return the ratio of the first 100 jobs after all take four times as long, and that of the next 100."""
    dice = seeded(seed)
    waits = Simulated(wait_learned(history_of(draws(name, HISTORY, dice))))
    for job in draws(name, MOST_DURATIONS, dice):
        waits.run(job)
    first, second = (draws(name, SHIFTED_JOBS, dice, 4.0) for _ in range(2))
    return ratio(first, [waits.run(job) for job in first]), ratio(second, [waits.run(job) for job in second])


def calibration(name: str, seed: int, count: int) -> tuple[float, float, float]:
    """Return the shares of jobs that end within their p90: at age 0, at the median, and asked every 30 s."""
    dice = seeded(seed)
    history, jobs = history_of(draws(name, HISTORY, dice)), draws(name, count, dice)

    def held(age: float) -> list[bool]:
        longest = age + history.quantile(0.9, age)
        return [job <= longest for job in jobs if job > age]

    return mean(held(0)), mean(held(median(jobs))), mean(found for age in range(0, 600, 30) for found in held(age))


def seeded(seed: int) -> random.Random:
    """Return the dice of the draws, and make the jitter follow from the seed as well."""
    random.seed(seed)
    return random.Random(seed)  # noqa: S311 - no secret


def verdict(value: float, low: float, high: float) -> str:
    """Return whether a figure reaches its goal."""
    return "ok" if low <= value <= high else "MISSED"


def medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [median(column) for column in zip(*rows, strict=True)]


def right_rows(options: Namespace) -> list[list[str]]:
    """Return the table of histories of the same draw."""
    rows = []
    for name, goal in GOALS.items():
        found = median(right(name, seed, options.jobs) for seed in range(options.seeds))
        rows.append([name, f"{found:.3f}", f"{best(name):.3f}", f"{goal}", verdict(round(found, 2), 0, goal)])
    return rows


def wrong_rows(options: Namespace) -> list[list[str]]:
    """Return the table of wrong histories."""
    rows = []
    for name in GOALS:
        others = {"a quarter": (name, 0.25), "four times": (name, 4.0)} | {
            other: (other, 1.0) for other in GOALS if other != name
        }
        for label, (of, factor) in others.items():
            found = median(wrong(name, of, factor, seed, options.jobs) for seed in range(options.seeds))
            rows.append([name, label, f"{found:.2f}", verdict(found, 0, WRONG_GOAL)])
    return rows


def shifted_rows(options: Namespace) -> list[list[str]]:
    """Return the table of jobs that change."""
    rows = []
    for name in GOALS:
        first, second = medians([shifted(name, seed) for seed in range(options.seeds)])
        rows.append([name, f"{first:.2f}", f"{second:.2f}", verdict(second, 0, SHIFTED_GOAL)])
    return rows


def calibration_rows(options: Namespace) -> list[list[str]]:
    """Return the table of estimates."""
    rows = []
    for name in GOALS:
        found = medians([calibration(name, seed, options.jobs) for seed in range(options.seeds)])
        goal = "ok" if all(verdict(share, *CALIBRATED) == "ok" for share in found) else "MISSED"
        rows.append([name, *(f"{share:.1%}" for share in found), goal])
    return rows


def cpu_of(policy: PollPolicy) -> float:
    """Return the CPU seconds of a decision about a job that has not ended, at ages up to 5 min."""
    job = AgentJob("job_1", "docs", "active", model="model")
    tracked = Tracked(JobRef("docs", "job_1"), job, 0.0, Second(0))
    ages = [number % 300 + 0.5 for number in range(CPU_DECISIONS)]
    before = process_time()
    for age in ages:
        tracked.apply(policy, job, age)
    return (process_time() - before) / CPU_DECISIONS


def cpu_rows() -> list[list[str]]:
    """Compute the CPU of a decision against the default's."""
    known = history_of(draws(LOGNORMAL, HISTORY, seeded(0)))
    waits = {"one history": wait_learned(known), "by project and model": wait_learned({("docs", "model"): known})}
    policies = {name: PollPolicy(wait=wait) for name, wait in waits.items()}
    ratios: dict[str, list[float]] = {name: [] for name in policies}
    for _ in range(CPU_ROUNDS):
        of_default = cpu_of(PollPolicy())
        for name, policy in policies.items():
            ratios[name].append(cpu_of(policy) / of_default)
    return [[name, f"{median(each):.2f}", verdict(median(each), 0.0, CPU_GOAL)] for name, each in ratios.items()]


def table_rows() -> list[list[str]]:
    """Compute the CPU of a table of gaps, which is made within a turn of the loop, from a full history."""
    rows = []
    for name in GOALS:
        history, seconds = history_of(draws(name, MOST_DURATIONS, seeded(0))), []
        for _ in range(CPU_ROUNDS):
            waits = Simulated(wait_learned(history))
            before = process_time()
            waits.run(1.0)
            seconds.append(process_time() - before)
        worst = max(seconds)
        rows.append([name, f"{median(seconds) * 1e3:.1f} ms", f"{worst * 1e3:.1f} ms", verdict(worst, 0, TABLE_GOAL)])
    return rows


def plot(options: Namespace) -> str:
    """Draw lateness against requests, of the default and of waits that learn."""
    series = {}
    for name in (HUMPS, LOGNORMAL):
        dice = seeded(0)
        history, jobs = draws(name, HISTORY, dice), draws(name, options.jobs, dice)
        series[f"{name}: default"] = [of_default(jobs, factor) for factor in FACTORS]
        points = []
        for share in (0.7, 0.85, 1.0, 1.2, 1.4):
            wanted = share * of_default(jobs, 1.0)[0]
            waits = Simulated(wait_learned(history_of(history), polls_per_job=wanted))
            found = [waits.run(job) for job in jobs]
            points.append((mean(one.polls for one in found), mean(one.late for one in found)))
        series[f"{name}: learned"] = points
    return lines("How late an end is noticed", "requests per job", "mean lateness in s", series)


def real_rows(path: Path, options: Namespace) -> list[list[str]]:
    """Return the table of durations from a file: one number of seconds in each line, in the order of the jobs."""
    durations = [float(line) for line in path.read_text().split()]
    DRAWS["file"] = lambda dice: dice.choice(durations)
    ordered = simulated(history_of(durations[:HISTORY]), durations[HISTORY:])
    drawn = median(right("file", seed, options.jobs) for seed in range(options.seeds))
    return [["in their order", f"{ordered:.3f}"], ["drawn", f"{drawn:.3f}"]]


def main() -> None:
    """Compute, print, save."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=1_500)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="3 seeds, 300 jobs: whether it still works")
    parser.add_argument("--durations", type=Path, help="a file of real durations in seconds, more than 50, one a line")
    parser.add_argument("--svg", type=Path, help="where to save the plot")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.seeds = 300, 3
    if options.durations:
        rows = real_rows(options.durations, options)
        print_table("Late, against the default", ["durations of the file", "ratio"], rows)
        return
    tables = {
        "history of the same draw": (["jobs", "ratio", "best possible", "goal", ""], right_rows(options)),
        "wrong history": (["jobs", "history", "ratio", ""], wrong_rows(options)),
        "after a change to four times": (["jobs", "first 100", "next 100", ""], shifted_rows(options)),
        "CPU of a decision, against the default's": (["histories", "ratio", ""], cpu_rows()),
        "CPU of a table": (["jobs", "median", "worst", ""], table_rows()),
        "estimates: end within p90": (["jobs", "new", "at the median", "every 30 s", ""], calibration_rows(options)),
    }
    for title, (head, rows) in tables.items():
        print_table(title, head, rows)
    if options.svg:
        options.svg.write_text(plot(options))
    if options.json:
        options.json.write_text(json.dumps({title: rows for title, (_, rows) in tables.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
