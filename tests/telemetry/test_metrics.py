"""What each event adds to the metrics, and the gauges."""

import asyncio
import gc
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import ref

import pytest
from attrs import evolve

from agentjobs_async import JobTracker
from agentjobs_async.errors import CreateOutcome, NotSentError, TransportError
from agentjobs_async.telemetry import CreateFailed, Event, JobCreated, JobPolled, PollFailed, WaitEnded
from agentjobs_async.telemetry.metrics import METRICS, Kind, Snapshots, label_names, measurements
from tests.polled import ACTIVE, DONE, REF, never
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
    (
        WaitEnded(REF, DONE, None, 1, 0.5, lateness=0.25),
        {"wait.duration": (0.5, ("completed",)), "wait.lateness": (0.25, ())},
    ),
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
    (_, _, (_, seconds, labels)) = measurements(JobPolled(evolve(DONE, created_at=begun), 1), projects=False)
    assert (seconds >= 60, labels) == (True, ("completed",))
    later = datetime.now(UTC) + timedelta(seconds=60)
    (_, _, (_, seconds, _)) = measurements(JobPolled(evolve(DONE, created_at=later), 1), projects=False)
    assert seconds == 0


def test_gauges_have_no_project() -> None:
    """Gauges come from statistics, which know no project."""
    for metric in METRICS:
        assert ("project" in label_names(metric, projects=True)) == (metric.kind is not Kind.GAUGE)


@pytest.mark.looptime
async def test_observed_sources() -> None:
    """Trackers are counted together, at most a second late; a closed one no longer counts, and none is kept alive."""
    snapshots = Snapshots()

    def watched() -> list[float]:
        snapshots.refresh()
        return [value for metric, value, _ in snapshots.measurements() if metric.name.endswith("watched")]

    async with JobTracker(never) as first, JobTracker(never) as second:
        watches = [first.watch(REF), second.watch(REF)]
        snapshots.add(first)
        snapshots.add(second)
        assert watched() == [2]
        watches[0].cancel()
        assert watched() == [2]  # as old as a second at most
        await asyncio.sleep(1)
        assert watched() == [1]
    third = JobTracker(never)
    snapshots.add(third)
    left = ref(third)
    del third
    gc.collect()
    assert left() is None
    await asyncio.sleep(1)
    assert watched() == []
