"""How long do very many simultaneous ends block the event loop, how late is the last of them, and what CPU does each cost?

Waits with one deadline, each for its own job or all for one; waits of one job that ends, or that a 404 ends for those
whose grace is over; waits of a tracker that is closed. All are awaited together with `asyncio.wait`. Waking the caller
costs CPU that is not ours: the base is as many bare futures, each failed with an error of its own.
"""

import asyncio
import gc
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable
from time import process_time

import tenacity
from measuring import Figures, Rounds, Ticker, arguments, chosen, in_own_process, print_table

from agentjobs_async import AgentJob, JobRef, JobTracker, NotFoundError, PollPolicy, SessionClosedError

T_SECONDS = 10.0
TICKING_AFTER_SECONDS = 2.0
GRACE_SECONDS = 3.0
FUTURES_PER_TURN = 250  # as many as our own waits
RELAXED = PollPolicy(wait=tenacity.wait_fixed(60), not_found_grace=GRACE_SECONDS)
ONE = JobRef("docs", "job_0")


async def active(ref: JobRef) -> AgentJob:
    """Read a job that never ends."""
    return AgentJob(ref.job_id, ref.project_id, "active")


class Ending:
    """Measures the ends: how late the last of them is, the CPU seconds of all, and the garbage collector's share."""

    def __init__(self) -> None:
        self.figures: Figures = {}
        self._collecting = self._collected = 0.0
        gc.callbacks.append(self._count)

    def _count(self, phase: str, _info: object) -> None:
        if phase == "start":
            self._collecting = process_time()
        else:
            self._collected += process_time() - self._collecting

    def begin(self) -> None:
        """Measure from here on."""
        self._collected, self._begun = 0.0, process_time()

    def finish(self, late: float) -> None:
        """Measure up to here."""
        self.figures = {"late": late, "cpu": process_time() - self._begun, "gc": self._collected}


