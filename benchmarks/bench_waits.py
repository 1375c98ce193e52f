"""What does one wait of ten thousand cost, with a get-job callable that reads from memory?

CPU per poll; memory per waiting job; the pauses of a 10 ms ticker; the time to cancel all. Compared with a loop of get
and sleep for each job, tenacity for each job, and the pollers of azure-core, google-api-core and aiobotocore.
"""

import asyncio
import gc
import json
import tracemalloc
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import process_time
from typing import Any

import tenacity
from jobs_in_memory import Jobs
from measuring import Figures, Rounds, Ticker, arguments, chosen, in_own_process, print_table, resident_bytes
from plotting import bars

from agentjobs_async import AgentJob, JobRef, JobTracker, PollPolicy, wait_for_job

BASE = "naive loop"
TIMEOUT = 1800.0

Wait = Callable[[JobRef], Awaitable[object]]
"""Starts the wait for one job, and returns an awaitable."""


async def naive(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Wait by the obvious loop, which checks the deadline between two polls."""
    get_job, clock = jobs.get_job, asyncio.get_running_loop().time

    async def wait(ref: JobRef) -> AgentJob:
        deadline = clock() + TIMEOUT
        while not (job := await get_job(ref)).is_terminal:
            if clock() + interval > deadline:
                raise TimeoutError
            await asyncio.sleep(interval)
        return job

    return wait


async def tracker_watch(jobs: Jobs, interval: float, stack: AsyncExitStack) -> Wait:
    """Hold one future for each job."""
    tracker = await stack.enter_async_context(JobTracker(jobs.get_job, policy=_policy(interval)))
    return tracker.watch


async def tracker_wait(jobs: Jobs, interval: float, stack: AsyncExitStack) -> Wait:
    """Hold one task for each job, all waiting through one tracker."""
    tracker = await stack.enter_async_context(JobTracker(jobs.get_job, policy=_policy(interval)))
    return tracker.wait_for_job


async def free_wait(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Hold one task for each job, each with a wait of its own."""
    policy = _policy(interval)

    def wait(ref: JobRef) -> Awaitable[AgentJob]:
        return wait_for_job(ref, get_job=jobs.get_job, policy=policy)

    return wait


async def tenacity_each(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Retry while the job is not at its end."""

    def wait(ref: JobRef) -> Awaitable[AgentJob]:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(lambda job: not job.is_terminal),
            wait=tenacity.wait_fixed(interval),
            stop=tenacity.stop_after_delay(TIMEOUT),
        )
        return retrying(jobs.get_job, ref)

    return wait


async def azure_core(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Return Azure's poller a polling method that reads the job."""
    from azure.core.polling import AsyncLROPoller, AsyncPollingMethod  # noqa: PLC0415 - weighs on its own process only

    class Polling(AsyncPollingMethod[AgentJob]):
        def initialize(self, client: Any, initial_response: Any, deserialization_callback: Any) -> None:  # noqa: ARG002 - the base class names it
            self._get_job, self._ref = client.get_job, initial_response
            self._job: AgentJob | None = None

        async def run(self) -> None:
            self._job = await self._get_job(self._ref)
            while not self.finished():
                await asyncio.sleep(interval)
                self._job = await self._get_job(self._ref)

        def status(self) -> str:
            return "active" if self._job is None else str(self._job.status)

        def finished(self) -> bool:
            return self._job is not None and self._job.is_terminal

        def resource(self) -> AgentJob:
            assert self._job is not None  # noqa: S101 - asked for after run() only
            return self._job

    def wait(ref: JobRef) -> Awaitable[AgentJob]:
        return AsyncLROPoller(jobs, ref, lambda job: job, Polling()).result()

    return wait


async def google_api_core(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Retry as Google's futures of operations do: what is not at its end is an exception."""
    from google.api_core.retry import AsyncRetry, if_exception_type  # noqa: PLC0415 - as above

    class NotCompleteError(Exception):
        pass

    async def done_or_raise(ref: JobRef) -> AgentJob:
        job = await jobs.get_job(ref)
        if not job.is_terminal:
            raise NotCompleteError
        return job

    retry = AsyncRetry(
        if_exception_type(NotCompleteError), initial=interval, maximum=interval, multiplier=1, timeout=TIMEOUT
    )

    def wait(ref: JobRef) -> Awaitable[AgentJob]:
        return retry(done_or_raise)(ref)

    return wait


async def aiobotocore(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Make one of AWS's waiters, which match what the service says."""
    from aiobotocore.waiter import AIOWaiter  # noqa: PLC0415 - as above
    from botocore.waiter import SingleWaiterConfig  # noqa: PLC0415 - as above

    config = SingleWaiterConfig(
        {
            "operation": "GetJob",
            "delay": interval,
            "maxAttempts": 1_000_000,
            "acceptors": [
                {"state": "success", "matcher": "path", "argument": "status", "expected": status}
                for status in ("completed", "archived", "failed")
            ],
        }
    )

    async def get_job(ref: JobRef) -> dict[str, Any]:
        return {"status": (await jobs.get_job(ref)).status}

    def wait(ref: JobRef) -> Awaitable[object]:
        return AIOWaiter("job", config, get_job).wait(ref=ref)

    return wait


CANDIDATES = {
    BASE: naive,
    "tracker.watch": tracker_watch,
    "tracker.wait_for_job": tracker_wait,
    "wait_for_job": free_wait,
    "azure-core": azure_core,
    "google-api-core": google_api_core,
    "aiobotocore": aiobotocore,
    "tenacity": tenacity_each,
}
OURS = ("tracker.watch", "tracker.wait_for_job", "wait_for_job")


def _policy(interval: float) -> PollPolicy:
    return PollPolicy(wait=tenacity.wait_fixed(interval))


def started(wait: Wait, refs: list[JobRef]) -> list[asyncio.Future[Any]]:
    """Start all waits."""
    return [asyncio.ensure_future(wait(ref)) for ref in refs]


async def run(candidate: str, options: Namespace, *, ticking: bool) -> Figures:
    """Run all waits to their end; return the CPU of one poll, or the pauses of a ticker, which takes CPU itself."""
    jobs = Jobs(options.jobs, options.polls)
    gc.collect()
    async with AsyncExitStack() as stack:
        wait = await CANDIDATES[candidate](jobs, options.interval, stack)
        await asyncio.sleep(0)
        before = process_time()
        handles = started(wait, jobs.refs)
        await asyncio.sleep(0)
        ticker = Ticker(asyncio.get_running_loop()) if ticking else None
        for handle in handles:
            await handle
        used = process_time() - before
    return {"cpu": used / jobs.reads} if ticker is None else ticker.stop()


async def polled_once(jobs: Jobs) -> None:
    """Wait until each job has been read once and all waits sleep."""
    while jobs.reads < len(jobs.refs):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    gc.collect()


async def cancelled(handles: list[asyncio.Future[Any]]) -> float:
    """Cancel all waits, and return the CPU seconds that this took."""
    begin = process_time()
    for handle in handles:
        handle.cancel()
    while not all(handle.done() for handle in handles):
        await asyncio.sleep(0)
    return process_time() - begin


async def memory(candidate: str, options: Namespace, *, traced: bool) -> Figures:
    """Measure the memory of all waits after their first poll, and the time to cancel them."""
    jobs = Jobs(options.jobs, 1_000)
    async with AsyncExitStack() as stack:
        wait = await CANDIDATES[candidate](jobs, TIMEOUT / 2, stack)
        gc.collect()
        before = resident_bytes()
        if traced:
            tracemalloc.start()
        handles = started(wait, jobs.refs)
        await polled_once(jobs)
        weight = tracemalloc.get_traced_memory()[0] if traced else resident_bytes() - before
        tracemalloc.stop()
        seconds = await cancelled(handles)
    if traced:
        return {"allocated": weight / options.jobs}
    return {"resident": weight / options.jobs, "cancel": seconds / options.jobs}


async def one(what: str, candidate: str, options: Namespace) -> Figures:
    """Measure one candidate."""
    if what in {"cpu", "pauses"}:
        return await run(candidate, options, ticking=what == "pauses")
    return await memory(candidate, options, traced=what == "traced")


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--polls", type=int, default=10)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two polls of a job")
    parser.add_argument("--svg", type=Path, help="where to save the plot")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    names = chosen(CANDIDATES, BASE, options)
    rounds = Rounds(BASE)
    for what in ("cpu", "pauses", "memory", "traced"):
        rounds.take(names, options.rounds, lambda name, what=what: in_own_process(what, name))
    columns = {
        "CPU per poll": "cpu",
        "memory (RSS)": "resident",
        "memory (tracemalloc)": "allocated",
        "cancel all": "cancel",
        "ticker p99": "late_p99",
        "ticker worst": "late_worst",
        "busy p99": "busy_p99",
        "busy worst": "busy_worst",
    }
    title = f"{options.jobs} waits of {options.polls} polls, as multiples of the {BASE}"
    print_table(
        title,
        ["", *columns],
        [[name, *(f"{rounds.ratio(name, what):.2f}" for what in columns.values())] for name in names],
    )
    print(
        f"\nThe {BASE}: {rounds.median(BASE, 'cpu') * 1e6:.1f} µs per poll, {rounds.median(BASE, 'resident'):.0f} and"
        f" {rounds.median(BASE, 'allocated'):.0f} bytes per wait, cancel {rounds.median(BASE, 'cancel') * 1e6:.1f} µs;"
        f" ticker late by {rounds.median(BASE, 'late_p99') * 1e3:.1f} ms (p99),"
        f" {rounds.median(BASE, 'late_worst') * 1e3:.0f} ms (worst)."
    )
    if options.svg:
        plots = {text: {name: rounds.ratio(name, columns[text]) for name in names} for text in list(columns)[:2]}
        options.svg.write_text(bars(title, plots, OURS))
    rounds.save(options.json, jobs=options.jobs, polls=options.polls, interval=options.interval)


if __name__ == "__main__":
    main()
