"""How often is a history dropped although nothing has changed, where jobs run at the same time? How soon if they have?

Pure arithmetic, no sleeping. Jobs begin together, and a further one at each end, as in a batch. Nothing has changed:
the share of runs in which the history is dropped, which is to be 1 % or a little more by chance. All jobs take four
times as long as the history says: how many had ended, in the median run, when it was dropped, and their share of the
mean duration that had passed by then.
"""

import json
import random
from argparse import Namespace
from heapq import heappop, heappush
from statistics import mean, median

from attrs import define
from bench_learning import DRAWS, draws, seeded
from measuring import arguments, print_table

from agentjobs_async import AgentJob, History, wait_learned

AT_ONCE = (1, 20, 100, 500)
HISTORY = 50
POLLED_SECONDS = 5.0
"""Between two polls, about: a job was last seen active as long ago."""
JOB = AgentJob("job", "docs", "active")


@define
class Clock:
    """The time of the simulation."""

    now: float = 0.0


@define(eq=False)
class Wait:
    """The wait for one job, as strategies read it."""

    clock: Clock
    started: float
    seconds: float
    job: AgentJob = JOB
    shown: int = 1
    polls: int = 1
    bad_answers: int = 0
    refused_since: float | None = None

    @property
    def seen(self) -> float:
        """When the job was last seen active."""
        return max(self.started, self.clock.now - POLLED_SECONDS)


def interval(seconds: float) -> tuple[float, float]:
    """Return what polls show of a duration."""
    return max(0.0, seconds - POLLED_SECONDS), seconds


def histories(durations: list[float]) -> dict[tuple[str, str | None], History]:
    """Return the histories to begin with."""
    history = History()
    for seconds in durations:
        history.add(*interval(seconds))
    return {("docs", None): history} if durations else {}


def dropped_after(name: str, dice: random.Random, at_once: int, known: int, factor: float) -> tuple[int, float] | None:
    """Return after how many ends and seconds the history is dropped; `None` if it never is."""
    strategy = wait_learned(histories(draws(name, known, dice)))
    clock, active, count = Clock(), list[tuple[float, int, Wait]](), max(500, 2 * at_once)
    durations = draws(name, count, dice, factor)

    def begin(number: int) -> None:
        wait = Wait(clock, clock.now, durations[number])
        strategy.start("docs", wait)
        heappush(active, (clock.now + wait.seconds, number, wait))

    for number in range(at_once):
        begin(number)
    for ended in range(count):
        clock.now, _, wait = heappop(active)
        if strategy.learn("docs", None, *interval(wait.seconds), wait):
            return ended + 1, clock.now
        if ended + at_once < count:
            begin(at_once + ended)
    return None


def row(name: str, at_once: int, options: Namespace) -> list[str]:
    """Return the figures of jobs of one kind."""
    dice = seeded(at_once)
    false = [
        mean(dropped_after(name, dice, at_once, known, 1.0) is not None for _ in range(options.runs))
        for known in (0, HISTORY)
    ]
    found = [dropped_after(name, dice, at_once, HISTORY, 4.0) for _ in range(max(1, options.runs // 5))]
    changed = [one for one in found if one is not None]
    ends, seconds = median(ended for ended, _ in changed), median(passed for _, passed in changed)
    usual = mean(draws(name, 1_000, dice, 4.0))
    missed = len(found) - len(changed)
    return [
        name,
        str(at_once),
        *(f"{share:.1%}" for share in false),
        f"{ends:g}",
        f"{seconds / usual:.2f}",
        str(missed),
    ]


def main() -> None:
    """Compute, print, save."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    rows = [row(name, at_once, options) for name in DRAWS for at_once in AT_ONCE]
    head = ["jobs", "at once", "dropped, no history", "with 50", "x 4: ends", "mean durations", "not found"]
    print_table("Histories dropped", head, rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
