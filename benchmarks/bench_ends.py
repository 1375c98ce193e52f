"""How long do very many ends at once hold the event loop, and how late is the last of them?

Waits with one deadline, each for its own job or all for one; waits of one job that ends, or that a 404 ends for those
whose grace is over; waits of a tracker that is closed. All are awaited together, as `asyncio.wait` does.
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable

import tenacity
from measuring import Figures, Rounds, Ticker, arguments, chosen, in_own_process, print_table

from agentjobs_async import AgentJob, JobRef, JobTracker, NotFoundError, PollPolicy

T_SECONDS = 10.0
GRACE_SECONDS = 3.0
RELAXED = PollPolicy(wait=tenacity.wait_fixed(60), not_found_grace=GRACE_SECONDS)
ONE = JobRef("docs", "job_0")


async def active(ref: JobRef) -> AgentJob:
    """Read a job that goes on for ever."""
    return AgentJob(ref.job_id, ref.project_id, "active")


async def deadline(count: int) -> float:
    """Let each wait for a job of its own time out."""
    return await _timed_out([JobRef("docs", f"job_{number}") for number in range(count)])


async def deadline_one_job(count: int) -> float:
    """Let all wait for one job, and time out."""
    return await _timed_out([ONE] * count)


async def _timed_out(refs: list[JobRef]) -> float:
    clock = asyncio.get_running_loop().time
    async with JobTracker(active, policy=RELAXED) as tracker:
        end = clock() + T_SECONDS  # the waits are started one after the other, and have one deadline
        waits = [tracker.watch(ref, timeout=end - clock()) for ref in refs]
        await asyncio.wait(waits)
        late = clock() - end
    assert all(isinstance(wait.exception(), TimeoutError) for wait in waits)  # noqa: S101 - else nothing was measured
    return late


async def ends(count: int) -> float:
    """Let all wait for one job, which ends."""
    clock = asyncio.get_running_loop().time
    end = clock() + T_SECONDS

    async def ending(ref: JobRef) -> AgentJob:
        await asyncio.sleep(end - clock())
        return AgentJob(ref.job_id, ref.project_id, "completed")

    async with JobTracker(ending) as tracker:
        waits = [tracker.watch(ONE) for _ in range(count)]
        await asyncio.wait(waits)
        return clock() - end


async def missing(count: int) -> float:
    """Let half of the waits for one missing job have waited for its whole grace, and half not yet."""
    clock = asyncio.get_running_loop().time
    polls = [0.0, GRACE_SECONDS + 1]

    async def absent(_ref: JobRef) -> AgentJob:
        await asyncio.sleep(max(begun + polls.pop(0) - clock(), 0))
        raise NotFoundError(404, None, None, "no such job")

    policy = PollPolicy(wait=tenacity.wait_fixed(0.01), not_found_grace=GRACE_SECONDS)
    begun = clock()
    async with JobTracker(absent, policy=policy) as tracker:
        old = [tracker.watch(ONE, timeout=None) for _ in range(count // 2)]
        await asyncio.sleep(GRACE_SECONDS - 0.5)
        young = [tracker.watch(ONE, timeout=None) for _ in range(count // 2)]
        polls.append(1e9)
        await asyncio.wait(old)
        late = clock() - begun - GRACE_SECONDS - 1
        assert not any(wait.done() for wait in young)  # noqa: S101 - else something else was measured
        for wait in young:
            wait.cancel()
    return late


async def closing(count: int) -> float:
    """Close a tracker with all of its waits."""
    clock = asyncio.get_running_loop().time
    tracker = JobTracker(active, policy=RELAXED)
    waits = [tracker.watch(JobRef("docs", f"job_{number}")) for number in range(count)]
    while tracker.stats().polls < count:
        await asyncio.sleep(0.1)
    awaited = asyncio.ensure_future(asyncio.wait(waits))
    await asyncio.sleep(0.1)
    begun = clock()
    await tracker.aclose()
    await awaited
    return clock() - begun


SCENARIOS: dict[str, Callable[[int], Awaitable[float]]] = {
    "one deadline": deadline,
    "one deadline, one job": deadline_one_job,
    "one job ends": ends,
    "404 for half of the waits": missing,
    "closing": closing,
}


async def one(scenario: str, options: Namespace) -> Figures:
    """Take the measures of one scenario."""
    count = options.missing if scenario.startswith("404") else options.waits
    ticker: list[Ticker] = []

    async def tick_later() -> None:
        await asyncio.sleep(2)  # starting the waits holds the loop itself
        ticker.append(Ticker(asyncio.get_running_loop()))

    ticking = asyncio.ensure_future(tick_later())
    late = await SCENARIOS[scenario](count)
    await ticking
    return {"late": late} | ticker[0].stop()


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--waits", type=int, default=100_000)
    parser.add_argument("--missing", type=int, default=10_000, help="waits of the job that is missing")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(options.one[0], options))))
        return
    base = next(iter(SCENARIOS))
    rounds = Rounds(base)
    rounds.take(names := chosen(SCENARIOS, base, options), options.rounds, in_own_process)
    print_table(
        f"{options.waits} waits that end at once ({options.missing} of a missing job)",
        ["", "last end late by", "worst hold", "CPU of it"],
        [
            [name, *(f"{rounds.median(name, what) * 1e3:.0f} ms" for what in ("late", "late_worst", "busy_worst"))]
            for name in names
        ],
    )
    rounds.save(options.json, waits=options.waits)


if __name__ == "__main__":
    main()
