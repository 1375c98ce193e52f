"""Metrics for Prometheus, made from the events of sessions, trackers and batches. Extra `prometheus`."""

from collections.abc import Iterator
from typing import Any, Final

from agentjobs_async._extras import extra_named
from agentjobs_async.telemetry.events import Event
from agentjobs_async.telemetry.metrics import METRICS, Gauges, Kind, Metric, label_names, measurements

with extra_named("agentjobs_async.prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

__all__ = ["PrometheusHook"]

_UNITS: Final = {"s": "_seconds"}


class PrometheusHook:
    """A hook that counts and times jobs, creates, polls and waits in a Prometheus registry.

    The names are those of `OpenTelemetryHook`, with underscores and the unit: `agentjobs_create_duration_seconds`. One
    hook may serve any number of sessions, trackers and batches; a registry takes one hook only.

    Args:
        registry: Where the metrics are registered; `None` for the client library's default registry.
        projects: Whether metrics have a label for the project; gauges never do.

    Raises:
        ValueError: The registry has metrics of these names already: another hook's.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, projects: bool = False) -> None:
        registry = REGISTRY if registry is None else registry
        self._projects = projects
        self._collectors: dict[Metric, Any] = {
            metric: _registered(metric, registry, projects=projects)
            for metric in METRICS
            if metric.kind is not Kind.GAUGE
        }
        self._observed = Gauges()
        registry.register(_Gauges(self._observed))

    def observe(self, source: object) -> None:
        """Also export the statistics of a session, a tracker or a running batch, as of when they are read.

        Args:
            source: An `AgentJobsSession`, a `JobTracker`, or what `run_batch` returned. It is not kept alive.

        Raises:
            InvalidInputError: `source` is none of them.
        """
        self._observed.add(source)

    def __call__(self, event: Event, /) -> None:
        """Add `event` to the metrics."""
        for metric, value, labels in measurements(event, projects=self._projects):
            collector = self._collectors[metric].labels(*labels) if labels else self._collectors[metric]
            if metric.kind is Kind.COUNTER:
                collector.inc(value)
            else:
                collector.observe(value)


def _name(metric: Metric) -> str:
    return metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")


def _labels(metric: Metric, *, projects: bool = False) -> list[str]:
    return [label.replace(".", "_") for label in label_names(metric, projects=projects)]


def _registered(metric: Metric, registry: CollectorRegistry, *, projects: bool) -> Counter | Histogram:
    labels = _labels(metric, projects=projects)
    if metric.kind is Kind.COUNTER:
        return Counter(_name(metric), metric.description, labels, registry=registry)
    return Histogram(_name(metric), metric.description, labels, registry=registry, buckets=metric.buckets)


class _Gauges(Collector):
    """Yields the gauges when the registry is read, in whatever thread that happens."""

    def __init__(self, gauges: Gauges) -> None:
        self._observed = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all gauges with a value."""
        families: dict[Metric, GaugeMetricFamily] = {}
        for metric, value, labels in self._observed.measurements():
            family = families.setdefault(
                metric, GaugeMetricFamily(_name(metric), metric.description, labels=_labels(metric))
            )
            family.add_metric(labels, value)
        yield from families.values()
