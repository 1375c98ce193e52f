"""What CPU does one `OpenTelemetryHook` with its SDK add to a wait of 20 polls?

The get-job callable reads from memory. Rounds take turns: no hook, then each hook; what a hook adds is the median, over
the rounds, of its CPU less that of no hook in the same round. The SDK's own part is that of a bare span with the same
attributes and one event, and of one value of the histogram that each wait adds to.
"""

import asyncio
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

from measuring import arguments, print_table
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

from agentjobs_async import AgentJob, JobRef, JobTracker, PollPolicy
from agentjobs_async.prometheus import PrometheusHook
from agentjobs_async.tracing import OpenTelemetryHook

POLLS = 20
WAITS = 500
BASE = "no hook"
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


async def waits(*hooks: Any) -> None:
    """Wait for all jobs at once, with `hooks`."""
    polls: dict[JobRef, int] = {}

    async def get_job(ref: JobRef) -> AgentJob:
        polls[ref] = polls.get(ref, 0) + 1
        return AgentJob(ref.job_id, ref.project_id, "completed" if polls[ref] >= POLLS else "active")

    async with JobTracker(get_job, policy=PollPolicy(wait=lambda _state: 0.001), hooks=hooks) as tracker:
        await asyncio.gather(*(tracker.wait_for_job(JobRef("docs", str(number))) for number in range(WAITS)))


def bare_spans(tracers: TracerProvider, meters: MeterProvider) -> None:
    """Make as many spans and values of a histogram by the SDK itself."""
    tracer = tracers.get_tracer("bare")
    record = meters.get_meter("bare").create_histogram("wait.duration", "s", "Bare").record
    for _ in range(WAITS):
        span = tracer.start_span("wait_for_job", kind=SpanKind.CLIENT, attributes=ATTRIBUTES)
        span.add_event("status", {"agentjobs.job.status": "completed"})
        span.end()
        record(1.0, {"outcome": "completed"})


def cpu_of(case: Callable[[], object]) -> float:
    """Return the CPU of one wait in a case, in microseconds."""
    started = process_time()
    case()
    return (process_time() - started) / WAITS * 1e6


def main() -> None:
    """Print the CPU of a wait in each case, and what each hook adds to it."""
    options = arguments(__doc__, rounds=30).parse_args()
    tracers, meters = TracerProvider(), MeterProvider()
    cases: dict[str, Callable[[], object]] = {
        BASE: lambda: asyncio.run(waits()),
        "a hook that does nothing": lambda: asyncio.run(waits(ignore)),
        "OpenTelemetryHook, SDK": lambda: asyncio.run(waits(OpenTelemetryHook(tracers, meters))),
        "OpenTelemetryHook, SDK, polls=True": lambda: asyncio.run(
            waits(OpenTelemetryHook(tracers, meters, polls=True))
        ),
        "OpenTelemetryHook, API only": lambda: asyncio.run(waits(OpenTelemetryHook())),
        "PrometheusHook": lambda: asyncio.run(waits(PrometheusHook(CollectorRegistry()))),
        "the SDK alone": lambda: bare_spans(tracers, meters),
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, case in cases.items():
            taken[name].append(cpu_of(case))
    rows = []
    for name, times in taken.items():
        added = [own - bare for own, bare in zip(times, taken[BASE], strict=True)]
        rows.append([name, f"{median(times):.0f}", f"{median(added):+.0f}" if "ook" in name and name != BASE else ""])
    print_table(f"CPU of a wait of {POLLS} polls, µs", ["", "median", "added"], rows)


if __name__ == "__main__":
    main()
