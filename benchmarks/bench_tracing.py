"""What does `OpenTelemetryHook` cost in a wait, beside a span that the OpenTelemetry SDK makes by itself?

CPU of a wait of 20 polls, with a get-job callable that reads from memory, in rounds that take turns: no hook, a hook
that does nothing, and the hooks. The SDK's own cost is that of a bare span with the same attributes and one event.
"""

import asyncio
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

from agentjobs_async import AgentJob, JobRef, JobTracker, PollPolicy
from agentjobs_async.prometheus import PrometheusHook
from agentjobs_async.tracing import OpenTelemetryHook

POLLS = 20
WAITS = 1_000
ROUNDS = 9
ATTRIBUTES = {
    **{
        f"agentjobs.{name}": "a text of usual length" for name in ("project.id", "job.id", "wait.outcome", "job.status")
    },
    "agentjobs.polls": POLLS,
    "agentjobs.wait.shared": False,
    "agentjobs.wait.lateness": 1.0,
}


def ignore(_event: object) -> None:
    """Do nothing with an event."""


async def waits(hooks: list[Any]) -> float:
    """Return the CPU seconds of all waits, with `hooks`."""
    polls: dict[JobRef, int] = {}

    async def get_job(ref: JobRef) -> AgentJob:
        polls[ref] = polls.get(ref, 0) + 1
        return AgentJob(ref.job_id, ref.project_id, "completed" if polls[ref] >= POLLS else "active")

    started = process_time()
    async with JobTracker(get_job, policy=PollPolicy(wait=lambda _state: 0.001), hooks=hooks) as tracker:
        await asyncio.gather(*(tracker.wait_for_job(JobRef("docs", str(number))) for number in range(WAITS)))
    return process_time() - started


def bare_spans(tracers: TracerProvider) -> float:
    """Return the CPU seconds of as many spans of the SDK."""
    tracer = tracers.get_tracer("bare")
    started = process_time()
    for _ in range(WAITS):
        span = tracer.start_span("wait_for_job", kind=SpanKind.CLIENT, attributes=ATTRIBUTES)
        span.add_event("status", {"agentjobs.job.status": "completed"})
        span.end()
    return process_time() - started


def main() -> None:
    """Print the CPU of a wait in each case, and what it adds to a wait without hooks."""
    tracers, meters = TracerProvider(), MeterProvider()
    cases: dict[str, Callable[[], float]] = {
        "no hook": lambda: asyncio.run(waits([])),
        "a hook that does nothing": lambda: asyncio.run(waits([ignore])),
        "OpenTelemetryHook, API only": lambda: asyncio.run(waits([OpenTelemetryHook()])),
        "OpenTelemetryHook, SDK": lambda: asyncio.run(waits([OpenTelemetryHook(tracers, meters)])),
        "PrometheusHook": lambda: asyncio.run(waits([PrometheusHook(CollectorRegistry())])),
        "a bare span of the SDK": lambda: bare_spans(tracers),
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            taken[name].append(case() / WAITS * 1e6)
    best = {name: min(times) for name, times in taken.items()}
    print(f"{'CPU of a wait of ' + str(POLLS) + ' polls, µs':40} {'least':>8} {'median':>8} {'added':>8}")
    for name, least in best.items():
        added = f"{least - best['no hook']:8.1f}" if "hook" in name.lower() and name != "no hook" else ""
        print(f"{name:40} {least:8.1f} {median(taken[name]):8.1f} {added}")


if __name__ == "__main__":
    main()
