"""What does one of ten thousand waits cost, with jobs in memory, beside what you would pick instead?

CPU per poll and memory per waiting job, as multiples of a loop of get and sleep for each job. The others are tenacity
for each job, the pollers of azure-core, google-api-core and aiobotocore, and this package, with and without a hook.

docs/why.md and README.md show the plot; docs/many-jobs.md has the table, and the memory of 100,000 watched jobs;
docs/observability.md has what a hook adds to a wait of 20 polls.

    pip install -e '.[bench,test]'
    python benchmarks/bench_waits.py --svg benchmarks/plots/waits.svg
    python benchmarks/bench_waits.py --only watch --jobs 100000 --interval 5
    python benchmarks/bench_waits.py --only watch OpenTelemetryHook PrometheusHook --polls 20 --jobs 500
"""

import asyncio
import gc
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import chain, repeat
from pathlib import Path
from time import process_time
from typing import Any

import tenacity
from measuring import Figures, Rounds, arguments, chosen, in_own_process, parsed, print_table, resident_bytes
from plotting import bars

from agentjobs_async import AgentJob, Hook, JobRef, JobTracker, PollPolicy, wait_for_job

BASE = "naive loop"
TIMEOUT = 1800.0

Wait = Callable[[JobRef], Awaitable[object]]
"""Starts the wait for one job, and returns an awaitable."""


class Jobs:
    """`count` jobs, each active for `polls - 1` polls, then completed. All jobs that it returns are made beforehand.

    Attributes:
        refs: The references of the jobs.
        reads: The number of reads so far.
    """

    def __init__(self, count: int, polls: int) -> None:
        self.refs = [JobRef("docs", f"job_{number}") for number in range(count)]
        self.reads = 0
        self._answers = {ref.job_id: _answers(ref, polls) for ref in self.refs}

    async def get_job(self, ref: JobRef) -> AgentJob:
        """Read a job."""
        self.reads += 1
        return next(self._answers[ref.job_id])


def _answers(ref: JobRef, polls: int) -> Iterator[AgentJob]:
    active = AgentJob(ref.job_id, ref.project_id, "active")
    return chain(repeat(active, polls - 1), repeat(AgentJob(ref.job_id, ref.project_id, "completed")))


async def naive(jobs: Any, interval: float, _stack: AsyncExitStack) -> Wait:
    """Wait by the obvious loop, which checks the deadline between two polls."""
    get_job, clock = jobs.get_job, asyncio.get_running_loop().time

    async def wait(ref: JobRef) -> object:
        deadline = clock() + TIMEOUT
        while not (job := await get_job(ref)).is_terminal:
            if clock() + interval > deadline:
                raise TimeoutError
            await asyncio.sleep(interval)
        return job

    return wait


async def tracker(jobs: Jobs, interval: float, stack: AsyncExitStack, *hooks: Hook) -> JobTracker:
    """Return a tracker that is open until the stack is closed."""
    return await stack.enter_async_context(JobTracker(jobs.get_job, policy=_policy(interval), hooks=hooks))


async def tracker_watch(jobs: Jobs, interval: float, stack: AsyncExitStack) -> Wait:
    """Wait by one future for each job."""
    return (await tracker(jobs, interval, stack)).watch


async def tracker_wait(jobs: Jobs, interval: float, stack: AsyncExitStack) -> Wait:
    """Wait by one task for each job, all through one tracker."""
    return (await tracker(jobs, interval, stack)).wait_for_job


async def with_opentelemetry(jobs: Jobs, interval: float, stack: AsyncExitStack, *, polls: bool = False) -> Wait:
    """Trace and count by the SDK, which exports nothing."""
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - weighs on its own process only
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above

    from agentjobs_async.tracing import OpenTelemetryHook  # noqa: PLC0415 - as above

    hook = OpenTelemetryHook(TracerProvider(), MeterProvider(), polls=polls)
    return (await tracker(jobs, interval, stack, hook)).watch


async def with_opentelemetry_of_polls(jobs: Jobs, interval: float, stack: AsyncExitStack) -> Wait:
    """Trace each poll as well."""
    return await with_opentelemetry(jobs, interval, stack, polls=True)


async def with_prometheus(jobs: Jobs, interval: float, stack: AsyncExitStack) -> Wait:
    """Count in a registry of its own."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - as above

    from agentjobs_async.prometheus import PrometheusHook  # noqa: PLC0415 - as above

    return (await tracker(jobs, interval, stack, PrometheusHook(CollectorRegistry()))).watch


async def free_wait(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Wait by one task for each job, each with a wait of its own."""
    policy = _policy(interval)
    return lambda ref: wait_for_job(ref, get_job=jobs.get_job, policy=policy)


