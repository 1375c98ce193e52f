"""The text that Prometheus scrapes."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from agentjobs_async import AgentJob, InvalidInputError, JobTracker, TransportError
from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.prometheus import PrometheusHook
from agentjobs_async.telemetry import PollFailed
from agentjobs_async.testing import Emulator, JobScript
from tests.polled import ACTIVE, DONE, REF, every
from tests.scripted import Scripted, job


def lines(registry: CollectorRegistry) -> list[str]:
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#") and "_bucket" not in line]


@pytest.mark.looptime
async def test_output() -> None:
    """Counters and histograms have the names of OpenTelemetry, with underscores and the unit."""
    registry = CollectorRegistry()
    hook = PrometheusHook(registry)
    async with Scripted(job(), job("completed")) as server, server.session(hooks=[hook]) as session:
        await session.run_job("Fix it")
    hook(PollFailed(REF, TransportError("reset"), 1))
    found = lines(registry)
    assert 'agentjobs_polls_total{error_type=""} 1.0' in found
    assert 'agentjobs_polls_total{error_type="TransportError"} 1.0' in found
    assert 'agentjobs_create_duration_seconds_count{error_type="",outcome="created"} 1.0' in found
    assert 'agentjobs_wait_duration_seconds_count{outcome="completed"} 1.0' in found
    assert "agentjobs_wait_lateness_seconds_count 1.0" in found
    assert "agentjobs_poll_duration_seconds_count 2.0" in found


@pytest.mark.looptime
async def test_gauges() -> None:
    """Gauges show what a tracker does while it is observed and open."""

    async def get_job(ref: object) -> AgentJob:
        del ref
        answers.append(ACTIVE if not answers else DONE)
        found.append(lines(registry))
        return answers[-1]

    registry, found, answers = CollectorRegistry(), list[list[str]](), list[AgentJob]()
    hook = PrometheusHook(registry)
    with pytest.raises(InvalidInputError, match="observe takes"):
        hook.observe("a session")
    async with JobTracker(get_job, policy=every(3), hooks=[hook]) as tracker:
        hook.observe(tracker)
        await tracker.wait_for_job(REF)
        found.append(lines(registry))
    assert ["agentjobs_jobs_watched 1.0" in each for each in found] == [True, True, False]
    assert "agentjobs_jobs_due 0.0" in found[1]
    assert "agentjobs_jobs_watched 0.0" in found[2]
    assert "agentjobs_jobs_oldest_unobserved_seconds 0.0" in found[2]


async def test_items_of_a_batch(tmp_path: Path) -> None:
    """A running batch shows its items by state."""
    registry = CollectorRegistry()
    hook = PrometheusHook(registry)
    async with (
        Emulator(script=JobScript(duration=0.1)) as emulator,
        Journal.open(tmp_path / "run.db") as journal,
        emulator.session(project_id="docs", policy=every(0.05), hooks=[hook]) as session,
    ):
        async with run_batch(session, [BatchItem("one", "Fix it")], journal=journal) as batch:
            hook.observe(batch)
            assert [result.item.key async for result in batch] == ["one"]
            found = lines(registry)
    assert 'agentjobs_batch_items{state="completed"} 1.0' in found
    assert 'agentjobs_batch_items{state="waiting"} 0.0' in found
    assert {"agentjobs_items_planned 0.0", "agentjobs_items_unknown 0.0", "agentjobs_items_held 0.0"} <= set(found)


async def test_projects() -> None:
    """The project is a label only if asked for."""
    registry = CollectorRegistry()
    PrometheusHook(registry, projects=True)(PollFailed(REF, TransportError("reset"), 1))
    assert 'agentjobs_polls_total{error_type="TransportError",project="docs"} 1.0' in lines(registry)


def test_hooks_on_one_registry() -> None:
    """An application that is made twice counts on; metrics with other labels or of another origin are refused."""
    registry = CollectorRegistry()
    for hook in (PrometheusHook(registry), second := PrometheusHook(registry)):
        hook(PollFailed(REF, TransportError("reset"), 1))
    assert 'agentjobs_polls_total{error_type="TransportError"} 2.0' in lines(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusHook(registry, projects=True)
    for _ in range(2):
        second.unregister()
    assert lines(registry) == []
    other = Gauge("agentjobs_jobs_due", "Another's", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusHook(registry)
    assert lines(registry) == ["agentjobs_jobs_due 0.0"]
    registry.unregister(other)
    PrometheusHook(registry, projects=True)
