from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agentjobs_async import AgentJobsError
from agentjobs_async.telemetry import Event
from agentjobs_async.telemetry.metrics import GAUGES, HISTOGRAMS, POLLS
from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page
from tests.test_docs import ROOT, table_below


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    """A registry in place of the process's, which takes the metrics of one hook only."""
    registry = CollectorRegistry()
    monkeypatch.setattr("agentjobs_async.prometheus.REGISTRY", registry)
    return registry


@pytest.fixture
def page(registry: CollectorRegistry, emulator: Emulator) -> dict[str, Any]:
    del registry, emulator  # what the samples run with
    return run_page("observability")


async def test_hook(page: dict[str, Any], emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of a hook prints one line per wait and per failed create."""
    await emulator.inject("400", prompt="Refuse me")
    async with page["session"] as session:
        await session.run_job("Measure me")
        with pytest.raises(AgentJobsError):
            await session.create_job("Refuse me", timeout=60)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("wait_seconds ")
    assert first.endswith(" completed")
    assert second == "create_failed docs rejected"


async def test_spans_and_metrics(page: dict[str, Any], registry: CollectorRegistry) -> None:
    """The samples of the two hooks count what their sessions do."""
    async with page["traced"] as traced, page["measured"] as measured:
        await traced.run_job("Trace me")
        await measured.run_job("Measure me")
    assert 'agentjobs_wait_duration_seconds_count{outcome="completed"} 1.0' in generate_latest(registry).decode()


def test_tables_of_metrics() -> None:
    """The table names every metric with its unit and its labels."""
    rows = table_below(ROOT / "docs" / "observability.md", "Metrics")
    named = {
        (name.strip("` "), unit.strip(), labels.replace("`", "").strip())
        for names, unit, labels, _ in rows
        for name in names.split(",")
    }
    metrics = (*HISTOGRAMS, POLLS, *GAUGES)
    assert named == {(metric.name, "s" if metric.unit == "s" else "", ", ".join(metric.labels)) for metric in metrics}


def test_events() -> None:
    """The table names every event."""
    rows = table_below(ROOT / "docs" / "observability.md", "Events")
    named = {name.strip("` ") for row in rows for name in row[0].split(",")}
    assert named == {kind.__name__ for kind in Event.__args__}