async def bare(count: int, ending: Ending) -> None:
    """Fail bare futures, some in each turn of the loop."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(count)]
    awaited = asyncio.ensure_future(asyncio.wait(futures))
    await asyncio.sleep(T_SECONDS)  # until the benchmark's ticker runs
    end = loop.time()
    ending.begin()
    for first in range(0, count, FUTURES_PER_TURN):
        for future in futures[first : first + FUTURES_PER_TURN]:
            future.set_exception(TimeoutError())
        await asyncio.sleep(0)
    await awaited
    ending.finish(loop.time() - end)
    assert all(isinstance(future.exception(), TimeoutError) for future in futures)  # noqa: S101 - else nothing was measured


async def deadline(count: int, ending: Ending) -> None:
    """Return how late the last of `count` waits times out, each for a job of its own."""
    await _timed_out([JobRef("docs", f"job_{number}") for number in range(count)], ending)


async def deadline_one_job(count: int, ending: Ending) -> None:
    """Return how late the last of `count` waits for one job times out."""
    await _timed_out([ONE] * count, ending)


async def _timed_out(refs: list[JobRef], ending: Ending) -> None:
    loop = asyncio.get_running_loop()
    clock = loop.time
    async with JobTracker(active, policy=RELAXED) as tracker:
        end = clock() + T_SECONDS  # one deadline for all waits, whenever they are started
        waits = [tracker.watch(ref, timeout=end - clock()) for ref in refs]
        loop.call_at(end, ending.begin)
        await asyncio.wait(waits)
        ending.finish(clock() - end)
    assert all(isinstance(wait.exception(), TimeoutError) for wait in waits)  # noqa: S101 - else nothing was measured


async def ends(count: int, ending: Ending) -> None:
    """Return how late the last of `count` waits for one job learns of its end."""
    clock = asyncio.get_running_loop().time
    end = clock() + T_SECONDS

    async def finishing(ref: JobRef) -> AgentJob:
        await asyncio.sleep(end - clock())
        ending.begin()
        return AgentJob(ref.job_id, ref.project_id, "completed")

    async with JobTracker(finishing) as tracker:
        await asyncio.wait([tracker.watch(ONE) for _ in range(count)])
        ending.finish(clock() - end)


async def missing(count: int, ending: Ending) -> None:
    """Return how late the last wait for a missing job ends, of the half whose grace is over."""
    clock = asyncio.get_running_loop().time
    polls = [0.0, GRACE_SECONDS + 1]

    async def absent(_ref: JobRef) -> AgentJob:
        await asyncio.sleep(max(begun + polls.pop(0) - clock(), 0))
        ending.begin()
        raise NotFoundError(404, None, None, "no such job")

    policy = PollPolicy(wait=tenacity.wait_fixed(0.01), not_found_grace=GRACE_SECONDS)
    begun = clock()
    async with JobTracker(absent, policy=policy) as tracker:
        old = [tracker.watch(ONE, timeout=None) for _ in range(count // 2)]
        await asyncio.sleep(GRACE_SECONDS - 0.5)
        young = [tracker.watch(ONE, timeout=None) for _ in range(count // 2)]
        polls.append(1e9)
        await asyncio.wait(old)
        ending.finish(clock() - begun - GRACE_SECONDS - 1)
        assert all(isinstance(wait.exception(), NotFoundError) for wait in old)  # noqa: S101 - as below
        assert not any(wait.done() for wait in young)  # noqa: S101 - else something else was measured
        for wait in young:
            wait.cancel()


async def closing(count: int, ending: Ending) -> None:
    """Return the seconds that closing a tracker with `count` waits takes."""
    clock = asyncio.get_running_loop().time
    tracker = JobTracker(active, policy=RELAXED)
    waits = [tracker.watch(JobRef("docs", f"job_{number}")) for number in range(count)]
    awaited = asyncio.ensure_future(asyncio.wait(waits))
    while tracker.stats().polls < count:
        await asyncio.sleep(0.1)
    await asyncio.sleep(2 * TICKING_AFTER_SECONDS)
    begun = clock()
    ending.begin()
    await tracker.aclose()
    await awaited
    ending.finish(clock() - begun)
    assert all(isinstance(wait.exception(), SessionClosedError) for wait in waits)  # noqa: S101 - else nothing was measured


BASE = "bare futures"
SCENARIOS: dict[str, Callable[[int, Ending], Awaitable[None]]] = {
    BASE: bare,
    "one deadline": deadline,
    "one deadline, one job": deadline_one_job,
    "one job ends": ends,
    "404 for half of the waits": missing,
    "closing": closing,
}


async def one(scenario: str, options: Namespace) -> Figures:
    """Measure one scenario."""
    count = options.missing if scenario.startswith("404") else options.waits
    ticker: list[Ticker] = []

    async def tick_later() -> None:
        await asyncio.sleep(TICKING_AFTER_SECONDS)  # starting the waits holds the loop itself
        ticker.append(Ticker(asyncio.get_running_loop()))

    ticking = asyncio.ensure_future(tick_later())
    ending = Ending()
    await SCENARIOS[scenario](count, ending)
    await ticking
    ended = count // 2 if scenario.startswith("404") else count
    return ending.figures | {"cpu_each": ending.figures["cpu"] / ended} | ticker[0].stop()


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--waits", type=int, default=100_000)
    parser.add_argument("--missing", type=int, default=10_000, help="waits of the job that is missing")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(options.one[0], options))))
        return
    rounds = Rounds(BASE)
    rounds.take(names := chosen(SCENARIOS, BASE, options), options.rounds, in_own_process)
    milliseconds = ("late", "late_worst", "busy_worst", "gc")
    print_table(
        f"{options.waits} waits that end at once ({options.missing} of a missing job)",
        ["", "last end late by", "worst hold", "CPU of it", "GC in all", "CPU per end", f"/ {BASE}"],
        [
            [
                name,
                *(f"{rounds.median(name, what) * 1e3:.0f} ms" for what in milliseconds),
                f"{rounds.median(name, 'cpu_each') * 1e6:.2f} µs",
                f"{rounds.ratio(name, 'cpu_each'):.2f}",
            ]
            for name in names
        ],
    )
    rounds.save(options.json, waits=options.waits)


if __name__ == "__main__":
    main()
