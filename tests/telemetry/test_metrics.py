"""What each event adds to the metrics, and the gauges."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from agentjobs_async import JobTracker
from agentjobs_async.errors import CreateOutcome, NotSentError, TransportError
from agentjobs_async.telemetry import CreateFailed, Event, JobCreated, JobPolled, PollFailed, WaitEnded
from agentjobs_async.telemetry.metrics import GAUGES, HISTOGRAMS, POLLS, Gauges, label_names, measurements
from tests.polled import ACTIVE, DONE, REF, in_memory, never
from tests.rows import failures

MEASURED: list[tuple[Event, dict[str, Any]]] = [
    (JobPolled(ACTIVE, 1, 0.5), {"polls": (1, ("",)), "poll.duration": (0.5, ())}),
    (PollFailed(REF, TransportError("reset"), 1, 0.5), {"polls": (1, ("TransportError",)), "poll.duration": (0.5, ())}),
    (JobCreated(ACTIVE, 0.5), {"create.duration": (0.5, ("created", ""))}),
    (
        CreateFailed("docs", CreateOutcome.NOT_SENT, NotSentError("refused"), 0.5),
        {"create.duration": (0.5, ("not_sent", "NotSentError"))},
    ),
    (WaitEnded(REF, None, TransportError("reset"), 1, 0.5), {"wait.duration": (0.5, ("error",))}),
    (WaitEnded(REF, DONE, None, 1, 0.5, lateness=0.25), {"wait.duration": (0.5, ("completed",))}),
    (WaitEnded(REF, DONE, None, 1, 0.5), {}),  # a later read
    (JobPolled(DONE, 1, 0.5), {"polls": (1, ("",)), "poll.duration": (0.5, ())}),
]


def test_measurements() -> None:
    """Each event adds to the metrics of its kind, with plain text as labels; with the project last if asked for."""

    def check(event: Event, added: dict[str, Any]) -> None:
        measured = measurements(event, projects=False)
        assert {metric.name.removeprefix("agentjobs."): (value, labels) for metric, value, labels in measured} == added
        assert {type(label) for _, _, labels in measured for label in labels} <= {str}
        with_projects = measurements(event, projects=True)
        assert [labels for _, _, labels in with_projects] == [(*labels, "docs") for _, _, labels in measured]
        for metric, _, labels in with_projects:
            assert len(label_names(metric, projects=True)) == len(labels)

    assert failures(check, *MEASURED) == {}


def test_duration_of_a_job() -> None:
    """A job's duration counts from its creation, and is never negative, whatever the clocks say."""
    begun = datetime.now(UTC) - timedelta(seconds=60)
    (*_, (_, seconds, labels)) = measurements(
        JobPolled(evolve(DONE, created_at=begun), 1, lateness=1.0), projects=False
    )
    assert (seconds >= 60, labels) == (True, ("completed",))
    later = datetime.now(UTC) + timedelta(seconds=60)
    (*_, (_, seconds, _)) = measurements(JobPolled(evolve(DONE, created_at=later), 1, lateness=1.0), projects=False)
    assert seconds == 0


def test_gauges_have_no_project() -> None:
    """Gauges come from statistics, which know no project."""
    for metric in (*HISTOGRAMS, POLLS, *GAUGES):
        assert ("project" in label_names(metric, projects=True)) == (metric not in GAUGES)


@in_memory
async def test_observed_sources() -> None:
    """Gauges add up what lives when they are read, in any thread, without an event: each once, in whatever loop."""
    gauges = Gauges()

    def shown() -> list[float]:
        return [value for _, value, _ in gauges.measurements()]

    async def use(tracker: JobTracker) -> list[float]:
        _ = tracker.watch(REF, timeout=None)
        return shown()

    async with JobTracker(never) as tracker:
        elsewhere, unused = JobTracker(never), JobTracker(never)
        for source in (tracker, tracker, elsewhere, unused):
            gauges.add(source)
        assert await use(tracker) == [1, 1, 0]  # watched, due, not seen for so long
        await asyncio.sleep(100)  # all polls hang
        with ThreadPoolExecutor() as pool:
            assert pool.submit(asyncio.run, use(elsewhere)).result() == [2, 1, pytest.approx(100, abs=1)]
        assert shown() == [1, 0, pytest.approx(100, abs=1)]
    assert shown() == [0, 0, 0]
    del elsewhere, source, unused
    gc.collect()
    assert (shown(), len(gauges._sources)) == ([], 1)