async def tenacity_each(jobs: Any, interval: float, _stack: AsyncExitStack) -> Wait:
    """Retry while the job is not at its end."""

    def wait(ref: JobRef) -> Awaitable[object]:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(lambda job: not job.is_terminal),
            wait=tenacity.wait_fixed(interval),
            stop=tenacity.stop_after_delay(TIMEOUT),
        )
        return retrying(jobs.get_job, ref)

    return wait


async def azure_core(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Hand Azure's poller a polling method that reads the job."""
    from azure.core.polling import AsyncLROPoller, AsyncPollingMethod  # noqa: PLC0415 - as above

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

        def resource(self) -> AgentJob | None:
            return self._job

    return lambda ref: AsyncLROPoller(jobs, ref, lambda job: job, Polling()).result()


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

    pace = {"initial": interval, "maximum": interval, "multiplier": 1, "timeout": TIMEOUT}
    retry = AsyncRetry(if_exception_type(NotCompleteError), **pace)
    return retry(done_or_raise)


async def aiobotocore(jobs: Jobs, interval: float, _stack: AsyncExitStack) -> Wait:
    """Make one of AWS's waiters, which match what the service says."""
    from aiobotocore.waiter import AIOWaiter  # noqa: PLC0415 - as above
    from botocore.waiter import SingleWaiterConfig  # noqa: PLC0415 - as above

    success = {"state": "success", "matcher": "path", "argument": "status"}
    acceptors = [{**success, "expected": status} for status in ("completed", "archived", "failed")]
    settings = {"operation": "GetJob", "delay": interval, "maxAttempts": 1_000_000, "acceptors": acceptors}
    config = SingleWaiterConfig(settings)

    async def get_job(ref: JobRef) -> dict[str, Any]:
        return {"status": (await jobs.get_job(ref)).status}

    return lambda ref: AIOWaiter("job", config, get_job).wait(ref=ref)


OURS = {"watch": tracker_watch, "a tracker's wait_for_job": tracker_wait, "wait_for_job": free_wait}
RIVALS = {
    "azure-core": azure_core,
    "google-api-core": google_api_core,
    "aiobotocore": aiobotocore,
    "tenacity": tenacity_each,
}
HOOKS = {
    "OpenTelemetryHook": with_opentelemetry,
    "OpenTelemetryHook, polls=True": with_opentelemetry_of_polls,
    "PrometheusHook": with_prometheus,
}
CANDIDATES = {BASE: naive, **OURS, **RIVALS, **HOOKS}


def _policy(interval: float) -> PollPolicy:
    return PollPolicy(wait=tenacity.wait_fixed(interval))


async def one(candidate: str, options: Namespace) -> Figures:
    """Run all waits to their end; return the CPU of one poll, and the memory of one wait after its first poll."""
    jobs = Jobs(options.jobs, options.polls)
    async with AsyncExitStack() as stack:
        wait = await CANDIDATES[candidate](jobs, options.interval, stack)
        gc.collect()
        resident, begin = resident_bytes(), process_time()
        waits = [asyncio.ensure_future(wait(ref)) for ref in jobs.refs]
        while jobs.reads < len(waits):
            await asyncio.sleep(0.01)
        memory = resident_bytes() - resident
        for each in waits:
            await each
        return {"cpu": (process_time() - begin) / jobs.reads, "memory": memory / len(waits)}


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--polls", type=int, default=10)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two polls of a job")
    parser.add_argument("--svg", type=Path, help="where to save the plot, without the hooks")
    options = parsed(parser, jobs=1_000)
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    names, rounds = chosen(CANDIDATES, BASE, options), Rounds(BASE)
    rounds.measure(names, options.rounds, in_own_process)
    title = f"{options.jobs} waits of {options.polls} polls, as multiples of the {BASE}"
    measures = {"CPU per poll": "cpu", "memory": "memory"}
    print_table(
        title,
        ["", *measures, "µs per poll", "bytes per wait"],
        [
            [
                name,
                *(f"{rounds.ratio(name, what):.2f}" for what in measures.values()),
                f"{rounds.median(name, 'cpu') * 1e6:.1f}",
                f"{rounds.median(name, 'memory'):.0f}",
            ]
            for name in names
        ],
    )
    if options.svg:
        shown = [name for name in names if name not in HOOKS]
        plots = {text: {name: rounds.ratio(name, what) for name in shown} for text, what in measures.items()}
        options.svg.write_text(bars(title, plots, OURS))
    rounds.save(options)


if __name__ == "__main__":
    main()
